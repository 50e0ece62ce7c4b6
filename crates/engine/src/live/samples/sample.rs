//! A sampled packet, as mitigation reads it.

use crate::live::lane::Side;

/// A sample: the beginning of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// At most the first [`weir_abi::kernel::SAMPLE_BYTES`] bytes.
    pub bytes: &'a [u8],
    /// The length of the packet.
    pub wire_len: u32,
    /// The side on which it arrived, so it says which chain has decided it. No packet can say this of itself.
    pub from: Side,
}
