//! pcapng: a sequence of blocks, grouped in sections. Each section has its own byte order and interfaces
//! (draft-ietf-opsawg-pcapng).
//!
//! ```text
//! 0 type   4 length n   8 body (n - 12 bytes, padded to 4)   n - 4 length again
//! ```

use super::buffer::RECORD_BYTES_MAX;
use super::record::{ByteOrder, Packet, Record};
use super::{CAPTURED_BYTES_MAX, CaptureFault, Interface, Resolution};

/// Maximum number of interfaces of a capture, over all sections.
const INTERFACES_MAX: usize = 65536;

/// Maximum length of a stored interface name.
const NAME_BYTES_MAX: usize = 255;

/// Block types.
pub(super) mod block {
    /// Section header. The number is a palindrome, which reads the same in either byte order.
    pub const SECTION: u32 = 0x0a0d_0d0a;
    /// Interface description.
    pub const INTERFACE: u32 = 1;
    /// Packet block, obsolete.
    pub const OLD_PACKET: u32 = 2;
    /// Simple packet.
    pub const SIMPLE_PACKET: u32 = 3;
    /// Enhanced packet.
    pub const ENHANCED_PACKET: u32 = 6;
}

/// Options of sections and interface descriptions.
pub(super) mod option {
    /// End of options.
    pub const END: u16 = 0;
    /// `opt_comment`
    pub const COMMENT: u16 = 1;
    /// `if_name`.
    pub const NAME: u16 = 2;
    /// `if_tsresol`.
    pub const RESOLUTION: u16 = 9;
    /// `if_fcslen`.
    pub const FCS_LENGTH: u16 = 13;
    /// `if_tsoffset`.
    pub const OFFSET: u16 = 14;
}

/// The longest comment that is written: a record must fit the window of readers.
pub const COMMENT_BYTES_MAX: usize = 16 * 1024;

/// Byte-order magic of a section header.
pub(super) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Size of the type and length fields of a block.
const FRAME_BYTES: usize = 12;

/// The state of a pcapng stream.
#[derive(Debug)]
pub(super) struct Pcapng {
    order: ByteOrder,
    /// Index of the section's first interface among the interfaces of all sections.
    section_base: usize,
}

impl Pcapng {
    pub(super) fn new() -> Self {
        Pcapng { order: ByteOrder::Little, section_base: 0 }
    }

    /// Parses the block at the start of `rest`. Adds new interfaces to `interfaces`.
    #[inline]
    pub(super) fn record(&mut self, rest: &[u8], interfaces: &mut Vec<Interface>) -> Result<Record, CaptureFault> {
        let Some(header) = rest.first_chunk::<8>() else {
            return Ok(Record::Incomplete("a block header"));
        };
        match self.order.u32(header, 0) {
            block::ENHANCED_PACKET => self.packet(rest, "an enhanced packet block", 20, interfaces, enhanced_packet),
            block::SECTION => self.section(rest, interfaces.len()),
            block::INTERFACE => self.description(rest, interfaces),
            block::SIMPLE_PACKET => self.packet(rest, "a simple packet block", 4, interfaces, simple_packet),
            block::OLD_PACKET => self.packet(rest, "a packet block", 20, interfaces, old_packet),
            _ => {
                let bytes = self.block_bytes(header, "an unknown block", 0)?;
                Ok(Record::Other { bytes: u64::from(bytes) })
            }
        }
    }

    /// The length field of a block whose body has at least `body` bytes.
    fn block_bytes(&self, header: &[u8; 8], what: &'static str, body: usize) -> Result<u32, CaptureFault> {
        let bytes = self.order.u32(header, 4);
        if !bytes.is_multiple_of(4) || (bytes as usize) < FRAME_BYTES + body {
            return Err(CaptureFault::BlockLength { what, bytes });
        }
        Ok(bytes)
    }

    /// The body of the block at the start of `rest`, or `None` if the window ends inside the block.
    #[inline]
    fn body<'a>(&self, rest: &'a [u8], what: &'static str, body: usize) -> Result<Option<&'a [u8]>, CaptureFault> {
        let Some(header) = rest.first_chunk::<8>() else {
            return Ok(None);
        };
        let bytes = self.block_bytes(header, what, body)?;
        if bytes as usize > RECORD_BYTES_MAX {
            return Err(CaptureFault::BlockTooLong { what, bytes, limit: RECORD_BYTES_MAX });
        }
        let Some(block) = rest.get(..bytes as usize) else {
            return Ok(None);
        };
        if self.order.u32(block, block.len() - 4) != bytes {
            return Err(CaptureFault::BlockLength { what, bytes });
        }
        Ok(Some(&block[8..block.len() - 4]))
    }

