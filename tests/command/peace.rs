//! Everyday traffic leads to no action: a recording of it repeated for minutes, or for hours with `WEIR_PEACE_HOURS`.
//!
//! `WEIR_PEACE_CAPTURE` names another recording with legitimate packets only: a classic little-endian pcap of Ethernet
//! whose protected hosts are in 10.0.0.0/24.

use crate::detect::{example, is_attack, records};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use std::{env, fs, thread};

const MICROS: u64 = 1_000_000;
const DEFAULT_MINUTES: u64 = 3;
const INSIDE: [u8; 3] = [10, 0, 0];
/// Bytes of an Ethernet frame before the IPv4 source, which is followed by the destination.
const ADDRESSES_AT: usize = 26;

/// A recording that is played over and over again.
struct Loop<'a> {
    recording: &'a [(u64, &'a [u8])],
    /// Time from the first packet of a round to the first packet of the next.
    period: u64,
    /// When the first packet of round 0 is sent; before the start, a part of the round is left out.
    offset: i64,
    /// Players of different numbers have different clients.
    number: u16,
    next: usize,
    round: u64,
}

impl Loop<'_> {
    fn time(&self) -> i64 {
        self.offset + (self.round * self.period + self.recording[self.next].0) as i64
    }

    fn advance(&mut self) {
        self.next += 1;
        if self.next == self.recording.len() {
            (self.next, self.round) = (0, self.round + 1);
        }
    }

    /// The current packet, with clients of this player. Checksums become wrong, which detection does not read.
    fn frame(&self) -> Vec<u8> {
        let mut frame = self.recording[self.next].1.to_vec();
        if frame[12..14] == [8, 0] {
            for address in [ADDRESSES_AT, ADDRESSES_AT + 4] {
                if frame[address..address + 3] != INSIDE {
                    frame[address + 1] ^= (self.number >> 8) as u8;
                    frame[address + 2] ^= self.number as u8;
                }
            }
        }
        frame
    }
}

/// When `players` play the recording beside each other, in microseconds from the start.
struct Span {
    players: u16,
    from: u64,
    until: u64,
}

/// Writes all that the players send as a capture, and returns the number of packets.
fn write(out: impl Write, recording: &[(u64, &[u8])], spans: &[Span]) -> u64 {
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let words = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 0x0004_0000, 1_u32];
    out.write_all(&words.map(u32::to_le_bytes).concat()).expect("the report is read at the end");
    let start = recording[0].0;
    let relative: Vec<(u64, &[u8])> = recording.iter().map(|&(time, frame)| (time - start, frame)).collect();
    // One more pause of the mean length between rounds.
    let length = relative.last().expect("there are packets").0;
    let period = length + length / relative.len() as u64;
    let mut players: Vec<(Loop<'_>, i64)> = Vec::new();
    for span in spans {
        for number in 0..span.players {
            // The golden ratio spreads their phases.
            let phase = (u64::from(number) * 618_034 % MICROS) * period / MICROS;
            let offset = span.from as i64 - phase as i64;
            let mut player = Loop { recording: &relative, period, offset, number, next: 0, round: 0 };
            while player.time() < span.from as i64 {
                player.advance();
            }
            players.push((player, span.until as i64));
        }
    }
    let mut heap: BinaryHeap<_> =
        players.iter().enumerate().map(|(index, (player, _))| Reverse((player.time(), index))).collect();
    let mut packets = 0;
    while let Some(Reverse((time, index))) = heap.pop() {
        let (player, until) = &mut players[index];
        if time >= *until {
            continue;
        }
        let (frame, time) = (player.frame(), time as u64);
        let head = [(time / MICROS) as u32, (time % MICROS) as u32, frame.len() as u32, frame.len() as u32];
        out.write_all(&head.map(u32::to_le_bytes).concat()).expect("it reads on");
        out.write_all(&frame).expect("it reads on");
        packets += 1;
        player.advance();
        heap.push(Reverse((player.time(), index)));
    }
    packets
}

/// Has `weir detect` read what the players send. There must be no attack, so no action, whether it is told which hosts
/// to protect or not.
fn is_peaceful(name: &str, spans: &[Span]) {
    for inside in [&["--inside", "10.0.0.0/24"][..], &[]] {
        is_peaceful_for(inside, name, spans);
    }
}

fn is_peaceful_for(inside: &[&str], name: &str, spans: &[Span]) {
    let bytes = env::var_os("WEIR_PEACE_CAPTURE").map(|path| fs::read(path).expect("the capture is readable"));
    let is_example = bytes.is_none();
    let bytes = bytes.unwrap_or_else(example);
    let mut recording = records(&bytes);
    recording.retain(|(_, frame)| !(is_example && is_attack(frame)));
    assert!(recording.len() > 1000, "{} packets", recording.len());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["detect", "-", "--json"]).args(inside);
    let mut weir = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program was built");
    let stdin = weir.stdin.take().expect("it is a pipe");
    let (written, output) = thread::scope(|scope| {
        let writer = scope.spawn(|| write(stdin, &recording, spans));
        let output = weir.wait_with_output().expect("it ends with its input");
        (writer.join().expect("everything is written"), output)
    });
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(report["packets"], written, "{name} {inside:?}");
    assert_eq!(report["attacks"], serde_json::json!([]), "{name} {inside:?}: {written} packets");
    println!("{name} {inside:?}: {written} packets");
}

fn length() -> u64 {
    let hours = env::var("WEIR_PEACE_HOURS").ok().map(|text| text.parse::<f64>().expect("a number of hours"));
    hours.map_or(DEFAULT_MINUTES * 60, |hours| (hours * 3600.0) as u64) * MICROS
}

#[test]
fn everyday_traffic_is_no_attack() {
    is_peaceful("1x", &[Span { players: 1, from: 0, until: length() }]);
}

#[test]
fn five_times_of_it_is_no_attack() {
    is_peaceful("5x", &[Span { players: 5, from: 0, until: length() }]);
}

/// In the middle, twenty times as many clients come at once and stay for a while.
#[test]
fn a_flash_crowd_is_no_attack() {
    let (all, middle) = (length(), length() / 2);
    let crowd = Span { players: 20, from: middle, until: middle + (all / 6).min(600 * MICROS) };
    is_peaceful("crowd", &[Span { players: 1, from: 0, until: all }, crowd]);
}
