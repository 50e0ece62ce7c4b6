//! Exact counts of protected addresses, which generated code makes behind the rules (`observe`).
//!
//! Where packets are sampled, rates are estimates, and a victim with less than 25 samples in a window cannot be told
//! from chance. Exact counts replace such estimates. They are of a second, and samples of a window, so at the beginning
//! of an attack enough samples may show more, and then count.
//!
//! Counts say nothing of single conversations, so which packets have no proof is estimated. Their share is taken from
//! the samples of the prefix, or from all samples if the prefix has few. A host that sends segments of TCP connections
//! receives others in return: as many segments to it have proof. SYN-ACKs and resets do not count, because made-up
//! packets cause them.

use super::Window;
use super::counts::Counts;
use super::sampling::{SEEN_MIN, Sampling};
use crate::baseline::{FACTOR, floor_pps};
use crate::prefix::{Level, Prefix};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::HashMap;
use weir_abi::PacketClass;

/// Prefixes of a level that are kept: those with most packets.
const PREFIXES_MAX: usize = 4096;
/// As many samples of all prefixes count as samples of a prefix.
const SHARED_SAMPLES: f64 = 4.0;
/// Segments that a host receives for each one that it sends in return: it acknowledges at least every second one (RFC
/// 9293, section 3.8.6.3).
const SEGMENTS_PER_ANSWER: u64 = 2;
/// Older exact counts say nothing about the present.
const AGE_MAX_NS: u64 = 3_000_000_000;

/// The exact counts of a time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Observed {
    /// When counting began, ns.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Of hosts, nets and wide prefixes. Packets without proof are not known here.
    all: Vec<Exact>,
}

/// The exact counts of a prefix.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Exact {
    counts: Counts,
    /// Segments of TCP from it that are neither SYN-ACKs nor resets.
    answers: u64,
}

impl Observed {
    /// The counts of addresses or prefixes, added up for each level that contains them: `to` them and `from` them. What
    /// is too little to matter is left out. Neighbours should follow each other, so that their sums are at hand.
    pub fn new<T>(from_ns: u64, to_ns: u64, to: T, from: T) -> Self
    where
        T: IntoIterator<Item = Counts> + Clone,
    {
        let seconds = to_ns.saturating_sub(from_ns) as f64 / 1e9;
        // Below, a baseline is not above the floor, and the floor is the threshold.
        let matters = |counts: &Counts| counts.total() as f64 >= floor_pps(&counts.prefix) / FACTOR * seconds;
        let mut all = Vec::new();
        for level in Level::ALL {
            let mut sums: HashMap<Prefix, Exact> = HashMap::new();
            // Each host occurs once.
            let is_kept = |run: &Counts| level != Level::Host || matters(run);
            for_runs(level, to.clone(), |run| {
                if is_kept(&run) {
                    let none = Exact { counts: Counts::new(run.prefix), answers: 0 };
                    add(&mut sums.entry(run.prefix).or_insert(none).counts, &run);
                }
            });
            for_runs(level, from.clone(), |run| {
                let sum = sums.get_mut(&run.prefix);
                sum.into_iter().for_each(|sum| sum.answers += run.packets[PacketClass::Tcp as usize]);
            });
            let mut of_level: Vec<Exact> = sums.into_values().filter(|exact| matters(&exact.counts)).collect();
            if of_level.len() > PREFIXES_MAX {
                of_level.select_nth_unstable_by_key(PREFIXES_MAX, |exact| Reverse(exact.counts.total()));
                of_level.truncate(PREFIXES_MAX);
            }
            of_level.sort_unstable_by_key(|exact| exact.counts.prefix);
            all.append(&mut of_level);
        }
        Observed { from_ns, to_ns, all }
    }

    /// Whether the counts say something of a window that ends now.
    pub fn is_current(&self, now_ns: u64) -> bool {
        self.to_ns > self.from_ns && now_ns.saturating_sub(self.to_ns) <= AGE_MAX_NS
    }

    fn seconds(&self) -> f64 {
        (self.to_ns - self.from_ns) as f64 / 1e9
    }
}

