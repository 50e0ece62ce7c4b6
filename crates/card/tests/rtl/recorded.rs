//! The RTL against the interpreter: the captures in examples/, and the longest frames that get answers.

use crate::bench::profile;
use crate::equal::{any_of, bench_with_tables, compare};
use crate::programs::program;
use proptest::test_runner::TestRunner;
use std::path::Path;
use weir_abi::card::FRAME_BYTES_MAX;

/// Frames of a capture that are compared.
const FRAMES_MAX: usize = 1_000;

/// The first frames of a capture in the classic format, little-endian, of Ethernet.
fn capture(path: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let bytes = std::fs::read(path).expect("the capture is in the repository");
    let number = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("the capture is whole"));
    assert_eq!((number(0), number(20)), (0xa1b2_c3d4, 1), "a capture of Ethernet");
    let mut frames = Vec::new();
    let mut at = 24;
    while at < bytes.len() && frames.len() < FRAMES_MAX {
        let end = at + 16 + number(at + 8) as usize;
        assert_eq!(number(at + 8), number(at + 12), "frames are whole");
        frames.push(bytes[at + 16..end].to_vec());
        at = end;
    }
    frames
}

#[test]
fn captures() {
    let mut runner = TestRunner::deterministic();
    let programs = program();
    let mut bench = bench_with_tables(&any_of(&mut runner, &programs));
    for (epoch, path) in (50..).zip(["examples/edge/attack.pcap", "examples/firewall/connections.pcap"]) {
        let frames = capture(path);
        assert!(frames.len() > 40, "{path} has {} frames", frames.len());
        compare(&mut bench, &profile(), &any_of(&mut runner, &programs), epoch, &frames);
    }
}

/// The length decides, and nothing else in these frames.
#[test]
fn the_longest_frames_with_answers() {
    let mut runner = TestRunner::deterministic();
    let programs = program();
    let mut bench = bench_with_tables(&any_of(&mut runner, &programs));
    let headers = "eth / ip / udp / payload 0";
    let header = weir_test_support::packet(headers).expect("it reads").bytes.len();
    let frames: Vec<Vec<u8>> = [FRAME_BYTES_MAX - 1, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX + 64]
        .map(|length| format!("eth / ip / udp / payload {}", length - header))
        .map(|text| weir_test_support::packet(&text).expect("it reads").bytes)
        .into();
    compare(&mut bench, &profile(), &any_of(&mut runner, &programs), 60, &frames);
}
