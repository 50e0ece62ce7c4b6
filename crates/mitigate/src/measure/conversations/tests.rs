//! Tests of proofs and streams.

use super::{Conversations, Proof, Voucher};
use crate::header::{Arrival, Header, protocol, tcp};
use weir_abi::packet::Fragment;

const CLIENT: u32 = 0xc633_6407;
const SERVER: u32 = 0xc000_0201;

fn segment(from_client: bool, flags: u8, seq: u32, ack: u32, bytes: u16) -> Header {
    let (from, to) = if from_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
    let (sport, dport) = if from_client { (40000, 80) } else { (80, 40000) };
    let header = Header::between(from, to);
    Header { protocol: protocol::TCP, has_ports: true, sport, dport, flags, seq, ack, payload_length: bytes, ..header }
}

#[test]
fn a_handshake_proves_the_client_and_redeems_its_syn() {
    let mut all = Conversations::new(1);
    assert_eq!(all.see(&segment(true, tcp::SYN, 100, 0, 0), 1).proof, Proof::None);
    assert_eq!(all.see(&segment(false, tcp::SYN | tcp::ACK, 500, 101, 0), 2).proof, Proof::Real);
    let standing = all.see(&segment(true, tcp::ACK, 101, 501, 0), 3);
    assert!(standing.proof == Proof::Real && standing.is_news && standing.redeemed == 1);
    assert_eq!(all.proof(&segment(true, tcp::ACK, 101, 501, 0)), Proof::Real);
}

#[test]
fn a_wrong_acknowledgement_proves_nothing() {
    let mut all = Conversations::new(1);
    all.see(&segment(true, tcp::SYN, 100, 0, 0), 1);
    all.see(&segment(false, tcp::SYN | tcp::ACK, 500, 101, 0), 2);
    for ack in [0, 499, 502, 1 << 30] {
        assert_ne!(all.see(&segment(true, tcp::ACK, 101, ack, 0), 3).proof, Proof::Real, "{ack}");
    }
}

#[test]
fn a_first_fragment_vouches_for_the_others_of_its_datagram() {
    let question =
        Header { protocol: protocol::UDP, has_ports: true, sport: 9, dport: 53, ..Header::between(SERVER, CLIENT) };
    let answer = Header { sport: 53, dport: 9, fragment: Fragment::First, ip_id: 7, ..Header::between(CLIENT, SERVER) };
    let answer = Header { protocol: protocol::UDP, has_ports: true, ..answer };
    let later = Header { has_ports: false, fragment: Fragment::Later, ..answer };
    let mut all = Conversations::new(1);
    assert_eq!(all.see(&later, 1).proof, Proof::None);
    all.see(&question, 2);
    let vouched = Proof::Vouched(Voucher::InTurn);
    assert_eq!([all.see(&answer, 3).proof, all.see(&later, 4).proof, all.proof(&later)], [vouched; 3]);
    assert_eq!(all.see(&Header { ip_id: 8, ..later }, 5).proof, Proof::None);
    assert_eq!(all.see(&later, 20_000_000_000).proof, Proof::None);
    // A datagram has few fragments, whatever is sent in its name.
    all.see(&question, 30_000_000_000);
    all.see(&answer, 30_000_000_001);
    let all_vouched = (0..1000).filter(|_| all.see(&later, 30_000_000_002).proof == vouched).count();
    assert_eq!((all_vouched, all.proof(&later)), (56, Proof::None));
}

#[test]
fn reflected_answers_prove_nothing() {
    let mut all = Conversations::new(1);
    assert_ne!(all.see(&segment(false, tcp::SYN | tcp::ACK, 500, 101, 0), 2).proof, Proof::Real);
    assert_ne!(all.see(&segment(false, tcp::SYN | tcp::ACK, 500, 101, 0), 3).proof, Proof::Real);
}

