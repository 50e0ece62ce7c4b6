//! Which prefix is attacked: the finest whose traffic without proof exceeds its baseline, in two windows of ten seconds.
//!
//! Two windows need not follow each other, so pulses that are timed to one window are found at the second pulse. Nor need
//! they be of one host: an attack that visits the hosts of a net in turn has the net for its victim.

use crate::baseline::{Baselines, FACTOR, Growth, floor_pps};
use crate::class;
use crate::measure::Window;
use crate::measure::counts::Counts;
use crate::prefix::{Level, Prefix};
use std::collections::HashMap;
use weir_abi::PacketClass;

/// Windows with excess that make a victim.
const WINDOWS: usize = 2;
/// The time in which they occur.
const SPAN_NS: u64 = 10_000_000_000;
/// Parts of a net that had excess in that time, from which on the net can be the victim although each of them was one.
const VISITED_MIN: usize = 8;
/// Prefixes under suspicion at once. Those with most excess come first.
const SUSPECTS_MAX: usize = 256;

/// A measurement that exceeds its threshold.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// What was measured.
    pub measure: String,
    /// Its value.
    pub value: f64,
    /// What is usual.
    pub usual: f64,
    /// The threshold, which follows from what is usual; `None` for a measurement that only explains.
    pub threshold: Option<f64>,
}

/// A prefix with excess in this window.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The prefix.
    pub prefix: Prefix,
    /// The class with the largest excess.
    pub class: PacketClass,
    /// Packets a second of all classes without proof.
    pub unproven_pps: f64,
    /// Whether it had excess in enough windows.
    pub is_victim: bool,
    /// Whether packets of the class were counted exactly, perhaps with few samples.
    pub is_exact: bool,
    /// What exceeded which threshold.
    pub evidence: Vec<Evidence>,
}

/// The prefixes under suspicion.
#[derive(Clone, Debug, Default)]
pub struct Victims {
    /// When a prefix had excess, the latest last.
    excess: HashMap<Prefix, Vec<u64>>,
    /// When a net had excess in a host that is no victim.
    excess_of_parts: HashMap<Prefix, Vec<u64>>,
}

/// A prefix with excess that finer prefixes may explain.
struct Finer {
    counts: Counts,
    is_victim: bool,
}

impl Victims {
    /// The prefixes with excess in this window, the finest first. What a finer prefix explains is not counted again for
    /// a coarser one.
    pub fn assess(&mut self, window: &Window, baselines: &Baselines, growth: &Growth) -> Vec<Suspect> {
        let now_ns = window.to_ns;
        let mut suspects: Vec<Suspect> = Vec::new();
        let mut explained: Vec<Finer> = Vec::new();
        for level in Level::ALL {
            let of_level = window.counts.iter().filter(|counts| is_at(&counts.prefix, level));
            let mut found: Vec<(Suspect, Counts)> = of_level
                .filter_map(|counts| {
                    let inside = || explained.iter().filter(|finer| counts.prefix.covers(&finer.counts.prefix));
                    let growth = growth.of(&counts.prefix);
                    let rest = less(*counts, inside().map(|finer| &finer.counts));
                    if let Some(found) = suspect(&rest, window, baselines, growth) {
                        return Some((found, *counts));
                    }
                    let is_explained = inside().any(|finer| finer.is_victim);
                    if inside().next().is_none() || is_explained && !self.is_visited(&counts.prefix, inside().count()) {
                        return None;
                    }
                    let found = suspect(counts, window, baselines, growth)?;
                    note(&mut self.excess_of_parts, found.prefix, now_ns).then_some((found, *counts))
                })
                .collect();
            found.sort_by(|one, other| other.0.unproven_pps.total_cmp(&one.0.unproven_pps));
            found.truncate(SUSPECTS_MAX.saturating_sub(suspects.len()));
            // What the coarser level subtracts does not contain parts of another prefix: levels nest.
            explained.retain(|finer| !found.iter().any(|(_, counts)| counts.prefix.covers(&finer.counts.prefix)));
            for (mut suspect, counts) in found {
                let of_parts = self.excess_of_parts.get(&suspect.prefix).is_some_and(|times| times.len() >= WINDOWS);
                suspect.is_victim = note(&mut self.excess, suspect.prefix, now_ns) || of_parts;
                explained.push(Finer { counts, is_victim: suspect.is_victim });
                suspects.push(suspect);
            }
        }
        for times in [&mut self.excess, &mut self.excess_of_parts] {
            times.retain(|_, times| times.last().is_some_and(|&last| now_ns.saturating_sub(last) < SPAN_NS));
        }
        suspects
    }

