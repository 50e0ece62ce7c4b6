//! Customers of a web server, and floods.

use weir_mitigate::header::{Header, protocol, tcp};

/// The server.
pub const SERVER: u32 = 0xc612_0050;
/// Round trip of all customers, seconds.
const ROUND_TRIP_S: f64 = 0.03;
/// A customer opens a connection this often, seconds.
const INTERVAL_S: f64 = 3.0;
/// Requests of a connection.
const REQUESTS: u32 = 6;

/// A packet with its time.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub time_s: f64,
    pub header: Header,
    pub is_attack: bool,
}

/// Random numbers of splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }

    pub fn address(&mut self) -> u32 {
        self.below(0xdfff_ffff)
    }

    pub fn port(&mut self) -> u16 {
        1024 + self.below(64_000) as u16
    }
}

/// The address of a customer.
pub fn customer(number: u32) -> u32 {
    0x5d00_0000 + number * 7919
}

/// The port of the connection that a source opens at a time.
pub fn sport(saddr: u32, time_s: f64) -> u16 {
    32768 + ((saddr ^ (time_s * 1000.0) as u32).wrapping_mul(0x9e37_79b1) >> 18) as u16
}

#[allow(clippy::too_many_arguments)]
pub fn segment(saddr: u32, daddr: u32, sport: u16, dport: u16, flags: u8, seq: u32, ack: u32, bytes: u16) -> Header {
    let is_syn = flags & tcp::SYN != 0;
    let doff = if is_syn { 10 } else { 8 };
    Header {
        protocol: protocol::TCP,
        has_ports: true,
        sport,
        dport,
        flags,
        seq,
        ack,
        doff,
        window: if is_syn { 64240 } else { 501 },
        length: 20 + u32::from(doff) * 4 + u32::from(bytes),
        ttl: 48 + (saddr % 12) as u8,
        payload_length: bytes,
        ..Header::between(saddr, daddr)
    }
}

pub fn datagram(saddr: u32, daddr: u32, sport: u16, dport: u16, length: u32) -> Header {
    Header {
        protocol: protocol::UDP,
        has_ports: true,
        sport,
        dport,
        length,
        ttl: 44 + (saddr % 60) as u8,
        payload_length: length as u16 - 28,
        payload: Some(saddr.wrapping_mul(0x85eb_ca6b).to_be_bytes()),
        ..Header::between(saddr, daddr)
    }
}

/// Packets in any order.
#[derive(Clone)]
pub struct Traffic {
    packets: Vec<Packet>,
    random: Random,
}

impl Traffic {
    /// The connections of customers until a time.
    pub fn of_customers(count: u32, until_s: f64) -> Self {
        let mut traffic = Traffic { packets: Vec::new(), random: Random(1) };
        traffic.customers(0..count, 0.0, until_s);
        traffic
    }

    /// Adds the connections of more customers.
    pub fn customers(&mut self, numbers: std::ops::Range<u32>, from_s: f64, until_s: f64) {
        for number in numbers {
            let mut begin_s = from_s + f64::from(self.random.below(1000)) / 1000.0 * INTERVAL_S;
            while begin_s < until_s {
                self.session(customer(number), begin_s);
                begin_s += INTERVAL_S * (0.5 + f64::from(self.random.below(1000)) / 1000.0);
            }
        }
    }

    /// Adds a connection: a handshake, and requests with their answers.
    pub fn session(&mut self, client: u32, begin_s: f64) {
        let port = sport(client, begin_s);
        let (mut seq, mut server_seq) = (self.random.below(1 << 30), self.random.below(1 << 30));
        let mut time_s = begin_s;
        let mut add = |time_s: f64, header: Header| self.packets.push(Packet { time_s, header, is_attack: false });
        let to_server = |flags, seq, ack, bytes| segment(client, SERVER, port, 80, flags, seq, ack, bytes);
        let to_client = |flags, seq, ack, bytes| segment(SERVER, client, 80, port, flags, seq, ack, bytes);
        add(time_s, to_server(tcp::SYN, seq, 0, 0));
        (seq, time_s) = (seq + 1, time_s + ROUND_TRIP_S);
        add(time_s - ROUND_TRIP_S / 2.0, to_client(tcp::SYN | tcp::ACK, server_seq, seq, 0));
        server_seq += 1;
        add(time_s, to_server(tcp::ACK, seq, server_seq, 0));
        for request in 0..REQUESTS {
            let (asked, answered) = (200 + request as u16 * 40, 1200 - request as u16 * 100);
            add(time_s, to_server(tcp::PSH | tcp::ACK, seq, server_seq, asked));
            seq += u32::from(asked);
            add(time_s + ROUND_TRIP_S / 2.0, to_client(tcp::PSH | tcp::ACK, server_seq, seq, answered));
            server_seq += u32::from(answered);
            time_s += ROUND_TRIP_S;
            add(time_s, to_server(tcp::ACK, seq, server_seq, 0));
        }
        add(time_s, to_server(tcp::FIN | tcp::ACK, seq, server_seq, 0));
        add(time_s + ROUND_TRIP_S / 2.0, to_client(tcp::FIN | tcp::ACK, server_seq, seq + 1, 0));
    }

    /// Adds packets.
    pub fn add(&mut self, packets: impl Iterator<Item = Packet>) {
        self.packets.extend(packets);
    }

    /// Keeps only some packets.
    pub fn keep(&mut self, is_kept: impl Fn(&Packet) -> bool) {
        self.packets.retain(is_kept);
    }

    /// Adds an attack at a rate.
    pub fn attack(&mut self, from_s: f64, until_s: f64, pps: f64, mut make: impl FnMut(&mut Random, f64) -> Header) {
        let packets = ((until_s - from_s) * pps) as u32;
        for number in 0..packets {
            let time_s = from_s + f64::from(number) / pps;
            let header = make(&mut self.random, time_s);
            self.packets.push(Packet { time_s, header, is_attack: true });
        }
    }

    /// The packets in order.
    pub fn sorted(mut self) -> Vec<Packet> {
        self.packets.sort_by(|one, other| one.time_s.total_cmp(&other.time_s));
        self.packets
    }
}
