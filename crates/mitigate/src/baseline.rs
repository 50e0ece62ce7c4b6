//! How much traffic without proof a prefix has in peace, by class.
//!
//! The baseline freezes for a prefix that is under suspicion. It rises slowly, so that a ramp over an hour does not
//! become normal, and falls slowly, so that a night does not make the morning an attack ([`crate::learned`]).

pub use crate::learned::Pace;
use crate::learned::{FAST_MAX, UsualRate, fall};
use crate::measure::WINDOW_NS;
use crate::measure::counts::Counts;
use crate::prefix::{Level, Prefix};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use weir_abi::PacketClass;

/// Windows of a beginning, 2 s. In it, baselines follow each maximum.
pub const LEARNING_WINDOWS: u32 = (2_000_000_000 / WINDOW_NS) as u32;
/// The growth of proven traffic that is a crowd.
const CROWD: f64 = 2.0;
/// Packets of proven sources in a window that growth is computed from.
const GROWTH_PACKETS: u64 = 25;
/// Prefixes with a baseline. Others have the floor.
const PREFIXES_MAX: usize = 8192;
/// If there are so many, prefixes that were not seen for this time are forgotten. The search for them runs at most once
/// in the shorter time.
const UNSEEN_NS: u64 = 3600 * SECOND_NS;
const PURGE_NS: u64 = 60 * SECOND_NS;
/// A use of a prefix counts for this time.
const USED_NS: u64 = 24 * 3600 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// A class exceeds its baseline if its rate is this many times as high. Poisson noise of 25 packets a window, the least
/// that counts, reaches 3 times less than once in 10^15 windows.
pub const FACTOR: f64 = 3.0;

/// What is not among this many packets of real sources is less than 1 % of them (95 % confidence: 3 of 400). The answer
/// that is dropped by mistake proves itself, so a mistake ends by itself.
const FOREIGN_MIN: f64 = 400.0;
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

/// How many times as high as usual the traffic of proven sources is, for each prefix: 1 if it is not higher.
///
/// A crowd brings packets that cannot have proof, such as single questions, in proportion. So thresholds rise with it.
/// An attacker without proof cannot raise them.
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

/// Since when something is known, and when it was seen last, ns.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Since(Option<(u64, u64)>);

impl Since {
    fn see(&mut self, now_ns: u64) {
        let (since_ns, _) = self.at(now_ns).unwrap_or((now_ns, now_ns));
        self.0 = Some((since_ns, now_ns));
    }

    /// What is known at a time, unless it is too long ago.
    fn at(&self, now_ns: u64) -> Option<(u64, u64)> {
        self.0.filter(|(_, last_ns)| now_ns.saturating_sub(*last_ns) <= USED_NS)
    }
}

/// The baseline of a prefix.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Usual {
    /// Highest usual rate without proof of each class.
    unproven: [UsualRate; PacketClass::COUNT],
    /// Highest usual rate of streams without proof of each class. They do not count in `unproven`.
    streamed: [UsualRate; PacketClass::COUNT],
    /// Streams without proof that were spared.
    streamed_since: Since,
    /// Highest usual rate of each class.
    packets: [UsualRate; PacketClass::COUNT],
    /// Highest usual rate of packets that answers vouch for.
    vouched: UsualRate,
    /// Highest usual rate of packets of proven sources.
    certain: UsualRate,
    /// Packets of each class that are proven or vouched for, and all that are proven, in peace and in attacks. Half of
    /// them is forgotten in an hour.
    proven_packets: [f64; PacketClass::COUNT],
    certain_packets: f64,
    /// Packets of proven sources, or those that answers vouch for.
    used_since: Since,
    /// When it was learned last, and the time now, ns.
    learned_ns: u64,
    now_ns: u64,
}

/// A learned rate of a prefix that can be listed and set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Packets of a class without proof.
    Unproven(PacketClass),
    /// Streams of a class without proof.
    Streamed(PacketClass),
    /// All packets of a class.
    Packets(PacketClass),
    /// Packets that answers vouch for.
    Vouched,
    /// Packets of proven sources.
    Proven,
}

