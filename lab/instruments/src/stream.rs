//! Runs a chain on a sequence of packets with different sources in one system call, like a driver's receive loop.
//!
//! The object must be compiled with `lab/instruments/c/stream.h` after the policy's own code, which defines a program
//! `weir_<chain>_stream` for each chain ([`HEADERS`](crate::sources::HEADERS)).

use weir_engine::{EngineError, FrameBurst, XdpFilter};

use crate::quiet::Stretches;
use crate::sources::{SOURCES_MAX, STREAM_PACKETS, Sources, fill};

/// Decides frame `index` of `burst` once from each of `sources`. The frame must be Ethernet without VLAN tags, with a
/// packet of their family. Returns the kernel's average time of a packet in ns, of runs of some hundred packets each without
/// a system call in between. Runs on a shared core do not count ([`crate::quiet`]). Every packet is counted.
///
/// # Errors
/// The object has no such program, or the kernel refuses to run it.
///
/// # Panics
/// If there is no such chain or frame, no sources, or more than [`SOURCES_MAX`].
pub fn decide<'a>(
    filter: &mut XdpFilter,
    chain: usize,
    burst: &FrameBurst<'_>,
    index: usize,
    sources: impl Into<Sources<'a>>,
) -> Result<f64, EngineError> {
    let sources = sources.into();
    let mut stretches = Stretches::begin(sources.len());
    decide_in(&mut stretches, filter, chain, burst, index, sources)?;
    Ok(stretches.cost_per_packet())
}

/// Like [`decide`], as a part of a measurement in ns.
///
/// # Errors
/// As for [`decide`].
///
/// # Panics
/// As [`decide`].
pub fn decide_in(
    stretches: &mut Stretches,
    filter: &mut XdpFilter,
    chain: usize,
    burst: &FrameBurst<'_>,
    index: usize,
    sources: Sources<'_>,
) -> Result<(), EngineError> {
    assert!((1..=SOURCES_MAX).contains(&sources.len()), "1 to {SOURCES_MAX} sources");
    fill(filter.object(), sources)?;
    let name = format!("weir_{}_stream", filter.verifier_costs()[chain].chain);
    for from in (0..sources.len()).step_by(STREAM_PACKETS) {
        let took = filter.time_program(&name, burst, index, 1)?;
        stretches.end(took.as_nanos() as f64, STREAM_PACKETS.min(sources.len() - from));
    }
    Ok(())
}
