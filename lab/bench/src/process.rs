//! Runs Weir in its own process.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::Request;
#[cfg(feature = "dpdk")]
use weir_control::Stats;

/// The program, which is installed beside this one.
const PROGRAM: &str = "weir";
/// Maximum time for its start.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The path of the program.
///
/// # Errors
/// The path of this program is not known.
pub fn program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| Failure::Runtime(format!("this program: {error}")))?;
    Ok(own.with_file_name(PROGRAM))
}

/// A running `weir run`, which is terminated when this value is dropped.
pub struct Process {
    child: Child,
    control: PathBuf,
}

impl Process {
    /// Starts the process and waits until it answers. Its log is written to the folder.
    ///
    /// # Errors
    /// The process does not start.
    pub fn start(folder: &Path, policy: &Path, arguments: &[String]) -> Result<Self, Failure> {
        let (control, log) = (folder.join("control.sock"), folder.join("log"));
        let program = program()?;
        let log_file = fs::File::create(&log).map_err(|error| Failure::file(&log, error))?;
        let mut command = Command::new(&program);
        command.arg("run").arg(policy).args(arguments).arg("--control").arg(&control);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_file);
        let child = command.spawn().map_err(|error| Failure::file(&program, error))?;
        let mut process = Process { child, control };
        let start = Instant::now();
        while weir_control::ask(&process.control, &Request::Status).is_err() {
            let ended = process.child.try_wait().map_err(|error| Failure::file(&program, error))?;
            if ended.is_some() || start.elapsed() > TIMEOUT {
                let text = fs::read_to_string(&log).unwrap_or_default();
                return Err(Failure::Runtime(format!("weir run does not start:\n{}", text.trim_end())));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(process)
    }

    /// The socket of its control server.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Its counters.
    #[cfg(feature = "dpdk")]
    pub fn stats(&self) -> Result<Stats, Failure> {
        let stats = weir_control::ask(&self.control, &Request::Stats)?;
        Ok(weir_control::read(stats)?)
    }

    /// CPU time of its threads.
    ///
    /// # Errors
    /// The process has ended.
    pub fn processor(&self) -> Result<Duration, Failure> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.child.id()));
        let entries = fs::read_dir(&tasks).map_err(|error| Failure::file(&tasks, error))?;
        let mut ns = 0;
        for entry in entries.flatten() {
            // The file of a thread that has just ended does not exist anymore.
            let text = fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or_default();
        }
        Ok(Duration::from_nanos(ns))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            // The process may have ended already.
            let _ended = kill_process(pid, Signal::TERM);
        }
        let _reaped = self.child.wait();
    }
}