#[test]
fn one_direction_alone_is_judged_by_its_own_numbers() {
    let mut all = Conversations::new(1);
    all.see(&segment(true, tcp::SYN, 100, 0, 0), 1);
    all.see(&segment(true, tcp::ACK, 101, 501, 0), 2);
    assert_eq!(all.see(&segment(true, tcp::ACK, 101, 501, 10), 3).proof, Proof::Plausible(2));
    // One segment that is sent again and again is a flood.
    let mut all = Conversations::new(1);
    for at in 0..100 {
        assert_eq!(all.see(&segment(true, tcp::ACK, 101, 501, 0), at).proof, Proof::None);
    }
}

#[test]
fn an_answer_to_a_question_is_vouched_for_and_an_answer_without_one_is_not() {
    let datagram = |from: u32, to: u32, sport, dport| {
        let header = Header::between(from, to);
        Header { protocol: protocol::UDP, has_ports: true, sport, dport, ..header }
    };
    let mut all = Conversations::new(1);
    assert_eq!(all.see(&datagram(CLIENT, SERVER, 53, 4000), 1).proof, Proof::None);
    assert_eq!(all.see(&datagram(SERVER, CLIENT, 4001, 53), 2).proof, Proof::None);
    assert_eq!(all.see(&datagram(CLIENT, SERVER, 53, 4001), 3).proof, Proof::Vouched(Voucher::InTurn));
    // If it is known that the question came from inside, the sender of an answer has guessed the question or was asked.
    let question = Header { arrival: Some(Arrival::Inside), ..datagram(SERVER, CLIENT, 4002, 53) };
    all.see(&question, 4);
    assert_eq!(all.see(&datagram(CLIENT, SERVER, 53, 4002), 5).proof, Proof::Vouched(Voucher::Asked));
}

#[test]
fn a_dropped_packet_can_be_the_proof() {
    let datagram = |from: u32, to: u32, sport, dport| {
        let header = Header::between(from, to);
        Header { protocol: protocol::UDP, has_ports: true, sport, dport, ..header }
    };
    let mut all = Conversations::new(1);
    all.see(&datagram(SERVER, CLIENT, 4001, 53), 1);
    let answer = datagram(CLIENT, SERVER, 53, 4001);
    assert_eq!(all.see_dropped(&answer, 2), (Proof::Vouched(Voucher::InTurn), true));
    assert_eq!(all.see_dropped(&datagram(CLIENT, SERVER, 53, 4002), 2), (Proof::None, false));
    // A sender that answers one question again and again is an attacker.
    let vouched = (0..1000).filter(|_| all.see_dropped(&answer, 3).0 != Proof::None).count();
    assert!(vouched < 20, "{vouched}");
    // The server itself asks, and the dropped SYN-ACK answers it.
    all.see(&segment(true, tcp::SYN, 100, 0, 0), 4);
    assert_eq!(all.see_dropped(&segment(false, tcp::SYN | tcp::ACK, 500, 101, 0), 5), (Proof::Real, true));
    assert_eq!(all.see_dropped(&segment(false, tcp::SYN | tcp::ACK, 500, 99, 0), 5), (Proof::None, false));
    assert_eq!(all.proof(&segment(false, tcp::ACK, 501, 101, 0)), Proof::None);
}

/// A segment of client number `client`.
fn segment_of(client: u32, from_client: bool, flags: u8, seq: u32, ack: u32) -> Header {
    let header = segment(from_client, flags, seq, ack, 0);
    let address = u128::from(0x2d00_0000 + client);
    if from_client { Header { saddr: address, ..header } } else { Header { daddr: address, ..header } }
}

/// The handshake of a client. Returns whether it proved the client.
fn handshake(all: &mut Conversations, client: u32, now_ns: u64) -> bool {
    all.see(&segment_of(client, true, tcp::SYN, 100, 0), now_ns);
    all.see(&segment_of(client, false, tcp::SYN | tcp::ACK, 500, 101), now_ns + 1);
    all.see(&segment_of(client, true, tcp::ACK, 101, 501), now_ns + 2).proof == Proof::Real
}

