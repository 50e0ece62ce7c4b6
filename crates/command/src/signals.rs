//! Handles signals that end a command: stops its compilers and removes its temporary files.

use crate::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use weir_engine::scratch;

/// Whether a signal is about to end the process.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Pause between two looks at [`ENDING`].
const LOOK: Duration = Duration::from_millis(10);

/// Waits for the end if a signal is about to end the process. Its compilers were stopped, so the command has failed,
/// but the exit status must tell the signal.
pub fn wait_if_ending() {
    while ENDING.load(Ordering::SeqCst) {
        thread::sleep(LOOK);
    }
}

/// Makes SIGINT, SIGTERM and SIGHUP clean up before they end the process.
///
/// # Errors
/// The thread for signals cannot be started.
pub fn clean_up_and_die() -> Result<(), Failure> {
    on_signals(&[SIGINT, SIGTERM, SIGHUP], |signal| {
        ENDING.store(true, Ordering::SeqCst);
        scratch::abandon();
        // Returns only if the signal cannot be sent. The process then continues.
        let _ = emulate_default_handler(signal);
        ENDING.store(false, Ordering::SeqCst);
    })
}

/// Makes SIGINT and SIGTERM stop compilers. Other code ends the process.
///
/// # Errors
/// The thread for signals cannot be started.
pub fn clean_up() -> Result<(), Failure> {
    on_signals(&[SIGINT, SIGTERM], |_| scratch::abandon())
}

/// Calls `handle` with SIGINT, SIGTERM and SIGHUP, which no longer end the process.
///
/// # Errors
/// The thread for signals cannot be started.
pub fn on_end(handle: impl Fn() + Send + 'static) -> Result<(), Failure> {
    on_signals(&[SIGINT, SIGTERM, SIGHUP], move |_| handle())
}

fn on_signals(signals: &[i32], handle: impl Fn(i32) + Send + 'static) -> Result<(), Failure> {
    let ignored = ignored();
    // Signals that the parent process ignores (nohup) stay ignored.
    let caught = signals.iter().filter(|&&signal| ignored >> (signal - 1) & 1 == 0);
    let failed = |error: std::io::Error| Failure::system("signals", error);
    let mut caught = Signals::new(caught).map_err(failed)?;
    let thread = thread::Builder::new().name("signals".to_owned());
    let spawned = thread.spawn(move || caught.forever().for_each(handle));
    spawned.map(drop).map_err(failed)
}

/// The ignored signals: bit 0 is signal 1 (`SigIgn` in proc_pid_status(5)).
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
