//! A flood of SYNs from the client's host, at a fixed rate, from more sources than any table of this scenario holds.

use super::device::PORT;
use super::hosts::{Hosts, SERVER};
use super::segments::{Segment, clients};
use nix::net::if_::if_nametoindex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir::failure::Failure;
use weir_engine::clang::BpfObject;
use weir_engine::traffic::SMALL_FRAME_BYTES;
use weir_engine::xdp::generate::Generator;

/// Number of SYNs per second.
pub const SYNS_PER_S: u32 = 100_000;
/// SYNs that are sent at once. A call of the generator takes 20 ms.
const AT_ONCE: u32 = 64 * 48;
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
    /// Starts the flood. `generator` is the result of [`Generator::compile`].
    pub fn start(hosts: &Hosts, generator: &Arc<BpfObject>) -> Self {
        let (enough, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stop, count, object) = (enough.clone(), sent.clone(), generator.clone());
        let thread = hosts.client.start(move || flood(&object, &stop, &count));
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

fn flood(object: &BpfObject, enough: &AtomicBool, sent: &AtomicU64) -> Result<(), Failure> {
    let index = if_nametoindex("c").map_err(|error| Failure::Runtime(format!("interface c: {error}")))?;
    let sources = clients(ADDRESSES);
    let generators = (0..PORTS).map(|port| {
        let server = (u32::from(SERVER), PORT);
        let syn = Segment::SYN.frame_between((sources[0], 1024 + port), server, SMALL_FRAME_BYTES);
        Generator::load(object, index, &syn, &sources)
    });
    let mut generators = generators.collect::<Result<Vec<_>, _>>()?;
    let (start, mut next) = (Instant::now(), 0);
    while !enough.load(Ordering::Relaxed) {
        generators[next].send(AT_ONCE)?;
        next = (next + 1) % generators.len();
        let all = sent.fetch_add(AT_ONCE.into(), Ordering::Relaxed) + u64::from(AT_ONCE);
        let due = Duration::from_secs_f64(all as f64 / f64::from(SYNS_PER_S));
        thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(())
}
