//! `weir run --limits-log`: what limits counted in each interval, as JSON lines.
//!
//! ```text
//! {"time":"2026-03-01T12:00:10.000Z","list":"customers","direction":"upstream","at":"edge.weir:7","prefix":"192.0.2.0/24","rate":"10kpps burst 100packets","passed":null,"exceeded":731}
//! {"time":"2026-03-01T12:00:10.000Z","interval_s":10.0,"limits":1,"passed":0,"exceeded":731,"left_out":0}
//! ```
//! A line for each limit, the most exceeded first, and one that sums the interval up; `left_out` is how many limits have no line. A thread of its own
//! writes: a slow disk keeps nothing else waiting. While the file cannot be opened, intervals grow and nothing is lost.

use crate::cli::RunOptions;
use crate::failure::Failure;
use crate::limit_counts::Top;
use crate::run::controller::Controller;
use crate::run::log_file;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use weir_control::CountedLimit;
use weir_engine::live::Datapath;

/// How long the last interval may take to be written.
const END_MAX: Duration = Duration::from_secs(2);

/// The file, and what goes into it.
pub struct LimitsLog {
    path: PathBuf,
    file: Option<File>,
    interval: Duration,
    /// Limits that have a line in an interval.
    top: usize,
    /// Lines that the file has not taken yet.
    pending: Vec<u8>,
    /// Whether it was said that the file cannot be written.
    complained: bool,
    /// End of the last interval.
    since: Instant,
}

/// The thread that writes.
pub struct Writing {
    told_to_end: Sender<()>,
    ended: Receiver<()>,
}

/// A limit in an interval.
#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    #[serde(flatten)]
    limit: &'a CountedLimit,
}

/// An interval.
#[derive(Serialize)]
struct Sum<'a> {
    time: &'a str,
    interval_s: f64,
    /// Limits for which something was counted.
    limits: u64,
    passed: u64,
    exceeded: u64,
    left_out: u64,
}

impl LimitsLog {
    /// Opens the file, if one is asked for.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(options: &RunOptions) -> Result<Option<Self>, Failure> {
        let Some(path) = options.limits_log.clone() else { return Ok(None) };
        let file = log_file::open(&path).map_err(|error| Failure::file(&path, error))?;
        let (interval, top, since) = (options.limits_interval, options.limits_top, Instant::now());
        Ok(Some(LimitsLog { path, file: Some(file), interval, top, pending: Vec::new(), complained: false, since }))
    }

    /// Writes what is counted from now on.
    pub fn start<D: Datapath + 'static>(mut self, controller: Arc<Controller<D>>) -> Writing {
        controller.remember_left();
        let (told_to_end, told) = channel();
        let (ends, ended) = channel();
        thread::spawn(move || {
            let mut due = Instant::now() + self.interval;
            loop {
                let told = told.recv_timeout(due.saturating_duration_since(Instant::now()));
                self.step(&controller);
                if told != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                due = (due + self.interval).max(Instant::now());
            }
            // Nobody waits any more if it took too long.
            let _nobody = ends.send(());
        });
        Writing { told_to_end, ended }
    }

    /// Ends an interval.
    fn step<D: Datapath>(&mut self, controller: &Controller<D>) {
        let written = self.reopen().and_then(|()| {
            // What could not be written goes first; until it is, the interval goes on.
            self.write_pending()?;
            let now = Instant::now();
            let interval_s = ((now - self.since).as_secs_f64() * 1e3).round() / 1e3;
            let top = self.read(controller).map_err(|failure| io::Error::other(failure.message().to_owned()))?;
            self.since = now;
            self.write(&top, interval_s)
        });
        match written {
            Ok(()) => self.complained = false,
            Err(error) if !self.complained => {
                self.complained = true;
                eprintln!("weir: {}: {error}; what limits count is not logged until it can be", self.path.display());
            }
            Err(_) => {}
        }
    }

    /// Opens the file anew if it was renamed or removed, as logrotate does.
    fn reopen(&mut self) -> io::Result<()> {
        let same = |file: &File| -> io::Result<bool> {
            let (open, found) = (file.metadata()?, fs::metadata(&self.path)?);
            Ok((open.dev(), open.ino()) == (found.dev(), found.ino()))
        };
        if !self.file.as_ref().is_some_and(|file| same(file).unwrap_or(false)) {
            self.file = None;
            self.file = Some(log_file::open(&self.path)?);
        }
        Ok(())
    }

    /// What was counted since the last time, by those who decide and those who did.
    fn read<D: Datapath>(&self, controller: &Controller<D>) -> Result<Top, Failure> {
        let (active, left) = controller.take_left();
        // What stays is the active one's; what left has the rest.
        let mut sum = active.limits_since(self.top)?;
        for generation in left.iter().rev() {
            let of_left = generation.limits_since(self.top)?;
            sum.add(of_left, self.top);
        }
        Ok(sum)
    }

    fn write(&mut self, top: &Top, interval_s: f64) -> io::Result<()> {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        for limit in &top.limits {
            self.pending.extend(line(&Line { time: &time, limit }));
        }
        let Top { ref limits, counted, passed, exceeded, .. } = *top;
        let left_out = counted - limits.len() as u64;
        self.pending.extend(line(&Sum { time: &time, interval_s, limits: counted, passed, exceeded, left_out }));
        self.write_pending()
    }

    /// Writes what is to be written; what a full disk did not take stays.
    fn write_pending(&mut self) -> io::Result<()> {
        let Some(mut file) = self.file.as_ref() else { return Ok(()) };
        while !self.pending.is_empty() {
            match file.write(&self.pending)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => drop(self.pending.drain(..written)),
            }
        }
        Ok(())
    }
}

