//! Sends frames to interfaces and receives them, byte for byte.

use crate::BETWEEN_BURSTS;
use crate::device_under_test::TIMEOUT;
use crate::hosts::Host;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::{Client, Request, Stats};
use weir_engine::FrameBurst;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

/// Sets the flag when it is dropped, also by a panic. A scope waits for its threads even then.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Frames from text, one per line.
pub fn frames(text: &str) -> Vec<Vec<u8>> {
    let packets = weir_test_support::packets(text).unwrap_or_else(|error| panic!("{error}"));
    packets.into_iter().map(|packet| packet.bytes).collect()
}

/// Packets of `count` flows to a port, each `times` times.
pub fn flows(count: u32, times: usize, dport: u16) -> Vec<Vec<u8>> {
    let flow = |n: u32| {
        format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport={} dport={dport} / payload 32\n", 1000 + n)
    };
    let once = frames(&(0..count).map(flow).collect::<String>());
    std::iter::repeat_n(once, times).flatten().collect()
}

/// Sends frames from an interface of a host, no faster than the receiver processes them.
pub fn send(host: &Host, interface: &str, frames: &[Vec<u8>]) {
    let (interface, frames) = (interface.to_owned(), frames.to_vec());
    let sent = host.start(move || put_on(&interface, &frames));
    sent.join().expect("all are sent");
}

/// Sends frames on one queue, like a card with several queues: frames from a core use the queue of the same number.
pub fn send_on_queue(host: &Host, interface: &str, queue: usize, frames: &[Vec<u8>]) {
    let (interface, frames) = (interface.to_owned(), frames.to_vec());
    let sent = host.start(move || {
        weir_engine::cpu::pin_to(queue).expect("there are as many cores");
        put_on(&interface, &frames);
    });
    sent.join().expect("all are sent");
}

/// Sends frames from an interface of this thread's host. Returns their number.
pub fn put_on(interface: &str, frames: &[Vec<u8>]) -> u64 {
    let mut wire = Wire::open(interface).expect("the host has the wire");
    put_through(&mut wire, frames)
}

/// Sends frames through an open interface. Returns their number.
pub fn put_through(wire: &mut Wire, frames: &[Vec<u8>]) -> u64 {
    let (start, before) = (Instant::now(), wire.counters().tx_packets);
    for (number, frame) in frames.iter().enumerate() {
        let one = FrameSet::new(Link::Ethernet, [(frame.as_slice(), frame.len() as u32)]);
        // A full interface accepts the frame later.
        while wire.counters().tx_packets == before + number as u64 {
            wire.send(&one.burst(0)).expect("the wire takes frames");
            assert!(start.elapsed() < TIMEOUT, "{:?}", wire.counters());
        }
        if number % 64 == 63 || number + 1 == frames.len() {
            std::thread::sleep(BETWEEN_BURSTS);
        }
    }
    frames.len() as u64
}

/// Lets senders send upstream as fast as Weir decides: on a busy machine a worker may not run for a while, and a packet
/// that is lost in front of Weir looks like one that Weir dropped.
pub struct Pace {
    client: Client,
    /// Number of packets that were decided when Weir was last asked.
    decided: u64,
}

impl Pace {
    /// Number of packets that may wait in front of Weir: less than a receive queue holds.
    const AHEAD: u64 = 512;

    pub fn of(control: &Path) -> Self {
        Pace { client: Client::connect(control).expect("it listens"), decided: 0 }
    }

    /// Waits until Weir has decided almost all of `sent` packets, which all senders together have sent since its start.
    pub fn wait(&mut self, sent: u64) {
        let start = Instant::now();
        while self.decided + Self::AHEAD < sent {
            assert!(start.elapsed() < TIMEOUT, "{} of {sent} packets are decided", self.decided);
            let stats = self.client.ask(&Request::Stats).expect("it answers");
            self.decided = weir_control::read::<Stats>(stats).expect("stats").upstream.total.packets;
        }
    }
}

/// A sender with an open interface, which sends immediately when told. Opening an interface would wait for the kernel's
/// lock on all interfaces.
pub struct Ready {
    go: Sender<()>,
    sends: JoinHandle<u64>,
}

impl Ready {
    pub fn to_send(host: &Host, interface: &str, frames: &[Vec<u8>]) -> Self {
        let (interface, frames) = (interface.to_owned(), frames.to_vec());
        let ((go, start), (ready, is_ready)) = (channel(), channel());
        let sends = host.start(move || {
            let mut wire = Wire::open(&interface).expect("the host has the wire");
            ready.send(()).expect("somebody waits");
            start.recv().expect("somebody tells");
            put_through(&mut wire, &frames)
        });
        is_ready.recv().expect("the wire is open");
        Ready { go, sends }
    }

