//! Customers who upload at the rate of their line, and attackers who hide in a connection of their own.

#[path = "adversary/traffic.rs"]
#[allow(dead_code)]
mod traffic;

use traffic::{Packet, Random, SERVER, Traffic, segment};
use weir_mitigate::action::{Decision, Measure, Mode};
use weir_mitigate::defence::{Defence, Fate};
use weir_mitigate::header::{Arrival, Header, tcp};
use weir_mitigate::measure::WINDOW_NS;
use weir_mitigate::measure::sampling::{CopyCounts, Losses, Sampling};
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;

/// When customers and attackers begin, and when recordings end, seconds.
const BEGIN_S: f64 = 4.0;
const END_S: f64 = 8.0;
const CLIENT: u32 = 0x5e00_0007;
const PORT: u16 = 40_000;
/// The first numbers of both sides.
const SEQ: u32 = 4_294_000_000;
const ANSWER: u32 = 700_000;

fn to_server(flags: u8, seq: u32, bytes: u16) -> Header {
    segment(CLIENT, SERVER, PORT, 80, flags, seq, ANSWER + 1, bytes)
}

fn to_client(flags: u8, ack: u32) -> Header {
    segment(SERVER, CLIENT, 80, PORT, flags, ANSWER + u32::from(flags & tcp::SYN == 0), ack, 0)
}

fn handshake() -> [(f64, Header); 3] {
    let syn = to_server(tcp::SYN, SEQ, 0);
    let syn_ack = to_client(tcp::SYN | tcp::ACK, SEQ.wrapping_add(1));
    [(BEGIN_S, syn), (BEGIN_S + 0.01, syn_ack), (BEGIN_S + 0.02, to_server(tcp::ACK, SEQ.wrapping_add(1), 0))]
}

/// An upload of full segments at a rate. Each answer acknowledges some packets, whose number is chosen.
fn upload(pps: f64, mut merged: impl FnMut() -> u32) -> Vec<(f64, Header)> {
    let mut packets = handshake().to_vec();
    let (mut seq, mut left) = (SEQ.wrapping_add(1), merged());
    let begin_s = BEGIN_S + 0.03;
    for number in 0..((END_S - begin_s) * pps) as u32 {
        let time_s = begin_s + f64::from(number) / pps;
        packets.push((time_s, to_server(tcp::ACK, seq, 1448)));
        seq = seq.wrapping_add(1448);
        left -= 1;
        if left == 0 {
            packets.push((time_s + 0.00001, to_client(tcp::ACK, seq)));
            left = merged();
        }
    }
    packets
}

/// A flood inside a connection, of segments that the server does not acknowledge. `answers` makes what it sends
/// instead.
fn flood(pps: f64, bytes: u16, answers: impl Fn(u32) -> Option<Header>) -> Vec<(f64, Header)> {
    let mut packets = handshake().to_vec();
    for number in 0..((END_S - BEGIN_S - 0.1) * pps) as u32 {
        let time_s = BEGIN_S + 0.1 + f64::from(number) / pps;
        let seq = SEQ.wrapping_add(100_000 + number * u32::from(bytes));
        packets.push((time_s, to_server(tcp::ACK | tcp::PSH, seq, bytes)));
        packets.extend(answers(number).map(|header| (time_s + 0.00001, header)));
    }
    packets
}

/// How often the client is blocked. One packet in some is seen, and some of these are lost.
fn blocks(more: Vec<(f64, Header)>, one_in: u32, is_lost: impl Fn(&Header, f64) -> bool) -> usize {
    let mut traffic = Traffic::of_customers(50, END_S);
    traffic.add(more.into_iter().map(|(time_s, header)| Packet { time_s, header, is_attack: false }));
    let mut random = Random::new(3);
    let settings = Settings { mode: Mode::Act, ..Settings::default() };
    let mut defence = Defence::new(vec![Prefix::of(false, SERVER.into(), 16)], settings, 1);
    let (mut losses, mut made, mut seen, mut end_ns, mut blocked) = (Losses::default(), 0, 0, WINDOW_NS, 0);
    for Packet { time_s, header, .. } in traffic.sorted() {
        let now_ns = (time_s * 1e9) as u64;
        while now_ns >= end_ns {
            let copies = CopyCounts { made, seen: std::mem::take(&mut seen), waiting: 0 };
            let sampling: Sampling = losses.end_window(one_in, copies);
            for decision in defence.end_window(end_ns, sampling) {
                if let Decision::Apply(action) = decision {
                    let is_block = matches!(action.measure, Measure::Block(source, _) if source.1 == CLIENT.into());
                    blocked += usize::from(is_block);
                    defence.enforce(action, end_ns);
                }
            }
            defence.begin_window();
            end_ns += WINDOW_NS;
        }
        // The beginning of a connection is seen, so that its client is proven.
        if random.below(one_in) != 0 && !(BEGIN_S..BEGIN_S + 0.03).contains(&time_s) {
            continue;
        }
        made += 1;
        if is_lost(&header, time_s) {
            continue;
        }
        seen += 1;
        let is_out = header.saddr == u128::from(SERVER);
        let arrival = Some(if is_out { Arrival::Inside } else { Arrival::Outside });
        let fate = defence.see(&Header { arrival, ..header }, None, now_ns);
        assert!(fate == Fate::Passes || blocked > 0);
    }
    blocked
}