impl Rate {
    /// All rates of a prefix.
    pub fn all() -> impl Iterator<Item = Rate> {
        let of_classes = |rate: fn(PacketClass) -> Rate| PacketClass::ALL.into_iter().map(rate);
        let all = of_classes(Rate::Unproven).chain(of_classes(Rate::Streamed)).chain(of_classes(Rate::Packets));
        all.chain([Rate::Vouched, Rate::Proven])
    }

    /// The rate with a name.
    pub fn named(name: &str) -> Option<Rate> {
        Self::all().find(|rate| rate.to_string() == name)
    }
}

impl Display for Rate {
    /// The word in requests and lists, such as `unproven.udp`.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Unproven(of) => write!(f, "unproven.{}", of.name()),
            Rate::Streamed(of) => write!(f, "streamed.{}", of.name()),
            Rate::Packets(of) => write!(f, "packets.{}", of.name()),
            Rate::Vouched => f.write_str("vouched"),
            Rate::Proven => f.write_str("proven"),
        }
    }
}

/// The sum of levels, packets a second.
fn sum(levels: &[UsualRate]) -> f64 {
    levels.iter().map(UsualRate::pps).sum()
}

impl Usual {
    /// One of its rates, packets a second.
    pub fn pps(&self, rate: Rate) -> f64 {
        match rate {
            Rate::Unproven(class) => self.unproven[class as usize].pps(),
            Rate::Streamed(class) => self.streamed[class as usize].pps(),
            Rate::Packets(class) => self.packets[class as usize].pps(),
            Rate::Vouched => self.vouched.pps(),
            Rate::Proven => self.certain.pps(),
        }
    }

    fn level_mut(&mut self, rate: Rate) -> &mut UsualRate {
        match rate {
            Rate::Unproven(class) => &mut self.unproven[class as usize],
            Rate::Streamed(class) => &mut self.streamed[class as usize],
            Rate::Packets(class) => &mut self.packets[class as usize],
            Rate::Vouched => &mut self.vouched,
            Rate::Proven => &mut self.certain,
        }
    }

    /// The highest usual rate of packets of a class without proof.
    pub fn unproven_pps(&self, class: PacketClass) -> f64 {
        self.unproven[class as usize].pps()
    }

    /// The highest usual rate of packets of all classes without proof.
    pub fn unproven_total_pps(&self) -> f64 {
        sum(&self.unproven)
    }

    /// The highest usual rate of packets of a class of streams without proof.
    pub fn streamed_pps(&self, class: PacketClass) -> f64 {
        self.streamed[class as usize].pps()
    }

    /// The highest usual rate of packets of streams without proof, of all classes.
    pub fn streamed_total_pps(&self) -> f64 {
        sum(&self.streamed)
    }

    /// The highest usual rate of packets that answers vouch for.
    pub fn vouched_pps(&self) -> f64 {
        self.vouched.pps()
    }

    /// The highest usual rate of packets of all classes.
    pub fn total_pps(&self) -> f64 {
        sum(&self.packets)
    }

    /// The highest usual rate of packets of a class.
    pub fn packets_pps(&self, class: PacketClass) -> f64 {
        self.packets[class as usize].pps()
    }

    /// Whether this class is too rare among proven sources to be normal for the prefix. This holds in attacks too. The
    /// many packets are from proven sources, which cannot be forged. The few packets of the class include those that
    /// answers vouch for. `served` further packets count as normal.
    pub fn is_foreign(&self, class: PacketClass, served: u64) -> bool {
        let all = self.certain_packets + served as f64;
        all >= FOREIGN_MIN && self.proven_packets[class as usize] <= all * FOREIGN
    }

    /// Whether packets of any of the classes are more than a share of what is usual. They are if nothing is known.
    pub fn uses(&self, classes: &[PacketClass], share: f64) -> bool {
        let of_classes: f64 = classes.iter().map(|&class| self.packets_pps(class)).sum();
        let all = self.total_pps();
        all == 0.0 || of_classes > all * share
    }

