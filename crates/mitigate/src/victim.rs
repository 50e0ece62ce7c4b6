//! Which prefix is attacked: the finest whose traffic without proof exceeds its baseline, in two windows of ten
//! seconds.
//!
//! Two windows need not follow each other, so pulses that are timed to one window are found at the second pulse. Pulses
//! that are further apart are found at the third one of a minute, if each is far above the threshold. If an attack
//! visits the hosts of a net in turn, the net is the victim after three windows.

use crate::baseline::{Baselines, FACTOR, Growth, floor_pps};
use crate::class;
use crate::measure::counts::Counts;
use crate::measure::{WINDOW_NS, Window};
use crate::prefix::{Level, Prefix};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use weir_abi::PacketClass;

/// Windows with excess that make a victim.
const WINDOWS: usize = 2;
/// Windows with excess in hosts that are no victims, which make a victim of their net.
const WINDOWS_OF_PARTS: usize = 3;
/// The time in which they occur.
pub const SPAN_NS: u64 = 10_000_000_000;
/// Pulses that make a victim, and the time in which they occur.
const PULSES: usize = 3;
const PULSES_SPAN_NS: u64 = 60_000_000_000;
/// A window is part of a pulse if a measurement is this many times its threshold.
const PULSE_FACTOR: f64 = 3.0;
/// Windows with less than this in between are one pulse.
const PULSE_GAP_NS: u64 = 2 * WINDOW_NS;
/// If at least this many parts of a net had excess for a short time and have none now, its parts do not explain it.
const VISITED_MIN: usize = 8;
/// Maximum number of prefixes under suspicion at once. Prefixes with the most excess come first.
const SUSPECTS_MAX: usize = 256;

/// A measurement that exceeds its threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

impl Suspect {
    /// How many times a measurement is above its threshold: the most of them.
    fn excess(&self) -> f64 {
        let times = self.evidence.iter().filter_map(|of| Some(of.value / of.threshold?));
        times.fold(0.0, f64::max)
    }
}

/// The prefixes under suspicion.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Victims {
    /// When a prefix had excess, the latest last.
    excess: HashMap<Prefix, Vec<u64>>,
    /// When a net had excess in a host that is no victim.
    excess_of_parts: HashMap<Prefix, Vec<u64>>,
    /// When a prefix had much excess, as in a pulse.
    much_excess: HashMap<Prefix, Vec<u64>>,
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
                    let prefix = counts.prefix;
                    let inside = || explained.iter().filter(|finer| prefix.covers(&finer.counts.prefix));
                    let growth = growth.of(&prefix);
                    let rest = less(*counts, inside().map(|finer| &finer.counts));
                    if let Some(found) = suspect(&rest, window, baselines, growth) {
                        return Some((found, *counts));
                    }
                    let is_explained = inside().any(|finer| finer.is_victim);
                    if inside().next().is_none() || is_explained && !self.is_visited(&prefix, inside()) {
                        return None;
                    }
                    let found = suspect(counts, window, baselines, growth)?;
                    let windows = note(&mut self.excess_of_parts, prefix, now_ns, SPAN_NS);
                    (windows.len() >= WINDOWS_OF_PARTS).then_some((Suspect { is_victim: true, ..found }, *counts))
                })
                .collect();
            found.sort_by(|one, other| other.0.unproven_pps.total_cmp(&one.0.unproven_pps));
            found.truncate(SUSPECTS_MAX.saturating_sub(suspects.len()));
            // What the coarser level subtracts does not contain parts of another prefix: levels nest.
            explained.retain(|finer| !found.iter().any(|(_, counts)| counts.prefix.covers(&finer.counts.prefix)));
            for (mut suspect, counts) in found {
                suspect.is_victim |= note(&mut self.excess, suspect.prefix, now_ns, SPAN_NS).len() >= WINDOWS;
                if suspect.excess() >= PULSE_FACTOR {
                    let windows = note(&mut self.much_excess, suspect.prefix, now_ns, PULSES_SPAN_NS);
                    suspect.is_victim |= pulses(windows) >= PULSES;
                }
                explained.push(Finer { counts, is_victim: suspect.is_victim });
                suspects.push(suspect);
            }
        }
        for (times, span_ns) in
            [(&mut self.excess, SPAN_NS), (&mut self.excess_of_parts, SPAN_NS), (&mut self.much_excess, PULSES_SPAN_NS)]
        {
            times.retain(|_, times| times.last().is_some_and(|&last| now_ns.saturating_sub(last) < span_ns));
        }
        suspects
    }

    /// Whether parts of a net are visited in turn: many had excess for a short time lately, and have none now.
    /// `inside` is what has excess now.
    fn is_visited<'a>(&self, net: &Prefix, inside: impl Iterator<Item = &'a Finer> + Clone) -> bool {
        let has_excess = |known: &Prefix| inside.clone().any(|finer| finer.counts.prefix.covers(known));
        let visits = self.excess.iter().filter(|(known, times)| {
            times.len() <= WINDOWS_OF_PARTS && net.covers(known) && *known != net && !has_excess(known)
        });
        visits.count() >= VISITED_MIN
    }

    /// Forgets the excess of a prefix.
    pub fn forget(&mut self, prefix: &Prefix) {
        self.excess.remove(prefix);
        self.much_excess.remove(prefix);
    }

    /// Whether a prefix had a pulse lately. The next one may come.
    pub fn is_pulsed(&self, prefix: &Prefix) -> bool {
        self.much_excess.contains_key(prefix)
    }

    /// Whether a prefix, one that covers it, or a part of it had excess lately.
    pub fn is_suspicious(&self, prefix: &Prefix) -> bool {
        self.excess.keys().any(|suspect| suspect.covers(prefix) || prefix.covers(suspect))
    }
}

