//! A flood of SYNs from the client's host, at a given rate at most, from more sources than any table of this scenario holds.

use super::device::PORT;
use super::hosts::{Hosts, SERVER};
use super::segments::{Segment, clients};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir::failure::Failure;
use weir_abi::BURST_MAX;
use weir_engine::live::afpacket::wire::Wire;
use weir_engine::traffic::SMALL_FRAME_BYTES;

/// Maximum number of SYNs per second.
const SYNS_PER_S: u32 = 100_000;
/// Addresses of the sources, and ports of each.
const ADDRESSES: usize = 46_000;
const PORTS: u16 = 8;

/// A flood, which ends when this value is dropped.
pub struct Flood {
    enough: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Flood {
    /// Starts the flood.
    pub fn start(hosts: &Hosts) -> Self {
        let (enough, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count) = (enough.clone(), sent.clone());
        let thread = hosts.client.start(move || flood(&stop, &count));
        Flood { enough, sent, thread: Some(thread) }
    }

    /// Number of SYNs that were sent until now.
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

fn flood(enough: &AtomicBool, sent: &AtomicU64) -> Result<(), Failure> {
    // A packet socket, because not every device takes frames that XDP sends into a veth pair.
    let mut wire = Wire::open_to_send("c")?;
    let addresses = clients(ADDRESSES);
    let sources = (0..PORTS).flat_map(|port| addresses.iter().map(move |&address| (address, 1024 + port)));
    let mut sources = sources.cycle();
    let mut ring = Segment::ring(BURST_MAX);
    let mut due = Instant::now();
    while !enough.load(Ordering::Relaxed) {
        for (index, source) in sources.by_ref().take(BURST_MAX).enumerate() {
            let syn = Segment::SYN.frame_between(source, (SERVER.into(), PORT), SMALL_FRAME_BYTES);
            ring.frame_mut(index).copy_from_slice(&syn);
        }
        wire.send(&ring.burst(0))?;
        sent.fetch_add(BURST_MAX as u64, Ordering::Relaxed);
        // What the machine had no time for is not sent later.
        due = (due + Duration::from_secs(1) * BURST_MAX as u32 / SYNS_PER_S).max(Instant::now());
        thread::sleep(due - Instant::now().min(due));
    }
    Ok(())
}
