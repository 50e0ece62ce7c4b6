//! Classes of packets. Each has its own rate and baseline, because attacks use one or a few of them.

/// The class of a packet. A packet has exactly one: `enum packet_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketClass {
    /// TCP SYN without ACK.
    Syn,
    /// TCP SYN and ACK.
    SynAck,
    /// TCP RST.
    Rst,
    /// Other TCP.
    Tcp,
    /// UDP from the port of a service that reflects: an answer.
    UdpService,
    /// Other UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// A fragment that is not the first of its datagram.
    Fragment,
    /// Any other protocol.
    Other,
}

impl PacketClass {
    /// Number of classes.
    pub const COUNT: usize = 9;

    /// All classes.
    pub const ALL: [PacketClass; Self::COUNT] = [
        PacketClass::Syn,
        PacketClass::SynAck,
        PacketClass::Rst,
        PacketClass::Tcp,
        PacketClass::UdpService,
        PacketClass::Udp,
        PacketClass::Icmp,
        PacketClass::Fragment,
        PacketClass::Other,
    ];

    /// The class of a TCP segment with these flags.
    pub fn of_tcp(flags: u8) -> Self {
        const SYN: u8 = 0x02;
        const RST: u8 = 0x04;
        const ACK: u8 = 0x10;
        match flags & (RST | SYN | ACK) {
            flags if flags & RST != 0 => PacketClass::Rst,
            SYN => PacketClass::Syn,
            flags if flags & SYN != 0 => PacketClass::SynAck,
            _ => PacketClass::Tcp,
        }
    }

    /// The class of a UDP datagram from this port.
    pub fn of_udp(sport: u16) -> Self {
        let is_system = sport <= SYSTEM_PORT_MAX && sport != QUIC_PORT;
        match is_system || SERVICE_PORTS.contains(&sport) {
            true => PacketClass::UdpService,
            false => PacketClass::Udp,
        }
    }

    /// The name in reports of features.
    pub fn name(self) -> &'static str {
        match self {
            PacketClass::Syn => "syn",
            PacketClass::SynAck => "syn-ack",
            PacketClass::Rst => "rst",
            PacketClass::Tcp => "tcp",
            PacketClass::UdpService => "udp-service",
            PacketClass::Udp => "udp",
            PacketClass::Icmp => "icmp",
            PacketClass::Fragment => "fragment",
            PacketClass::Other => "other",
        }
    }
}

/// The highest port of a service that a client does not choose by itself (RFC 6335, system ports): `SYSTEM_PORT_MAX`.
pub const SYSTEM_PORT_MAX: u16 = 1023;
/// The port of QUIC: `QUIC_PORT`. A server sends at most three times what a client sends before the client has proven
/// its address (RFC 9000, section 8). So what comes from there is the rest of the web, and no reflector.
pub const QUIC_PORT: u16 = 443;
/// Ports above the system ports whose services are known to amplify.
pub const SERVICE_PORTS: [u16; 12] = [1194, 1434, 1900, 3283, 3389, 3478, 3702, 4500, 5353, 10001, 11211, 37810];
