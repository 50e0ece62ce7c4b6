//! The upkeep of shared state, and the sign of life for the guard.

use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};
use std::time::{Duration, Instant};

/// Interval of setting the words of full buckets to the present. Words of address buckets wrap around after nine
/// minutes at the earliest.
const REFRESH: Duration = Duration::from_secs(60);

/// Refreshes state that no packet uses, frees what nobody reads any more, and renews the guard.
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
