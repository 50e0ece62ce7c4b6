//! The memory engine: the speed of workers whose packets cost nothing to receive and send.
//!
//! Each worker has its own core and packets. It measures the CPU time of its thread per million packets. Other
//! processes on the core therefore do not affect the result, but workers affect each other through caches and memory.
//! Turns with one and two workers alternate.

use super::rulesets::Ruleset;
use crate::row::Row;
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_abi::Verdict;
use weir_command::failure::Failure;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::memory_lane::{MemoryLane, Witness};
use weir_engine::live::{Datapath, Lane, Loaded, Side, Workers};
use weir_engine::measure::Spread;
use weir_engine::traffic;

/// Number of packets of each worker. With their descriptors they take 5 MB, more than the caches of a core.
const PACKETS: usize = 1 << 16;
/// The maximum duration of a turn.
const TURN_MAX: Duration = Duration::from_secs(20);
/// Numbers of workers.
const WORKERS: [usize; 2] = [1, 2];

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of turns for each number of workers.
    pub rounds: usize,
    /// Number of windows of each worker in a turn.
    pub windows: usize,
    /// Number of packets per measured window.
    pub window: u64,
}

/// Nanoseconds per packet of each window.
type Windows = Arc<Mutex<Vec<f64>>>;

/// Measures the time of one worker.
struct Clock {
    windows: Windows,
    /// Number of packets per window.
    window: u64,
    packets: u64,
    /// CPU time of the thread at the start of the window; `None` before the first packet.
    began: Option<Duration>,
}

impl Witness for Clock {
    fn decided(&mut self, _: Side, verdicts: &[Verdict]) {
        self.packets += verdicts.len() as u64;
        if self.packets < self.window && self.began.is_some() {
            return;
        }
        let now = thread_time();
        if let Some(began) = self.began {
            let ns = (now - began).as_secs_f64() * 1e9 / self.packets as f64;
            self.windows.lock().unwrap_or_else(PoisonError::into_inner).push(ns);
        }
        (self.began, self.packets) = (Some(now), 0);
    }
}

/// CPU time of this thread.
pub fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// Measures a ruleset. Returns one row for each number of workers.
///
/// # Errors
/// The policy cannot be compiled, or a worker fails.
pub fn rows(ruleset: &Ruleset, effort: Effort, row: &Row) -> Result<Vec<Row>, Failure> {
    let policy = &ruleset.policy;
    let code = policy.compile_native(Cpu::Native)?.load(policy.bind(None)?)?;
    let loaded = Loaded::plain(code, [0, 1]);
    let frames = |seed| Arc::new(traffic::packets_from(&ruleset.sources(PACKETS, seed)));
    let frames: Vec<Arc<FrameSet>> = (0..WORKERS[1]).map(|worker| frames(11 + worker as u64)).collect();
    let mut samples: [Vec<f64>; WORKERS.len()] = Default::default();
    for _ in 0..effort.rounds {
        for (workers, samples) in WORKERS.into_iter().zip(&mut samples) {
            samples.push(turn(&loaded, &frames[..workers], effort)?);
        }
    }
    let row = row.clone().of("engine", "memory").of("ruleset", ruleset.name);
    Ok(to_rows(&row, &samples))
}

/// Runs one worker for each set of frames. Returns the sum of their rates in millions of packets per second.
fn turn(loaded: &Loaded<weir_engine::NativeCode>, frames: &[Arc<FrameSet>], effort: Effort) -> Result<f64, Failure> {
    let windows: Vec<Windows> = frames.iter().map(|_| Windows::default()).collect();
    let idle = Arc::new(traffic::packets_from(&[0]));
    let lanes = frames.iter().zip(&windows).map(|(frames, windows)| -> Box<dyn Lane> {
        let clock = Clock { windows: windows.clone(), window: effort.window, packets: 0, began: None };
        Box::new(MemoryLane::new([frames.clone(), idle.clone()], [u64::MAX, 0], clock))
    });
    let workers = Workers::start(lanes.collect(), loaded)?;
    let start = Instant::now();
    let count = |windows: &Windows| windows.lock().unwrap_or_else(PoisonError::into_inner).len();
    while windows.iter().any(|windows| count(windows) < effort.windows)
        && start.elapsed() < TURN_MAX
        && !workers.has_failed()
    {
        thread::sleep(Duration::from_millis(5));
    }
    workers.stop()?;
    windows.iter().try_fold(0.0, |sum, windows| {
        let windows = windows.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ns = Spread::of(windows)
            .ok_or_else(|| Failure::Runtime("a worker of the memory engine got no CPU time".to_owned()))?;
        Ok(sum + 1e3 / ns.median)
    })
}

/// Makes rows. `samples` are the rates in millions of packets per second, by number of workers and turn.
fn to_rows(row: &Row, samples: &[Vec<f64>; WORKERS.len()]) -> Vec<Row> {
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("there were turns");
    let times = samples[1].iter().zip(&samples[0]).map(|(two, one)| two / one);
    let times = spread(times.collect());
    let to_row = |(index, workers): (usize, usize)| {
        let mpps = spread(samples[index].clone());
        let row = row.clone().of("workers", &workers.to_string()).spread("mpps", mpps);
        let row = row.number("cpu_ns_per_packet", workers as f64 * 1e3 / mpps.median);
        if index == 0 { row } else { row.spread("times_one_worker", times) }
    };
    WORKERS.into_iter().enumerate().map(to_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_workers_are_compared_with_one_turn_by_turn() {
        let rows = to_rows(&Row::default(), &[vec![100.0, 50.0, 80.0], vec![190.0, 90.0, 160.0]]);
        assert_eq!((rows[0].get("mpps"), rows[0].get("cpu_ns_per_packet")), (Some(80.0), Some(12.5)));
        assert_eq!((rows[1].get("mpps"), rows[1].get("cpu_ns_per_packet")), (Some(160.0), Some(12.5)));
        assert_eq!((rows[1].get("times_one_worker_min"), rows[1].get("times_one_worker")), (Some(1.8), Some(1.9)));
        assert_eq!(rows[0].get("times_one_worker"), None);
    }

    #[test]
    fn a_clock_sees_whole_windows() {
        let windows = Windows::default();
        const WINDOW: u64 = 1 << 10;
        let mut clock = Clock { windows: windows.clone(), window: WINDOW, packets: 0, began: None };
        let burst = [Verdict(0); 64];
        // The first burst starts the clock.
        for _ in 0..1 + 2 * WINDOW / 64 {
            clock.decided(Side::Lower, &burst);
        }
        assert_eq!(windows.lock().unwrap().len(), 2);
    }
}
