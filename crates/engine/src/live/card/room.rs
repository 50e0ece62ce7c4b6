//! How many entries the table of a driver takes, and how long a change takes: both are measured.

use std::time::{Duration, Instant};

/// The longest time for which a card that was full counts as full.
const FULL: Duration = Duration::from_secs(60);
/// How much the latest change counts in the average time of changes.
const NEWEST: f64 = 1.0 / 16.0;

/// The room of a card.
pub struct Room {
    /// Entries that the operator allows.
    entries: usize,
    /// Entries that the card had when it was full, and when that was.
    full: Option<(usize, Instant)>,
    /// Average time of a change.
    update: Duration,
}

impl Room {
    /// Room for `entries`. Until changes are measured, a change counts with the time `update`.
    pub fn new(entries: usize, update: Duration) -> Self {
        Room { entries, full: None, update }
    }

    /// Number of entries: what the operator allows, or what the card had when it was full, for a minute.
    pub fn capacity(&self) -> usize {
        let full = self.full.filter(|(_, since)| since.elapsed() < FULL);
        full.map_or(self.entries, |(entries, _)| entries.min(self.entries))
    }

    /// The time that a change takes, on average.
    pub fn update(&self) -> Duration {
        self.update
    }

    /// The card has refused one more than these.
    pub fn is_full_with(&mut self, entries: usize) {
        self.full = Some((entries, Instant::now()));
    }

    /// Some changes were made.
    pub fn changed(&mut self, begun: Instant, changes: usize) {
        if changes > 0 {
            let one = begun.elapsed().div_f64(changes as f64);
            self.update = self.update.mul_f64(1.0 - NEWEST) + one.mul_f64(NEWEST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FULL, Room};
    use std::time::{Duration, Instant};

    #[test]
    fn a_full_card_is_full_for_a_minute() {
        let mut room = Room::new(10, Duration::ZERO);
        room.is_full_with(7);
        assert_eq!(room.capacity(), 7);
        room.is_full_with(11);
        assert_eq!(room.capacity(), 10, "the operator allows no more");
        room.full = Instant::now().checked_sub(FULL).map(|then| (7, then));
        assert_eq!(room.capacity(), 10);
    }

    #[test]
    fn the_time_of_a_change_follows_the_card() {
        let mut room = Room::new(10, Duration::ZERO);
        let begun = Instant::now().checked_sub(Duration::from_secs(16)).expect("the machine is up for longer");
        room.changed(begun, 0);
        assert_eq!(room.update(), Duration::ZERO);
        room.changed(begun, 4);
        assert_eq!(room.update().as_millis(), 250);
    }
}
