//! Which part of the packets was seen: by choice (`sample 1/N`), and because copies were lost on their way.
//!
//! A lost copy is known by its absence: the datapath counts the copies that it makes, and the reader those that arrive.

use serde::{Deserialize, Serialize};

/// Seen packets below which a rate cannot be told from chance: as many as the floor of a host has in a window.
pub const SEEN_MIN: f64 = 25.0;
/// With more copies lost than this share, what is seen is not taken for usual.
const LOSSY: f64 = 0.1;
/// With fewer copies left than this share, nothing is concluded.
const BLIND: f64 = 0.01;

/// The part of the packets that was seen in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sampling {
    /// One packet in this many is copied.
    pub one_in: u32,
    /// Copies that arrived.
    pub seen: u64,
    /// Copies that were lost.
    pub lost: u64,
    /// Copies that have not arrived yet. Some may be lost: that is known when the ones behind them have arrived.
    pub missing: u64,
}

impl Sampling {
    /// Every packet was seen.
    pub const ALL: Sampling = Sampling { one_in: 1, seen: 0, lost: 0, missing: 0 };

    /// Nothing can be concluded.
    pub const NOTHING: Sampling = Sampling { one_in: 1, seen: 0, lost: 1, missing: 0 };

    /// Packets for each one that was seen.
    pub fn scale(&self) -> f64 {
        let copies = if self.seen == 0 { 1.0 } else { (self.seen + self.lost) as f64 / self.seen as f64 };
        copies * f64::from(self.one_in)
    }

    /// Whether so many copies were lost that a quiet window says nothing about peace.
    pub fn is_lossy(&self) -> bool {
        self.lost as f64 > (self.seen + self.lost) as f64 * LOSSY
    }

    /// Whether almost all copies were lost, so that the window says nothing.
    pub fn is_blind(&self) -> bool {
        self.lost > 0 && (self.seen as f64) < (self.seen + self.lost) as f64 * BLIND
    }
}

/// Finds lost copies from counters that are not read at the same instant.
///
/// Each copy is read, waits to be read, or is lost. One that was made before the end of a window, and by the end of the
/// next was neither read nor waits, is lost. So copies on their way never count as lost, however late the reader is,
/// and losses are known one window later.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Losses {
    /// Copies that were made by the end of the last window.
    made: u64,
    /// Copies that were read, and those that were lost.
    seen: u64,
    lost: u64,
}

/// The copies of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyCounts {
    /// Copies that were made since the start, as counted where they are made.
    pub made: u64,
    /// Copies that were read in this window.
    pub seen: u64,
    /// Copies that wait to be read. They are counted after those that were made.
    pub waiting: u64,
}

impl Losses {
    /// The part that was seen in the window that ends now.
    pub fn end_window(&mut self, one_in: u32, copies: CopyCounts) -> Sampling {
        let CopyCounts { made, seen, waiting } = copies;
        self.seen += seen;
        let lost = self.made.saturating_sub(self.seen + waiting).max(self.lost);
        let missing = made.saturating_sub(self.seen + lost);
        let sampling = Sampling { one_in, seen, lost: lost - self.lost, missing };
        (self.lost, self.made) = (lost, made);
        sampling
    }

    /// All copies that were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::{CopyCounts, Losses, Sampling};

    /// The end of a window in which no copy waits to be read.
    fn end(losses: &mut Losses, made: u64, seen: u64) -> Sampling {
        losses.end_window(4, CopyCounts { made, seen, waiting: 0 })
    }

    #[test]
    fn copies_on_their_way_are_not_lost_and_others_are_lost_once() {
        let mut losses = Losses::default();
        assert_eq!(end(&mut losses, 100, 90), Sampling { one_in: 4, seen: 90, lost: 0, missing: 10 });
        assert_eq!(end(&mut losses, 200, 108), Sampling { one_in: 4, seen: 108, lost: 0, missing: 2 });
        let sampling = end(&mut losses, 300, 0);
        assert_eq!((sampling.lost, sampling.is_blind(), sampling.is_lossy()), (2, true, true));
        let sampling = end(&mut losses, 400, 51);
        assert_eq!((sampling.seen, sampling.lost, losses.lost()), (51, 49, 51));
        assert_eq!(sampling.scale(), 4.0 * 100.0 / 51.0);
        assert!(sampling.is_lossy() && !sampling.is_blind());
        assert_eq!(end(&mut losses, 400, 100).lost, 0);
        assert_eq!(end(&mut losses, 400, 0).lost, 0, "nothing is sent, and nothing lost");
    }

    #[test]
    fn a_late_reader_loses_nothing_that_waits() {
        // 400 copies a window, and a reader that gets nothing for two windows and all of them then.
        let mut losses = Losses::default();
        let windows = [(400, 400, 0), (800, 0, 400), (1200, 0, 800), (1600, 1200, 0), (1600, 0, 0), (1600, 0, 0)];
        for (made, seen, waiting) in windows {
            let sampling = losses.end_window(1, CopyCounts { made, seen, waiting });
            assert_eq!((sampling.lost, sampling.is_lossy()), (0, false), "{made}");
        }
        // Of another 500, 100 found no room. Each copy was read or is lost.
        let sampling = losses.end_window(1, CopyCounts { made: 2100, seen: 0, waiting: 400 });
        assert_eq!(sampling.lost, 0, "they may be on their way");
        assert_eq!(losses.end_window(1, CopyCounts { made: 2100, seen: 400, waiting: 0 }).lost, 100);
        assert_eq!((losses.seen + losses.lost, losses.lost()), (2100, 100));
    }

    #[test]
    fn without_losses_only_the_choice_counts() {
        assert_eq!((Sampling::ALL.scale(), Sampling::ALL.is_lossy(), Sampling::ALL.is_blind()), (1.0, false, false));
        assert_eq!(Sampling { one_in: 10, seen: 7, lost: 0, missing: 0 }.scale(), 10.0);
    }
}
