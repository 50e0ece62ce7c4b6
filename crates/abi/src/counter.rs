//! Packets and bytes counted for one reason or rule.

/// One counter. A worker owns an array of them, indexed by [`crate::Reason`], and is the only one to write it.
///
/// A rule's counter counts the packets that matched it, whether it decided them or not. Bytes are those on the wire,
/// link header included, frame check sequence not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counter {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

const _: () = assert!(size_of::<Counter>() == 16);