    /// Whether the prefix has been used since a time.
    pub fn is_used_since(&self, time_ns: u64) -> bool {
        self.used_since.at(self.now_ns).is_some_and(|(since_ns, _)| since_ns <= time_ns)
    }

    /// Whether streams without proof have been spared since a time.
    pub fn is_streamed_since(&self, time_ns: u64) -> bool {
        self.streamed_since.at(self.now_ns).is_some_and(|(since_ns, _)| since_ns <= time_ns)
    }

    /// All levels.
    fn levels_mut(&mut self) -> impl Iterator<Item = &mut UsualRate> {
        let of_classes = self.unproven.iter_mut().chain(&mut self.streamed).chain(&mut self.packets);
        of_classes.chain([&mut self.vouched, &mut self.certain])
    }

    /// Falls for the time in which nothing was learned, and no attack froze it.
    fn catch_up(&mut self, now_ns: u64) {
        let seconds = now_ns.saturating_sub(self.learned_ns) as f64 / 1e9;
        if self.learned_ns > 0 && seconds > 0.0 {
            self.levels_mut().for_each(|level| level.fall(seconds));
        }
        (self.learned_ns, self.now_ns) = (now_ns, now_ns);
    }

    fn learn(&mut self, counts: &Counts, seconds: f64, free_pps: f64, (pace, growth): (Pace, f64)) {
        let learn = |level: &mut UsualRate, packets: u64, pace: Pace| {
            level.learn(packets as f64 / seconds, seconds, pace, free_pps);
        };
        let or_fast = |is_fast: bool| if is_fast && pace == Pace::Slow { Pace::Fast } else { pace };
        // Proven sources cannot be made up, and lower the growth if they are more.
        learn(&mut self.certain, counts.certain_total(), or_fast(true));
        let pace = or_fast(growth >= CROWD);
        learn(&mut self.vouched, counts.vouched_total(), pace);
        for class in PacketClass::ALL.map(|class| class as usize) {
            learn(&mut self.unproven[class], counts.unproven[class], pace);
            learn(&mut self.streamed[class], counts.streamed[class], pace);
            learn(&mut self.packets[class], counts.packets[class], pace);
        }
    }

    /// Forgets a part of the packets that were counted.
    fn forget_packets(&mut self, seconds: f64) {
        let left = fall(seconds);
        self.proven_packets.iter_mut().chain([&mut self.certain_packets]).for_each(|packets| *packets *= left);
    }
}

/// The baselines of all prefixes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Baselines {
    usual: HashMap<Prefix, Usual>,
    now_ns: u64,
    purged_ns: u64,
}

impl Baselines {
    /// The baseline to be changed, if there is room for one.
    fn entry(&mut self, prefix: Prefix) -> Option<&mut Usual> {
        if self.usual.len() >= PREFIXES_MAX && !self.usual.contains_key(&prefix) {
            self.purge();
        }
        let has_room = self.usual.len() < PREFIXES_MAX || self.usual.contains_key(&prefix);
        has_room.then(|| self.usual.entry(prefix).or_default())
    }

    /// Makes room: forgets prefixes that were not seen for some time, and those that hardly receive anything.
    fn purge(&mut self) {
        let now_ns = self.now_ns;
        if now_ns.saturating_sub(self.purged_ns) < PURGE_NS {
            return;
        }
        self.purged_ns = now_ns;
        self.usual.retain(|prefix, usual| {
            let is_recent = now_ns.saturating_sub(usual.learned_ns) < UNSEEN_NS;
            is_recent && usual.total_pps() >= floor_pps(prefix) / FACTOR
        });
    }

