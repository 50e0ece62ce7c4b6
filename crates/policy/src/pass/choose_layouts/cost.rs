//! Estimates the cost of a lookup in an image: the instructions of its layout, and the cache lines that it waits for.
//!
//! [`ImageFacts`] has the words and cache lines that a lookup reads. [`CostModel`] has the cost of a cache line on this
//! machine. The constants of a layout are measured by `weir bench layout-choice`. The estimates only have to rank
//! layouts correctly.
//!
//! Most lookups process a burst of keys step by step, so that the cache misses of all keys overlap. A search in sorted
//! ranges processes one key at a time, and each probe depends on the one before. Its length differs from key to key, so
//! the processor mispredicts its end and cache misses do not overlap. Searches of D16X4R are short, so the first misses
//! of the next key still overlap.

use crate::catalog::ImageFacts;
use weir_abi::Layout;

/// The expected cost of a table in a layout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The layout.
    pub layout: Layout,
    /// TSC cycles per lookup in a burst.
    pub cycles: f64,
    /// Size of the image, bytes.
    pub bytes: usize,
}

impl Estimate {
    /// The sort key: rounded cycles, then bytes. Of equally fast images the smaller is better, because it leaves more
    /// cache to other tables.
    pub fn rank(&self) -> (usize, usize) {
        (self.cycles.round() as usize, self.bytes)
    }
}

/// The cost of a cache line on a machine, when many lines are requested at once.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// Points of (size of the memory in bytes, TSC cycles per random line in it). Both rise; there is at least one
    /// point.
    lines: Vec<(usize, f64)>,
}

impl Default for CostModel {
    /// A server core of 2023 with 2 MiB of second-level cache and huge pages.
    fn default() -> Self {
        let point = |kib: usize, cycles: f64| (kib << 10, cycles);
        CostModel {
            lines: vec![
                point(32, 0.3),
                point(512, 0.4),
                point(1 << 10, 0.5),
                point(2 << 10, 2.0),
                point(4 << 10, 3.2),
                point(8 << 10, 4.1),
                point(16 << 10, 5.5),
                point(32 << 10, 8.8),
                point(64 << 10, 15.0),
                point(128 << 10, 19.0),
            ],
        }
    }
}

/// The cost of a lookup in a layout, without the machine's cost of cache lines. TSC cycles.
struct LookupCost {
    /// Fixed cost of a lookup.
    fixed: f64,
    /// Cost of each word that it reads.
    per_word: f64,
    /// Factor on the cost of a cache line. It is 1 if all misses overlap.
    line_factor: f64,
}

/// Cache misses that a core handles at once. It is the factor for misses that do not overlap.
const LINES_AT_ONCE: f64 = 10.0;
/// The factor if half of the misses overlap.
const LINES_HALF_AT_ONCE: f64 = 5.0;

impl LookupCost {
    /// The constants of a layout.
    fn of(layout: Layout) -> Self {
        let staged = |fixed: f64, per_word: f64| LookupCost { fixed, per_word, line_factor: 1.0 };
        match layout {
            Layout::ExactSet => staged(2.5, 0.0),
            Layout::ExactSets => staged(3.2, 0.0),
            Layout::ExactSet6 => staged(6.0, 3.0),
            Layout::ExactSets6 => staged(7.0, 3.0),
            Layout::RankLeaf => staged(0.0, 0.8),
            // Of a set with hosts only.
            Layout::ExactLeaf => staged(2.5, 0.0),
            Layout::ExactLeaf6 => staged(6.0, 3.0),
            Layout::CountedLeaf => staged(0.4, 0.8),
            Layout::RankLeaf6 => staged(0.0, 5.0),
            Layout::Dxr16x4 => LookupCost { fixed: 2.0, per_word: 2.0, line_factor: LINES_HALF_AT_ONCE },
            Layout::Range6 => LookupCost { fixed: 4.0, per_word: 8.0, line_factor: LINES_AT_ONCE },
        }
    }
}

