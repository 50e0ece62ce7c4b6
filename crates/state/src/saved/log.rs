//! Changes that are not on disk yet. A change only appends bytes here; a thread writes them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

/// Bytes that may wait for the disk. If there are more, they are dropped, and a snapshot is needed.
pub const WAITING_BYTES_MAX: usize = 64 << 20;

/// What waits for the disk.
#[derive(Default)]
pub struct ChangeLog(Mutex<Waiting>);

/// Frames of changes.
#[derive(Default)]
pub(super) struct Waiting {
    pub bytes: Vec<u8>,
    /// Whether changes are missing, so that only a snapshot can help.
    pub is_incomplete: bool,
}

impl ChangeLog {
    /// Appends the frames of one change.
    pub(crate) fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut waiting = self.waiting();
        write(&mut waiting.bytes);
        if waiting.bytes.len() > WAITING_BYTES_MAX {
            *waiting = Waiting { bytes: Vec::new(), is_incomplete: true };
        }
    }

    /// Demands a snapshot: something has changed that no record says.
    pub(crate) fn demand_snapshot(&self) {
        self.waiting().is_incomplete = true;
    }

    /// Takes what waits.
    pub(super) fn take(&self) -> Waiting {
        std::mem::take(&mut *self.waiting())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The time of shared state and the time of day at one moment. Deadlines are on disk as times of day, because the other
/// clock begins anew with the machine.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// The time of shared state ([`crate::now_ns`]).
    pub now_ns: u64,
    /// Nanoseconds since 1970.
    pub day_ns: u64,
}

impl Clocks {
    /// The present.
    pub fn now() -> Self {
        let day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clocks { now_ns: crate::now_ns(), day_ns: day.as_nanos() as u64 }
    }

    /// A time of shared state as milliseconds since 1970, rounded up.
    pub(crate) fn day_ms(self, at_ns: u64) -> u64 {
        (i128::from(at_ns) - i128::from(self.now_ns) + i128::from(self.day_ns))
            .max(1_000_000)
            .cast_unsigned()
            .div_ceil(1_000_000) as u64
    }

    /// Milliseconds since 1970 as a time of shared state. `None` if it has passed.
    pub(crate) fn at_ns(self, day_ms: u64) -> Option<u64> {
        let left = i128::from(day_ms) * 1_000_000 - i128::from(self.day_ns);
        (left > 0).then(|| self.now_ns.saturating_add(left as u64))
    }
}
