//! The RTL against the interpreter: directed packets, random packets and mutants, changes of epoch during traffic.

use crate::bench::{Bench, Left, NO_STALLS, Port, Sent, Stalls, profile};
use crate::configure::{configuration, read, seal, send, write_tables};
use crate::programs::{Images, images, program};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weir_abi::Link;
use weir_abi::card::{FRAME_BYTES_MAX, memory};
use weir_card::Profile;
use weir_card::eval::{Card, Configuration};
use weir_card::program::{Act, CardProgram};
use weir_policy::ir::eval::packet::Frame;
use weir_test_support::mutation::mutated;
use weir_test_support::strategy;

const TOKEN: u64 = 0x5a_1122_3344;
const STALLS: Stalls = [60, 60, 90, 30];

/// A value of a strategy.
pub fn any_of<S: Strategy>(runner: &mut TestRunner, strategy: &S) -> S::Value {
    strategy.new_tree(runner).expect("the strategy rejects nothing").current()
}

/// Frames on Ethernet that are neither empty nor longer than the card decides.
fn frames(runner: &mut TestRunner, count: usize) -> Vec<Vec<u8>> {
    let strategy = mutated(strategy::packets(&Default::default()));
    let packets = std::iter::repeat_with(|| any_of(runner, &strategy).bytes);
    packets.filter(|bytes| (1..=FRAME_BYTES_MAX).contains(&bytes.len())).take(count).collect()
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    Frame { bytes, wire_len: bytes.len() as u32, link: Link::Ethernet, time_ns: 0 }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn assert_same(program: &CardProgram, sent: &[Vec<u8>], left: &[Vec<u8>], card: &[Option<Vec<u8>>]) {
    let mut left = left.iter();
    for (frame, expected) in sent.iter().zip(card) {
        let Some(expected) = expected else { continue };
        let got = left.next().map(|bytes| hex(bytes)).unwrap_or_default();
        assert_eq!(got, hex(expected), "of {} by {program:#?}", hex(frame));
    }
    assert_eq!(left.next(), None, "more frames than were sent");
}

/// Every frame leaves.
fn without_drops(program: &mut CardProgram) {
    program.rules.retain(|rule| !matches!(rule.act, Act::Drop(_)));
    program.dropped.clear();
}

/// Configures both cards alike and compares them.
pub fn compare(bench: &mut Bench, profile: &Profile, program: &CardProgram, epoch: u16, sent: &[Vec<u8>]) {
    let images = images();
    send(bench, configuration(program, TOKEN, epoch));
    let mut card = Card::new(profile);
    card.commit(Configuration { program, lookups: Images(&images), token: TOKEN, epoch });
    let expected: Vec<_> = sent.iter().map(|bytes| card.handle(frame(bytes))).collect();
    let to_card: Vec<_> = sent.iter().map(|bytes| Sent::new(Port::Wire, bytes.clone())).collect();
    let left: Vec<_> = bench.run(&to_card, STALLS).into_iter().map(|left| left.bytes).collect();
    assert_same(program, sent, &left, &expected);
    let counters: Vec<u32> = card.dropped().iter().flat_map(|c| [c.packets as u32, 0, c.bytes as u32, 0]).collect();
    assert_eq!(read(bench, memory::COUNTERS, 0, counters.len() as u16), counters);
}

/// A bench whose two banks have the tables.
pub fn bench_with_tables(program: &CardProgram) -> Bench {
    let mut bench = Bench::new();
    for epoch in [1, 2] {
        write_tables(&mut bench, &images());
        send(&mut bench, configuration(program, TOKEN, epoch));
    }
    bench
}

#[test]
fn random_programs_and_mutants() {
    let count = std::env::var("WEIR_RTL_PACKETS").map_or(1_000, |text| text.parse().expect("a number of packets"));
    let mut runner = TestRunner::deterministic();
    let programs = program();
    let profile = profile();
    let mut bench = bench_with_tables(&any_of(&mut runner, &programs));
    for round in 0..(count / 200) {
        let program = any_of(&mut runner, &programs);
        let sent = frames(&mut runner, 200);
        compare(&mut bench, &profile, &program, round as u16, &sent);
    }
}

/// Every line of "Which packets get answers", and every alignment of the trailer.
#[test]
fn lengths_headers_and_refusals() {
    let directed = include_str!("packets.txt");
    let mut sent: Vec<Vec<u8>> =
        weir_test_support::packets(directed).expect("they read").into_iter().map(|p| p.bytes).collect();
    let whole = weir_test_support::packet("eth / ip / udp / payload 300").expect("it reads").bytes;
    sent.extend((1..=200).map(|length| whole[..length].to_vec()));
    sent.extend(
        (0..=130).map(|n| weir_test_support::packet(&format!("eth / ip / udp / payload {n}")).expect("it reads").bytes),
    );
    sent.push(weir_test_support::packet("eth / ip / udp / payload 8972").expect("it reads").bytes);
    let mut runner = TestRunner::deterministic();
    let programs = program();
    let first = any_of(&mut runner, &programs);
    let mut bench = bench_with_tables(&first);
    for round in 0..4 {
        let program = any_of(&mut runner, &programs);
        compare(&mut bench, &profile(), &program, 100 + round, &sent);
    }
}

/// Two policies take turns while packets pass. Each frame shows the decision of one policy, and no policy returns.
#[test]
fn epochs_change_between_packets() {
    const EPOCHS: u16 = 20;
    let mut runner = TestRunner::deterministic();
    let mut programs: Vec<CardProgram> = (0..2).map(|_| any_of(&mut runner, &program())).collect();
    // Nothing is dropped, so the frames that leave are those that were sent.
    for program in &mut programs {
        without_drops(program);
    }
    let images = images();
    let profile = profile();
    let mut bench = bench_with_tables(&programs[0]);
    let packets = frames(&mut runner, 2_000);
    let mut sent: Vec<Sent> = packets.iter().map(|bytes| Sent::new(Port::Wire, bytes.clone())).collect();
    for epoch in 0..EPOCHS {
        let frames = configuration(&programs[usize::from(epoch % 2)], TOKEN, 10 + epoch);
        let after = 50 * usize::from(epoch);
        sent.extend(frames.into_iter().map(|bytes| Sent { port: Port::Host, after, bytes }));
    }
    let left = bench.run(&sent, [235, 0, 40, 0]);
    let answers = |left: &Left| u64::from_le_bytes(*left.bytes.last_chunk().expect("it has a seal")) >> 23 & 1 != 0;
    let committed = |epoch| move |left: &Left| left.bytes.ends_with(&seal(TOKEN, epoch).to_le_bytes());
    let mut epoch = 2;
    let mut at = 0;
    let mut seen = std::collections::BTreeSet::new();
    for left in &left {
        if answers(left) {
            while !committed(epoch)(left) {
                epoch = if epoch == 2 { 10 } else { epoch + 1 };
                assert!(epoch < 10 + EPOCHS, "an epoch that was never committed");
            }
            continue;
        }
        let program = &programs[usize::from(epoch % 2)];
        let mut card = Card::new(&profile);
        card.commit(Configuration { program, lookups: Images(&images), token: TOKEN, epoch });
        assert_eq!(
            Some(hex(&left.bytes)),
            card.handle(frame(&packets[at])).map(|bytes| hex(&bytes)),
            "{at} in {epoch}"
        );
        seen.insert(epoch);
        at += 1;
    }
    assert_eq!((at, epoch), (packets.len(), 9 + EPOCHS), "frames, and the last epoch");
    assert!(seen.len() > 10, "packets passed in many epochs: {seen:?}");
}

/// Two cycles a packet of 64 bytes: one beat, and one for the rest of its trailer.
#[test]
fn a_packet_every_two_cycles() {
    const PACKETS: usize = 1_000;
    let mut program = any_of(&mut TestRunner::deterministic(), &program());
    without_drops(&mut program);
    let mut bench = bench_with_tables(&program);
    let bytes = weir_test_support::packet("eth / ip / udp / payload 22").expect("it reads").bytes;
    assert_eq!(bytes.len(), 64);
    let left = bench.run(&vec![Sent::new(Port::Wire, bytes); PACKETS], NO_STALLS);
    assert_eq!(left.len(), PACKETS);
    let cycles = left[PACKETS - 1].cycles.1 - left[0].cycles.0 + 1;
    assert!(cycles <= 2 * PACKETS as u32, "{cycles} cycles");
}
