//! Generated requests and replies of UDP, ICMP and a protocol without ports, and ICMP errors about flows of every kind.

use crate::flows::packets::{Host, TCP, address, ip, is_ipv6};
use crate::flows::{Dice, flow};

pub const HOSTS: [Host; 2] = [0, 1];
pub const ROUTER: Host = 2;
pub const STRANGER: Host = 3;

pub const ICMP: u8 = 1;
pub const UDP: u8 = 17;
pub const ICMP6: u8 = 58;
/// The destination options of IPv6.
pub const OPTIONS: u8 = 60;
pub const UDP_LITE: u8 = 136;
/// For experiments (RFC 3692).
pub const EXPERIMENT: u8 = 253;

/// A flow of `dice` with a number, and errors about it: its packets in the order in which they pass.
pub fn messages(dice: &mut Dice, number: u32) -> Vec<Vec<u8>> {
    let of_flow: Vec<Vec<u8>> = match dice.below(4) {
        0 => datagrams(dice, number),
        1 => requests(dice, number),
        2 => experiments(dice, number),
        _ => flow(dice).into_iter().map(|segment| segment.packet(number)).collect(),
    };
    let mut packets: Vec<Vec<u8>> = Vec::new();
    for (at, packet) in of_flow.iter().enumerate() {
        packets.push(packet.clone());
        while dice.one_in(4) {
            // Mostly about a packet that has passed.
            let about = if dice.one_in(8) { dice.below(of_flow.len() as u64) as usize } else { at };
            packets.push(error(dice, number, &of_flow[about]));
        }
    }
    packets
}

/// Both ends of a message: from the client or from the server.
fn either(dice: &mut Dice) -> [Host; 2] {
    if dice.one_in(2) { HOSTS } else { [1, 0] }
}

/// Datagrams of one pair of ports and sometimes of another.
fn datagrams(dice: &mut Dice, number: u32) -> Vec<Vec<u8>> {
    let protocol = if dice.one_in(4) { UDP_LITE } else { UDP };
    let (client, server) = (1024 + dice.below(60_000) as u16, dice.pick(&[53, 123, 4000]));
    let count = 1 + dice.below(8);
    let datagram = |dice: &mut Dice| {
        let ends = either(dice);
        let client = client ^ u16::from(dice.one_in(6));
        let ports = if ends[0] == 0 { [client, server] } else { [server, client] };
        let data = dice.pick(&[0u16, 1, 30, 1200]);
        let mut payload: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
        payload.extend((8 + data).to_be_bytes());
        // UDP-Lite has no datagrams without checksum.
        payload.extend([0, u8::from(protocol == UDP_LITE && !dice.one_in(8))]);
        payload.resize(usize::from(8 + data), 7);
        with_options(dice, number, ends, protocol, payload)
    };
    (0..count).map(|_| datagram(dice)).collect()
}

/// A packet, sometimes with an extension header if it is IPv6.
fn with_options(dice: &mut Dice, number: u32, ends: [Host; 2], protocol: u8, payload: Vec<u8>) -> Vec<u8> {
    match is_ipv6(number) && dice.one_in(10) {
        true => ip(number, ends, OPTIONS, &[vec![protocol, 0, 1, 4, 0, 0, 0, 0], payload].concat()),
        false => ip(number, ends, protocol, &payload),
    }
}

/// Packets of a protocol without ports.
fn experiments(dice: &mut Dice, number: u32) -> Vec<Vec<u8>> {
    (0..1 + dice.below(6)).map(|_| ip(number, either(dice), EXPERIMENT, &[1; 12])).collect()
}

/// Requests and replies of ICMP, also replies without a request, and other messages.
fn requests(dice: &mut Dice, number: u32) -> Vec<Vec<u8>> {
    let is_ipv6 = is_ipv6(number);
    let kinds: &[[u8; 2]] =
        if is_ipv6 { &[[128, 129], [128, 129], [139, 140]] } else { &[[8, 0], [8, 0], [13, 14], [15, 16], [17, 18]] };
    // Messages of neighbours, and such as belong to no flow.
    let others: &[u8] = if is_ipv6 { &[130, 133, 135, 136, 143, 141, 150, 200] } else { &[6, 9, 10, 30, 40, 42] };
    let [asks, replies] = dice.pick(kinds);
    let (ends, count) = (either(dice), 1 + dice.below(8) as u16);
    let mut message = |sequence: u16| {
        let is_reply = dice.one_in(2);
        let mut kind = if is_reply { replies } else { asks };
        let mut ends = if is_reply { [ends[1], ends[0]] } else { ends };
        match dice.below(12) {
            0 => ends.reverse(),
            1 => kind = dice.pick(kinds)[usize::from(is_reply)],
            2 => kind = dice.pick(others),
            _ => {}
        }
        let code = if dice.one_in(15) { 3 } else { 0 };
        let identifier = 77 + u8::from(dice.one_in(6));
        let mut payload = vec![kind, code, 0, 0, 0, identifier];
        payload.extend(sequence.to_be_bytes());
        payload.resize(dice.pick(&[8, 20, 64]), 7);
        ip(number, ends, if is_ipv6 { ICMP6 } else { ICMP }, &payload)
    };
    (0..count).map(&mut message).collect()
}

/// An ICMP error about a packet: mostly as a router or the receiver sends it, and else with something wrong.
fn error(dice: &mut Dice, number: u32, about: &[u8]) -> Vec<u8> {
    let is_ipv6 = is_ipv6(number);
    let kinds: &[u8] = if is_ipv6 { &[1, 2, 3, 4, 100, 127] } else { &[3, 4, 5, 11, 12] };
    let header = if is_ipv6 { 40 } else { 20 };
    let source = if is_client(number, about) { 0 } else { 1 };
    let mut quote = about.to_vec();
    let protocol = about[if is_ipv6 { 6 } else { 9 }];
    match dice.below(6) {
        // What the host has not sent.
        0 if protocol == TCP => {
            let number = if dice.one_in(2) { dice.next() as u32 } else { seq(&quote, header).wrapping_add(1 << 20) };
            quote[header + 4..header + 8].copy_from_slice(&number.to_be_bytes());
        }
        0 => quote[header] ^= 1,
        1 => quote[header + 1] ^= 1,
        _ => {}
    }
    let length = match dice.below(12) {
        0 => header + dice.below(8) as usize,
        1 => dice.below(header as u64) as usize,
        2..=6 => header + 8,
        _ => 500,
    };
    quote.truncate(length.min(quote.len()));
    let to = if dice.one_in(10) { dice.pick(&[1 - source, STRANGER]) } else { source };
    let from = dice.pick(&[ROUTER, ROUTER, 1 - source, STRANGER]);
    let from = if from == to { ROUTER } else { from };
    let code = dice.below(2) as u8;
    let payload = [vec![dice.pick(kinds), code, 0, 0, 0, 0, 0, 0], quote].concat();
    ip(number, [from, to], if is_ipv6 { ICMP6 } else { ICMP }, &payload)
}

fn seq(packet: &[u8], header: usize) -> u32 {
    u32::from_be_bytes(packet[header + 4..header + 8].try_into().expect("four bytes"))
}

/// Whether the client has sent a packet.
pub fn is_client(number: u32, packet: &[u8]) -> bool {
    let source = if is_ipv6(number) { &packet[8..24] } else { &packet[12..16] };
    source == address(number, 0)
}
