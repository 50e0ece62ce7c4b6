//! From the copies of decided packets to the exporter.

use crate::parts::export::exporter::Exporter;
use crate::parts::export::packets::DecidedPackets;
use weir_export::ipfix::Now;

/// Copies of each kind that are read between two looks at the clock. Others wait in their source or are lost there.
const COPIES_MAX: usize = 4096;

/// The copies that are exported, and how many of them were lost so far.
pub struct Feed<S> {
    /// One packet in so many, whatever became of it.
    samples: S,
    /// Dropped packets, if they get notifications.
    drops: Option<S>,
    lost: u64,
    missed: u64,
}

impl<S: DecidedPackets> Feed<S> {
    /// A feed before its first copy is read.
    pub fn new(samples: S, drops: Option<S>) -> Self {
        Feed { samples, drops, lost: 0, missed: 0 }
    }

    /// Gives the exporter what waits. Returns whether there may be more.
    pub fn read(&mut self, exporter: &mut Exporter, now: Now) -> bool {
        let mut left = COPIES_MAX;
        while left > 0
            && let Some(decided) = self.samples.next()
        {
            exporter.sample(&decided, now);
            left -= 1;
        }
        let lost = self.samples.lost();
        exporter.lose(lost - self.lost);
        self.lost = lost;
        let has_more = left == 0;
        let Some(drops) = &mut self.drops else { return has_more };
        let missed = drops.lost();
        exporter.miss_drops(missed - self.missed);
        self.missed = missed;
        let mut left = COPIES_MAX;
        while left > 0
            && let Some(decided) = drops.next()
        {
            exporter.drop_packet(&decided, now);
            left -= 1;
        }
        has_more || left == 0
    }

    #[cfg(test)]
    pub(super) fn samples_mut(&mut self) -> &mut S {
        &mut self.samples
    }
}
