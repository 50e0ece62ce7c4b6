//! The parser's view of a packet: `struct packet` in `datapath/core/fields.h`.
//!
//! Rust never parses through this type on the fast path. It exists so that tests can compare the C parser, field by
//! field, with the reference parser. Numbers are in host byte order.

/// Network layer of a packet: `enum l3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum L3 {
    None = 0,
    Arp = 1,
    Ipv4 = 2,
    Ipv6 = 3,
}

/// The transport layer of a packet: `enum l4`.
///
/// `None` means that the packet has no transport header (later fragment, ESP, no next header, not IP). `Ports` stands
/// for SCTP, DCCP and UDP-Lite, whose ports are where TCP has them. `Other` stands for every other protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum L4 {
    None = 0,
    Tcp = 1,
    Udp = 2,
    Icmp = 3,
    Icmp6 = 4,
    Ports = 5,
    Other = 6,
}

/// Position of a packet in its datagram: `enum fragment`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum Fragment {
    None = 0,
    First = 1,
    Later = 2,
}

/// Extension headers seen, as bits of [`PacketView::ext`].
pub mod ext {
    /// Hop-by-hop options.
    pub const HBH: u8 = 1;
    /// Routing.
    pub const RT: u8 = 2;
    /// Fragment.
    pub const FRAG: u8 = 4;
    /// Destination options.
    pub const DST: u8 = 8;
    /// Authentication.
    pub const AH: u8 = 16;
    /// Mobility.
    pub const MH: u8 = 32;
}

/// Flags of [`PacketView::flags`].
pub mod flag {
    /// IPv4 options, or an IPv6 hop-by-hop options header.
    pub const IP_OPTIONS: u8 = 1;
    /// A limit that only marks had no room for the packet. Rules set this flag, not the parser.
    pub const EXCEEDED: u8 = 2;
}

/// A parsed packet. Fields that a packet does not have are 0.
///
/// ```text
///   0 data        8 cap  12 len   16 saddr (16 bytes)   32 daddr (16 bytes)
///  48 l3_offset  50 l4_offset  52 ether_type  54 vlan_id  56 inner_vlan_id  58 ip_length
///  60 ip_id  62 sport  64 dport  66 window (UDP: length)  68 seq  72 ack  76 l3 77 l4 78 proto 79 fragment
///  80 ttl 81 tos 82 tcp_flags 83 ext 84 vlan_tags 85 vlan_pcp 86 icmp_type 87 icmp_code
///  88 flags 89 next_header 90 frag_off 92 l4_length 94 doff 95 hdrlength 96
/// ```
/// An IPv4 address is a number in the first word of the 16 bytes. An IPv6 address is two 64-bit halves, high half
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct PacketView {
    pub data: *const u8,
    pub cap: u32,
    pub len: u32,
    pub saddr: [u64; 2],
    pub daddr: [u64; 2],
    pub l3_offset: u16,
    pub l4_offset: u16,
    pub ether_type: u16,
    pub vlan_id: u16,
    pub inner_vlan_id: u16,
    pub ip_length: u16,
    pub ip_id: u16,
    pub sport: u16,
    pub dport: u16,
    pub window: u16,
    pub seq: u32,
    pub ack: u32,
    pub l3: u8,
    pub l4: u8,
    pub proto: u8,
    pub fragment: u8,
    pub ttl: u8,
    pub tos: u8,
    pub tcp_flags: u8,
    pub ext: u8,
    pub vlan_tags: u8,
    pub vlan_pcp: u8,
    pub icmp_type: u8,
    pub icmp_code: u8,
    pub flags: u8,
    pub next_header: u8,
    pub frag_off: u16,
    pub l4_length: u16,
    pub doff: u8,
    pub hdrlength: u8,
}

const _: () = assert!(size_of::<PacketView>() == 96);