    /// Whether hosts of a net are visited in turn: many had excess lately, and `now` of them, at most half, still have.
    fn is_visited(&self, net: &Prefix, now: usize) -> bool {
        let lately = self.excess.keys().filter(|known| net.covers(known) && *known != net).count();
        lately >= VISITED_MIN.max(2 * now)
    }

    /// Whether a prefix, one that covers it, or a part of it had excess lately.
    pub fn is_suspicious(&self, prefix: &Prefix) -> bool {
        self.excess.keys().any(|suspect| suspect.covers(prefix) || prefix.covers(suspect))
    }
}

/// Notes a window in which a prefix had excess. Returns whether it had in enough windows.
fn note(excess: &mut HashMap<Prefix, Vec<u64>>, prefix: Prefix, now_ns: u64) -> bool {
    let times = excess.entry(prefix).or_default();
    times.push(now_ns);
    times.retain(|&time| now_ns.saturating_sub(time) < SPAN_NS);
    times.len() >= WINDOWS
}

fn is_at(prefix: &Prefix, level: Level) -> bool {
    prefix.length() == level.length(prefix.is_ipv6())
}

fn less<'a>(mut counts: Counts, explained: impl Iterator<Item = &'a Counts>) -> Counts {
    for finer in explained {
        for class in 0..PacketClass::COUNT {
            counts.packets[class] = counts.packets[class].saturating_sub(finer.packets[class]);
            counts.unproven[class] = counts.unproven[class].saturating_sub(finer.unproven[class]);
            counts.streamed[class] = counts.streamed[class].saturating_sub(finer.streamed[class]);
            counts.is_exact[class] &= finer.is_exact[class] || finer.packets[class] == 0;
        }
        counts.new_sources = counts.new_sources.saturating_sub(finer.new_sources);
    }
    counts
}

fn suspect(counts: &Counts, window: &Window, baselines: &Baselines, growth: f64) -> Option<Suspect> {
    let (prefix, seconds) = (counts.prefix, window.seconds());
    let least_pps = |is_exact: bool| if is_exact { 0.0 } else { window.least_pps() };
    let mut excess: Vec<(f64, PacketClass, Evidence)> = Vec::new();
    for class in PacketClass::ALL {
        let (value, threshold) = (
            counts.unproven[class as usize] as f64 / seconds,
            baselines.threshold_pps(&prefix, class, growth).max(least_pps(counts.is_exact[class as usize])),
        );
        if value > threshold {
            let usual = baselines.of(&prefix).unproven_pps(class);
            let measure = format!("{} without proof, packets/s", class::title(class));
            excess.push((value / threshold, class, Evidence { measure, value, usual, threshold: Some(threshold) }));
        }
    }
    excess.sort_by(|one, other| other.0.total_cmp(&one.0));
    let unproven_pps = counts.unproven_total() as f64 / seconds;
    let usual = baselines.of(&prefix).unproven_total_pps();
    let threshold = floor_pps(&prefix).max(FACTOR * growth * usual).max(least_pps(counts.is_exact()));
    if excess.is_empty() && unproven_pps > threshold {
        let class = PacketClass::ALL.into_iter().max_by_key(|&class| counts.unproven[class as usize])?;
        let measure = "all packets without proof, packets/s".to_owned();
        excess.push((0.0, class, Evidence { measure, value: unproven_pps, usual, threshold: Some(threshold) }));
    }
    let class = excess.first()?.1;
    let evidence = excess.into_iter().map(|(_, _, evidence)| evidence).collect();
    let is_exact = counts.is_exact[class as usize];
    Some(Suspect { prefix, class, unproven_pps, is_victim: false, is_exact, evidence })
}

#[cfg(test)]
mod tests {
    use super::Victims;
    use crate::baseline::{Baselines, Growth};
    use crate::header::{Header, protocol};
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::prefix::Prefix;

