//! The reference parser, written for comparison with the RFCs.
//!
//! `datapath/core/packet.h` is the fast parser and must agree with this one. Reads are checked against the captured
//! bytes and the window, header lengths against the length on the wire.

use weir_abi::packet::{Fragment, L3, L4, ext};
use weir_abi::{Link, Reason, WINDOW_BYTES};

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The captured bytes.
    pub bytes: &'a [u8],
    /// Length on the wire, bytes; at least the captured length.
    pub wire_len: u32,
    /// The type of the link header.
    pub link: Link,
    /// Time of receipt, ns, for limits. If time goes backwards, a frame counts as received at the time of the previous
    /// one.
    pub time_ns: u64,
}

/// A parsed packet. Fields that the packet does not have are 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Packet {
    pub wire_len: u32,
    pub l3_offset: usize,
    pub l4_offset: usize,
    pub l4_length: u16,
    pub ether_type: u16,
    pub vlan: Vec<u16>,
    pub l3: L3,
    pub l4: L4,
    pub proto: u8,
    pub next_header: u8,
    pub fragment: Fragment,
    pub frag_off: u16,
    pub saddr: u128,
    pub daddr: u128,
    pub ip_length: u16,
    pub ip_id: u16,
    pub hdrlength: u8,
    pub ttl: u8,
    pub tos: u8,
    pub ip_options: bool,
    pub ext: u8,
    pub sport: u16,
    pub dport: u16,
    pub seq: u32,
    pub ack: u32,
    pub doff: u8,
    pub tcp_flags: u8,
    pub window: u16,
    pub udp_length: u16,
    pub icmp_type: u8,
    pub icmp_code: u8,
}

/// The flags of TCP that have a meaning for connections (RFC 9293, section 3.1): bits of [`Packet::tcp_flags`].
pub(super) mod tcp_flag {
    pub(in crate::ir::eval) const FIN: u8 = 1;
    pub(in crate::ir::eval) const SYN: u8 = 2;
    pub(in crate::ir::eval) const RST: u8 = 4;
    pub(in crate::ir::eval) const ACK: u8 = 16;
    pub(in crate::ir::eval) const URG: u8 = 32;
}

/// Most VLAN tags that are parsed.
const VLAN_TAGS_MAX: usize = 2;
/// Most IPv6 extension headers that are parsed.
const EXT_HEADERS_MAX: usize = 8;

/// Parses a frame. The reason is present if the frame is malformed.
pub fn parse(frame: Frame<'_>) -> (Packet, Option<Reason>) {
    let mut parser = Parser::new(frame);
    let reason = parser.link(frame.link).err();
    (parser.packet, reason)
}

/// Whether a frame is malformed only because the capture (by its snaplen) cut off a header that was on the wire.
pub fn is_cut_short(frame: Frame<'_>) -> bool {
    let mut parser = Parser::new(frame);
    parser.link(frame.link).is_err() && parser.not_captured
}