/// Sums up successive counts that belong to one prefix of a level. Coarser counts are left out.
fn for_runs(level: Level, each: impl IntoIterator<Item = Counts>, mut take: impl FnMut(Counts)) {
    let mut last: Option<Counts> = None;
    for counts in each {
        let prefix = Prefix::at(level, counts.prefix.is_ipv6(), counts.prefix.address());
        if !prefix.covers(&counts.prefix) {
            continue;
        }
        match &mut last {
            Some(run) if run.prefix == prefix => add(run, &counts),
            _ => last.replace(Counts { prefix, ..counts }).into_iter().for_each(&mut take),
        }
    }
    last.into_iter().for_each(take);
}

fn add(sum: &mut Counts, more: &Counts) {
    sum.packets.iter_mut().zip(more.packets).for_each(|(sum, more)| *sum += more);
    sum.bytes += more.bytes;
    sum.new_sources += more.new_sources;
}

/// The share of packets without proof of each class, among all samples of a window. 1 if there are none.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Shares([f64; PacketClass::COUNT]);

impl Shares {
    fn of(window: &Window) -> Self {
        let hosts = || window.counts.iter().filter(|counts| counts.prefix.is_host());
        Shares(std::array::from_fn(|class| {
            let packets: u64 = hosts().map(|counts| counts.packets[class]).sum();
            let unproven: u64 = hosts().map(|counts| counts.unproven[class]).sum();
            if packets == 0 { 1.0 } else { unproven as f64 / packets as f64 }
        }))
    }

    /// The share of a prefix with these samples.
    fn of_class(&self, samples: &Counts, class: usize) -> f64 {
        (samples.unproven[class] as f64 + SHARED_SAMPLES * self.0[class])
            / (samples.packets[class] as f64 + SHARED_SAMPLES)
    }

    /// The share of a part of these samples.
    fn of_part(part: u64, samples: &Counts, class: usize) -> f64 {
        part as f64 / (samples.packets[class] as f64 + SHARED_SAMPLES)
    }
}

impl Window {
    /// Makes the counts of seen packets estimates of all packets, and exact where they were observed.
    pub fn complete(&mut self, sampling: Sampling, observed: Option<&Observed>) {
        let observed = observed.filter(|observed| sampling.scale() > 1.0 && observed.is_current(self.to_ns));
        let samples = observed.map(|_| (Shares::of(self), self.counts.clone()));
        self.estimate(sampling);
        let (Some(observed), Some((shares, samples))) = (observed, samples) else { return };
        let mut places: HashMap<Prefix, usize> =
            self.counts.iter().enumerate().map(|(place, counts)| (counts.prefix, place)).collect();
        let times = self.seconds() / observed.seconds();
        for exact in &observed.all {
            let prefix = exact.counts.prefix;
            let place = *places.entry(prefix).or_insert_with(|| {
                self.counts.push(Counts::new(prefix));
                self.counts.len() - 1
            });
            let none = Counts::new(prefix);
            let samples = samples.get(place).unwrap_or(&none);
            correct(&mut self.counts[place], exact, times, samples, &shares);
        }
    }
}

/// Replaces estimates by what was counted, unless enough samples show more. `times` converts exact counts to a window.
fn correct(counts: &mut Counts, exact: &Exact, times: f64, samples: &Counts, shares: &Shares) {
    let of_window = |packets: u64| (packets as f64 * times).round() as u64;
    for class in 0..PacketClass::COUNT {
        let packets = of_window(exact.counts.packets[class]);
        if packets < counts.packets[class] && samples.packets[class] as f64 >= SEEN_MIN {
            continue;
        }
        let mut unproven = (packets as f64 * shares.of_class(samples, class)).round() as u64;
        if class == PacketClass::Tcp as usize {
            unproven = unproven.min(packets.saturating_sub(of_window(exact.answers * SEGMENTS_PER_ANSWER)));
        }
        let of_all = |part: u64| (packets as f64 * Shares::of_part(part, samples, class)).round() as u64;
        counts.packets[class] = packets;
        counts.unproven[class] = unproven;
        counts.streamed[class] = of_all(samples.streamed[class]);
        counts.vouched[class] = of_all(samples.vouched[class]);
        counts.briefly_vouched[class] = of_all(samples.briefly_vouched[class]);
        counts.is_exact[class] = true;
    }
    counts.bytes = counts.bytes.max(of_window(exact.counts.bytes));
    counts.new_sources = counts.new_sources.max(of_window(exact.counts.new_sources)).min(counts.total());
}
