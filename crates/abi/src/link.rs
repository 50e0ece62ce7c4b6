//! The link layer that a capture or interface declares, which determines how a frame starts.

/// Link layer of a frame. All frames of one [`crate::Burst`] share it.
///
/// The values are Weir's own (`enum link` in `datapath/core/fields.h`) and not LINKTYPE numbers, because several
/// LINKTYPEs share a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Link {
    /// Ethernet II or 802.3, 14 bytes, EtherType at byte 12 (LINKTYPE 1).
    Ethernet = 0,
    /// No link header: the first nibble is the IP version (LINKTYPE 12, 14, 101, 228, 229).
    RawIp = 1,
    /// Linux cooked capture v1, 16 bytes, protocol at byte 14 (LINKTYPE 113).
    Cooked = 2,
    /// Linux cooked capture v2, 20 bytes, protocol at byte 0 (LINKTYPE 276).
    Cooked2 = 3,
}
