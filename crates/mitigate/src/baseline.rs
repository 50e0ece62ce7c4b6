//! How much traffic without proof a prefix has in peace, by class.
//!
//! The baseline freezes for a prefix that is under suspicion. It rises slowly, so that a ramp over an hour does not
//! become normal, and falls slowly, so that a night does not make the morning an attack.

use crate::measure::WINDOW_NS;
use crate::measure::counts::Counts;
use crate::prefix::{Level, Prefix};
use std::collections::HashMap;
use weir_abi::PacketClass;

/// Windows of a beginning, 2 s. In it, baselines follow each maximum.
pub const LEARNING_WINDOWS: u32 = (2_000_000_000 / WINDOW_NS) as u32;
/// A baseline doubles in not less than this time.
const DOUBLING_S: f64 = 1800.0;
/// In a crowd, and the rate of proven sources always: they cannot be made up.
const CROWD_DOUBLING_S: f64 = 60.0;
/// The growth of proven traffic that is a crowd.
const CROWD: f64 = 2.0;
/// The highest growth that counts.
const GROWTH_MAX: f64 = 20.0;
/// Packets of proven sources in a window that growth is computed from.
const GROWTH_PACKETS: u64 = 25;
/// A baseline that is not met halves in this time.
const HALVING_S: f64 = 3600.0;
/// Prefixes with a baseline. Others have the floor.
const PREFIXES_MAX: usize = 8192;
/// A class exceeds its baseline if its rate is this many times as high. Poisson noise of 25 packets a window, the least
/// that counts, reaches 3 times less than once in 10^15 windows.
pub const FACTOR: f64 = 3.0;

/// What is not among this many packets of real sources is less than 1 % of them (95 % confidence: 3 of 400). The answer
/// that is dropped by mistake proves itself, so a mistake ends by itself.
const FOREIGN_MIN: u64 = 400;
const FOREIGN: f64 = 0.001;

/// The least rate that is an attack, packets a second. A link or host of any size takes less without harm, and the
/// noise of so few packets would decide.
pub fn floor_pps(prefix: &Prefix) -> f64 {
    let is_at = |level: Level| prefix.length() == level.length(prefix.is_ipv6());
    let host_pps = 100.0;
    if is_at(Level::Wide) {
        host_pps * 4.0
    } else if is_at(Level::Net) {
        host_pps * 2.0
    } else {
        host_pps
    }
}

/// How fast baselines rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// To each maximum, because nothing is known yet.
    Follow,
    /// Slowly. A prefix that is seen for the first time begins as if it were idle: the first window of an attack would
    /// otherwise be usual.
    Slow,
}

/// How many times as high as usual the traffic of proven sources is, for each prefix: 1 if it is not higher.
///
/// A crowd brings packets that cannot have proof, such as single questions, in proportion. So thresholds rise with it. An
/// attacker without proof cannot raise them.
#[derive(Clone, Debug, Default)]
pub struct Growth(HashMap<Prefix, f64>);

impl Growth {
    /// The growth of a prefix, or of a wider one around it.
    pub fn of(&self, prefix: &Prefix) -> f64 {
        let around = Level::ALL.map(|level| Prefix::at(level, prefix.is_ipv6(), prefix.address()));
        let around = around.iter().filter(|one| one.covers(prefix));
        around.filter_map(|one| self.0.get(one)).copied().fold(1.0, f64::max)
    }
}

/// The baseline of a prefix.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual {
    /// Highest usual rate without proof of each class, packets a second.
    unproven_pps: [f64; PacketClass::COUNT],
    /// The same of streams, which do not count there.
    streamed_pps: [f64; PacketClass::COUNT],
    /// When the first packet of such a stream came, ns.
    streamed_since_ns: Option<u64>,
    /// Highest usual rate of each class.
    packets_pps: [f64; PacketClass::COUNT],
    /// Highest usual rate of packets that answers vouch for.
    vouched_pps: f64,
    /// Highest usual rate of packets of proven sources.
    proven_pps: f64,
    /// Packets of proven sources of each class, in peace and in attacks.
    proven: [u64; PacketClass::COUNT],
    /// When the first packet of a proven source came, ns.
    used_since_ns: Option<u64>,
}