/// Notes a window in which a prefix had excess. Returns the windows with excess of the last `span_ns`.
fn note(excess: &mut HashMap<Prefix, Vec<u64>>, prefix: Prefix, now_ns: u64, span_ns: u64) -> &[u64] {
    let times = excess.entry(prefix).or_default();
    times.push(now_ns);
    times.retain(|&time| now_ns.saturating_sub(time) < span_ns);
    times
}

/// The number of pulses that windows are part of.
fn pulses(windows: &[u64]) -> usize {
    windows.chunk_by(|earlier, later| later.saturating_sub(*earlier) <= PULSE_GAP_NS).count()
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
    use super::{Victims, less};
    use crate::baseline::{Baselines, Growth};
    use crate::header::{Header, protocol};
    use crate::measure::counts::Counts;
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::prefix::Prefix;
    use weir_abi::PacketClass;

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

    /// The lengths of victims in each of some windows, in which `host` chooses the host of a packet.
    fn victims_of(windows: u64, host: impl Fn(u64, u32) -> u32) -> Vec<Vec<u8>> {
        let (mut extractor, mut victims) = (Extractor::new(vec![], 1, 0), Victims::default());
        let mut lengths = |number: u64| {
            flood(&mut extractor, 4000, |at| 0xc000_0200 + host(number, at));
            let window = extractor.close(number * WINDOW_NS);
            let suspects = victims.assess(&window, &Baselines::default(), &Growth::default());
            suspects.iter().filter(|suspect| suspect.is_victim).map(|suspect| suspect.prefix.length()).collect()
        };
        (1..=windows).map(&mut lengths).collect()
    }

    #[test]
    fn the_net_of_hosts_that_are_visited_in_turn_is_the_victim() {
        let lengths = victims_of(20, |number, _| number as u32);
        assert!(lengths[..2].iter().all(Vec::is_empty), "{lengths:?}");
        assert!(lengths[2..].iter().all(|lengths| lengths == &[24]), "{lengths:?}");
        // In each window one visit ends and the next begins.
        let lengths = victims_of(30, |number, at| number as u32 + at % 2);
        assert!(lengths[15..].iter().all(|lengths| lengths.contains(&24) && !lengths.contains(&16)), "{lengths:?}");
    }

    #[test]
    fn hosts_that_are_attacked_one_after_the_other_explain_their_net() {
        // Another host every second window. All of them are attacked from then on, and only some in the end.
        let lengths = victims_of(60, |number, at| match number {
            ..40 => at % number.div_ceil(2) as u32,
            _ => at % 6,
        });
        assert!(lengths.iter().flatten().all(|&length| length == 32), "{lengths:?}");
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

    #[test]
    fn the_rest_of_a_net_is_exact_only_if_its_hosts_are() {
        let udp = PacketClass::Udp as usize;
        let [mut net, mut host] = [24, 32].map(|length| Counts::new(Prefix::of(false, 0xc000_0201, length)));
        (net.packets[udp], net.is_exact[udp]) = (100, true);
        let mut is_exact = |packets: u64, is_exact: bool| {
            (host.packets[udp], host.is_exact[udp]) = (packets, is_exact);
            less(net, [&host].into_iter()).is_exact[udp]
        };
        assert_eq!([is_exact(40, false), is_exact(40, true), is_exact(0, false)], [false, true, true]);
    }
}
