//! Real sources that attack: they send far more than any source in peace, and the victim does not answer.
//!
//! Only proven conversations count, so an attacker cannot make a source look like one of these by forging its address.
//! Only traffic in both directions shows answers.

use crate::baseline::{FACTOR, floor_pps};
use crate::class;
use crate::measure::{HeavySource, Window};
use crate::prefix::Prefix;
use crate::victim::{Evidence, Suspect};

/// A source attacks if it sends this many packets for each answer. A receiver acknowledges more often, also with
/// receive offloads that merge 64 KB.
const PACKETS_PER_ANSWER: u64 = 64;

/// The sources that attack in a window, each with its victim. `normal_pps` is the highest rate of a source in peace.
pub fn sources(window: &Window, normal_pps: f64) -> Vec<(HeavySource, Suspect)> {
    if !window.is_two_way {
        return Vec::new();
    }
    let found = window.heavy.iter().filter(|heavy| is_unanswered(heavy));
    found.filter_map(|heavy| Some((*heavy, suspect(heavy, window, normal_pps)?))).collect()
}

/// Whether a source gets an answer to hardly any of its packets.
pub fn is_unanswered(heavy: &HeavySource) -> bool {
    heavy.packets >= heavy.answers.max(1) * PACKETS_PER_ANSWER
}

fn suspect(heavy: &HeavySource, window: &Window, normal_pps: f64) -> Option<Suspect> {
    let header = window.real.iter().find(|header| (header.is_ipv6, header.saddr) == heavy.source)?;
    let prefix = Prefix::of(header.is_ipv6, header.daddr, u8::MAX);
    let (value, threshold) =
        (heavy.packets as f64 / window.seconds(), floor_pps(&prefix).max(normal_pps * FACTOR).max(window.least_pps()));
    let measure = "packets/s of a proven source that gets an answer to less than 1 of 64".to_owned();
    let evidence = vec![Evidence { measure, value, usual: normal_pps, threshold: Some(threshold) }];
    let class = class::of(header);
    let suspect = Suspect { prefix, class, unproven_pps: 0.0, is_victim: true, is_exact: false, evidence };
    (value >= threshold).then_some(suspect)
}