    fn flood(extractor: &mut Extractor, packets: u32, host: impl Fn(u32) -> u32) {
        for at in 0..packets {
            let header = Header::between(at.wrapping_mul(0x9e37_79b1), host(at));
            extractor.see(&Header { protocol: protocol::UDP, has_ports: true, sport: 7, ..header }, 0);
        }
    }

    #[test]
    fn a_host_is_found_in_the_second_window_and_explains_its_net() {
        let (mut extractor, mut victims) = (Extractor::new(vec![], 1, 0), Victims::default());
        for number in 1..=2 {
            flood(&mut extractor, 1000, |_| 0xc000_0201);
            let suspects =
                victims.assess(&extractor.close(number * WINDOW_NS), &Baselines::default(), &Growth::default());
            assert_eq!(suspects.len(), 1, "{suspects:?}");
            assert_eq!((suspects[0].prefix, suspects[0].is_victim), (Prefix::of(false, 0xc000_0201, 32), number == 2));
        }
        assert!(victims.is_suspicious(&Prefix::of(false, 0xc000_0201, 32)));
        assert!(victims.is_suspicious(&Prefix::of(false, 0xc000_0200, 24)));
        assert!(!victims.is_suspicious(&Prefix::of(false, 0xc000_0202, 32)));
    }

    #[test]
    fn hosts_that_are_visited_in_turn_have_their_net_for_victim() {
        let (mut extractor, mut victims) = (Extractor::new(vec![], 1, 0), Victims::default());
        let names = |suspects: &[super::Suspect]| {
            let victims = suspects.iter().filter(|suspect| suspect.is_victim);
            victims.map(|suspect| suspect.prefix.to_string()).collect::<Vec<_>>()
        };
        for number in 1..=4 {
            flood(&mut extractor, 1000, |_| 0xc000_0200 + number as u32);
            let window = extractor.close(number * WINDOW_NS);
            let suspects = victims.assess(&window, &Baselines::default(), &Growth::default());
            let expected: &[&str] = if number == 1 { &[] } else { &["192.0.2.0/24"] };
            assert_eq!(names(&suspects), expected, "in window {number}");
        }
    }

    #[test]
    fn hosts_that_are_visited_for_two_windows_have_their_net_for_victim() {
        let (mut extractor, mut victims) = (Extractor::new(vec![], 1, 0), Victims::default());
        let mut nets = 0;
        for number in 1..=20 {
            // In each window one visit ends and the next begins.
            flood(&mut extractor, 2000, |at| 0xc000_0200 + number as u32 + at % 2);
            let window = extractor.close(number * WINDOW_NS);
            let suspects = victims.assess(&window, &Baselines::default(), &Growth::default());
            nets += usize::from(suspects.iter().any(|suspect| suspect.is_victim && suspect.prefix.length() == 24));
        }
        assert!(nets >= 10, "in {nets} windows");
    }

    #[test]
    fn hosts_that_are_attacked_one_after_the_other_explain_their_net() {
        let (mut extractor, mut victims) = (Extractor::new(vec![], 1, 0), Victims::default());
        for number in 1..=8u64 {
            // Another host every second window, and all of them from then on.
            flood(&mut extractor, 4000, |at| 0xc000_0200 + at % number.div_ceil(2) as u32);
            let window = extractor.close(number * WINDOW_NS);
            let suspects = victims.assess(&window, &Baselines::default(), &Growth::default());
            assert!(suspects.iter().all(|suspect| suspect.prefix.length() == 32), "{suspects:?}");
        }
    }

    #[test]
    fn a_carpet_is_found_at_the_level_that_shows_it() {
        for (hosts, expected) in [(256, "192.0.2.0/24"), (1 << 16, "192.0.0.0/16")] {
            let (mut extractor, mut victims) = (Extractor::new(vec![], 1, 0), Victims::default());
            flood(&mut extractor, 1000, |at| match hosts {
                256 => 0xc000_0200 + at % 256,
                _ => 0xc000_0000 + at.wrapping_mul(0x85eb_ca6b) % hosts,
            });
            let suspects = victims.assess(&extractor.close(WINDOW_NS), &Baselines::default(), &Growth::default());
            let names: Vec<String> = suspects.iter().map(|suspect| suspect.prefix.to_string()).collect();
            assert_eq!(names, [expected]);
        }
    }
}
