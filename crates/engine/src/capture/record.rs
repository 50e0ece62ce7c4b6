//! Records of a capture, independent of its format.

/// Byte order of a file's fields.
#[derive(Clone, Copy, Debug)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    #[inline]
    pub(super) fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let field = *bytes[at..].first_chunk().expect("the caller has checked the length");
        match self {
            ByteOrder::Little => u16::from_le_bytes(field),
            ByteOrder::Big => u16::from_be_bytes(field),
        }
    }

    #[inline]
    pub(super) fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let field = *bytes[at..].first_chunk().expect("the caller has checked the length");
        match self {
            ByteOrder::Little => u32::from_le_bytes(field),
            ByteOrder::Big => u32::from_be_bytes(field),
        }
    }

    pub(super) fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let field = *bytes[at..].first_chunk().expect("the caller has checked the length");
        match self {
            ByteOrder::Little => u64::from_le_bytes(field),
            ByteOrder::Big => u64::from_be_bytes(field),
        }
    }
}

/// The record at the start of the read window.
pub(super) enum Record {
    /// A packet.
    Packet(Packet),
    /// A record without a packet, which is skipped.
    Other {
        /// Its total length, which may exceed the window.
        bytes: u64,
    },
    /// An incomplete record: the window must be refilled. The text names the truncated part for the case that the file
    /// ends here.
    Incomplete(&'static str),
}

/// The record of a packet.
pub(super) struct Packet {
    /// Offset of the captured bytes in the record.
    pub(super) data: usize,
    pub(super) cap: u32,
    /// Length on the wire as in the file. It may be less than `cap`.
    pub(super) len: u32,
    /// Time in ns since 1970; `None` if the record has no time.
    pub(super) stamp_ns: Option<u64>,
    /// Index of the interface, counted over all sections.
    pub(super) interface: u32,
    /// Length of the whole record.
    pub(super) bytes: usize,
}
