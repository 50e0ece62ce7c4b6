//! The interfaces of a running Weir: which they are, who may use them, and what becomes of them when it ends.

pub mod claim;
pub mod descriptors;
pub mod dpdk;
pub mod guard;
pub mod own_connection;
pub mod states;

use crate::options::RunOptions;
use claim::{ClaimTarget, PortKind};
use guard::Guard;
use std::collections::HashSet;
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_engine::live::Interfaces;
use weir_engine::live::engines::LiveEngine;
use weir_policy::ir::OnExit;

/// Refuses interfaces and options that do not fit the engine.
///
/// # Errors
/// The reason.
pub fn check(options: &RunOptions) -> Result<(), Failure> {
    refuse_repeats(options)?;
    dpdk::check_options(options)?;
    let only = |given: bool, option: &str, engine: LiveEngine, why: &str| match given && options.engine != engine {
        true => Err(Failure::Rejected(format!("weir: {option} is only for the engine {}{why}", engine.name()))),
        false => Ok(()),
    };
    only(options.busy_poll, "--busy-poll", LiveEngine::Afxdp, "")?;
    only(options.controller.controller().is_some(), "--p4-controller", LiveEngine::P4, "")?;
    only(!options.host.is_empty(), "--host", LiveEngine::Xdp, "")?;
    let why = "; other engines need no reserved room";
    only(options.limits_room.is_some(), "--limits-room", LiveEngine::Xdp, why)
}

/// The claimed interfaces: the given ones, and kernel interfaces of virtual DPDK ports.
///
/// # Errors
/// There is no such interface, or it would be used twice.
pub fn claim_targets(options: &RunOptions) -> Result<Vec<ClaimTarget>, Failure> {
    let behind = dpdk::kernel_interfaces(options)?;
    let ports = if options.engine.uses_dpdk() { PortKind::Dpdk } else { PortKind::Kernel };
    ClaimTarget::of(options.lower.iter().chain(&options.upper).chain(&options.host).chain(&behind), ports)
}

/// The interfaces of the datapath.
pub fn interfaces(options: &RunOptions) -> Interfaces {
    Interfaces { lower: options.lower.clone(), upper: options.upper.clone(), divert: options.divert.clone() }
}

/// What ensures `on-exit`.
///
/// # Errors
/// It cannot be started, or `--confirm` needs what it cannot do.
pub fn guard(
    options: &RunOptions,
    interfaces: &Interfaces,
    targets: &[ClaimTarget],
    on_exit: OnExit,
) -> Result<Arc<Guard>, Failure> {
    let guard = match options.host.as_slice() {
        [] => Guard::of_link(interfaces.clone(), targets.to_vec(), on_exit)?,
        host => Guard::of_host(host),
    };
    if options.confirm.is_some()
        && let Some(problem) = guard.cannot_forward()
    {
        let why = "there would be no way back, since nothing can pass here without weir";
        return Err(Failure::Rejected(format!("weir: --confirm: {why}: {problem}")));
    }
    Ok(Arc::new(guard))
}

/// Refuses repeated interfaces, on which packets would loop for ever.
fn refuse_repeats(options: &RunOptions) -> Result<(), Failure> {
    let mut known = HashSet::new();
    let mut interfaces = options.lower.iter().chain(&options.upper).chain(&options.divert).chain(&options.host);
    match interfaces.find(|name| !known.insert(name.as_str())) {
        Some(repeated) => Err(Failure::Rejected(format!("weir: the interface {repeated} is given twice"))),
        None => Ok(()),
    }
}
