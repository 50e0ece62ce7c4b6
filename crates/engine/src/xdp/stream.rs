//! Runs a chain on a sequence of packets with different sources in one system call, like a driver's receive loop.
//!
//! This is for measurements. The object must be compiled with datapath/measure/stream.h after the policy's own code,
//! which defines a program `weir_<chain>_stream` for each chain.

use std::mem::offset_of;

use libbpf_rs::Object;
use weir_abi::kernel::{STREAM_PACKETS, STREAM_SOURCES_MAX, Stream};

use super::load::map;
use super::{XdpFilter, failed, find};
use crate::quiet::Stretches;
use crate::{EngineError, FrameBurst};

/// Maximum number of sources of a stream.
pub const SOURCES_MAX: usize = STREAM_SOURCES_MAX;

/// The section of `struct stream`.
const SECTION: &str = ".bss.stream";

impl XdpFilter {
    /// Decides frame `index` of `burst` once from each of `sources` (host byte order). The frame must be Ethernet and
    /// IPv4 without VLAN tags. Returns the kernel's average time of a packet in ns, of runs of some hundred packets
    /// each without a system call in between. Runs on a shared core do not count ([`crate::quiet`]). Every packet is
    /// counted.
    ///
    /// # Errors
    /// The object has no such program, or the kernel refuses to run it.
    ///
    /// # Panics
    /// If there is no such chain or frame, no sources, or more than [`SOURCES_MAX`].
    pub fn stream(
        &mut self,
        chain: usize,
        burst: &FrameBurst<'_>,
        index: usize,
        sources: &[u32],
    ) -> Result<f64, EngineError> {
        let mut stretches = Stretches::begin(sources.len());
        self.stream_in(&mut stretches, chain, burst, index, sources)?;
        Ok(stretches.cost_per_packet())
    }

    /// Like [`XdpFilter::stream`], as a part of a measurement in ns.
    ///
    /// # Errors
    /// As for [`XdpFilter::stream`].
    ///
    /// # Panics
    /// As [`XdpFilter::stream`].
    pub fn stream_in(
        &mut self,
        stretches: &mut Stretches,
        chain: usize,
        burst: &FrameBurst<'_>,
        index: usize,
        sources: &[u32],
    ) -> Result<(), EngineError> {
        assert!((1..=SOURCES_MAX).contains(&sources.len()), "1 to {SOURCES_MAX} sources");
        fill(&self.object, sources)?;
        let name = format!("weir_{}_stream", self.costs[chain].chain);
        let program = find(&self.object, &name)?;
        for run in sources.chunks(STREAM_PACKETS) {
            let ran = self.replay.run(&program, burst, index, 1).map_err(|problem| failed(&name, problem))?;
            stretches.end(ran.took.as_nanos() as f64, run.len());
        }
        Ok(())
    }
}

/// Writes the sources (host byte order) of the object's packets and resets the position to the first. No program of the
/// object may run meanwhile.
///
/// # Panics
/// If there are more than [`SOURCES_MAX`].
pub(super) fn fill(object: &Object, sources: &[u32]) -> Result<(), EngineError> {
    assert!(sources.len() <= SOURCES_MAX, "at most {SOURCES_MAX} sources");
    let stream = map(object, SECTION, size_of::<Stream>())?;
    let network: Vec<u32> = sources.iter().map(|source| source.to_be()).collect();
    // SAFETY: the mapping has room for the first words and all sources (checked by `map` and above), and is aligned to
    // a page. Programs write it too, but they run only in calls by the owner of the object, who is the caller.
    unsafe {
        stream.as_mut_ptr().add(offset_of!(Stream, next)).cast::<u32>().write_volatile(0);
        stream.as_mut_ptr().add(offset_of!(Stream, count)).cast::<u32>().write_volatile(network.len() as u32);
        let to = stream.as_mut_ptr().add(offset_of!(Stream, sources)).cast::<u32>();
        to.copy_from_nonoverlapping(network.as_ptr(), network.len());
    }
    Ok(())
}