/// A packet before parsing.
fn unparsed(wire_len: u32) -> Packet {
    Packet {
        wire_len,
        l3_offset: 0,
        l4_offset: 0,
        l4_length: 0,
        ether_type: 0,
        vlan: Vec::new(),
        l3: L3::None,
        l4: L4::None,
        proto: 0,
        next_header: 0,
        fragment: Fragment::None,
        frag_off: 0,
        saddr: 0,
        daddr: 0,
        ip_length: 0,
        ip_id: 0,
        hdrlength: 0,
        ttl: 0,
        tos: 0,
        ip_options: false,
        ext: 0,
        sport: 0,
        dport: 0,
        seq: 0,
        ack: 0,
        doff: 0,
        tcp_flags: 0,
        window: 0,
        udp_length: 0,
        icmp_type: 0,
        icmp_code: 0,
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
    packet: Packet,
    /// Whether a read needed bytes inside the window that were on the wire but not captured.
    not_captured: bool,
}

type Outcome = Result<(), Reason>;

impl<'a> Parser<'a> {
    fn new(frame: Frame<'a>) -> Self {
        let bytes = &frame.bytes[..frame.bytes.len().min(WINDOW_BYTES)];
        Parser { bytes, packet: unparsed(frame.wire_len), not_captured: false }
    }

    fn at(&mut self, offset: usize, count: usize) -> Option<&'a [u8]> {
        let end = offset.checked_add(count)?;
        let found = self.bytes.get(offset..end);
        self.not_captured |= found.is_none() && end <= WINDOW_BYTES.min(self.packet.wire_len as usize);
        found
    }

    fn link(&mut self, link: Link) -> Outcome {
        let (header, ether_type_at) = match link {
            Link::Ethernet => (14, 12),
            Link::Cooked => (16, 14),
            Link::Cooked2 => (20, 0),
            Link::RawIp => {
                let version = self.at(0, 1).ok_or(Reason::MALFORMED_LINK)?[0] >> 4;
                return match version {
                    4 => self.network(0x0800, 0),
                    6 => self.network(0x86dd, 0),
                    _ => self.network(0, 0),
                };
            }
        };
        let bytes = self.at(0, header).ok_or(Reason::MALFORMED_LINK)?;
        self.vlan(be16(&bytes[ether_type_at..]), header)
    }

    /// IEEE 802.1Q.
    fn vlan(&mut self, mut ether_type: u16, mut offset: usize) -> Outcome {
        while matches!(ether_type, 0x8100 | 0x88a8 | 0x9100) && self.packet.vlan.len() < VLAN_TAGS_MAX {
            let tag = self.at(offset, 4).ok_or(Reason::MALFORMED_VLAN)?;
            self.packet.vlan.push(be16(tag));
            ether_type = be16(&tag[2..]);
            offset += 4;
        }
        self.network(ether_type, offset)
    }

    fn network(&mut self, ether_type: u16, offset: usize) -> Outcome {
        self.packet.ether_type = ether_type;
        self.packet.l3_offset = offset;
        match ether_type {
            0x0800 => self.ipv4(offset),
            0x86dd => self.ipv6(offset),
            0x0806 => {
                self.packet.l3 = L3::Arp;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// RFC 791.
    fn ipv4(&mut self, offset: usize) -> Outcome {
        let header = self.at(offset, 20).filter(|h| h[0] >> 4 == 4).ok_or(Reason::MALFORMED_IPV4)?;
        let packet = &mut self.packet;
        packet.l3 = L3::Ipv4;
        packet.hdrlength = header[0] & 0xf;
        packet.tos = header[1];
        packet.ip_length = be16(&header[2..]);
        packet.ip_id = be16(&header[4..]);
        packet.frag_off = be16(&header[6..]);
        packet.ttl = header[8];
        packet.proto = header[9];
        packet.next_header = header[9];
        packet.saddr = be32(&header[12..]).into();
        packet.daddr = be32(&header[16..]).into();
        let header_len = usize::from(packet.hdrlength) * 4;
        let end = offset + usize::from(packet.ip_length);
        let sane = header_len >= 20 && usize::from(packet.ip_length) >= header_len && end <= packet.wire_len as usize;
        if !sane || self.at(offset, header_len).is_none() {
            return Err(Reason::MALFORMED_IPV4);
        }
        self.packet.ip_options = header_len > 20;
        let more = self.packet.frag_off & 0x2000 != 0;
        let units = self.packet.frag_off & 0x1fff;
        self.set_transport(offset + header_len, end);
        self.fragment(units, more, end - offset - header_len)?;
        self.transport()
    }

    /// RFC 8200.
    fn ipv6(&mut self, offset: usize) -> Outcome {
        let header = self.at(offset, 40).filter(|h| h[0] >> 4 == 6).ok_or(Reason::MALFORMED_IPV6)?;
        let packet = &mut self.packet;
        packet.l3 = L3::Ipv6;
        packet.tos = (be16(header) >> 4) as u8;
        packet.ip_length = be16(&header[4..]);
        packet.proto = header[6];
        packet.next_header = header[6];
        packet.ttl = header[7];
        packet.saddr = be128(&header[8..]);
        packet.daddr = be128(&header[24..]);
        let end = offset + 40 + usize::from(packet.ip_length);
        if end > packet.wire_len as usize {
            return Err(Reason::MALFORMED_IPV6);
        }
        self.extensions(offset + 40, end)
    }

    /// RFC 8200 section 4, RFC 4302 for the authentication header.
    fn extensions(&mut self, mut offset: usize, end: usize) -> Outcome {
        let mut walked = 0;
        while let Some(bit) = extension(self.packet.proto) {
            if self.packet.fragment == Fragment::Later {
                break;
            }
            let inside = offset + 8 <= end;
            let header = inside.then(|| self.at(offset, 8)).flatten().ok_or(Reason::MALFORMED_IPV6_EXT)?;
            let count = match bit {
                ext::FRAG => 8,
                ext::AH => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            let whole = offset + count <= end && self.at(offset, count).is_some();
            if walked == EXT_HEADERS_MAX || !whole || (bit == ext::HBH && walked > 0) {
                return Err(Reason::MALFORMED_IPV6_EXT);
            }
            self.packet.ext |= bit;
            self.packet.proto = header[0];
            offset += count;
            walked += 1;
            if bit == ext::FRAG {
                self.packet.frag_off = be16(&header[2..]);
                let more = self.packet.frag_off & 1 != 0;
                self.fragment(self.packet.frag_off >> 3, more, end - offset)?;
            }
        }
        self.packet.ip_options = self.packet.ext & ext::HBH != 0;
        self.set_transport(offset, end);
        self.transport()
    }

    /// RFC 791, 1858, 3128.
    fn fragment(&mut self, units: u16, more: bool, payload: usize) -> Outcome {
        self.packet.fragment = match (units, more) {
            (0, false) => return Ok(()),
            (0, true) => Fragment::First,
            _ => Fragment::Later,
        };
        let uneven = more && (payload == 0 || !payload.is_multiple_of(8));
        let too_long = usize::from(units) * 8 + payload > 65535;
        let overlaps_tcp = units == 1 && self.packet.proto == 6;
        if uneven || too_long || overlaps_tcp { Err(Reason::MALFORMED_FRAGMENT) } else { Ok(()) }
    }

    fn set_transport(&mut self, offset: usize, end: usize) {
        self.packet.l4_offset = offset;
        self.packet.l4_length = (end - offset) as u16;
    }

    fn transport(&mut self) -> Outcome {
        if self.packet.fragment == Fragment::Later {
            return Ok(());
        }
        let l4 = match (self.packet.proto, self.packet.l3) {
            (6, _) => L4::Tcp,
            (17, _) => L4::Udp,
            (132 | 33 | 136, _) => L4::Ports,
            (1, L3::Ipv4) => L4::Icmp,
            (58, L3::Ipv6) => L4::Icmp6,
            (50 | 59, _) => return Ok(()),
            _ => {
                self.packet.l4 = L4::Other;
                return Ok(());
            }
        };
        let (count, reason) = match l4 {
            L4::Tcp => (20, Reason::MALFORMED_TCP),
            L4::Udp => (8, Reason::MALFORMED_UDP),
            L4::Ports => (8, Reason::MALFORMED_TRANSPORT),
            _ => (8, Reason::MALFORMED_ICMP),
        };
        let inside = usize::from(self.packet.l4_length) >= count;
        let header = inside.then(|| self.at(self.packet.l4_offset, count)).flatten().ok_or(reason)?;
        let packet = &mut self.packet;
        packet.l4 = l4;
        if matches!(l4, L4::Icmp | L4::Icmp6) {
            packet.icmp_type = header[0];
            packet.icmp_code = header[1];
            return Ok(());
        }
        packet.sport = be16(header);
        packet.dport = be16(&header[2..]);
        match l4 {
            L4::Tcp => self.tcp(header),
            L4::Udp => self.udp(header),
            _ => Ok(()),
        }
    }

    /// RFC 9293 section 3.1.
    fn tcp(&mut self, header: &[u8]) -> Outcome {
        let packet = &mut self.packet;
        packet.seq = be32(&header[4..]);
        packet.ack = be32(&header[8..]);
        packet.doff = header[12] >> 4;
        packet.tcp_flags = header[13];
        packet.window = be16(&header[14..]);
        let fits = packet.doff >= 5 && u16::from(packet.doff) * 4 <= packet.l4_length;
        if fits { Ok(()) } else { Err(Reason::MALFORMED_TCP) }
    }

    /// RFC 768. A first fragment contains the length of the whole datagram.
    fn udp(&mut self, header: &[u8]) -> Outcome {
        let packet = &mut self.packet;
        packet.udp_length = be16(&header[4..]);
        let fits = packet.udp_length <= packet.l4_length || packet.fragment == Fragment::First;
        if packet.udp_length >= 8 && fits { Ok(()) } else { Err(Reason::MALFORMED_UDP) }
    }
}

fn extension(proto: u8) -> Option<u8> {
    match proto {
        0 => Some(ext::HBH),
        43 => Some(ext::RT),
        44 => Some(ext::FRAG),
        51 => Some(ext::AH),
        60 => Some(ext::DST),
        135 => Some(ext::MH),
        _ => None,
    }
}

pub(super) fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

pub(super) fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be128(bytes: &[u8]) -> u128 {
    bytes[..16].iter().fold(0, |number, &byte| number << 8 | u128::from(byte))
}
