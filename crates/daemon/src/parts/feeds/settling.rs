//! When the new content of a watched file is complete. A state machine without input; its caller passes the time.
//!
//! ```text
//!   written to ──> open for writing ──close──> quiet for QUIET ──> settled: the content is taken
//!   renamed over ───────────────────────────────────^
//! ```
//! A file that is written piece by piece is taken after its writer has closed it. Changes without events (on network
//! file systems, behind links, after an overflow) are recognised by the stamp of the file, and such a file must not
//! change for longer.

use std::time::{Duration, Instant};
use weir_loading::Stamp;

/// A file is taken when it has not changed for this time.
pub const QUIET: Duration = Duration::from_millis(200);
/// The time for a change that only the stamp of the file shows. At least two looks at the file find the same stamp.
const QUIET_BY_STAMP: Duration = Duration::from_millis(1500);
/// A file that is gone is missing after this time. Some programs delete a file before they write it.
const MISSING: Duration = Duration::from_secs(2);
/// A file that its writer keeps open is taken when it has not changed for this time.
const KEPT_OPEN: Duration = Duration::from_secs(60);

/// An event of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A program writes to it, and has it open.
    Written,
    /// The program that wrote to it has closed it.
    Closed,
    /// Another file has its name now.
    Replaced,
    /// The file was deleted or renamed.
    Removed,
}

/// A watched file.
#[derive(Clone, Debug)]
pub struct Settling {
    /// The content that was taken; `None` if the file was missing.
    taken: Option<Stamp>,
    /// At the last look.
    latest: Option<Stamp>,
    pending: Option<Pending>,
}

/// A change that was not taken.
#[derive(Clone, Copy, Debug)]
struct Pending {
    /// The last sign of a change.
    last: Instant,
    quiet: Duration,
}

impl Settling {
    /// A file whose content was taken with this stamp.
    pub fn new(taken: Option<Stamp>) -> Self {
        Settling { taken, latest: taken, pending: None }
    }

    /// Takes over a pending change from the same file before another generation became active.
    pub fn continue_from(&mut self, before: &Settling) {
        self.pending = before.pending;
    }

    /// Notes an event.
    pub fn event(&mut self, event: Event, now: Instant) {
        let quiet = match event {
            Event::Written => KEPT_OPEN,
            Event::Closed | Event::Replaced => QUIET,
            Event::Removed => MISSING,
        };
        self.pending = Some(Pending { last: now, quiet });
    }

    /// Notes the stamp of the file, `None` if it is missing.
    pub fn look(&mut self, stamp: Option<Stamp>, now: Instant) {
        let has_changed = stamp != self.latest;
        self.latest = stamp;
        match &mut self.pending {
            None if stamp != self.taken => {
                let quiet = if stamp.is_some() { QUIET_BY_STAMP } else { MISSING };
                self.pending = Some(Pending { last: now, quiet });
            }
            Some(pending) if has_changed && pending.quiet != QUIET => pending.last = now,
            _ => {}
        }
    }

    /// Requests that the content is taken as soon as nothing changes any more.
    pub fn request(&mut self, now: Instant) {
        self.pending.get_or_insert(Pending { last: now, quiet: Duration::ZERO });
    }

    /// Whether a change is pending.
    pub fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Whether a change is pending and complete.
    pub fn is_settled(&self, now: Instant) -> bool {
        self.pending.is_some_and(|pending| now.saturating_duration_since(pending.last) >= pending.quiet)
    }

    /// The content with this stamp was taken.
    pub fn take(&mut self, stamp: Option<Stamp>) {
        (self.taken, self.latest, self.pending) = (stamp, stamp, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Stamps of a file with more and more bytes.
    fn stamps() -> Vec<Option<Stamp>> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let stamp = |bytes: usize| {
            fs::write(file.path(), vec![0; bytes]).expect("the file can be written");
            Some(Stamp::of(&fs::metadata(file.path()).expect("the file is there")))
        };
        (0..3).map(stamp).collect()
    }

    #[test]
    fn a_file_is_taken_after_its_writer_has_closed_it() {
        let (stamps, start) = (stamps(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut file = Settling::new(stamps[0]);
        assert!(!file.is_settled(at(9_999_999)));
        file.event(Event::Written, at(0));
        file.look(stamps[1], at(900));
        assert!(file.is_pending() && !file.is_settled(at(50_000)));
        file.event(Event::Written, at(1000));
        file.event(Event::Closed, at(1001));
        assert!(!file.is_settled(at(1200)) && file.is_settled(at(1201)));
        file.look(stamps[2], at(1202));
        assert!(file.is_settled(at(1203)), "the stamp of the change that the events told");
        file.take(stamps[2]);
        file.look(stamps[2], at(1300));
        assert!(!file.is_pending());
        file.event(Event::Replaced, at(2000));
        file.event(Event::Written, at(2100));
        assert!(!file.is_settled(at(2400)), "it is written again");
        assert!(file.is_settled(at(62_100)), "its writer keeps it open");
    }

    #[test]
    fn a_file_that_is_gone_for_a_moment_is_not_missing() {
        let (stamps, start) = (stamps(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut file = Settling::new(stamps[0]);
        file.event(Event::Removed, at(0));
        assert!(!file.is_settled(at(1999)) && file.is_settled(at(2000)));
        file.event(Event::Written, at(1000));
        file.event(Event::Closed, at(1500));
        assert!(!file.is_settled(at(1600)) && file.is_settled(at(1700)));
        file.take(None);
        file.look(None, at(3000));
        assert!(!file.is_pending(), "it is still missing");
    }

    #[test]
    fn changes_without_events_are_taken_when_two_looks_agree() {
        let (stamps, start) = (stamps(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut file = Settling::new(stamps[0]);
        file.look(stamps[0], at(0));
        assert!(!file.is_pending());
        file.look(stamps[1], at(1000));
        file.look(stamps[2], at(2000));
        assert!(!file.is_settled(at(2600)));
        file.look(stamps[2], at(3000));
        assert!(file.is_settled(at(3500)));
        file.take(stamps[2]);
        file.request(at(4000));
        assert!(file.is_settled(at(4000)));
    }
}