#[test]
fn made_up_clients_that_are_answered_displace_no_real_ones() {
    let mut all = Conversations::new(1);
    let early = 1_000_000;
    assert!(handshake(&mut all, early, 1));
    // 20 s of 20,000 SYNs per second. Each gets a SYN-ACK.
    for made_up in 0..400_000 {
        let now_ns = u64::from(made_up) * 50_000;
        all.see(&segment_of(made_up, true, tcp::SYN, 100, 0), now_ns);
        all.see(&segment_of(made_up, false, tcp::SYN | tcp::ACK, 500, 101), now_ns + 1);
        if made_up % 100 == 0 {
            assert!(handshake(&mut all, early + 1 + made_up, now_ns + 2), "at {now_ns} ns");
        }
    }
    assert_eq!(all.proof(&segment_of(early, true, tcp::ACK, 101, 501)), Proof::Real);
}

#[test]
fn made_up_datagrams_that_are_answered_displace_no_connections() {
    let mut all = Conversations::new(1);
    let early = 1_000_000;
    assert!(handshake(&mut all, early, 1));
    // 20 s of 20,000 conversations a second, each with two questions and their answers.
    for made_up in 0..400_000 {
        let now_ns = u64::from(made_up) * 50_000;
        let datagram = |from_client: bool| {
            let header = segment_of(made_up, from_client, 0, 0, 0);
            Header { protocol: protocol::UDP, ..header }
        };
        for (number, from_client) in (0..).zip([true, false, true, false]) {
            all.see(&datagram(from_client), now_ns + number);
        }
        if made_up % 100 == 0 {
            assert!(handshake(&mut all, early + 1 + made_up, now_ns + 4), "at {now_ns} ns");
        }
    }
    assert_eq!(all.proof(&segment_of(early, true, tcp::ACK, 101, 501)), Proof::Real);
}

#[test]
fn an_answer_pays_for_some_packets_of_some_seconds() {
    let mut all = Conversations::new(1);
    let datagram = |from_client: bool| Header { protocol: protocol::UDP, ..segment(from_client, 0, 0, 0, 0) };
    let second = 1_000_000_000;
    let mut vouched = |now_ns: u64, packets: u32| {
        all.begin_window();
        let is_vouched = |_: &u32| matches!(all.see(&datagram(true), now_ns).proof, Proof::Vouched(_));
        let count = (0..packets).filter(is_vouched).count();
        all.see(&datagram(false), now_ns + 1);
        count
    };
    // The answer pays for a few of ever more questions, and for none after a pause.
    assert_eq!([vouched(0, 1), vouched(second, 1000), vouched(2 * second, 1000)], [0, 16, 16]);
    assert_eq!(vouched(30 * second, 1000), 0);
    // For a sender that takes turns, answers pay for more.
    let turns: Vec<usize> = (31..51).map(|at| vouched(at * second, 1)).collect();
    assert_eq!(turns[2..], [1; 18], "{turns:?}");
    assert_eq!(vouched(51 * second, 100_000), 256);
}

#[test]
fn a_busy_server_has_room_for_new_clients() {
    let mut all = Conversations::new(1);
    // A minute of 5,000 clients per second. Half of them leave their connections open. A few find their set full.
    let mut proven = 0;
    for client in 0..300_000 {
        let now_ns = u64::from(client) * 200_000;
        proven += u32::from(handshake(&mut all, client, now_ns));
        if client % 2 == 0 {
            all.see(&segment_of(client, false, tcp::FIN | tcp::ACK, 501, 101), now_ns + 3);
            all.see(&segment_of(client, true, tcp::FIN | tcp::ACK, 101, 502), now_ns + 4);
        }
    }
    assert!(proven > 299_900, "{proven} of 300000");
}
