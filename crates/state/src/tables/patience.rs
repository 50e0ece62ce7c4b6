//! How long the thread that ends ticks waits for tables that others change.

use std::time::{Duration, Instant};

/// The longest wait in one call, for all tables together.
const WAIT_MAX: Duration = Duration::from_millis(5);

/// The rest of a limited time for waiting. Work does not count.
pub(super) struct Patience(Duration);

impl Default for Patience {
    fn default() -> Self {
        Patience(WAIT_MAX)
    }
}

impl Patience {
    /// Calls `wait`, which returns at the given time at the latest.
    pub fn wait<R>(&mut self, wait: impl FnOnce(Instant) -> R) -> R {
        let begun = Instant::now();
        let result = wait(begun + self.0);
        self.0 = self.0.saturating_sub(begun.elapsed());
        result
    }
}
