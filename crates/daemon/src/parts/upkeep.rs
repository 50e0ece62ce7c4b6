//! The upkeep of shared state and of the guard.

use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};
use std::time::{Duration, Instant};

/// Interval of setting the words of full buckets to the present. Words of address buckets wrap around after nine
/// minutes at the earliest.
const REFRESH: Duration = Duration::from_secs(60);

/// Refreshes buckets and flows that no packet has used for long, frees parts of tables that are not read any more, and
/// replaces a guard process that has ended.
pub struct Upkeep {
    refreshed: Instant,
}

impl Default for Upkeep {
    fn default() -> Self {
        Upkeep { refreshed: Instant::now() }
    }
}

impl<L: Loader> Part<L> for Upkeep {
    fn step(&mut self, running: &Running<'_, L>) {
        let shared = running.door.loader.shared();
        running.guard.renew();
        if self.refreshed.elapsed() > REFRESH {
            shared.refresh(weir_state::now_ns());
            self.refreshed = Instant::now();
        }
        shared.tables().free();
    }
}
