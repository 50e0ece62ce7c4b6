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
    /// Whether changes before these bytes were dropped. Without them, these bytes must not be on disk.
    pub is_incomplete: bool,
    /// Whether a snapshot is needed, because something has changed that no record says.
    pub wants_snapshot: bool,
}

impl ChangeLog {
    /// Appends the frames of one change.
    pub(crate) fn append(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut waiting = self.waiting();
        write(&mut waiting.bytes);
        if waiting.bytes.len() > WAITING_BYTES_MAX {
            *waiting = Waiting { bytes: Vec::new(), is_incomplete: true, wants_snapshot: true };
        }
    }

    /// Demands a snapshot: something has changed that no record says.
    pub fn demand_snapshot(&self) {
        self.waiting().wants_snapshot = true;
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

    /// A time of shared state as nanoseconds since 1970.
    pub(crate) fn day_at_ns(self, at_ns: u64) -> u64 {
        let day_ns = i128::from(at_ns) - i128::from(self.now_ns) + i128::from(self.day_ns);
        day_ns.clamp(1, i128::from(u64::MAX)) as u64
    }

    /// A time of shared state as milliseconds since 1970, rounded up.
    pub(crate) fn day_ms(self, at_ns: u64) -> u64 {
        self.day_at_ns(at_ns).div_ceil(1_000_000)
    }

    /// Nanoseconds since 1970 as a time of shared state. `None` if it has passed.
    pub(crate) fn at_day_ns(self, day_ns: u64) -> Option<u64> {
        let left = day_ns.checked_sub(self.day_ns).filter(|&left| left > 0)?;
        Some(self.now_ns.saturating_add(left))
    }

    /// Milliseconds since 1970 as a time of shared state. `None` if it has passed.
    pub(crate) fn at_ns(self, day_ms: u64) -> Option<u64> {
        self.at_day_ns(day_ms.saturating_mul(1_000_000))
    }
}