impl Usual {
    /// The highest usual rate of packets of a class without proof.
    pub fn unproven_pps(&self, class: PacketClass) -> f64 {
        self.unproven_pps[class as usize]
    }

    /// The highest usual rate of packets of all classes without proof.
    pub fn unproven_total_pps(&self) -> f64 {
        self.unproven_pps.iter().sum()
    }

    /// The highest usual rate of packets of a class of streams without proof.
    pub fn streamed_pps(&self, class: PacketClass) -> f64 {
        self.streamed_pps[class as usize]
    }

    /// The same of all classes.
    pub fn streamed_total_pps(&self) -> f64 {
        self.streamed_pps.iter().sum()
    }

    /// The highest usual rate of packets that answers vouch for.
    pub fn vouched_pps(&self) -> f64 {
        self.vouched_pps
    }

    /// The highest usual rate of packets of all classes.
    pub fn total_pps(&self) -> f64 {
        self.packets_pps.iter().sum()
    }

    /// The highest usual rate of packets of a class.
    pub fn packets_pps(&self, class: PacketClass) -> f64 {
        self.packets_pps[class as usize]
    }

    /// Whether real sources send this class so rarely, in so many packets, that it is not a part of what the prefix does.
    /// In attacks too, because nobody can make up a proof. `served` packets more belong to what it does.
    pub fn is_foreign(&self, class: PacketClass, served: u64) -> bool {
        let all = self.proven.iter().sum::<u64>() + served;
        all >= FOREIGN_MIN && self.proven[class as usize] as f64 <= all as f64 * FOREIGN
    }

    /// Whether packets of any of the classes are more than a share of what is usual. They are if nothing is known.
    pub fn uses(&self, classes: &[PacketClass], share: f64) -> bool {
        let of_classes: f64 = classes.iter().map(|&class| self.packets_pps(class)).sum();
        let all: f64 = self.packets_pps.iter().sum();
        all == 0.0 || of_classes > all * share
    }

    /// Whether proven sources have used the prefix since a time.
    pub fn is_used_since(&self, time_ns: u64) -> bool {
        self.used_since_ns.is_some_and(|since_ns| since_ns <= time_ns)
    }

    /// Whether streams without proof have been spared since a time.
    pub fn is_streamed_since(&self, time_ns: u64) -> bool {
        self.streamed_since_ns.is_some_and(|since_ns| since_ns <= time_ns)
    }

    fn learn(&mut self, counts: &Counts, seconds: f64, free_pps: f64, (pace, growth): (Pace, f64)) {
        let is_crowd = growth >= CROWD;
        let rise = (seconds / if is_crowd { CROWD_DOUBLING_S } else { DOUBLING_S }).exp2();
        let proven_pps = counts.certain_total() as f64 / seconds;
        let fast = (self.proven_pps * (seconds / CROWD_DOUBLING_S).exp2()).max(free_pps);
        self.proven_pps = match pace {
            Pace::Follow => self.proven_pps.max(proven_pps),
            Pace::Slow => proven_pps.min(fast).max(self.proven_pps * (-seconds / HALVING_S).exp2()),
        };
        let fall = (-seconds / HALVING_S).exp2();
        let follow = |level: &mut f64, packets: u64| {
            let rate = packets as f64 / seconds;
            *level = if rate <= *level {
                (*level * fall).max(rate)
            } else if pace == Pace::Follow {
                rate
            } else {
                rate.min((*level * rise).max(free_pps))
            };
        };
        follow(&mut self.vouched_pps, counts.vouched_total());
        for class in PacketClass::ALL.map(|class| class as usize) {
            follow(&mut self.unproven_pps[class], counts.unproven[class]);
            follow(&mut self.streamed_pps[class], counts.streamed[class]);
            follow(&mut self.packets_pps[class], counts.packets[class]);
        }
    }
}

