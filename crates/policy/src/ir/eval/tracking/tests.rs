//! Floods against the tracker. Scripts of single packets are in `tests/tracking`.

use super::Tracker;
use crate::ir::eval::packet::tcp_flag::{ACK, FIN, RST, SYN};
use crate::ir::eval::packet::{Frame, parse};
use crate::ir::{PacketState, Tracking};
use weir_abi::flow::{Arrival, FlowState};
use weir_abi::{Link, Reason};

const SERVER: u32 = 0xc633_6401;

/// A segment without payload between a client and port 80 of the server.
struct Segment {
    client: u32,
    from_server: bool,
    flags: u8,
    seq: u32,
    ack: u32,
}

impl Segment {
    fn bytes(&self) -> Vec<u8> {
        let (source, destination) = if self.from_server { (SERVER, self.client) } else { (self.client, SERVER) };
        let ports = if self.from_server { [80u16, 4000] } else { [4000, 80] };
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend(source.to_be_bytes());
        packet.extend(destination.to_be_bytes());
        packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        packet.extend(self.seq.to_be_bytes());
        packet.extend(self.ack.to_be_bytes());
        packet.extend([0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        packet
    }
}

/// A tracker, and the time.
struct Wire {
    tracker: Tracker,
    time_ns: u64,
}

impl Wire {
    fn new(settings: Tracking) -> Self {
        Wire { tracker: Tracker::new(&settings), time_ns: 1_000_000_000 }
    }

    /// Passes a segment on, five microseconds later, and accepts it unless it is invalid.
    fn pass(&mut self, client: u32, from_server: bool, flags: u8, seq: u32, ack: u32) -> (PacketState, Option<Reason>) {
        self.time_ns += 5000;
        let bytes = Segment { client, from_server, flags, seq, ack }.bytes();
        let frame = Frame { bytes: &bytes, wire_len: 40, link: Link::RawIp, time_ns: self.time_ns };
        let (packet, malformed) = parse(frame);
        assert_eq!(malformed, None);
        let arrival = if from_server { Arrival::Inside } else { Arrival::Outside };
        let tracked = self.tracker.track(&packet, frame, arrival);
        if tracked.refused.is_none() {
            self.tracker.open(&tracked);
        }
        (tracked.state, tracked.refused)
    }

    fn handshake(&mut self, client: u32) {
        assert_eq!(self.pass(client, false, SYN, 100, 0).0, PacketState::New);
        assert_eq!(self.pass(client, true, SYN | ACK, 500, 101).0, PacketState::Established);
        assert_eq!(self.pass(client, false, ACK, 101, 501).0, PacketState::Established);
    }

    fn count(&self, wanted: FlowState) -> usize {
        let mut count = 0;
        self.tracker.flows(&mut |_, flow| count += usize::from(flow.state == wanted));
        count
    }
}

fn settings(size: u32) -> Tracking {
    Tracking { size, pickup: false, ..Tracking::default() }
}

/// A deterministic address of an attacker.
fn spoofed(nth: u32) -> u32 {
    0x0b00_0000 | nth.wrapping_mul(0x9e37_79b1) >> 8
}

const CLIENTS: std::ops::Range<u32> = 0x0a00_0000..0x0a00_03e8;

#[test]
fn a_flood_of_syns_cuts_no_connection() {
    let size = 2048;
    let mut wire = Wire::new(settings(size));
    CLIENTS.for_each(|client| wire.handshake(client));
    for nth in 0..100 * size {
        assert_eq!(wire.pass(spoofed(nth), false, SYN, nth, 0), (PacketState::New, None));
        let client = CLIENTS.start + nth % CLIENTS.len() as u32;
        let (state, refused) = wire.pass(
            client,
            nth & 1 != 0,
            ACK,
            if nth & 1 != 0 { 501 } else { 101 },
            if nth & 1 != 0 { 101 } else { 501 },
        );
        assert_eq!((state, refused), (PacketState::Established, None), "packet {nth}");
    }
    wire.tracker.verify();
    assert_eq!(wire.count(FlowState::Established), CLIENTS.len());
    assert_eq!(wire.count(FlowState::SynSent), size as usize / 4, "a quarter of the table");
}

#[test]
fn connections_open_during_a_flood_of_syns() {
    let mut wire = Wire::new(settings(1 << 16));
    let (mut nth, mut completed) = (0, 0);
    for client in CLIENTS {
        wire.pass(client, false, SYN, 100, 0);
        // The answer takes 4,000 spoofed SYNs, for which a quarter of the table has 16,384 places.
        for _ in 0..200 {
            nth += 1;
            wire.pass(spoofed(nth), false, SYN, nth, 0);
        }
        let Some(answered) = client.checked_sub(20).filter(|client| CLIENTS.contains(client)) else { continue };
        if wire.pass(answered, true, SYN | ACK, 500, 101).1.is_none() {
            assert_eq!(wire.pass(answered, false, ACK, 101, 501).0, PacketState::Established);
            completed += 1;
        }
    }
    let answered = CLIENTS.len() - 20;
    assert!(completed * 100 >= answered * 97, "{completed} of {answered} handshakes were completed");
}

#[test]
fn a_flood_of_acks_opens_nothing() {
    let mut wire = Wire::new(settings(2048));
    CLIENTS.for_each(|client| wire.handshake(client));
    for nth in 0..20_000 {
        assert_eq!(wire.pass(spoofed(nth), false, ACK, nth, nth).1, Some(Reason::NO_STATE));
    }
    assert_eq!(wire.count(FlowState::Established), CLIENTS.len());
}

#[test]
fn forged_resets_end_no_connection() {
    let mut wire = Wire::new(settings(2048));
    CLIENTS.for_each(|client| wire.handshake(client));
    for nth in 0..100_000_u32 {
        // No reset has the exact number. Resets in the window pass, and the host answers by a challenge ACK.
        let (client, seq) = (CLIENTS.start + nth % CLIENTS.len() as u32, nth.wrapping_mul(0x9e37_79b1) | 1 << 9);
        wire.pass(client, false, RST, seq, 0);
        assert_eq!(wire.pass(client, true, ACK, 501, 101), (PacketState::Established, None), "reset {nth}");
        assert_eq!(wire.pass(client, false, SYN | FIN, 101, 501).1, Some(Reason::BAD_FLAGS));
    }
    assert_eq!(wire.count(FlowState::Established), CLIENTS.len());
}