impl CostModel {
    /// Builds a model from points of (size of the memory in bytes, TSC cycles per random line in it). `None` without
    /// points.
    ///
    /// A line in less memory cannot cost more than one in more memory. Such a point was disturbed by other load and is
    /// lowered.
    pub fn measured(mut points: Vec<(usize, f64)>) -> Option<Self> {
        points.sort_by_key(|&(bytes, _)| bytes);
        let mut least = f64::INFINITY;
        for (_, cycles) in points.iter_mut().rev() {
            least = least.min(*cycles);
            *cycles = least;
        }
        (!points.is_empty()).then_some(CostModel { lines: points })
    }

    /// The points, sorted by bytes.
    pub fn lines(&self) -> &[(usize, f64)] {
        &self.lines
    }

    /// Cycles per random line in memory of `bytes` bytes. Interpolates between points by the logarithm of the size.
    fn line_cycles(&self, bytes: usize) -> f64 {
        let above = self.lines.partition_point(|&(size, _)| size < bytes);
        match (above.checked_sub(1).map(|below| self.lines[below]), self.lines.get(above)) {
            (Some((small, fast)), Some(&(large, slow))) => {
                let share = (bytes as f64 / small as f64).log2() / (large as f64 / small as f64).log2();
                fast + (slow - fast) * share
            }
            (None, Some(&(_, cycles))) | (Some((_, cycles)), None) => cycles,
            (None, None) => unreachable!("a model has points"),
        }
    }

    /// Estimates the cost of lookups in an image that has the cache for itself.
    pub(super) fn estimate(&self, image: ImageFacts) -> Estimate {
        self.estimate_beside(image, 0)
    }

    /// Estimates the cost of lookups in an image, if the same packets are also looked up in `others` bytes of other
    /// images. All of them share the cache.
    pub(super) fn estimate_beside(&self, image: ImageFacts, others: usize) -> Estimate {
        let ImageFacts { layout, bytes, words, lines } = image;
        let cost = LookupCost::of(layout);
        let cycles = cost.fixed + words * cost.per_word + lines * cost.line_factor * self.line_cycles(bytes + others);
        Estimate { layout, cycles, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_line_lies_between_neighbouring_points() {
        let model = CostModel::measured(vec![(4 << 20, 3.0), (1 << 20, 1.0)]).expect("there are points");
        let cycles = [1, 1 << 20, 2 << 20, 4 << 20, 1 << 30].map(|bytes| model.line_cycles(bytes));
        assert_eq!(cycles, [1.0, 1.0, 2.0, 3.0, 3.0]);
        assert_eq!(CostModel::measured(vec![]), None);
        let disturbed = CostModel::measured(vec![(1, 1.0), (2, 35.0), (4, 16.0), (8, 16.5)]).expect("there are points");
        assert_eq!(disturbed.lines(), [(1, 1.0), (2, 16.0), (4, 16.0), (8, 16.5)]);
    }

    #[test]
    fn a_search_without_overlapping_misses_is_expensive() {
        // The IPv6 country table of the registries, and the points that a busy server measured.
        let lines =
            [(32 << 10, 0.3), (512 << 10, 0.6), (2 << 20, 2.4), (4 << 20, 3.1), (8 << 20, 15.0), (128 << 20, 25.0)];
        for model in [CostModel::default(), CostModel::measured(lines.to_vec()).expect("there are points")] {
            let cycles =
                |layout, bytes, words, lines| model.estimate(ImageFacts { layout, bytes, words, lines }).cycles;
            let range6 = cycles(Layout::Range6, 6_062_300, 14.0, 9.0);
            let rank_leaf6 = cycles(Layout::RankLeaf6, 2_001_027, 9.0, 9.0);
            assert!(range6 > 4.0 * rank_leaf6, "{range6} and {rank_leaf6}");
            // A key that the root resolves needs no search.
            assert!(cycles(Layout::Range6, 262_280, 1.0, 1.0) < cycles(Layout::RankLeaf6, 262_371, 4.0, 4.0));
        }
    }
}
