//! Rates: the differences between two snapshots.

use crate::Snapshot;
use std::collections::BTreeMap;
use weir_control::{AttackEntry, Tally};

/// Two snapshots with less time between them, seconds, give no rate.
const SHORTEST: f64 = 0.05;

/// Rates of one direction, a second. `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DirectionRates {
    /// Packets received.
    pub packets: Option<f64>,
    /// Bits received.
    pub bits: Option<f64>,
    /// Packets accepted.
    pub passed: Option<f64>,
    /// Packets dropped.
    pub dropped: Option<f64>,
    /// Packets diverted.
    pub diverted: Option<f64>,
    /// Packets answered.
    pub replied: Option<f64>,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<String, f64>,
    /// Packets decided, by reason.
    pub reasons: BTreeMap<String, f64>,
}

/// Rates, a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    /// Packets from the lower side.
    pub upstream: DirectionRates,
    /// Packets from the upper side.
    pub downstream: DirectionRates,
    /// Packets that Weir lost itself.
    pub lost: Option<f64>,
    /// Packets that the actions against each attack have dropped.
    pub held: BTreeMap<u32, f64>,
    /// The share of time in which the thread of each worker was busy. Engines in the kernel have none.
    pub busy: BTreeMap<usize, f64>,
}

/// What Weir lost itself, since its start. `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Packets that a full receive queue lost.
    pub missed: Option<u64>,
    /// Packets that are longer than the engine receives.
    pub too_long: u64,
    /// Accepted packets that were not sent.
    pub unsent: u64,
    /// Samples that mitigation lost; `None` also without mitigation.
    pub samples: Option<u64>,
    /// Additions to tables that were lost.
    pub additions: u64,
}

impl Losses {
    /// The losses in a snapshot; `None` if it has no counters.
    pub fn of(snapshot: &Snapshot) -> Option<Self> {
        let stats = snapshot.stats.as_ref()?;
        // A card counts what it drops, and receives all that it counts.
        let card = stats.card.as_ref().map(|card| &card.interface.interface);
        let ports: Vec<_> = stats.interfaces.iter().filter(|port| Some(&port.interface) != card).collect();
        // Interfaces that do not count what they miss make the sum unknown, unless others have missed something.
        let counted: Vec<u64> = ports.iter().filter_map(|port| port.rx_missed).collect();
        let sum: u64 = counted.iter().sum();
        Some(Losses {
            missed: (counted.len() == ports.len() || sum > 0).then_some(sum),
            too_long: ports.iter().map(|port| port.rx_too_long).sum(),
            unsent: ports.iter().map(|port| port.tx_dropped.unsent() + port.tx_dropped.no_divert).sum(),
            samples: snapshot.attacks.as_ref().map(|attacks| attacks.samples.lost),
            additions: stats.additions.additions_overflow,
        })
    }

    /// Packets that were lost, as far as that is known.
    pub fn packets(&self) -> u64 {
        self.missed.unwrap_or(0) + self.too_long + self.unsent
    }

    /// Whether anything was lost.
    pub fn is_any(&self) -> bool {
        self.packets() + self.samples.unwrap_or(0) + self.additions > 0
    }
}

impl Rates {
    /// The rates between two snapshots. All are unknown if Weir was restarted between them.
    pub fn between(before: &Snapshot, now: &Snapshot) -> Self {
        let Some(seconds) = seconds_between(before, now) else { return Rates::default() };
        let (Some(old), Some(new)) = (&before.stats, &now.stats) else { return Rates::default() };
        let losses = |of: &Snapshot| Losses::of(of).map(|losses| losses.packets());
        let lost = losses(before).zip(losses(now)).and_then(|(old, new)| rate(old, new, seconds));
        Rates {
            upstream: direction(&old.upstream.total, &new.upstream.total, seconds),
            downstream: direction(&old.downstream.total, &new.downstream.total, seconds),
            lost: lost.filter(|lost| *lost > 0.0 || Losses::of(now).is_some_and(|losses| losses.missed.is_some())),
            held: held(before, now, seconds),
            busy: busy(before, now, seconds),
        }
    }
}

/// Whether Weir was restarted between two snapshots.
pub fn is_restart(before: &Snapshot, now: &Snapshot) -> bool {
    let uptime = |of: &Snapshot| of.status.as_ref().map(|status| status.uptime_s);
    uptime(before).zip(uptime(now)).is_some_and(|(before, now)| now < before)
}

/// Seconds between two snapshots by the clock of Weir; `None` if that is too little, or it was restarted.
fn seconds_between(before: &Snapshot, now: &Snapshot) -> Option<f64> {
    let seconds = now.status.as_ref()?.uptime_s - before.status.as_ref()?.uptime_s;
    (seconds >= SHORTEST).then_some(seconds)
}

/// The rate of a counter. A counter that goes back has no rate.
fn rate(before: u64, now: u64, seconds: f64) -> Option<f64> {
    Some(now.checked_sub(before)? as f64 / seconds)
}

fn direction(before: &Tally, now: &Tally, seconds: f64) -> DirectionRates {
    let rate = |of: fn(&Tally) -> u64| rate(of(before), of(now), seconds);
    DirectionRates {
        packets: rate(|tally| tally.packets),
        bits: rate(|tally| tally.bytes).map(|bytes| bytes * 8.0),
        passed: rate(|tally| tally.passed),
        dropped: rate(|tally| tally.dropped),
        diverted: rate(|tally| tally.diverted),
        replied: rate(|tally| tally.replied),
        drops: by_reason(&before.drops, &now.drops, seconds),
        reasons: by_reason(&before.reasons, &now.reasons, seconds),
    }
}

fn by_reason(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>, seconds: f64) -> BTreeMap<String, f64> {
    let rate = |(reason, now): (&String, &u64)| {
        let before = before.get(reason).copied().unwrap_or(0);
        Some((reason.clone(), rate(before, *now, seconds)?))
    };
    now.iter().filter_map(rate).collect()
}

/// What the actions against an attack have dropped; `None` if no action is counted.
pub fn dropped(attack: &AttackEntry) -> Option<u64> {
    attack.actions.iter().filter_map(|action| action.dropped).reduce(|one, other| one + other)
}

fn held(before: &Snapshot, now: &Snapshot, seconds: f64) -> BTreeMap<u32, f64> {
    let (Some(before), Some(now)) = (&before.attacks, &now.attacks) else { return BTreeMap::new() };
    let rate = |attack: &AttackEntry| {
        let old = before.attacks.iter().find(|old| old.attack == attack.attack);
        let old = old.and_then(dropped).unwrap_or(0);
        Some((attack.attack, rate(old, dropped(attack)?, seconds)?))
    };
    now.attacks.iter().filter_map(rate).collect()
}

fn busy(before: &Snapshot, now: &Snapshot, seconds: f64) -> BTreeMap<usize, f64> {
    let (Some(before), Some(now)) = (&before.status, &now.status) else { return BTreeMap::new() };
    let share = |(worker, now): (&usize, &u64)| {
        let share = rate(*before.workers_cpu_ms.get(worker)?, *now, seconds)? / 1000.0;
        // Both clocks are read one after the other, so the share can come out a little too high.
        Some((*worker, share.min(1.0)))
    };
    now.workers_cpu_ms.iter().filter_map(share).collect()
}
