//! DPDK's environment abstraction layer (EAL), started once per process.
//!
//! It is never ended explicitly: `rte_eal_cleanup` frees memory that DPDK's own interrupt thread still uses (22.11,
//! memif: the process crashed one time in fifty). Ports are closed, and DPDK leaves nothing in files.

use std::ffi::{CString, c_char};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity};

use super::shim;
use crate::EngineError;

/// Options that decide whether files are left for other processes. Without one of them no files are left, however the
/// process ends.
const FILES: [&str; 6] = ["--in-memory", "--no-shconf", "--file-prefix", "--proc-type", "--huge-dir", "--huge-unlink"];
/// Memory options that `--in-memory` cannot be combined with.
const OLD_MEMORY: [&str; 2] = ["--no-huge", "--legacy-mem"];
const TELEMETRY: [&str; 2] = ["--telemetry", "--no-telemetry"];
/// Options for the cores of DPDK's own threads. Without one of them DPDK gets one core and starts no threads, because
/// Weir has its own workers.
const CORES: [&str; 5] = ["-l", "-c", "-s", "-S", "--lcores"];

/// Options that make DPDK print messages for the user.
const PRINTING: [&str; 3] = ["--log-level", "--help", "-h"];

/// DPDK's message if huge pages are missing.
const NO_HUGE_PAGES: &str = "Cannot get hugepage information";
const HUGE_PAGES_ADVICE: &str =
    "\nno huge pages are reserved: `sysctl vm.nr_hugepages=512` reserves some, --eal \"--no-huge -m 256\" does without";

/// Number of lines of DPDK's log in an error.
const LOG_LINES: usize = 12;
const LOG_BYTES: usize = 16384;

/// Whether DPDK was started in this process. It cannot be started twice.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Proof that DPDK runs.
pub struct Eal(());

impl Eal {
    /// Starts DPDK with EAL arguments separated by blanks: `--vdev=net_memif0 --no-huge`. Its log is kept for errors,
    /// unless `--log-level` is among them.
    ///
    /// # Errors
    /// DPDK does not start, or was already started in this process.
    pub fn start(arguments: &str) -> Result<Self, EngineError> {
        let words = words(arguments, first_core());
        let text = |word: &String| CString::new(word.as_str()).map_err(|_| failed("an argument has a zero in it"));
        let texts: Vec<CString> = words.iter().map(text).collect::<Result<_, _>>()?;
        if STARTED.swap(true, Ordering::Relaxed) {
            return Err(failed("it can be started only once a process"));
        }
        // DPDK keeps and reorders its arguments, so they are leaked to it.
        let pointers: Vec<*mut c_char> = texts.into_iter().map(CString::into_raw).collect();
        let count = i32::try_from(pointers.len()).expect("a command line is shorter");
        let pointers: &mut [*mut c_char] =
            pointers.into_iter().chain([std::ptr::null_mut()]).collect::<Vec<_>>().leak();
        let start = if any(&words, &PRINTING) { shim::dpdk_start } else { shim::dpdk_start_quietly };
        // SAFETY: this is called once per process, like main in C. The `count` strings and a null after them stay
        // valid, and only DPDK uses them.
        let error = unsafe { start(count, pointers.as_mut_ptr()) };
        if error == 0 {
            return Ok(Eal(()));
        }
        let log = kept_log();
        let advice = if log.contains(NO_HUGE_PAGES) { HUGE_PAGES_ADVICE } else { "" };
        let failed = failed(&format!("it does not start: {}{log}{advice}", shim::error_text(error)));
        Err(failed.caused_by(&io::Error::from_raw_os_error(error.abs())))
    }
}

fn failed(problem: &str) -> EngineError {
    EngineError::Dpdk { problem: problem.to_owned() }
}

/// Whether a word is the option, with or without its value.
fn is(word: &str, option: &str) -> bool {
    match word.strip_prefix(option) {
        Some(rest) => rest.is_empty() || rest.starts_with('=') || !option.starts_with("--"),
        None => false,
    }
}

/// Whether one of the options is among the words.
fn any<S: AsRef<str>>(words: &[S], options: &[&str]) -> bool {
    words.iter().any(|word| options.iter().any(|option| is(word.as_ref(), option)))
}

/// The command line for DPDK.
fn words(arguments: &str, core: usize) -> Vec<String> {
    let given: Vec<&str> = arguments.split_whitespace().collect();
    let mut words = vec!["weir"];
    if !any(&given, &FILES) {
        words.push(if any(&given, &OLD_MEMORY) { "--no-shconf" } else { "--in-memory" });
    }
    if !any(&given, &TELEMETRY) {
        words.push("--no-telemetry");
    }
    let core = core.to_string();
    if !any(&given, &CORES) {
        words.extend(["-l", &core]);
    }
    words.into_iter().chain(given).map(str::to_owned).collect()
}

/// The first core that this process may run on.
fn first_core() -> usize {
    let Ok(cores) = sched_getaffinity(None) else { return 0 };
    (0..CpuSet::MAX_CPU).find(|&core| cores.is_set(core)).unwrap_or_default()
}

/// The last lines of DPDK's log, as text to append to a message.
pub(super) fn kept_log() -> String {
    let mut bytes = vec![0; LOG_BYTES];
    // SAFETY: the call fills at most the given number of bytes.
    let length = unsafe { shim::dpdk_kept_log(bytes.as_mut_ptr(), bytes.len()) };
    let text = String::from_utf8_lossy(&bytes[..length]);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| format!("\n  {line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::words;

    fn line(arguments: &str) -> String {
        words(arguments, 3).join(" ")
    }

    #[test]
    fn defaults_stand_unless_something_else_is_said() {
        assert_eq!(line(""), "weir --in-memory --no-telemetry -l 3");
        assert_eq!(
            line(" --no-huge  -m 64 --vdev=net_null0"),
            "weir --no-shconf --no-telemetry -l 3 --no-huge -m 64 --vdev=net_null0"
        );
        assert_eq!(line("--file-prefix=a -l 0-1"), "weir --no-telemetry --file-prefix=a -l 0-1");
        assert_eq!(line("--telemetry --lcores 0@1"), "weir --in-memory --telemetry --lcores 0@1");
        // A long option is never a prefix of another. A short one may be joined to its value.
        assert_eq!(line("--log-level=8 -c3"), "weir --in-memory --no-telemetry --log-level=8 -c3");
        assert_eq!(line("--in-memory"), "weir --no-telemetry -l 3 --in-memory");
    }
}
