//! Packets of a few flows that pass at the same time: TCP connections ([`crate::conntrack_flows`]), requests and
//! replies of UDP and ICMP, and ICMP errors about them.

use crate::conntrack_flows::{Dice, Segment, flow};
use crate::packets::{GAPS_NS, START_NS, pool};
use crate::proxied_flows::connection;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{Ipv4Addr, Ipv6Addr};
use weir_abi::flow::{Arrival, FlowKey};
use weir_test_support::strategy::Pool;
use weir_test_support::{Link, Packet};

/// Flows that pass at the same time.
const AT_ONCE: usize = 5;
/// Number of addresses of each family that flows use. A later flow may have the key of an earlier one.
const ADDRESSES: u64 = 4;
const IPV4_HEADER: usize = 20;
const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// The two ends of a flow.
#[derive(Clone, Copy)]
enum Ends {
    Ipv4([Ipv4Addr; 2]),
    Ipv6([Ipv6Addr; 2]),
}

impl Ends {
    /// The key of a TCP connection that the first opens from outside.
    fn key(self, ports: [u16; 2], vlan: u16) -> FlowKey {
        let (addresses, is_ipv6) = match self {
            Ends::Ipv4(ends) => (ends.map(|end| u32::from(end).into()), false),
            Ends::Ipv6(ends) => (ends.map(u128::from), true),
        };
        FlowKey::of(Arrival::Outside, (addresses[0], ports[0]), (addresses[1], ports[1]), 6, [vlan, 0], is_ipv6)
    }
}

/// A flow: what its packets have in common, and those that are left, the next one last.
struct Waiting {
    ends: Ends,
    vlan: Option<u16>,
    link: Link,
    /// Protocol, sending side and the bytes after the IP header.
    left: Vec<(u8, usize, Vec<u8>)>,
    /// The last IP packet and its sender, which an error may quote.
    last: Option<(usize, Vec<u8>)>,
}

/// Flows that pass in turn, without end.
pub struct Flows<'p> {
    dice: Dice,
    pool: &'p Pool,
    waiting: Vec<Waiting>,
    at: usize,
}

impl<'p> Flows<'p> {
    pub fn new(seed: u64, pool: &'p Pool) -> Self {
        let mut flows = Flows { dice: Dice::new(seed), pool, waiting: Vec::new(), at: 0 };
        flows.waiting = (0..AT_ONCE).map(|_| flows.begin(START_NS)).collect();
        flows
    }

    fn begin(&mut self, time_ns: u64) -> Waiting {
        let dice = &mut self.dice;
        let mut two = |count: usize| {
            let first = dice.below(ADDRESSES.min(count as u64)) as usize;
            [first, (first + 1 + dice.below(count as u64 - 1) as usize) % count]
        };
        let (v4, v6) = (two(self.pool.v4.len()), two(self.pool.v6.len()));
        let is_ipv6 = dice.one_in(3);
        let ends =
            if is_ipv6 { Ends::Ipv6(v6.map(|at| self.pool.v6[at])) } else { Ends::Ipv4(v4.map(|at| self.pool.v4[at])) };
        let vlan = dice.one_in(4).then(|| self.pool.vlans[dice.below(self.pool.vlans.len() as u64) as usize]);
        let link = if vlan.is_none() && dice.one_in(2) { Link::RawIp } else { Link::Ethernet };
        let number = dice.below(3) as u32;
        // Flows with even numbers are IPv4.
        let tcp = |segment: &Segment| (6, segment.from, segment.packet(2 * number)[IPV4_HEADER..].to_vec());
        let mut left = match dice.below(6) {
            0 => datagrams(dice, number as u16),
            1 => echoes(dice, number as u16, is_ipv6),
            2 | 3 => {
                let key = ends.key([1024 + 2 * number as u16, 80], vlan.unwrap_or(0));
                connection(dice, &key, Arrival::Outside.side(), time_ns).iter().map(tcp).collect()
            }
            _ => flow(dice).iter().map(tcp).collect(),
        };
        left.reverse();
        Waiting { ends, vlan, link, left, last: None }
    }

    /// The next packet, often of the same flow as the previous one.
    pub fn next(&mut self, time_ns: u64) -> Packet {
        if self.dice.one_in(3) {
            self.at = self.dice.below(AT_ONCE as u64) as usize;
        }
        while self.waiting[self.at].left.is_empty() {
            self.waiting[self.at] = self.begin(time_ns);
        }
        let (dice, waiting) = (&mut self.dice, &mut self.waiting[self.at]);
        let quoted = waiting.last.take_if(|_| dice.one_in(8));
        let ip = match quoted {
            Some((from, quoted)) => error(waiting.ends, 1 - from, &quoted, dice),
            None => {
                let (protocol, from, bytes) = waiting.left.pop().expect("it was not empty");
                let ip = packet(waiting.ends, from, protocol, &bytes);
                waiting.last = Some((from, ip.clone()));
                ip
            }
        };
        let bytes = match waiting.link {
            Link::Ethernet => [ethernet(matches!(waiting.ends, Ends::Ipv6(_)), waiting.vlan), ip].concat(),
            _ => ip,
        };
        let wire = bytes.len() as u32;
        Packet { bytes, wire, link: waiting.link, time_ns }
    }
}

