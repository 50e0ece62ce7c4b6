//! Records of a capture, whichever its form.

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

/// What stands at the start of the window.
pub(super) enum Record {
    /// A packet.
    Packet(Packet),
    /// Something else, to be passed over.
    Other {
        /// Its whole length; it may reach beyond the window.
        bytes: u64,
    },
    /// Nothing whole: the window must move on. Says what is cut short if there is no more.
    Incomplete(&'static str),
}

/// A packet's record.
pub(super) struct Packet {
    /// Where the captured bytes start in the record.
    pub(super) data: usize,
    pub(super) cap: u32,
    /// As written; may be less than `cap`.
    pub(super) len: u32,
    /// `None` if the record has no time.
    pub(super) stamp_ns: Option<u64>,
    /// Index among the interfaces of all sections.
    pub(super) interface: u32,
    /// The whole record.
    pub(super) bytes: usize,
}