/// The baselines of all prefixes.
#[derive(Clone, Debug, Default)]
pub struct Baselines {
    usual: HashMap<Prefix, Usual>,
}

impl Baselines {
    /// Learns the counts of a prefix in peace, with its growth.
    pub fn learn(&mut self, counts: &Counts, seconds: f64, now_ns: u64, pace: (Pace, f64)) {
        if self.usual.len() >= PREFIXES_MAX && !self.usual.contains_key(&counts.prefix) {
            return;
        }
        let free_pps = floor_pps(&counts.prefix) / FACTOR;
        let usual = self.usual.entry(counts.prefix).or_default();
        usual.learn(counts, seconds, free_pps, pace);
        if counts.proven_total() > 0 {
            usual.used_since_ns.get_or_insert(now_ns);
        }
        if counts.streamed_total() > 0 {
            usual.streamed_since_ns.get_or_insert(now_ns);
        }
    }

    /// Counts packets of proven sources, also in attacks. Only where each packet is seen, in both directions, does a proof
    /// say what a host does.
    pub fn count_proven(&mut self, all: &[Counts]) {
        for counts in all.iter().filter(|counts| counts.proven_total() > 0) {
            if self.usual.len() >= PREFIXES_MAX && !self.usual.contains_key(&counts.prefix) {
                continue;
            }
            let proven = &mut self.usual.entry(counts.prefix).or_default().proven;
            PacketClass::ALL.into_iter().for_each(|class| proven[class as usize] += counts.proven(class));
        }
    }

    /// The baseline of a prefix. It is 0 for a prefix that was never seen.
    pub fn of(&self, prefix: &Prefix) -> Usual {
        self.usual.get(prefix).copied().unwrap_or_default()
    }

    /// The growth of the prefixes of a window.
    pub fn growth(&self, all: &[Counts], seconds: f64) -> Growth {
        let mut growth = HashMap::new();
        for counts in all.iter().filter(|counts| counts.certain_total() >= GROWTH_PACKETS) {
            let Some(usual) = self.usual.get(&counts.prefix).filter(|usual| usual.proven_pps > 0.0) else { continue };
            let times =
                counts.certain_total() as f64 / seconds / usual.proven_pps.max(floor_pps(&counts.prefix) / FACTOR);
            if times > 1.0 {
                growth.insert(counts.prefix, times.min(GROWTH_MAX));
            }
        }
        Growth(growth)
    }

    /// The rate without proof above which a class of a prefix is suspicious, packets a second.
    pub fn threshold_pps(&self, prefix: &Prefix, class: PacketClass, growth: f64) -> f64 {
        floor_pps(prefix).max(FACTOR * growth * self.of(prefix).unproven_pps(class))
    }
}

#[cfg(test)]
mod tests {
    use super::{Baselines, Pace, floor_pps};
    use crate::measure::counts::Counts;
    use crate::prefix::Prefix;
    use weir_abi::PacketClass;

    fn window(pps: f64) -> Counts {
        let mut counts = Counts::new(Prefix::of(false, 1, 32));
        counts.unproven[PacketClass::Udp as usize] = (pps / 4.0) as u64;
        counts.packets = counts.unproven;
        counts
    }

    /// Seconds until the rate is suspicious, if it grows by a factor each hour from the floor on.
    fn seconds_to_detect(hourly: f64) -> Option<f64> {
        let (mut baselines, prefix) = (Baselines::default(), Prefix::of(false, 1, 32));
        for _ in 0..40 {
            baselines.learn(&window(20.0), 0.25, 0, (Pace::Follow, 1.0));
        }
        (0..4 * 3600 * 6).map(|at| f64::from(at) / 4.0).find(|seconds| {
            let rate = 50.0 * hourly.powf(seconds / 3600.0);
            let is_suspicious = rate > baselines.threshold_pps(&prefix, PacketClass::Udp, 1.0);
            if !is_suspicious {
                baselines.learn(&window(rate), 0.25, 0, (Pace::Slow, 1.0));
            }
            is_suspicious
        })
    }