/// Requests and replies of UDP.
fn datagrams(dice: &mut Dice, number: u16) -> Vec<(u8, usize, Vec<u8>)> {
    let mut datagram = |_| {
        let from = dice.below(2) as usize;
        let (client, server) = ((1024 + number).to_be_bytes(), 53_u16.to_be_bytes());
        let ports = if from == 0 { [client, server] } else { [server, client] };
        (UDP, from, [ports.concat(), vec![0, 12, 0, 0, 1, 2, 3, 4]].concat())
    };
    (0..6).map(&mut datagram).collect()
}

/// Requests and replies of ICMP, sometimes from the wrong side.
fn echoes(dice: &mut Dice, number: u16, is_ipv6: bool) -> Vec<(u8, usize, Vec<u8>)> {
    let (protocol, kinds) = if is_ipv6 { (ICMP6, [128, 129]) } else { (ICMP, [8, 0]) };
    let mut echo = |nth: u8| {
        let is_reply = dice.below(2) as usize;
        let from = if dice.one_in(6) { 1 - is_reply } else { is_reply };
        let [high, low] = number.to_be_bytes();
        (protocol, from, vec![kinds[is_reply], 0, 0, 0, high, low, 0, nth])
    };
    (0..6).map(&mut echo).collect()
}

/// An ICMP error of one side about a packet. It may quote only a part of the packet.
fn error(ends: Ends, from: usize, quoted: &[u8], dice: &mut Dice) -> Vec<u8> {
    let cut = if dice.one_in(4) { 20 + dice.below(40) as usize } else { quoted.len() };
    let quoted = &quoted[..cut.min(quoted.len()).min(120)];
    let (protocol, kind) = match ends {
        Ends::Ipv4(_) => (ICMP, [3, 4, 5, 11, 12][dice.below(5) as usize]),
        Ends::Ipv6(_) => (ICMP6, 1 + dice.below(5) as u8),
    };
    packet(ends, from, protocol, &[&[kind, 1, 0, 0, 0, 0, 0, 0], quoted].concat())
}

/// An IP packet of one side.
fn packet(ends: Ends, from: usize, protocol: u8, bytes: &[u8]) -> Vec<u8> {
    match ends {
        Ends::Ipv4(ends) => {
            let length = ((IPV4_HEADER + bytes.len()) as u16).to_be_bytes();
            let start = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0];
            [&start[..], &ends[from].octets(), &ends[1 - from].octets(), bytes].concat()
        }
        Ends::Ipv6(ends) => {
            let length = (bytes.len() as u16).to_be_bytes();
            let start = [0x60, 0, 0, 0, length[0], length[1], protocol, 64];
            [&start[..], &ends[from].octets(), &ends[1 - from].octets(), bytes].concat()
        }
    }
}

fn ethernet(is_ipv6: bool, vlan: Option<u16>) -> Vec<u8> {
    let mut header = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    header.extend(vlan.into_iter().flat_map(|vlan| [[0x81, 0], vlan.to_be_bytes()].concat()));
    header.extend(if is_ipv6 { [0x86, 0xdd] } else { [8, 0] });
    header
}

/// What follows in a sequence of packets.
#[derive(Clone, Debug)]
enum Next {
    /// Any packet.
    Any(Packet),
    /// This many packets of flows.
    OfFlows(usize),
}

/// `count` packets with random gaps. A part of them belongs to a few flows.
pub fn among(packet: impl Strategy<Value = Packet>, count: usize) -> impl Strategy<Value = Vec<Packet>> {
    let next = prop_oneof![3 => packet.prop_map(Next::Any), 1 => (1..8usize).prop_map(Next::OfFlows)];
    (vec((next, select(GAPS_NS.to_vec())), count), any::<u64>()).prop_map(move |(nexts, seed)| {
        let (mut time_ns, mut flows, mut packets) = (START_NS, Flows::new(seed, pool()), Vec::with_capacity(count));
        for (next, gap_ns) in nexts {
            time_ns += gap_ns;
            match next {
                Next::Any(packet) => packets.push(Packet { time_ns, ..packet }),
                Next::OfFlows(wanted) => packets.extend((0..wanted).map(|_| flows.next(time_ns))),
            }
        }
        packets.truncate(count);
        packets
    })
}
