//! What the system knows of this process: the metrics that all programs have
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>), and the time of its workers.

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};
use std::fs;

/// What the system knows of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Seconds of processor time.
    pub cpu_s: f64,
    /// Unix time of its start.
    pub start_s: f64,
    /// Memory that is mapped, and memory that is used, in bytes.
    pub virtual_bytes: u64,
    #[allow(missing_docs)]
    pub resident_bytes: u64,
    /// Open file descriptors, and the most that it may have; `None` without a limit.
    pub open_fds: u64,
    #[allow(missing_docs)]
    pub max_fds: Option<u64>,
    /// Threads.
    pub threads: u64,
    /// Seconds of processor time of each worker that is a thread, by its number.
    pub workers: Vec<(usize, f64)>,
}

/// Fields of `/proc/PID/stat` behind the name, by their numbers in proc(5).
struct Fields<'a>(Vec<&'a str>);

impl<'a> Fields<'a> {
    /// The name may have blanks and brackets, so the fields begin behind its last bracket.
    fn of(stat: &'a str) -> Option<(&'a str, Self)> {
        let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
        Some((stat.get(begin + 1..end)?, Fields(stat.get(end + 1..)?.split_whitespace().collect())))
    }

    fn number(&self, field: usize) -> u64 {
        self.0.get(field - 3).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// User and system time.
    fn cpu_s(&self) -> f64 {
        (self.number(14) + self.number(15)) as f64 / clock_ticks_per_second() as f64
    }
}

/// This process.
pub fn read() -> Process {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some((_, fields)) = Fields::of(&stat) else { return Process::default() };
    let booted = fs::read_to_string("/proc/stat").unwrap_or_default();
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse::<u64>().ok()).unwrap_or(0);
    Process {
        cpu_s: fields.cpu_s(),
        start_s: booted as f64 + fields.number(22) as f64 / clock_ticks_per_second() as f64,
        virtual_bytes: fields.number(23),
        resident_bytes: fields.number(24) * page_size() as u64,
        // The descriptor that reads the folder is one of them.
        open_fds: fs::read_dir("/proc/self/fd").map_or(0, |all| all.count().saturating_sub(1)) as u64,
        max_fds: getrlimit(Resource::Nofile).current,
        threads: fields.number(20),
        workers: workers(),
    }
}

/// Workers are threads with the names `weir-0`, `weir-1`. Engines in the kernel have none.
pub fn workers() -> Vec<(usize, f64)> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let worker = |stat: &str| {
        let (name, fields) = Fields::of(stat)?;
        Some((name.strip_prefix("weir-")?.parse().ok()?, fields.cpu_s()))
    };
    // A thread may have ended meanwhile.
    let mut workers: Vec<_> =
        tasks.filter_map(|task| worker(&fs::read_to_string(task.path().join("stat")).ok()?)).collect();
    workers.sort_by_key(|(worker, _)| *worker);
    workers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread::Builder;
    use std::time::{Duration, SystemTime};

    #[test]
    fn names_with_brackets_do_not_move_the_fields() {
        let stat = "7 (a) (b) S 1 2 3 4 5 6 7 8 9 10 100 200 13 14 15 16 4 18 500 4096 3 0";
        let (name, fields) = Fields::of(stat).expect("it has a name");
        assert_eq!((name, fields.number(14), fields.number(20), fields.number(22)), ("a) (b", 100, 4, 500));
        assert_eq!((fields.number(23), fields.number(24), fields.number(52)), (4096, 3, 0));
        assert!(Fields::of("7 a").is_none());
    }

    #[test]
    fn this_process_and_its_workers_are_read() {
        let (end, ended) = channel::<()>();
        let (ready, is_ready) = channel();
        let work = move || {
            ready.send(()).expect("somebody waits");
            ended.recv().expect_err("nothing is sent");
        };
        let thread = Builder::new().name("weir-17".to_owned()).spawn(work).expect("a thread");
        is_ready.recv().expect("it runs");
        let process = read();
        drop(end);
        thread.join().expect("it ends");
        assert!(process.workers.iter().any(|(worker, _)| *worker == 17), "{process:?}");
        assert!(process.resident_bytes > 1 << 20 && process.virtual_bytes > process.resident_bytes, "{process:?}");
        assert!(process.threads >= 2 && process.open_fds >= 3, "{process:?}");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let age = now.as_secs_f64() - process.start_s;
        assert!((-2.0..Duration::from_secs(3600).as_secs_f64()).contains(&age), "{age}: {process:?}");
    }
}
