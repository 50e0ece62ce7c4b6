//! The CPU time of work in this thread, and the load of the cores meanwhile.
//!
//! Softirqs that run in the sending thread count as its own time. The kernel may also run them in the thread
//! `ksoftirqd` of the same core, whose time is added. The time of other threads is excluded. Kernels with
//! CONFIG_IRQ_TIME_ACCOUNTING exclude softirqs from a thread's time. There, only the wall-clock time on an idle machine
//! is meaningful.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::ops::Sub;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ticks of /proc/stat per second: USER_HZ, which is the same on all supported kernels.
const TICKS_A_SECOND: f64 = 100.0;

/// Columns of /proc/stat after a core's name that are not busy time: idle, and waiting for a disk.
const IDLE: [usize; 2] = [3, 4];

/// A core whose times are measured.
pub struct Core {
    number: usize,
    /// The times of the core's ksoftirqd.
    schedstat: Option<PathBuf>,
}

/// The times at one moment.
#[derive(Clone, Debug)]
struct Reading {
    wall: Instant,
    thread: Duration,
    softirqs: Duration,
    cores: Vec<Ticks>,
}

/// Busy and idle ticks of a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    idle: u64,
}

impl Sub for Ticks {
    type Output = Ticks;

    fn sub(self, before: Ticks) -> Ticks {
        Ticks { busy: self.busy.saturating_sub(before.busy), idle: self.idle.saturating_sub(before.idle) }
    }
}

/// The times that some work took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Wall-clock time.
    pub wall: Duration,
    /// CPU time of the thread and of ksoftirqd on its core.
    pub processor: Duration,
    /// The part of ksoftirqd.
    pub softirqs: Duration,
    /// Busy time of the core in seconds, from /proc/stat.
    pub busy_s: f64,
    /// Sum of the busy times of the other cores in seconds.
    pub others_busy_s: f64,
}

impl Spent {
    /// The sum of both.
    pub fn plus(self, other: Spent) -> Spent {
        Spent {
            wall: self.wall + other.wall,
            processor: self.processor + other.processor,
            softirqs: self.softirqs + other.softirqs,
            busy_s: self.busy_s + other.busy_s,
            others_busy_s: self.others_busy_s + other.others_busy_s,
        }
    }
}

impl Core {
    /// The core that this thread is pinned to.
    pub fn new(number: usize) -> Self {
        Core { number, schedstat: ksoftirqd(number) }
    }

    /// Does the work and returns its result and times.
    pub fn spend<R, E>(&self, work: impl FnOnce() -> Result<R, E>) -> Result<(R, Spent), E> {
        let before = self.read();
        let done = work()?;
        let after = self.read();
        let softirqs = after.softirqs.saturating_sub(before.softirqs);
        let mut spent = Spent {
            wall: after.wall - before.wall,
            processor: after.thread - before.thread + softirqs,
            softirqs,
            ..Spent::default()
        };
        for (number, (after, before)) in after.cores.into_iter().zip(before.cores).enumerate() {
            let busy_s = (after - before).busy as f64 / TICKS_A_SECOND;
            match number == self.number {
                true => spent.busy_s += busy_s,
                false => spent.others_busy_s += busy_s,
            }
        }
        Ok((done, spent))
    }

    fn read(&self) -> Reading {
        let softirqs = self.schedstat.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let cores = cores(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let thread = clock_gettime(ClockId::ThreadCPUTime);
        Reading {
            wall: Instant::now(),
            thread: Duration::new(thread.tv_sec.unsigned_abs(), thread.tv_nsec.unsigned_abs() as u32),
            softirqs: softirqs.map(|text| on_cpu(&text)).unwrap_or_default(),
            cores,
        }
    }
}

/// Path of the schedstat of a core's ksoftirqd.
fn ksoftirqd(core: usize) -> Option<PathBuf> {
    let name = format!("ksoftirqd/{core}\n");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let of_name = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name);
    processes.map(|process| process.path()).find(of_name).map(|path| path.join("schedstat"))
}

/// The first number of a schedstat: the time on a core, in nanoseconds.
fn on_cpu(schedstat: &str) -> Duration {
    let ns = schedstat.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// Busy and idle ticks of every core in /proc/stat, in order.
fn cores(stat: &str) -> Vec<Ticks> {
    let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines
        .map(|line| {
            let columns = line.split_whitespace().skip(1).map(|column| column.parse().unwrap_or(0));
            // The last two columns are the time of guests, which the first two include.
            columns.take(8).enumerate().fold(Ticks::default(), |ticks, (index, column): (usize, u64)| {
                match IDLE.contains(&index) {
                    true => Ticks { idle: ticks.idle + column, ..ticks },
                    false => Ticks { busy: ticks.busy + column, ..ticks },
                }
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_that_is_not_idle() {
        let stat = "cpu  12 0 7 100 5 0 3 0 0 0\ncpu0 5 1 3 60 4 0 3 2 9 9\ncpu1 7 0 4 40 1 0 0 0 0 0\nintr 9\n";
        assert_eq!(cores(stat), [Ticks { busy: 14, idle: 64 }, Ticks { busy: 11, idle: 41 }]);
        assert!(cores("").is_empty());
    }

    #[test]
    fn the_first_number_is_time_on_a_core() {
        assert_eq!(on_cpu("253271 0 1\n"), Duration::from_nanos(253_271));
        assert_eq!(on_cpu(""), Duration::ZERO);
    }

    #[test]
    fn work_on_this_thread_is_its_time() {
        let work = || {
            let start = clock_gettime(ClockId::ThreadCPUTime);
            while clock_gettime(ClockId::ThreadCPUTime).tv_nsec == start.tv_nsec {}
            Ok::<_, ()>(())
        };
        let ((), spent) = Core::new(0).spend(work).expect("it cannot fail");
        assert!(spent.processor > Duration::ZERO && spent.wall > Duration::ZERO);
        assert_eq!(spent.plus(spent).processor, 2 * spent.processor);
    }
}
