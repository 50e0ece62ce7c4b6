//! pcap: a 24-byte file header, then records of a 16-byte header and a packet (draft-ietf-opsawg-pcap).

use super::interface::NS_PER_S;
use super::record::{ByteOrder, Packet, Record};
use super::{CAPTURED_BYTES_MAX, CaptureFault, Interface, Resolution};

/// Size of the file header.
pub(super) const FILE_HEADER_BYTES: usize = 24;
/// Size of a record's header.
pub(super) const RECORD_HEADER_BYTES: usize = 16;
/// Magic number of a file with microseconds.
pub(super) const MAGIC_US: u32 = 0xa1b2_c3d4;
/// Magic number of a file with nanoseconds.
pub(super) const MAGIC_NS: u32 = 0xa1b2_3c4d;
/// Magic numbers of variants whose records have longer headers.
const VARIANTS: [(u32, &str); 2] = [(0xa1b2_cd34, "Kuznetzov's"), (0xa1e2_cb12, "Navtel's")];

/// Bit 26: the length of check sequences is known.
const FCS_IS_KNOWN: u32 = 1 << 26;

/// The last field of a file header: the link type, and the length of check sequences in units of 16 bits.
pub(super) fn link_field(link_type: u16, fcs_bytes: u8) -> u32 {
    match fcs_bytes {
        0 => link_type.into(),
        bytes => u32::from(bytes / 2) << 28 | FCS_IS_KNOWN | u32::from(link_type),
    }
}

/// Byte order and resolution of a file's records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pcap {
    order: ByteOrder,
    ns_per_unit: u32,
}

impl Pcap {
    /// Byte order and resolution by the magic number; `None` if the file is not pcap.
    pub(super) fn detect(magic: [u8; 4]) -> Result<Option<Self>, CaptureFault> {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let magic = order.u32(&magic, 0);
            if let Some(&(_, variant)) = VARIANTS.iter().find(|(number, _)| *number == magic) {
                return Err(CaptureFault::Variant(variant));
            }
            match magic {
                MAGIC_US => return Ok(Some(Pcap { order, ns_per_unit: 1000 })),
                MAGIC_NS => return Ok(Some(Pcap { order, ns_per_unit: 1 })),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Parses the file header.
    pub(super) fn interface(&self, header: &[u8]) -> Result<Interface, CaptureFault> {
        if header.len() < FILE_HEADER_BYTES {
            return Err(CaptureFault::Truncated("the file header"));
        }
        let (major, minor) = (self.order.u16(header, 4), self.order.u16(header, 6));
        if major != 2 {
            return Err(CaptureFault::Version(major, minor));
        }
        // See `link_field`.
        let field = self.order.u32(header, 20);
        let link_type = (field & 0xffff) as u16;
        let fcs_bytes = if field & FCS_IS_KNOWN == 0 { 0 } else { 2 * (field >> 28) as u8 };
        let resolution = if self.ns_per_unit == 1 { Resolution::NANOSECONDS } else { Resolution::MICROSECONDS };
        Ok(Interface {
            link_type,
            snap_bytes: self.order.u32(header, 16),
            resolution,
            offset_s: 0,
            fcs_bytes,
            name: None,
        })
    }

    /// Parses the record at the start of `rest`.
    #[inline]
    pub(super) fn record(&self, rest: &[u8]) -> Result<Record, CaptureFault> {
        let Some(header) = rest.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Record::Incomplete("a packet header"));
        };
        let (cap, len) = (self.order.u32(header, 8), self.order.u32(header, 12));
        if cap > CAPTURED_BYTES_MAX {
            return Err(CaptureFault::TooLong(cap));
        }
        let bytes = RECORD_HEADER_BYTES + cap as usize;
        if rest.len() < bytes {
            return Ok(Record::Incomplete("a packet"));
        }
        let seconds = u64::from(self.order.u32(header, 0));
        let fraction = u64::from(self.order.u32(header, 4)) * u64::from(self.ns_per_unit);
        let stamp_ns = Some(seconds * NS_PER_S + fraction);
        Ok(Record::Packet(Packet { data: RECORD_HEADER_BYTES, cap, len, stamp_ns, interface: 0, bytes }))
    }
}
