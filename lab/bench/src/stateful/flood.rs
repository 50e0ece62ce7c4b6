//! Floods from the client's host, at a given rate at most. SYNs and ACKs have more sources than any table of this
//! scenario holds; forged resets have the sources of the real clients.

use super::device::PORT;
use super::hosts::{CLIENT, Hosts, SERVER, servers};
use super::segments::{Segment, clients};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_abi::BURST_MAX;
use weir_command::failure::Failure;
use weir_engine::live::afpacket::wire::Wire;
use weir_engine::traffic::SMALL_FRAME_BYTES;

/// Maximum number of packets per second.
const PACKETS_PER_S: u32 = 100_000;
/// Addresses of the sources, and ports of each.
const ADDRESSES: usize = 46_000;
const PORTS: u16 = 8;

/// What floods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SYNs of clients that do not exist.
    Syn,
    /// ACKs of such clients, with any numbers.
    Ack,
    /// Resets in the name of the real client, for any of its ports and with any numbers.
    Reset,
}

impl Kind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Syn => "SYN",
            Kind::Ack => "ACK",
            Kind::Reset => "RST",
        }
    }

    fn segment(self, nth: u32) -> Segment {
        // A Weyl sequence: numbers all over the range.
        let seq = nth.wrapping_mul(0x9e37_79b1);
        match self {
            Kind::Syn => Segment::SYN,
            Kind::Ack => Segment::ACK.with_numbers(seq, seq.rotate_left(16)),
            Kind::Reset => Segment::RESET.with_numbers(seq, 0),
        }
    }
}

/// A flood, which ends when this value is dropped.
pub struct Flood {
    enough: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Flood {
    /// Starts the flood.
    pub fn start(hosts: &Hosts, kind: Kind) -> Self {
        let (enough, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (enough.clone(), sent.clone());
        let thread = hosts.client.start(move || flood(kind, &stop, &count));
        Flood { enough, sent, thread: Some(thread) }
    }

    /// Number of packets that were sent until now.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends the flood.
    ///
    /// # Errors
    /// It failed.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.enough.store(true, Ordering::Relaxed);
        self.thread.take().expect("it is there until now").join().expect("it returns errors")
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

fn flood(kind: Kind, enough: &AtomicBool, sent: &AtomicU64) -> Result<(), Failure> {
    // A packet socket, because not every device takes frames that XDP sends into a veth pair.
    let mut wire = Wire::open_to_send("c")?;
    let addresses = clients(ADDRESSES);
    let strangers = (0..PORTS).flat_map(|port| addresses.iter().map(move |&address| (address, 1024 + port)));
    let targets: Vec<u32> = servers().map(u32::from).collect();
    let mut strangers = strangers.cycle();
    let mut between = |nth: u32| match kind {
        Kind::Syn | Kind::Ack => (strangers.next().expect("it is a cycle"), SERVER.into()),
        // One port after the other, for each address of the server.
        Kind::Reset => {
            let (port, target) = (nth / targets.len() as u32 % 64_512, nth as usize % targets.len());
            ((CLIENT.into(), 1024 + port as u16), targets[target])
        }
    };
    let mut nth = 0;
    let mut ring = Segment::ring(BURST_MAX);
    let mut due = Instant::now();
    while !enough.load(Ordering::Relaxed) {
        for index in 0..BURST_MAX {
            let (source, target) = between(nth);
            let frame = kind.segment(nth).frame_between(source, (target, PORT), SMALL_FRAME_BYTES);
            ring.frame_mut(index).copy_from_slice(&frame);
            nth = nth.wrapping_add(1);
        }
        wire.send(&ring.burst(0))?;
        sent.fetch_add(BURST_MAX as u64, Ordering::Relaxed);
        // What the machine had no time for is not sent later.
        due = (due + Duration::from_secs(1) * BURST_MAX as u32 / PACKETS_PER_S).max(Instant::now());
        thread::sleep(due - Instant::now().min(due));
    }
    Ok(())
}
