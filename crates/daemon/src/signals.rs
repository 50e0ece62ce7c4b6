//! The signals of a running daemon, as flags.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_command::failure::Failure;

/// Flags that signals set.
#[derive(Clone, Default)]
pub struct Flags {
    stop: Arc<AtomicBool>,
    hang_up: Arc<AtomicBool>,
    upgrade: Arc<AtomicBool>,
}

impl Flags {
    /// Flags that SIGINT, SIGTERM, SIGHUP and SIGUSR2 set from now on.
    ///
    /// # Errors
    /// A signal cannot be caught.
    pub fn register() -> Result<Self, Failure> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR2};
        let flags = Flags::default();
        let all = [(SIGINT, &flags.stop), (SIGTERM, &flags.stop), (SIGHUP, &flags.hang_up), (SIGUSR2, &flags.upgrade)];
        for (signal, flag) in all {
            signal_hook::flag::register(signal, flag.clone())
                .map_err(|error| Failure::system(format_args!("signal {signal}"), error))?;
        }
        Ok(flags)
    }

    /// Whether Weir is to end: SIGINT or SIGTERM.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether SIGUSR2 has come since the last call: the program is to be upgraded.
    pub fn take_upgrade(&self) -> bool {
        self.upgrade.swap(false, Ordering::Relaxed)
    }

    /// Whether SIGHUP has come since the last call: lists are to be read again.
    pub fn take_hang_up(&self) -> bool {
        self.hang_up.swap(false, Ordering::Relaxed)
    }
}
