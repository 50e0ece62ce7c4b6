//! Real sources that attack: they send far more than any source in peace, and the victim acknowledges hardly anything.
//!
//! Only proven conversations count, so an attacker cannot make a source look like one of these by forging its address.
//! Only traffic in both directions shows answers.
//!
//! Receivers merge segments and acknowledge 64 KB and more at once, so answers are not counted alone: the bytes that
//! they acknowledge say how many segments they stand for. Repeated acknowledgements acknowledge nothing. A refusal
//! (RST) is no answer.
//!
//! A decision needs two windows, and so many packets that chance does not explain that no answer was seen. Copies that
//! were lost, or may be lost, count as answers to all that a receiver merges. Losses are known one window later, so
//! nothing is decided about a window before the next one has ended.

use crate::baseline::{FACTOR, floor_pps};
use crate::class;
use crate::measure::{HeavySource, Source, Window};
use crate::prefix::Prefix;
use crate::stored::StoredClass;
use crate::victim::{Evidence, Suspect};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use weir_abi::PacketClass;

/// A source attacks if it sends this many packets for each one that is acknowledged.
const PACKETS_PER_ACKNOWLEDGED: f64 = 8.0;
/// Bytes that count as one acknowledged packet: hardly more than the smallest segment size of IPv4 (RFC 9293, section
/// 3.7.1). Customers send longer segments as a rule. An attacker gains by shorter ones, but only what it has acknowledged.
const SEGMENT_BYTES: f64 = 512.0;
/// Packets that a receiver merges before it answers. Receive offloads merge 64 KB, 27 to 59 packets were measured, and
/// 200 change little.
const MERGED: f64 = 128.0;
/// Answers that are missing, at least, before a decision.
const ANSWERS_MIN: f64 = 4.0;
/// A decision is wrong by chance once in e to this power: 10^9. 1024 sources are judged four times a second, 10^8 times
/// a day.
const CERTAINTY: f64 = 20.7;
/// Windows with evidence before a decision.
const WINDOWS: u32 = 2;
/// The time in which they occur.
const SPAN_NS: u64 = 10_000_000_000;
/// The evidence against a source is kept for this time after a decision: its block ends earlier. If it goes on, it is
/// blocked again in its first window.
const KEPT_NS: u64 = 60_000_000_000;
/// Sources that are watched at once.
const SOURCES_MAX: usize = 4096;

/// What was seen of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Evident {
    /// Packets that were seen, and their estimate.
    seen: f64,
    packets: f64,
    /// An estimate of answers. Each stands for one packet.
    answers: f64,
    /// Bytes that were acknowledged or brought.
    exchanged: f64,
    /// Copies that were lost, an estimate of the answers that they stand for.
    lost: f64,
    seconds: f64,
    windows: u32,
}

impl Evident {
    fn of(heavy: &HeavySource, window: &Window) -> Self {
        let packets = heavy.packets as f64;
        Evident {
            seen: packets / window.sampling.scale(),
            packets,
            answers: heavy.answers as f64,
            exchanged: heavy.exchanged as f64,
            lost: 0.0,
            seconds: window.seconds(),
            windows: 1,
        }
    }

    fn add(&mut self, more: &Evident) {
        self.seen += more.seen;
        self.packets += more.packets;
        self.answers += more.answers;
        self.exchanged += more.exchanged;
        self.lost += more.lost;
        self.seconds += more.seconds;
        self.windows += more.windows;
    }

    /// Whether hardly anything is acknowledged, as far as one can tell.
    fn is_unanswered(&self) -> bool {
        let acknowledged = self.answers + self.exchanged / SEGMENT_BYTES + self.lost * MERGED;
        self.packets >= acknowledged.max(1.0) * PACKETS_PER_ACKNOWLEDGED
    }

    /// Whether chance does not explain that no answer was seen. An answer that is seen acknowledges everything before.
    fn is_certain(&self) -> bool {
        let answers = self.packets / MERGED;
        let seen = (self.seen / self.packets.max(1.0)).min(1.0);
        // The chance that none of them is seen, as a power of e. It is infinite if all are seen.
        answers >= ANSWERS_MIN && answers * -(1.0 - seen).ln() >= CERTAINTY
    }
}

/// A source that sends more than is usual.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Watched {
    /// The evidence of windows whose losses are known.
    settled: Evident,
    /// The evidence of the last window.
    latest: Evident,
    /// Copies that were missing before, scaled. They are not of this evidence.
    missing_before: f64,
    /// When it is forgotten, unless it sends more than is usual again, ns.
    until_ns: u64,
    prefix: Prefix,
    #[serde(with = "StoredClass")]
    class: PacketClass,
}

