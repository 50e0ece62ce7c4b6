//! The engine `dpdk`, if this Weir was built with it.

use crate::cli::{LiveEngine, RunOptions};
use crate::failure::Failure;
use weir_engine::live::{Interfaces, Lane};

/// Refuses the engine where it was not built in, and its option where it is not asked for.
pub(super) fn refuse_misfits(options: &RunOptions) -> Result<(), Failure> {
    let problem = match options.engine {
        LiveEngine::Dpdk if !cfg!(feature = "dpdk") => {
            "this weir was built without DPDK: install libdpdk-dev and build it with `cargo build --release --features dpdk`"
        }
        LiveEngine::Dpdk => return Ok(()),
        _ if options.eal.is_some() => "--eal is for --engine dpdk",
        _ => return Ok(()),
    };
    Err(Failure::Rejected(format!("weir: {problem}")))
}

/// Starts DPDK; a lane for each worker.
#[cfg(feature = "dpdk")]
pub(super) fn lanes(options: &RunOptions, interfaces: &Interfaces) -> Result<Vec<Box<dyn Lane>>, Failure> {
    use weir_engine::live::dpdk::{DpdkLane, Eal};

    let eal = Eal::start(options.eal.as_deref().unwrap_or_default())?;
    Ok(super::boxed(DpdkLane::open(&eal, interfaces, options.workers)?))
}

/// Never called: [`refuse_misfits`] comes before.
#[cfg(not(feature = "dpdk"))]
pub(super) fn lanes(options: &RunOptions, _: &Interfaces) -> Result<Vec<Box<dyn Lane>>, Failure> {
    refuse_misfits(options).map(|()| Vec::new())
}
