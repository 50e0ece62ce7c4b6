//! `weir run --limits-log`: writes the counts of limits in each interval as JSON lines.
//!
//! ```text
//! {"time":"2026-03-01T12:00:10.000Z","list":"customers","direction":"upstream","at":"edge.weir:7","prefix":"192.0.2.0/24","rate":"10kpps burst 100packets","passed":null,"exceeded":731}
//! {"time":"2026-03-01T12:00:10.000Z","interval_s":10.0,"limits":1,"passed":0,"exceeded":731,"left_out":0}
//! ```
//! Each limit has a line, the most exceeded first, and the interval has one with the sums. `left_out` is the number of
//! limits without a line. A separate thread writes, so that a slow disk delays nothing else. While the file cannot be
//! opened, the interval grows and no counts are lost.

use crate::generations::controller::Controller;
use crate::generations::generation::Loader;
use crate::options::RunOptions;
use crate::parts::log_file;
use crate::parts::part::{Part, Running};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use weir_command::failure::Failure;
use weir_command::limit_counts::Top;
use weir_control::CountedLimit;
use weir_engine::live::Datapath;

/// Longest wait for the last interval to be written.
const END_MAX: Duration = Duration::from_secs(2);

/// `--limits-log` as a part of the daemon.
pub struct LimitsLog {
    log: Option<Log>,
    thread: Option<LogThread>,
}

/// The log file and its pending output.
struct Log {
    path: PathBuf,
    file: Option<File>,
    interval: Duration,
    /// Most limits that have a line in an interval.
    top: usize,
    /// Output that could not be written yet.
    pending: Vec<u8>,
    /// Whether the current write error was reported.
    reported: bool,
    /// End of the last interval.
    since: Instant,
}

/// The thread that writes the log.
struct LogThread {
    stop: Sender<()>,
    ended: Receiver<()>,
}

/// The line of a limit in an interval.
#[derive(Serialize)]
struct LimitLine<'a> {
    time: &'a str,
    #[serde(flatten)]
    limit: &'a CountedLimit,
}

/// The line with the sums of an interval.
#[derive(Serialize)]
struct SumLine<'a> {
    time: &'a str,
    interval_s: f64,
    /// Number of limits that have counts.
    limits: u64,
    passed: u64,
    exceeded: u64,
    left_out: u64,
}

impl LimitsLog {
    /// Opens the file, if the option is given.
    ///
    /// # Errors
    /// It cannot be opened for writing.
    pub fn open(options: &RunOptions) -> Result<Option<Self>, Failure> {
        let Some(path) = options.limits_log.clone() else { return Ok(None) };
        let file = log_file::open(&path).map_err(|error| Failure::file(&path, error))?;
        let (interval, top, since) = (options.limits_interval, options.limits_top, Instant::now());
        let log = Log { path, file: Some(file), interval, top, pending: Vec::new(), reported: false, since };
        Ok(Some(LimitsLog { log: Some(log), thread: None }))
    }
}

impl<L: Loader> Part<L> for LimitsLog {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        self.thread = self.log.take().map(|log| log.start(running.door.controller.clone()));
        Ok(())
    }

    fn finish(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.end();
        }
    }
}

impl Log {
    /// Starts the thread. It logs counts from now on.
    fn start<D: Datapath + 'static>(mut self, controller: Arc<Controller<D>>) -> LogThread {
        controller.record_superseded();
        let (stop, stopped) = channel();
        let (end, ended) = channel();
        thread::spawn(move || {
            let mut due = Instant::now() + self.interval;
            loop {
                let received = stopped.recv_timeout(due.saturating_duration_since(Instant::now()));
                self.step(&controller);
                if received != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                due = (due + self.interval).max(Instant::now());
            }
            // The receiver is gone if this took too long.
            let _result = end.send(());
        });
        LogThread { stop, ended }
    }

    /// Ends an interval.
    fn step<D: Datapath>(&mut self, controller: &Controller<D>) {
        let written = self.reopen().and_then(|()| {
            // Pending output is written first. If that fails, the interval continues.
            self.write_pending()?;
            let now = Instant::now();
            let interval_s = ((now - self.since).as_secs_f64() * 1e3).round() / 1e3;
            let top = self.read(controller).map_err(|failure| io::Error::other(failure.message().to_owned()))?;
            self.since = now;
            self.write(&top, interval_s)
        });
        match written {
            Ok(()) => self.reported = false,
            Err(error) if !self.reported => {
                self.reported = true;
                warning!(
                    "weir: {}: {error}; the counts of limits stay in memory until the file can be written",
                    self.path.display()
                );
            }
            Err(_) => {}
        }
    }

    /// Opens the file again if it was renamed or removed, as logrotate does.
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

    /// The counts since the last call, of the active generation and of superseded ones.
    fn read<D: Datapath>(&self, controller: &Controller<D>) -> Result<Top, Failure> {
        let (active, superseded) = controller.take_superseded();
        // Buckets that remain are counted by the active generation, all others by superseded ones.
        let mut sum = active.limits_since(self.top)?;
        for generation in superseded.iter().rev() {
            sum.add(generation.limits_since(self.top)?, self.top);
        }
        Ok(sum)
    }

    fn write(&mut self, top: &Top, interval_s: f64) -> io::Result<()> {
        let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
        for limit in &top.limits {
            self.pending.extend(line(&LimitLine { time: &time, limit }));
        }
        let Top { ref limits, counted, passed, exceeded, .. } = *top;
        let left_out = counted - limits.len() as u64;
        self.pending.extend(line(&SumLine { time: &time, interval_s, limits: counted, passed, exceeded, left_out }));
        self.write_pending()
    }

    /// Writes pending output. The part that a full disk does not accept stays pending.
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

impl LogThread {
    /// Ends the last interval. All counting must have ended.
    fn end(self) {
        drop(self.stop);
        // Gives up if the disk is too slow.
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

    fn log(path: &Path) -> Log {
        Log {
            path: path.to_owned(),
            file: Some(log_file::open(path).expect("it can be written")),
            interval: Duration::from_secs(1),
            top: 1,
            pending: Vec::new(),
            reported: false,
            since: Instant::now(),
        }
    }

    #[test]
    fn output_that_a_full_disk_refused_is_written_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut log = Log { path: path.clone(), ..log(Path::new("/dev/full")) };
        let top = Top { limits: vec![limit(7)], counted: 1, exceeded_limits: 1, passed: 0, exceeded: 7 };
        assert!(log.write(&top, 1.0).is_err());
        log.reopen().expect("it can be opened");
        log.write_pending().expect("there is room now");
        assert_eq!(lines(&path).len(), 2);
        log.write_pending().expect("there is nothing");
        assert_eq!(lines(&path).len(), 2, "once");
    }

    #[test]
    fn a_renamed_file_is_opened_again() {
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
