//! What a replayed program leaves in place of packets.

use libbpf_rs::Object;
use memmap2::MmapRaw;
use weir_abi::{Rewrite, Verdict};

use crate::xdp::load::{REWRITES, map};
use crate::{EngineError, FrameBurst};

/// The packets of the last burst that were changed.
pub(super) struct Rewritten {
    /// The program's memory for one packet.
    memory: MmapRaw,
    /// By index in the burst, in order, with their lengths on the wire.
    packets: Vec<(usize, Vec<u8>, u32)>,
}

impl Rewritten {
    /// The changed packets of an object whose programs change packets.
    pub(super) fn of(object: &Object) -> Result<Self, EngineError> {
        Ok(Rewritten { memory: map(object, REWRITES, size_of::<Rewrite>())?, packets: Vec::new() })
    }

    /// Before a burst.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    /// After a packet of the burst: takes what leaves in its place.
    pub(super) fn take(&mut self, burst: &FrameBurst<'_>, index: usize, verdict: Verdict) {
        if !verdict.rewritten() {
            return;
        }
        // SAFETY: the mapping has room for one, starts at a page, and any bytes are a valid value. Only the program
        // writes it, which does not run now. The read is volatile because the compiler cannot see those writes.
        let rewrite = unsafe { self.memory.as_ptr().cast::<Rewrite>().read_volatile() };
        self.packets.push((index, rewrite.packet(burst.bytes(index)), rewrite.len));
    }

    pub(super) fn each(&self, visit: &mut dyn FnMut(usize, &[u8], u32)) {
        self.packets.iter().for_each(|(index, bytes, wire_len)| visit(*index, bytes, *wire_len));
    }
}