    #[test]
    fn a_ramp_does_not_become_normal() {
        // 100 times an hour, and 16 times an hour, the square of what the baseline follows.
        for hourly in [100.0, 16.0] {
            let seconds = seconds_to_detect(hourly).expect("it is detected");
            assert!(seconds < 2.5 * 3600.0, "{hourly}: {seconds}");
        }
    }

    #[test]
    fn the_first_rates_are_taken_as_they_are() {
        let mut baselines = Baselines::default();
        let prefix = Prefix::of(false, 1, 32);
        assert_eq!(baselines.threshold_pps(&prefix, PacketClass::Udp, 1.0), floor_pps(&prefix));
        baselines.learn(&window(4000.0), 0.25, 0, (Pace::Follow, 1.0));
        assert_eq!(baselines.threshold_pps(&prefix, PacketClass::Udp, 1.0), 12_000.0);
        (0..40).for_each(|_| baselines.learn(&window(4000.0), 0.25, 0, (Pace::Slow, 1.0)));
        (0..40).for_each(|_| baselines.learn(&window(11_000.0), 0.25, 0, (Pace::Slow, 1.0)));
        assert!(baselines.threshold_pps(&prefix, PacketClass::Udp, 1.0) < 12_200.0);
    }

    #[test]
    fn the_first_window_of_an_attack_on_an_idle_host_is_not_usual() {
        let (mut baselines, prefix) = (Baselines::default(), Prefix::of(false, 1, 32));
        baselines.learn(&window(90.0), 0.25, 0, (Pace::Slow, 1.0));
        assert_eq!(baselines.threshold_pps(&prefix, PacketClass::Udp, 1.0), floor_pps(&prefix));
    }

    #[test]
    fn a_crowd_raises_thresholds_and_baselines_and_a_flood_does_not() {
        let crowd = |times: u64, unproven: u64| {
            let mut counts = Counts::new(Prefix::of(false, 1, 32));
            counts.packets[PacketClass::Tcp as usize] = 100 * times;
            (counts.packets[PacketClass::Udp as usize], counts.unproven[PacketClass::Udp as usize]) =
                (unproven, unproven);
            counts
        };
        let (mut baselines, prefix) = (Baselines::default(), Prefix::of(false, 1, 32));
        (0..8).for_each(|_| baselines.learn(&crowd(1, 10), 0.25, 0, (Pace::Follow, 1.0)));
        let threshold = |baselines: &Baselines, counts: Counts| {
            baselines.threshold_pps(&prefix, PacketClass::Udp, baselines.growth(&[counts], 0.25).of(&prefix))
        };
        assert_eq!(threshold(&baselines, crowd(1, 5000)), 120.0);
        assert_eq!(threshold(&baselines, crowd(10, 100)), 1200.0);
        for _ in 0..4 * 300 {
            let growth = baselines.growth(&[crowd(10, 100)], 0.25).of(&prefix);
            assert!(400.0 < baselines.threshold_pps(&prefix, PacketClass::Udp, growth));
            baselines.learn(&crowd(10, 100), 0.25, 0, (Pace::Slow, growth));
        }
        assert!(threshold(&baselines, crowd(10, 100)) > 600.0, "{}", threshold(&baselines, crowd(10, 100)));
    }

    #[test]
    fn a_night_does_not_make_the_morning_an_attack() {
        let (mut baselines, prefix) = (Baselines::default(), Prefix::of(false, 1, 32));
        (0..400).for_each(|_| baselines.learn(&window(4000.0), 0.25, 0, (Pace::Follow, 1.0)));
        (0..4 * 3600).for_each(|_| baselines.learn(&window(10.0), 0.25, 0, (Pace::Slow, 1.0)));
        assert!(baselines.threshold_pps(&prefix, PacketClass::Udp, 1.0) > 5_000.0);
    }
}