fn never(_: &Header, _: f64) -> bool {
    false
}

#[test]
fn uploads_through_receive_offloads_are_not_blocked() {
    // 100 Mbit/s, 300 Mbit/s and 1 Gbit/s. An answer stands for up to 200 packets.
    for pps in [9_000.0, 26_000.0, 86_000.0] {
        for (least, most) in [(2, 3), (27, 59), (60, 90), (150, 200)] {
            for one_in in [1, 64] {
                let mut random = Random::new(u64::from(most));
                let packets = upload(pps, || least + random.below(most - least));
                assert_eq!(blocks(packets, one_in, never), 0, "{pps} {most} 1/{one_in}");
            }
        }
    }
}

#[test]
fn lost_answers_do_not_get_a_customer_blocked() {
    for one_in in [1, 64] {
        for share in [0.5, 0.9, 1.0] {
            let is_lost = |header: &Header, time_s: f64| {
                let is_answer = header.saddr == u128::from(SERVER) && header.daddr == u128::from(CLIENT);
                is_answer && time_s > BEGIN_S + 0.5 && (header.ack >> 9) % 100 < (share * 100.0) as u32
            };
            for merged in [2, 40] {
                assert_eq!(blocks(upload(26_000.0, || merged), one_in, is_lost), 0, "{share} {merged} 1/{one_in}");
            }
        }
    }
}

#[test]
fn a_flood_in_a_connection_is_blocked() {
    let silent = |_: u32| None;
    for (pps, one_in) in [(3000.0, 1), (15_000.0, 16), (70_000.0, 64)] {
        assert!(blocks(flood(pps, 1000, silent), one_in, never) > 0, "1/{one_in}");
        assert!(blocks(flood(pps, 0, silent), one_in, never) > 0, "1/{one_in}");
    }
}

/// What an attacker can make the server send without having anything acknowledged.
#[test]
fn answers_that_acknowledge_nothing_excuse_no_flood() {
    // Repeated acknowledgements, refusals, and a forged answer that acknowledges what was never sent.
    let repeated = |number: u32| number.is_multiple_of(20).then(|| to_client(tcp::ACK, SEQ.wrapping_add(1)));
    let refused = |number: u32| number.is_multiple_of(2).then(|| to_client(tcp::RST | tcp::ACK, SEQ.wrapping_add(1)));
    let ahead = |number: u32| {
        number
            .is_multiple_of(1000)
            .then(|| to_client(tcp::ACK, SEQ.wrapping_add(1 + (number + 1).wrapping_mul(1 << 16))))
    };
    assert!(blocks(flood(8000.0, 200, repeated), 1, never) > 0);
    assert!(blocks(flood(8000.0, 200, refused), 1, never) > 0);
    assert!(blocks(flood(8000.0, 1, ahead), 1, never) > 0);
}

/// An upload hides a flood of short segments only up to what its bytes stand for.
#[test]
fn few_acknowledged_bytes_do_not_excuse_many_short_segments() {
    let mut packets = upload(100.0, || 2);
    packets.extend(flood(20_000.0, 1, |_| None).into_iter().skip(3));
    packets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(blocks(packets, 1, never) > 0);
}

/// Somebody else forges segments of a customer's upload: their numbers are ahead, and a SYN begins them anew.
#[test]
fn forged_segments_do_not_get_an_upload_blocked() {
    for one_in in [1, 64] {
        let mut packets = upload(26_000.0, || 40);
        for number in 0..40u32 {
            let time_s = BEGIN_S + 0.5 + f64::from(number) * 0.05;
            packets.push((time_s, to_server(tcp::ACK, SEQ.wrapping_add(number << 26), 1000)));
            packets.push((time_s + 0.001, to_server(tcp::SYN, SEQ ^ number << 24, 0)));
        }
        assert_eq!(blocks(packets, one_in, never), 0, "1/{one_in}");
    }
}

/// A client that uses its port again begins with other numbers.
#[test]
fn a_port_that_is_used_again_is_judged_anew() {
    let mut packets = upload(26_000.0, || 40);
    packets.retain(|(time_s, _)| *time_s < BEGIN_S + 2.0);
    let again = upload(26_000.0, || 40).into_iter().map(|(time_s, header)| {
        let back = |number: u32| number.wrapping_sub(1 << 30);
        let is_out = header.saddr == u128::from(SERVER);
        let header = if is_out {
            Header { ack: back(header.ack), ..header }
        } else {
            Header { seq: back(header.seq), ..header }
        };
        (time_s + 2.0, header)
    });
    packets.extend(again.filter(|(time_s, _)| *time_s < END_S));
    assert_eq!(blocks(packets, 1, never), 0);
}