/// The sources that send more than is usual.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Unanswered {
    watched: HashMap<Source, Watched>,
    /// The end of the last window, and the copies that were missing then, scaled.
    last_ns: u64,
    missing: f64,
}

impl Unanswered {
    /// The sources that attack, each with its victim. `normal_pps` is the highest rate of a source in peace.
    pub fn judge(&mut self, window: &Window, normal_pps: f64) -> Vec<(Source, Suspect)> {
        // Nothing is known of the losses of a window that is not followed by the next one.
        let is_next = std::mem::replace(&mut self.last_ns, window.to_ns) == window.from_ns;
        if !window.is_two_way {
            self.watched.clear();
            return Vec::new();
        }
        let scaled = |copies: u64| copies as f64 * window.sampling.scale();
        let (lost, missing) = (scaled(window.sampling.lost), scaled(window.sampling.missing));
        for watched in self.watched.values_mut() {
            let mut latest = std::mem::take(&mut watched.latest);
            if is_next && latest.windows > 0 {
                latest.lost = lost;
                watched.settled.add(&latest);
                // Who is answered begins anew, so that nobody sends in advance for later.
                if !watched.settled.is_unanswered() {
                    (watched.settled, watched.missing_before) = (Evident::default(), missing);
                }
            }
        }
        let fast: Vec<(Source, f64)> = window
            .heavy
            .iter()
            .filter_map(|heavy| Some((heavy.source, self.watch(heavy, window, normal_pps)?)))
            .collect();
        self.watched.retain(|_, watched| watched.until_ns > window.to_ns);
        self.missing = missing;
        let decided = |(source, threshold): (Source, f64)| {
            let watched = self.watched.get_mut(&source)?;
            let settled = watched.settled;
            let missing = (missing - watched.missing_before).max(0.0);
            let is_unanswered = |of: Evident| Evident { lost: of.lost + missing, ..of }.is_unanswered();
            if settled.windows < WINDOWS
                || !settled.is_certain()
                || ![settled, watched.latest].into_iter().all(is_unanswered)
            {
                return None;
            }
            watched.until_ns = window.to_ns + KEPT_NS;
            Some((source, watched.suspect(normal_pps, threshold)))
        };
        fast.into_iter().filter_map(decided).collect()
    }

    /// Notes the evidence of a source. Returns the threshold if it sends more than is usual.
    fn watch(&mut self, heavy: &HeavySource, window: &Window, normal_pps: f64) -> Option<f64> {
        let known = self.watched.get(&heavy.source).map(|known| known.prefix);
        let pps = heavy.packets as f64 / window.seconds();
        if known.is_none() && pps < normal_pps * FACTOR {
            return None;
        }
        let header = window.real.iter().find(|header| (header.is_ipv6, header.saddr) == heavy.source);
        let prefix = known.or_else(|| header.map(|header| Prefix::of(header.is_ipv6, header.daddr, u8::MAX)))?;
        let threshold = floor_pps(&prefix).max(normal_pps * FACTOR).max(window.least_pps());
        let is_fast = pps >= threshold;
        if known.is_none() && (!is_fast || self.watched.len() >= SOURCES_MAX) {
            return None;
        }
        let class = header.map_or(PacketClass::Tcp, class::of);
        let (none, missing_before) = (Evident::default(), self.missing);
        let new = Watched { settled: none, latest: none, missing_before, until_ns: 0, prefix, class };
        let watched = self.watched.entry(heavy.source).or_insert(new);
        watched.latest = Evident::of(heavy, window);
        if is_fast {
            watched.until_ns = watched.until_ns.max(window.to_ns + SPAN_NS);
        }
        is_fast.then_some(threshold)
    }
}

impl Watched {
    fn suspect(&self, normal_pps: f64, threshold: f64) -> Suspect {
        let measure = "packets/s of a proven source that gets less than 1 of 8 acknowledged".to_owned();
        let value = self.settled.packets / self.settled.seconds;
        let evidence = vec![Evidence { measure, value, usual: normal_pps, threshold: Some(threshold) }];
        Suspect {
            prefix: self.prefix,
            class: self.class,
            unproven_pps: 0.0,
            is_victim: true,
            is_exact: false,
            evidence,
        }
    }
}

/// Whether hardly anything that a source sends is acknowledged, as far as a window shows.
pub fn is_unanswered(heavy: &HeavySource, window: &Window) -> bool {
    Evident::of(heavy, window).is_unanswered()
}

#[cfg(test)]
mod tests;
