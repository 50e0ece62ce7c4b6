//! Finds out when packets see a change.
//!
//! A thread sends packets from one source, each with a number, and remembers when. Another thread remembers which
//! arrived. The kernel hands packets over a block at a time, milliseconds late, so only the times of sending count.
//! After an address was blocked, the first packet that did not arrive has seen the change; after it was released, the
//! first one that arrived. The time is therefore too long by up to the distance of two packets.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::live::afpacket::wire::Wire;
use weir_engine::{EngineError, traffic};

/// Pause between two packets. The kernel adds its timer slack of 50 us.
const PAUSE: Duration = Duration::from_micros(5);
/// Numbers of packets whose times are remembered.
const REMEMBERED: usize = 1 << 16;
/// Time for which packets on their way may still arrive.
const SETTLE: Duration = Duration::from_millis(20);
/// Maximum time until a change is seen.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Offset of a packet's number: behind Ethernet, IPv4 and UDP.
const NUMBER_AT: usize = 42;

/// The state that the threads share.
struct Shared {
    start: Instant,
    stop: AtomicBool,
    /// The source.
    address: AtomicU32,
    /// The number of the next packet, from 1.
    next: AtomicU64,
    /// When each packet was sent, in ns since `start`, by its number.
    sent_ns: Vec<AtomicU64>,
    /// The number of the last packet that arrived.
    arrived: AtomicU64,
    /// The number of each packet that arrived, by its number.
    each_arrived: Vec<AtomicU64>,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn sent_ns(&self, number: u64) -> u64 {
        self.sent_ns[number as usize % REMEMBERED].load(Ordering::Acquire)
    }

    fn send(&self, interface: &str) -> Result<(), EngineError> {
        let mut wire = Wire::open(interface)?;
        let mut frames = traffic::packets_from(&[0]);
        while !self.stop.load(Ordering::Relaxed) {
            let frame = frames.frame_mut(0);
            traffic::set_source(frame, self.address.load(Ordering::Acquire));
            let number = self.next.load(Ordering::Relaxed);
            frame[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&number.to_be_bytes());
            self.sent_ns[number as usize % REMEMBERED].store(self.now_ns(), Ordering::Release);
            self.next.store(number + 1, Ordering::Release);
            wire.send(&frames.burst(0))?;
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn receive(&self, interface: &str) -> Result<(), EngineError> {
        let mut wire = Wire::open(interface)?;
        while !self.stop.load(Ordering::Relaxed) {
            wire.receive(Duration::from_millis(5), |burst| {
                for index in 0..burst.len() {
                    let bytes = burst.bytes(index);
                    if let Some(number) = bytes.get(NUMBER_AT..NUMBER_AT + 8) {
                        let number = u64::from_be_bytes(number.try_into().expect("eight bytes"));
                        self.each_arrived[number as usize % REMEMBERED].store(number, Ordering::Release);
                        self.arrived.fetch_max(number, Ordering::AcqRel);
                    }
                }
            })?;
        }
        Ok(())
    }
}

/// Packets from one source through Weir.
pub struct Probe {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), EngineError>>>,
}

impl Probe {
    /// Starts to send on one interface and to receive on another. The source is 10.0.0.1 at first.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub fn start(source: &'static str, sink: &'static str) -> Result<Self, Failure> {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            stop: AtomicBool::new(false),
            address: AtomicU32::new(10 << 24 | 1),
            next: AtomicU64::new(1),
            sent_ns: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
            arrived: AtomicU64::new(0),
            each_arrived: (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect(),
        });
        let (sender, receiver) = (shared.clone(), shared.clone());
        let threads = vec![thread::spawn(move || receiver.receive(sink)), thread::spawn(move || sender.send(source))];
        Ok(Probe { shared, threads })
    }

    /// Time since the start, ns.
    pub fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    /// Changes the source, and waits until its packets arrive.
    ///
    /// # Errors
    /// They do not arrive in time.
    pub fn watch(&self, address: u32) -> Result<(), Failure> {
        self.shared.address.store(address, Ordering::Release);
        // A packet of the previous source may be on its way.
        let from = self.shared.next.load(Ordering::Acquire) + 1;
        self.wait("packets do not arrive", || self.shared.arrived.load(Ordering::Acquire) > from)
    }

    /// Microseconds from `asked_ns` until the first packet that does not arrive any more.
    ///
    /// # Errors
    /// Packets arrive for too long.
    pub fn blocked_after_us(&self, asked_ns: u64) -> Result<f64, Failure> {
        let mut last = self.shared.arrived.load(Ordering::Acquire);
        let mut since = Instant::now();
        self.wait("packets of a blocked source arrive", || {
            let now = self.shared.arrived.load(Ordering::Acquire);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() > SETTLE
        })?;
        Ok(self.after_us(last + 1, asked_ns))
    }

    /// Microseconds from `asked_ns` until the first packet that arrives again.
    ///
    /// # Errors
    /// No packet arrives in time.
    pub fn passed_after_us(&self, asked_ns: u64) -> Result<f64, Failure> {
        // The packets after this one were sent after the request, or just before it.
        let before = self.shared.arrived.load(Ordering::Acquire);
        self.wait("packets of a released source do not arrive", || {
            self.shared.arrived.load(Ordering::Acquire) > before
        })?;
        let arrived =
            |&number: &u64| self.shared.each_arrived[number as usize % REMEMBERED].load(Ordering::Acquire) == number;
        let first = (before + 1..).find(arrived).expect("a later packet has arrived");
        Ok(self.after_us(first, asked_ns))
    }

    fn after_us(&self, number: u64, asked_ns: u64) -> f64 {
        self.shared.sent_ns(number).saturating_sub(asked_ns) as f64 / 1e3
    }

    fn wait(&self, problem: &str, mut done: impl FnMut() -> bool) -> Result<(), Failure> {
        let start = Instant::now();
        while !done() {
            if start.elapsed() > TIMEOUT || self.threads.iter().any(JoinHandle::is_finished) {
                return Err(Failure::Runtime(format!("probe: {problem}")));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends the threads.
    ///
    /// # Errors
    /// An interface failed.
    pub fn end(mut self) -> Result<(), Failure> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))?;
        }
        Ok(())
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}
