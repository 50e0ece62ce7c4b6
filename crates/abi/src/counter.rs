//! Packets and bytes counted for one reason or rule.

/// One counter. A worker owns an array of them, indexed by [`crate::Reason`], and is the only one to write it.
///
/// The counter of a rule counts the packets that matched it, whether or not the rule decided them. Bytes are counted as
/// on the wire, with the link header and without the frame check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

const _: () = assert!(size_of::<Counter>() == 16);
