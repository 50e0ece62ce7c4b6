//! Errors in captures.

use super::CAPTURED_BYTES_MAX;

/// Why a record of a capture cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureFault {
    /// The file is empty.
    #[error("the file is empty")]
    Empty,
    /// An unknown magic number.
    #[error("neither pcap nor pcapng (starts with {0:08x})")]
    NotACapture(u32),
    /// A compressed file.
    #[error("compressed with {0}: decompress it first")]
    Compressed(&'static str),
    /// An unsupported version of pcap.
    #[error("pcap version {0}.{1} is not supported, only 2.x is")]
    Version(u16, u16),
    /// An unsupported version of pcapng.
    #[error("pcapng version {0}.{1} is not supported, only 1.x is")]
    SectionVersion(u16, u16),
    /// A pcap variant with other record headers.
    #[error("pcap variant {0} is not supported, convert it with `editcap -F pcap`")]
    Variant(&'static str),
    /// The file ends inside a record.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// A captured length above the maximum.
    #[error("captured length {0} is over the limit of {CAPTURED_BYTES_MAX} bytes")]
    TooLong(u32),
    /// Two lengths that contradict each other, or an impossible one.
    #[error("{what} of {bytes} bytes has a wrong length")]
    BlockLength {
        /// Kind of block.
        what: &'static str,
        /// Its length field.
        bytes: u32,
    },
    /// A block that must be buffered whole is larger than the buffer.
    #[error("{what} of {bytes} bytes is over the limit of {limit} bytes")]
    BlockTooLong {
        /// Kind of block.
        what: &'static str,
        /// Its length field.
        bytes: u32,
        /// The limit.
        limit: usize,
    },
    /// A section header with a wrong byte-order magic.
    #[error("section header with byte order magic {0:08x}")]
    ByteOrder(u32),
    /// A packet of an interface without a description.
    #[error("the packet's interface {interface} is not described, the section has {described}")]
    NoInterface {
        /// The number in the packet's block.
        interface: u32,
        /// Number of interfaces described so far in the section.
        described: usize,
    },
    /// Too many interfaces.
    #[error("more than {0} interfaces")]
    TooManyInterfaces(usize),
    /// No packet has a link type that is read.
    #[error("link type {number} ({name}) is not read; docs/reference/captures.md lists those that are")]
    LinkType {
        /// LINKTYPE number.
        number: u16,
        /// LINKTYPE name.
        name: &'static str,
    },
}