    /// Starts a section: its byte order applies from here on, and interfaces are numbered anew.
    fn section(&mut self, rest: &[u8], interfaces: usize) -> Result<Record, CaptureFault> {
        const WHAT: &str = "a section header";
        let Some(head) = rest.first_chunk::<16>() else {
            return Ok(Record::Incomplete(WHAT));
        };
        self.order = match ByteOrder::Little.u32(head, 8) {
            BYTE_ORDER_MAGIC => ByteOrder::Little,
            magic if magic.swap_bytes() == BYTE_ORDER_MAGIC => ByteOrder::Big,
            magic => return Err(CaptureFault::ByteOrder(magic)),
        };
        let Some(body) = self.body(rest, WHAT, 16)? else {
            return Ok(Record::Incomplete(WHAT));
        };
        let (major, minor) = (self.order.u16(body, 4), self.order.u16(body, 6));
        if major != 1 {
            return Err(CaptureFault::SectionVersion(major, minor));
        }
        self.section_base = interfaces;
        Ok(Record::Other { bytes: (body.len() + FRAME_BYTES) as u64 })
    }

    fn description(&self, rest: &[u8], interfaces: &mut Vec<Interface>) -> Result<Record, CaptureFault> {
        const WHAT: &str = "an interface description";
        let Some(body) = self.body(rest, WHAT, 8)? else {
            return Ok(Record::Incomplete(WHAT));
        };
        if interfaces.len() == INTERFACES_MAX {
            return Err(CaptureFault::TooManyInterfaces(INTERFACES_MAX));
        }
        let mut interface = Interface {
            link_type: self.order.u16(body, 0),
            snap_bytes: self.order.u32(body, 4),
            resolution: Resolution::MICROSECONDS,
            offset_s: 0,
            fcs_bytes: 0,
            name: None,
        };
        self.options(&body[8..], &mut interface);
        interfaces.push(interface);
        Ok(Record::Other { bytes: (body.len() + FRAME_BYTES) as u64 })
    }

    /// Stores the relevant options. If the list is truncated, its beginning is used.
    fn options(&self, mut options: &[u8], interface: &mut Interface) {
        while options.len() >= 4 {
            let (code, bytes) = (self.order.u16(options, 0), usize::from(self.order.u16(options, 2)));
            let Some(value) = options.get(4..4 + bytes) else {
                return;
            };
            match code {
                option::END => return,
                option::NAME if bytes <= NAME_BYTES_MAX => interface.name = Some(value.to_vec()),
                option::RESOLUTION if bytes == 1 => interface.resolution = Resolution::from_option(value[0]),
                option::FCS_LENGTH if bytes == 1 => interface.fcs_bytes = value[0],
                option::OFFSET if bytes == 8 => interface.offset_s = self.order.u64(value, 0) as i64,
                _ => {}
            }
            options = options.get(4 + bytes.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }

    /// A packet in any of the three forms. `read` parses its fields from a body of at least `fixed` bytes.
    #[inline]
    fn packet(
        &self,
        rest: &[u8],
        what: &'static str,
        fixed: usize,
        interfaces: &[Interface],
        read: impl Fn(ByteOrder, &[u8], &[Interface]) -> Fields,
    ) -> Result<Record, CaptureFault> {
        let Some(body) = self.body(rest, what, fixed)? else {
            return Ok(Record::Incomplete(what));
        };
        let described = &interfaces[self.section_base..];
        let fields = read(self.order, body, described);
        let Some(interface) = described.get(fields.interface as usize) else {
            return Err(CaptureFault::NoInterface { interface: fields.interface, described: described.len() });
        };
        if fields.cap > CAPTURED_BYTES_MAX {
            return Err(CaptureFault::TooLong(fields.cap));
        }
        if body.len() < fixed + fields.cap as usize {
            return Err(CaptureFault::BlockLength { what, bytes: (body.len() + FRAME_BYTES) as u32 });
        }
        Ok(Record::Packet(Packet {
            data: 8 + fixed,
            cap: fields.cap,
            len: fields.len,
            stamp_ns: fields.stamp.map(|stamp| interface.to_ns(stamp)),
            interface: self.section_base as u32 + fields.interface,
            bytes: body.len() + FRAME_BYTES,
        }))
    }
}

/// The fields that the three packet blocks share.
struct Fields {
    /// Number of the interface within the section.
    interface: u32,
    /// In the unit of the interface; `None` in a simple packet block.
    stamp: Option<u64>,
    cap: u32,
    len: u32,
}

fn stamp(order: ByteOrder, body: &[u8]) -> Option<u64> {
    Some(u64::from(order.u32(body, 4)) << 32 | u64::from(order.u32(body, 8)))
}

#[inline]
fn enhanced_packet(order: ByteOrder, body: &[u8], _: &[Interface]) -> Fields {
    let (cap, len) = (order.u32(body, 12), order.u32(body, 16));
    Fields { interface: order.u32(body, 0), stamp: stamp(order, body), cap, len }
}

fn old_packet(order: ByteOrder, body: &[u8], _: &[Interface]) -> Fields {
    let (cap, len) = (order.u32(body, 12), order.u32(body, 16));
    Fields { interface: u32::from(order.u16(body, 0)), stamp: stamp(order, body), cap, len }
}

/// A simple packet block belongs to the first interface and has only the length on the wire.
fn simple_packet(order: ByteOrder, body: &[u8], described: &[Interface]) -> Fields {
    let len = order.u32(body, 0);
    let snap = described.first().map_or(0, |interface| interface.snap_bytes);
    let cap = if snap == 0 { len } else { len.min(snap) };
    Fields { interface: 0, stamp: None, cap: cap.min((body.len() - 4) as u32), len }
}
