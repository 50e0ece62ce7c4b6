//! The attackers: addresses of a block list in random order, and how many packets each of them sends (Fig. 2a and 2b).

use crate::data::Dataset;
use crate::live::shuffled;
use crate::plan::Plan;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use weir_command::failure::Failure;
use weir_engine::traffic::SplitMix;
use weir_instruments::sources::SOURCES_MAX;

/// A normal distribution over all sources: the standard deviation as a part of their number, and the number of uniform
/// numbers whose sum is nearly normal.
const DEVIATION_PART: f64 = 1.0 / 6.0;
const UNIFORM_NUMBERS: usize = 12;

/// How packets are distributed among the sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// As many from each source, one source after the other. No cache has it worse.
    Uniform,
    /// Normally distributed: sources in the middle send most.
    Gaussian,
}

impl Traffic {
    /// Both kinds of traffic.
    pub const ALL: [Traffic; 2] = [Traffic::Uniform, Traffic::Gaussian];

    /// The name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Traffic::Uniform => "uniform",
            Traffic::Gaussian => "gaussian",
        }
    }

    /// The sources of consecutive packets, which are repeated.
    pub fn packets(self, sources: &[u32]) -> Vec<u32> {
        match self {
            Traffic::Uniform => sources.to_vec(),
            Traffic::Gaussian => {
                let mut random = SplitMix::new(41);
                (0..SOURCES_MAX).map(|_| sources[normal_index(sources.len(), &mut random)]).collect()
            }
        }
    }
}

/// The packets that a card with so many entries leaves over: the packets of all sources except the most frequent ones.
pub fn left_over(packets: &[u32], entries: usize) -> Vec<u32> {
    let mut counts = HashMap::new();
    for &source in packets {
        *counts.entry(source).or_insert(0u32) += 1;
    }
    let mut fastest: Vec<(Reverse<u32>, u32)> =
        counts.into_iter().map(|(source, count)| (Reverse(count), source)).collect();
    fastest.sort_unstable();
    let on_card: HashSet<u32> = fastest.into_iter().take(entries).map(|(_, source)| source).collect();
    packets.iter().copied().filter(|source| !on_card.contains(source)).collect()
}

/// A normally distributed index below `count`.
fn normal_index(count: usize, random: &mut SplitMix) -> usize {
    loop {
        let uniform = |_| random.below(1 << 32) as f64 / (1u64 << 32) as f64;
        let normal = (0..UNIFORM_NUMBERS).map(uniform).sum::<f64>() - UNIFORM_NUMBERS as f64 / 2.0;
        let index = count as f64 * (0.5 + normal * DEVIATION_PART);
        if (0.0..count as f64).contains(&index) {
            return index as usize;
        }
    }
}

/// Addresses that attack, in random order, with the name of their list.
///
/// # Errors
/// The list cannot be read.
pub fn attackers(plan: &Plan<'_>) -> Result<(Vec<u32>, &'static str), Failure> {
    let data = plan.load(Dataset::BLOCK_178K)?;
    Ok((shuffled(&data.addresses()), data.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normal_distribution_has_its_shares() {
        let sources: Vec<u32> = (0..6000).collect();
        let packets = Traffic::Gaussian.packets(&sources);
        assert_eq!(packets.len(), SOURCES_MAX);
        let share = |from: u32, to: u32| {
            packets.iter().filter(|source| (from..to).contains(source)).count() as f64 / packets.len() as f64
        };
        // One standard deviation are 1000 sources.
        assert!((share(2000, 4000) - 0.683).abs() < 0.01, "{}", share(2000, 4000));
        assert!((share(1000, 5000) - 0.955).abs() < 0.01, "{}", share(1000, 5000));
        assert_eq!(Traffic::Gaussian.packets(&[7]), vec![7; SOURCES_MAX]);
        assert_eq!(Traffic::Uniform.packets(&sources), sources);
    }

    #[test]
    fn a_card_takes_the_most_frequent_sources() {
        assert_eq!(left_over(&[7, 8, 7, 9, 7, 8], 1), [8, 9, 8]);
        assert_eq!(left_over(&[7, 8, 7, 9, 7, 8], 2), [9]);
        assert!(left_over(&[7, 8], 2).is_empty());
    }
}