    /// Begins a window, which ends now.
    pub fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Learns the counts of a prefix in peace, with its growth.
    pub fn learn(&mut self, counts: &Counts, seconds: f64, now_ns: u64, pace: (Pace, f64)) {
        self.now_ns = now_ns;
        let free_pps = floor_pps(&counts.prefix) / FACTOR;
        let Some(usual) = self.entry(counts.prefix) else { return };
        usual.catch_up(now_ns.saturating_sub((seconds * 1e9) as u64));
        usual.learn(counts, seconds, free_pps, pace);
        (usual.learned_ns, usual.now_ns) = (now_ns, now_ns);
        if counts.proven_total() > 0 {
            usual.used_since.see(now_ns);
        }
        if counts.streamed_total() > 0 {
            usual.streamed_since.see(now_ns);
        }
    }

    /// Freezes baselines until now: the baselines of prefixes under suspicion, or all if nothing was seen.
    pub fn freeze(&mut self, is_frozen: impl Fn(&Prefix) -> bool, now_ns: u64) {
        for (_, usual) in self.usual.iter_mut().filter(|(prefix, _)| is_frozen(prefix)) {
            (usual.learned_ns, usual.now_ns) = (now_ns, now_ns);
        }
    }

    /// Counts packets of proven sources, also in attacks. Only where each packet is seen, in both directions, does a
    /// proof say what a host does.
    pub fn count_proven(&mut self, all: &[Counts], seconds: f64) {
        for counts in all.iter().filter(|counts| counts.proven_total() > 0) {
            let Some(usual) = self.entry(counts.prefix) else { continue };
            usual.forget_packets(seconds);
            usual.certain_packets += counts.certain_total() as f64;
            for class in PacketClass::ALL {
                usual.proven_packets[class as usize] += counts.proven(class) as f64;
            }
        }
    }

    /// The baseline of a prefix. It is 0 for a prefix that was never seen.
    pub fn of(&self, prefix: &Prefix) -> Usual {
        let mut usual = self.usual.get(prefix).copied().unwrap_or_default();
        usual.catch_up(self.now_ns.max(usual.learned_ns));
        usual
    }

    /// All prefixes, those with the most packets first.
    pub fn prefixes(&self) -> Vec<(Prefix, Usual)> {
        let mut all: Vec<(Prefix, Usual)> = self.usual.keys().map(|prefix| (*prefix, self.of(prefix))).collect();
        all.sort_by(|one, other| other.1.total_pps().total_cmp(&one.1.total_pps()).then(one.0.cmp(&other.0)));
        all
    }

    /// Sets a rate of a prefix. It is learned on from there. Returns whether there is room.
    pub fn set(&mut self, prefix: Prefix, rate: Rate, pps: f64) -> bool {
        let now_ns = self.now_ns;
        let Some(usual) = self.entry(prefix) else { return false };
        usual.catch_up(now_ns.max(usual.learned_ns));
        usual.level_mut(rate).set(pps);
        true
    }

    /// Forgets the prefixes that a prefix covers, or all. Returns how many.
    pub fn reset(&mut self, prefix: Option<Prefix>) -> usize {
        let before = self.usual.len();
        self.usual.retain(|known, _| prefix.is_some_and(|prefix| !prefix.covers(known)));
        before - self.usual.len()
    }

    /// The growth of the prefixes of a window.
    pub fn growth(&self, all: &[Counts], seconds: f64) -> Growth {
        let mut growth = HashMap::new();
        for counts in all.iter().filter(|counts| counts.certain_total() >= GROWTH_PACKETS) {
            let usual_pps = self.of(&counts.prefix).certain.pps();
            if usual_pps <= 0.0 {
                continue;
            }
            let times = counts.certain_total() as f64 / seconds / usual_pps.max(floor_pps(&counts.prefix) / FACTOR);
            if times > 1.0 {
                growth.insert(counts.prefix, times.min(FAST_MAX));
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

    #[test]
    fn learning_does_not_restore_what_fell_while_nothing_was_seen() {
        let (mut baselines, counts) = (Baselines::default(), window(4000.0));
        baselines.learn(&counts, 0.25, 1, (Pace::Follow, 1.0));
        baselines.learn(&Counts::new(counts.prefix), 0.25, 3_600_000_000_000, (Pace::Slow, 1.0));
        assert!(baselines.of(&counts.prefix).unproven_pps(PacketClass::Udp) < 3900.0);
    }
}
