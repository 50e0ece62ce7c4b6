//! Control frames to the letter, frames to the network, a card without configuration, and frames of any length.

use crate::bench::{Bench, Port, Sent};
use crate::configure::{answer, configuration, frame, no_seal, read, seal, send};
use crate::programs::program;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use weir_abi::card::{control, memory};

const TOKEN: u64 = 0x5a_1122_3344;

/// What the software sends to the network leaves as it is, also between control frames and while all streams stall.
#[test]
fn frames_pass_to_the_network() {
    let mut bench = Bench::new();
    let frames: Vec<Vec<u8>> = (1..=300).map(|length| (0..length).map(|byte| byte as u8).collect()).collect();
    let mut sent: Vec<Sent> = Vec::new();
    for bytes in &frames {
        sent.push(Sent::new(Port::Host, bytes.clone()));
        sent.push(Sent::new(Port::Host, frame(control::READ, memory::CONFIG, 0, 6, 1, &[])));
    }
    // A frame that ends in its header is none of control.
    sent.push(Sent::new(Port::Host, frame(control::COMMIT, 0, 0, 0, 0, &[])[..23].to_vec()));
    let left = bench.run(&sent, [0, 60, 120, 120]);
    let to_wire = left.iter().filter(|left| left.port == Port::Wire).map(|left| &left.bytes);
    assert!(to_wire.eq(frames.iter().chain([&sent.last().expect("it is there").bytes])));
    assert_eq!(left.iter().filter(|left| left.port == Port::Host).count(), frames.len());
}

/// Before the first commit nothing is appended, and control frames from the network are packets.
#[test]
fn without_configuration_frames_pass_as_they_are() {
    let mut bench = Bench::new();
    let mut frames: Vec<Vec<u8>> = (1..=200).map(|length| vec![length as u8; length]).collect();
    frames.push(frame(control::COMMIT, 0, 0, 0, 0, &[]));
    frames.push(vec![7; 40_000]);
    let sent: Vec<_> = frames.iter().map(|bytes| Sent::new(Port::Wire, bytes.clone())).collect();
    let left = bench.run(&sent, [30, 0, 90, 0]);
    assert!(left.iter().map(|left| &left.bytes).eq(&frames));
}

/// Frames of more than 16,320 bytes are longer than what a decision waits for: they get the seal alone.
#[test]
fn giants_get_no_answers() {
    let mut bench = Bench::new();
    let program = program().new_tree(&mut TestRunner::deterministic()).expect("it rejects nothing").current();
    send(&mut bench, configuration(&program, TOKEN, 3));
    let alone = (seal(TOKEN, 3) & !(1 << 23)).to_le_bytes();
    let frames: Vec<Vec<u8>> = [16_321, 16_384, 16_385, 40_000, 100_000].map(|length| vec![0; length]).into();
    let sent: Vec<_> = frames.iter().map(|bytes| Sent::new(Port::Wire, bytes.clone())).collect();
    let left = bench.run(&sent, [30, 0, 90, 0]);
    assert_eq!(left.len(), frames.len());
    for (left, sent) in left.iter().zip(&frames) {
        assert!(left.bytes == [sent.as_slice(), &alone].concat(), "{} bytes", sent.len());
    }
}

/// What was written is read back from the same bank, and nothing is outside of a memory.
#[test]
fn memories_have_their_sizes() {
    let mut bench = Bench::new();
    let sizes = [
        (memory::CONFIG, 6u32),
        (memory::PATTERNS, 64 * 32),
        (memory::SELECT, 56),
        (memory::LOOKUPS, 6),
        (memory::DIRECT, 32_768),
        (memory::DIRECT + 5, 32_768),
        (memory::EXTENSION, 256 * 16),
        (memory::EXTENSION + 5, 256 * 16),
    ];
    for (number, size) in sizes {
        for first in [0, size.saturating_sub(8), size - 2, size, 1 << 17, (1 << 20) + 1, u32::MAX - 3] {
            let words: Vec<u32> = (1..=10).map(|word| word * 0x0101_0101).collect();
            send(&mut bench, vec![frame(control::WRITE, number, first, 10, 9, &words)]);
            let exists = |index: u32| {
                let at = first.checked_add(index).filter(|at| *at < size);
                at.is_some_and(|at| number != memory::PATTERNS || at % 32 < 18)
            };
            let expected: Vec<u32> =
                (0..10).map(|index| if exists(index) { words[index as usize] } else { 0 }).collect();
            assert_eq!(read(&mut bench, number, first, 10), expected, "memory {number} from {first}");
        }
    }
    for number in [7, 15, 22, 30, 31, 32, 255, memory::COUNTERS, memory::COUNTERS_BEFORE] {
        send(&mut bench, vec![frame(control::WRITE, number, 0, 2, 9, &[1, 2])]);
        assert_eq!(read(&mut bench, number, 0, 2), [0, 0], "memory {number}");
    }
}

/// Every kind of answer, and control frames that are refused.
#[test]
fn answers_are_those_of_the_page() {
    let mut bench = Bench::new();
    let words: Vec<u32> = (0..256).map(|word| 0x1000_0000 + word).collect();
    let check = |bench: &mut Bench, sent: Vec<u8>, words: &[u32], seal: u64| {
        let left = send(bench, vec![sent.clone()]);
        assert_eq!(left[0].bytes, answer(&sent, words, seal), "of {sent:02x?}");
    };
    check(&mut bench, frame(control::WRITE, memory::DIRECT, 0, 256, 1, &words), &[], no_seal());
    for count in [0, 1, 8, 9, 10, 11, 25, 26, 27, 255, 256] {
        let sent = frame(control::READ, memory::DIRECT, 0, count as u16, 2, &[]);
        check(&mut bench, sent, &words[..count], no_seal());
    }
    let refused = |sent: Vec<u8>| {
        let mut expected = answer(&sent, &[], no_seal());
        expected[20..22].fill(0);
        (sent, expected)
    };
    for (sent, expected) in [
        refused(frame(control::READ, memory::DIRECT, 0, 257, 3, &[])),
        refused(frame(control::WRITE, memory::DIRECT, 0, 257, 3, &[0; 257])),
        refused(frame(control::WRITE, memory::DIRECT, 0, 100, 3, &[0; 99])),
        refused(frame(0, memory::DIRECT, 0, 4, 3, &[0; 4])),
        refused(frame(4, memory::DIRECT, 0, 4, 3, &[0; 4])),
    ] {
        let left = send(&mut bench, vec![sent.clone()]);
        assert_eq!(left[0].bytes, expected, "of {:02x?}", &sent[..24]);
    }
    assert_eq!(read(&mut bench, memory::DIRECT, 0, 256), words, "what is refused writes nothing");
    let alone = [0x0500_0007, 0x0102_0304];
    send(&mut bench, vec![frame(control::WRITE, memory::CONFIG, 2, 2, 4, &alone)]);
    let seal = seal(0x01_0203_0405, 7);
    check(&mut bench, frame(control::COMMIT, 0, 0, 0, 5, &[]), &[], seal);
    // The other bank is written and read from now on.
    check(&mut bench, frame(control::READ, memory::CONFIG, 2, 2, 6, &[]), &[0, 0], seal);
}