    /// Sends all frames. Returns their number.
    pub fn send(self) -> u64 {
        self.go.send(()).expect("it waits");
        self.sends.join().expect("all are sent")
    }
}

/// A receiver that records the frames at an interface.
pub struct Listener<N = Vec<Vec<u8>>> {
    /// Requests the stop after at least this many frames.
    enough: Sender<usize>,
    notes: JoinHandle<(N, u64)>,
}

/// A listener stops after this time without a frame.
const SILENCE: Duration = Duration::from_millis(20);

impl Listener {
    /// Records every frame.
    pub fn at(host: &Host, interface: &str) -> Self {
        Self::listen(host, interface, |notes, burst| {
            notes.extend((0..burst.len()).map(|index| burst.bytes(index).to_vec()));
            notes.len()
        })
    }

    /// The recorded frames, after at least `least` arrived and no more are coming. A busy machine may deliver late.
    pub fn received(self, least: usize) -> Vec<Vec<u8>> {
        self.notes(least)
    }
}

impl Listener<usize> {
    /// Counts frames.
    pub fn counting(host: &Host, interface: &str) -> Self {
        Self::listen(host, interface, |count, burst| {
            *count += burst.len();
            *count
        })
    }

    /// The number of frames, after at least `least` arrived and no more are coming.
    pub fn count(self, least: usize) -> u64 {
        // Frames that overflowed our socket did arrive.
        let (count, missed) = self.stop(least);
        count as u64 + missed
    }
}

impl<T: Send + 'static> Listener<Vec<T>> {
    /// Records what `note` takes from frames.
    pub fn noting(host: &Host, interface: &str, note: fn(&mut Vec<T>, &FrameBurst<'_>) -> usize) -> Self {
        Self::listen(host, interface, note)
    }

    /// The records, after at least `least` frames arrived and no more are coming.
    pub fn notes(self, least: usize) -> Vec<T> {
        let (notes, missed) = self.stop(least);
        assert_eq!(missed, 0, "the listener was kept from its core for too long");
        notes
    }
}

impl<N: Default + Send + 'static> Listener<N> {
    /// Starts recording. `note` returns the number of recorded frames.
    fn listen(host: &Host, interface: &str, note: fn(&mut N, &FrameBurst<'_>) -> usize) -> Self {
        let interface = interface.to_owned();
        let ((enough, request), (ready, is_ready)) = (channel(), channel());
        let notes = host.start(move || {
            let mut wire = Wire::open(&interface).expect("the host has the wire");
            ready.send(()).expect("somebody waits");
            let (mut notes, mut noted, mut missed) = (N::default(), 0, 0);
            let mut least = None;
            loop {
                // The request is read before the interface, so that all frames before it are read.
                least = least.or_else(|| request.try_recv().ok().map(|least: usize| (least, Instant::now())));
                let more = wire.receive(SILENCE, |burst| noted = note(&mut notes, burst));
                missed += wire.missed();
                let all = |(least, since): (usize, Instant)| {
                    noted as u64 + missed >= least as u64 || since.elapsed() > TIMEOUT
                };
                if more.expect("the wire gives frames") == 0 && least.is_some_and(all) {
                    return (notes, missed);
                }
            }
        });
        is_ready.recv().expect("the wire is open");
        Listener { enough, notes }
    }

    fn stop(self, least: usize) -> (N, u64) {
        self.enough.send(least).expect("it listens");
        self.notes.join().expect("it listened")
    }
}

/// The interpreter's verdict on each frame, and its report.
pub fn interpreted(
    folder: &Path,
    policy: &str,
    direction: &str,
    frames: &[Vec<u8>],
) -> (Vec<String>, serde_json::Value) {
    let capture = folder.join(format!("{direction}.pcap"));
    std::fs::write(&capture, pcap(frames)).expect("the folder can be written to");
    let replay = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["replay", policy, "--engine", "eval", "--json", "--verdicts", "--direction", direction, "--in"])
        .arg(&capture)
        .current_dir(folder)
        .output()
        .expect("the program was built");
    let stderr = String::from_utf8_lossy(&replay.stderr);
    let report: serde_json::Value = serde_json::from_slice(&replay.stdout).unwrap_or_else(|_| panic!("{stderr}"));
    let verdicts = report["verdicts"].as_array().expect("asked for").iter();
    (verdicts.map(|verdict| verdict.as_str().expect("a word").to_owned()).collect(), report)
}

/// A capture of complete Ethernet frames (draft-ietf-opsawg-pcap).
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&[0xa1b2_c3d4, 2 | 4 << 16, 0, 0, 1 << 16, 1]);
    for frame in frames {
        let length = frame.len() as u32;
        bytes.extend(words(&[0, 0, length, length]));
        bytes.extend(frame);
    }
    bytes
}
