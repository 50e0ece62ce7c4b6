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

    /// The present in milliseconds since 1970, rounded up.
    pub(crate) fn present_ms(self) -> u64 {
        self.day_ns.div_ceil(1_000_000)
    }

    /// Nanoseconds since 1970 as a time of shared state. `None` if it has passed. No more is left than at `written_ns`,
    /// when the deadline was written: the present may be a wrong one, as on a machine that begins in 1970.
    pub(crate) fn at_day_ns(self, day_ns: u64, written_ns: u64) -> Option<u64> {
        let left = day_ns.checked_sub(self.day_ns.max(written_ns)).filter(|&left| left > 0)?;
        Some(self.now_ns.saturating_add(left))
    }

    /// Milliseconds since 1970 as a time of shared state, like [`Clocks::at_day_ns`].
    pub(crate) fn at_ns(self, day_ms: u64, written_ms: u64) -> Option<u64> {
        self.at_day_ns(day_ms.saturating_mul(1_000_000), written_ms.saturating_mul(1_000_000))
    }
}

/// Notices that the time of day was set: it has moved against the time of shared state, which is never set. A suspended
/// machine looks like that too.
#[derive(Default)]
pub(super) struct DayWatch {
    /// The time of day less the time of shared state, when it was last noted.
    ahead_ns: Option<i128>,
}

/// A smaller move is the clock's correction by the network.
const MOVED_MIN_NS: u128 = 1_000_000_000;

impl DayWatch {
    /// Whether the time of day has moved since it was last noted. Notes it the first time.
    pub fn has_moved(&mut self, clocks: Clocks) -> bool {
        let ahead_ns = i128::from(clocks.day_ns) - i128::from(clocks.now_ns);
        let noted = *self.ahead_ns.get_or_insert(ahead_ns);
        noted.abs_diff(ahead_ns) >= MOVED_MIN_NS
    }

    /// Notes the time of day: what is on disk is of the present.
    pub fn note(&mut self, clocks: Clocks) {
        self.ahead_ns = Some(i128::from(clocks.day_ns) - i128::from(clocks.now_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn no_clock_gives_a_deadline_more_than_it_had() {
        let (written, until) = (1000 * SECOND, 1600 * SECOND);
        let left = |day_ns: u64| {
            let clocks = Clocks { now_ns: 5 * SECOND, day_ns };
            clocks.at_day_ns(until, written).map(|at| at - clocks.now_ns)
        };
        assert_eq!(left(1000 * SECOND), Some(600 * SECOND));
        assert_eq!(left(1590 * SECOND), Some(10 * SECOND));
        assert_eq!((left(1600 * SECOND), left(u64::MAX)), (None, None));
        for wrong in [0, 1, 999 * SECOND] {
            assert_eq!(left(wrong), Some(600 * SECOND), "a clock that is behind");
        }
        let clocks = Clocks { now_ns: u64::MAX - 1, day_ns: 0 };
        assert_eq!(clocks.at_ns(u64::MAX, 0), Some(u64::MAX), "nothing overflows");
        assert_eq!(clocks.at_ns(5, u64::MAX), None);
    }

    #[test]
    fn a_clock_that_was_set_is_noticed() {
        let at = |now: u64, day: u64| Clocks { now_ns: now * SECOND, day_ns: day * SECOND };
        let mut watch = DayWatch::default();
        assert!(!watch.has_moved(at(10, 1000)) && !watch.has_moved(at(20, 1010)));
        assert!(watch.has_moved(at(21, 1_700_000_000)) && watch.has_moved(at(22, 1_700_000_001)), "until it is noted");
        watch.note(at(23, 1_700_000_002));
        assert!(!watch.has_moved(at(24, 1_700_000_003)));
        assert!(watch.has_moved(at(25, 3)), "backwards");
        let slow = Clocks { now_ns: 24 * SECOND, day_ns: 1_700_000_003 * SECOND + SECOND / 2 };
        assert!(!watch.has_moved(slow), "a correction");
    }
}
