//! Measures while the core works for this thread alone.
//!
//! A core has two hardware threads. In a virtual machine the other thread may belong to another tenant. It then takes
//! up to half of the core for some hundred microseconds at a time. A yardstick in front of each stretch of a
//! measurement, and behind it, shows that: no-ops, which need nothing but the front end that both threads share. Alone
//! on the core they always take the same time. A stretch with a slow yardstick at one of its ends is left out.
//!
//! A measurement goes on until it has enough quiet stretches, but not for long. If it has hardly any then, all count.
//! [`Summary`] says how many stretches were quiet, and how many measurements had to count the others.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[cfg(target_arch = "x86_64")]
use weir_engine::tsc;

/// Number of rounds of the yardstick, each of 64 no-ops: about a thousand cycles.
#[cfg(target_arch = "x86_64")]
const ROUNDS: u64 = 100;
/// A yardstick is quiet if it is slower than the fastest of the process by at most this factor.
const QUIET: f64 = 1.04;
/// A measurement that has all its packets goes on for so long, at most, to have quiet stretches.
const PATIENCE: Duration = Duration::from_millis(300);
/// It counts all stretches if the quiet ones have fewer packets than this part of those asked for.
const FEW: usize = 16;
/// How long the fastest yardstick is searched, once per process.
const SEARCH: Duration = Duration::from_millis(50);

static FASTEST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Stretches of the process.
static ALL: AtomicU64 = AtomicU64::new(0);
static ALONE: AtomicU64 = AtomicU64::new(0);
/// Measurements of the process that counted all stretches, because hardly any was quiet.
static SHARED: AtomicU64 = AtomicU64::new(0);

/// Whether measurements end when they have their packets.
static HURRIES: AtomicBool = AtomicBool::new(false);

/// From now on, measurements of this process end when they have their packets, quiet or not. Their figures mean little.
pub fn hurry() {
    HURRIES.store(true, Ordering::Relaxed);
}

/// A measurement in stretches, each of some ten microseconds. Costs have a unit of the caller, such as TSC cycles.
#[derive(Debug)]
pub struct Stretches {
    /// Number of packets that were asked for.
    asked: usize,
    start: Instant,
    /// Whether the yardstick in front of the next stretch was quiet.
    quiet: bool,
    alone: Sum,
    all: Sum,
}

/// The sum of some stretches.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    stretches: u64,
    cost: f64,
    packets: usize,
}

impl Sum {
    fn add(&mut self, cost: f64, packets: usize) {
        self.stretches += 1;
        self.cost += cost;
        self.packets += packets;
    }
}

impl Stretches {
    /// Begins the first stretch of a measurement with about so many packets of quiet stretches.
    pub fn begin(packets: usize) -> Self {
        Stretches {
            asked: packets,
            start: Instant::now(),
            quiet: is_quiet(),
            alone: Sum::default(),
            all: Sum::default(),
        }
    }

    /// Ends a stretch whose packets cost `cost` together, and begins the next one.
    pub fn end(&mut self, cost: f64, packets: usize) {
        let quiet = is_quiet();
        self.all.add(cost, packets);
        if std::mem::replace(&mut self.quiet, quiet) && quiet {
            self.alone.add(cost, packets);
        }
    }

    /// Whether there are enough stretches.
    pub fn is_enough(&self) -> bool {
        let is_late = || HURRIES.load(Ordering::Relaxed) || self.start.elapsed() >= PATIENCE;
        self.alone.packets >= self.asked || (self.all.packets >= self.asked && is_late())
    }

    /// The mean cost of a packet.
    pub fn cost_per_packet(self) -> f64 {
        let Stretches { asked, alone, all, .. } = self;
        ALL.fetch_add(all.stretches, Ordering::Relaxed);
        ALONE.fetch_add(alone.stretches, Ordering::Relaxed);
        let is_shared = alone.packets * FEW < asked;
        SHARED.fetch_add(is_shared.into(), Ordering::Relaxed);
        let sum = if is_shared { all } else { alone };
        sum.cost / sum.packets as f64
    }
}

/// What the measurements of the process have counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The share of all stretches that were quiet.
    pub share: f64,
    /// Number of measurements that counted all stretches, because hardly any was quiet.
    pub shared_measurements: u64,
}

impl Summary {
    /// None if nothing was measured in stretches.
    pub fn of_process() -> Option<Self> {
        let [all, alone, shared] = [&ALL, &ALONE, &SHARED].map(|count| count.load(Ordering::Relaxed));
        (all > 0).then(|| Summary { share: alone as f64 / all as f64, shared_measurements: shared })
    }
}

/// Whether the core works for this thread alone at the moment.
fn is_quiet() -> bool {
    static SEARCHED: Once = Once::new();
    SEARCHED.call_once(|| {
        let start = Instant::now();
        while start.elapsed() < SEARCH {
            FASTEST.fetch_min(yardstick(), Ordering::Relaxed);
        }
    });
    let took = yardstick();
    took as f64 <= FASTEST.fetch_min(took, Ordering::Relaxed) as f64 * QUIET
}

/// The time of the no-ops, in TSC cycles.
#[cfg(target_arch = "x86_64")]
fn yardstick() -> u64 {
    let start = tsc::now();
    // SAFETY: the instructions change one register, which is declared, and touch no memory.
    unsafe {
        std::arch::asm!(
            "2:", ".rept 64", "nop", ".endr", "dec {rounds}", "jnz 2b",
            rounds = inout(reg) ROUNDS => _,
            options(nomem, nostack),
        );
    }
    tsc::now() - start
}

/// There is none for other processors: their cores always count as quiet.
#[cfg(not(target_arch = "x86_64"))]
fn yardstick() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::{FEW, PATIENCE, Stretches};
    use std::time::Instant;

    fn measured(alone: usize, shared: usize) -> Stretches {
        let mut stretches = Stretches { asked: 160, ..Stretches::begin(0) };
        for stretch in 0..alone + shared {
            let cost = if stretch < alone { 1.0 } else { 9.0 };
            stretches.all.add(cost, 1);
            if stretch < alone {
                stretches.alone.add(cost, 1);
            }
        }
        stretches
    }

    #[test]
    fn stretches_of_a_shared_core_do_not_count_unless_there_are_hardly_others() {
        assert!(measured(160, 0).cost_per_packet() == 1.0 && measured(160 / FEW, 800).cost_per_packet() == 1.0);
        assert!(measured(160 / FEW - 1, 800).cost_per_packet() > 8.0 && measured(0, 5).cost_per_packet() == 9.0);
    }

    #[test]
    fn a_measurement_ends_with_enough_quiet_stretches_or_after_its_time() {
        assert!(measured(160, 0).is_enough() && !measured(159, 800).is_enough());
        let long_ago = Instant::now().checked_sub(PATIENCE).expect("the machine runs for longer");
        let ended = |alone, shared| Stretches { start: long_ago, ..measured(alone, shared) }.is_enough();
        assert!(ended(0, 160) && ended(1, 159) && !ended(0, 159));
    }

    #[test]
    fn every_stretch_is_counted() {
        let mut stretches = Stretches::begin(200);
        (0..100).for_each(|_| stretches.end(3.0, 2));
        assert_eq!((stretches.all.stretches, stretches.all.packets), (100, 200));
        assert!(stretches.alone.stretches <= 100 && stretches.cost_per_packet() == 1.5);
    }
}