impl Writing {
    /// Ends the last interval, after which nobody counts any more.
    pub fn end(self) {
        drop(self.told_to_end);
        // A disk that is that slow is not waited for.
        let _ended = self.ended.recv_timeout(END_MAX);
    }
}

fn line(of: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(of).expect("lines have string keys");
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::path::Path;

    fn limit(exceeded: u64) -> CountedLimit {
        let text = |text: &str| text.to_owned();
        let (list, direction, at, rate) = (text("l"), text("upstream"), text("p:1"), text("1pps burst 1packets"));
        CountedLimit { list, direction, at, what: None, rate, passed: None, exceeded }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = fs::read_to_string(path).expect("it is there");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is an object")).collect()
    }

    fn log(path: &Path) -> LimitsLog {
        LimitsLog {
            path: path.to_owned(),
            file: Some(log_file::open(path).expect("it can be written")),
            interval: Duration::from_secs(1),
            top: 1,
            pending: Vec::new(),
            complained: false,
            since: Instant::now(),
        }
    }

    #[test]
    fn what_a_full_disk_did_not_take_is_written_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut log = LimitsLog { path: path.clone(), ..log(Path::new("/dev/full")) };
        let top = Top { limits: vec![limit(7)], counted: 1, exceeded_limits: 1, passed: 0, exceeded: 7 };
        assert!(log.write(&top, 1.0).is_err());
        log.reopen().expect("it can be opened");
        log.write_pending().expect("there is room now");
        assert_eq!(lines(&path).len(), 2);
        log.write_pending().expect("there is nothing");
        assert_eq!(lines(&path).len(), 2, "once");
    }

    #[test]
    fn a_file_that_was_renamed_is_opened_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("log"), folder.path().join("log.1"));
        fs::write(&path, "{}\n").expect("a file");
        let mut log = log(&path);
        let top = Top { limits: vec![limit(7)], counted: 3, exceeded_limits: 3, passed: 1, exceeded: 9 };
        let mut write = |interval_s: f64| {
            log.reopen().expect("it can be opened");
            log.write(&top, interval_s).expect("it can be written");
        };
        write(1.5);
        fs::rename(&path, &old).expect("it can be renamed");
        write(2.5);
        write(3.5);
        let (before, after) = (lines(&old), lines(&path));
        assert_eq!((before.len(), after.len()), (1 + 2, 2 * 2), "it appends");
        assert_eq!((&before[1]["exceeded"], &before[1]["list"]), (&Value::from(7), &Value::from("l")));
        let sum = ["interval_s", "limits", "passed", "exceeded", "left_out"].map(|field| before[2][field].clone());
        assert_eq!(sum, [1.5.into(), 3.into(), 1.into(), 9.into(), Value::from(2)]);
        assert_eq!([&after[1], &after[3]].map(|line| line["interval_s"].clone()), [Value::from(2.5), Value::from(3.5)]);
        let time = after[3]["time"].as_str().expect("a time");
        assert!(
            time.len() == "2026-03-01T12:00:10.000Z".len() && time.ends_with('Z') && &time[10..11] == "T",
            "{time}"
        );
    }
}
