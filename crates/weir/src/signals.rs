//! Signals that end a command: the compilers that it has started and the files that it has written for itself end with it.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::thread;
use weir_engine::scratch;

/// From now on SIGINT, SIGTERM and SIGHUP clean up before they end the process, as they do by default.
///
/// # Errors
/// There is no thread for it.
pub fn clean_up_and_die() -> Result<(), Failure> {
    on_signals(&[SIGINT, SIGTERM, SIGHUP], |signal| {
        scratch::abandon();
        // Returns only if the signal cannot be sent; the process goes on then as if there had been none.
        let _ = emulate_default_handler(signal);
    })
}

/// From now on SIGINT and SIGTERM end compilers. That the process ends is somebody else's to see to.
///
/// # Errors
/// There is no thread for it.
pub fn clean_up() -> Result<(), Failure> {
    on_signals(&[SIGINT, SIGTERM], |_| scratch::abandon())
}

fn on_signals(signals: &[i32], handle: impl Fn(i32) + Send + 'static) -> Result<(), Failure> {
    let ignored = ignored();
    // What whoever started us wants ignored (nohup) stays ignored.
    let caught = signals.iter().filter(|&&signal| ignored >> (signal - 1) & 1 == 0);
    let failed = |error: std::io::Error| Failure::system("signals", error);
    let mut caught = Signals::new(caught).map_err(failed)?;
    let thread = thread::Builder::new().name("signals".to_owned());
    let spawned = thread.spawn(move || caught.forever().for_each(handle));
    spawned.map(drop).map_err(failed)
}

/// The signals that are ignored, a bit each from signal 1 on: `SigIgn` in proc_pid_status(5).
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
