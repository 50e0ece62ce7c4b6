//! Processor time of work that this thread does, and what the core did meanwhile.
//!
//! What softirqs take while the thread sends is the thread's own time, as long as they run in it. The kernel may also leave them to its
//! thread `ksoftirqd` of the same core, whose time is added. What others took of the core is not in it. Kernels that count softirqs apart
//! (CONFIG_IRQ_TIME_ACCOUNTING) take them out of a thread's time: then the time on the wall is what counts, on a machine left alone.

use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::ops::Sub;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ticks of /proc/stat a second: USER_HZ, the same on all kernels that Weir runs on.
const TICKS_A_SECOND: f64 = 100.0;

/// Columns of /proc/stat behind a core's name: idle, and waiting for a disk.
const IDLE: [usize; 2] = [3, 4];

/// The clocks of one core.
pub struct Core {
    number: usize,
    /// Of ksoftirqd on that core.
    schedstat: Option<PathBuf>,
}

/// Clocks at one moment.
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

/// What some work took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// On the wall.
    pub wall: Duration,
    /// Processor time of the thread and of ksoftirqd on its core.
    pub processor: Duration,
    /// The latter's part.
    pub softirqs: Duration,
    /// Seconds that the core was busy, by /proc/stat.
    pub busy_s: f64,
    /// Seconds that the other cores were busy, together.
    pub others_busy_s: f64,
}

impl Spent {
    /// Both together.
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
    /// The core that this thread is kept on.
    pub fn new(number: usize) -> Self {
        Core { number, schedstat: ksoftirqd(number) }
    }

    /// Does the work and says what it took.
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

/// Where the time of a core's ksoftirqd can be read.
fn ksoftirqd(core: usize) -> Option<PathBuf> {
    let name = format!("ksoftirqd/{core}\n");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let of_name = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm == name);
    processes.map(|process| process.path()).find(of_name).map(|path| path.join("schedstat"))
}

/// The first number of a schedstat: nanoseconds on a core.
fn on_cpu(schedstat: &str) -> Duration {
    let ns = schedstat.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

/// Ticks of every core in /proc/stat, in their order.
fn cores(stat: &str) -> Vec<Ticks> {
    let lines = stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "));
    lines
        .map(|line| {
            let columns = line.split_whitespace().skip(1).map(|column| column.parse().unwrap_or(0));
            // The last two are guests' time, which is in the first two already.
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
