//! How exactly a limit is kept: one bucket of 100,000 packets a second, offered from half of that to a hundred times as much, evenly and in
//! millisecond bursts, by one worker and by several at once, in real time.
//!
//! What passed is compared with what models let through of the same packets at the same times ([`model`]): the exact leaky bucket, and the paper's
//! bucket, which gets its tokens after every millionth packet (MoonPol section IV-E) and so passes squares. The figure for that is the standard
//! deviation of what passes in 10 ms.

mod chart;
mod model;
mod offer;

use crate::options::Options;
use crate::row::Row;
use model::{Exact, Model, Refilled};
use offer::{Offer, Pattern, Seen};
use std::fs;
use weir::failure::Failure;
use weir::policy::Policy;
use weir_engine::cpu::Cpu;

pub use chart::svg as plot;

/// The limit, and what passes at once: the packets of 10 ms.
const RATE_PPS: u64 = 100_000;
const BURST: u64 = 1000;
/// Times of the rate that are offered, by all workers together.
const OFFERED: [f64; 6] = [0.5, 0.9, 1.1, 2.0, 10.0, 100.0];
const WORKERS: [usize; 3] = [1, 2, 4];
/// How long packets are offered, and what of that is not looked at: a full bucket passes more at first.
const TURN_NS: u64 = 1_000_000_000;
const SETTLE_NS: u64 = 100_000_000;
/// With fewer in a turn, nothing can be said of what refills give.
const REFILLS_MIN: usize = 5;
/// What passes in so long is a sample.
const WINDOW_NS: u64 = 10_000_000;

/// Runs the scenario.
///
/// # Errors
/// There is no compiler, or a worker fails.
pub fn run(_: &Options) -> Result<Vec<Row>, Failure> {
    let policy = policy()?;
    let object = policy.native_object(Cpu::Native)?.object;
    let mut rows = Vec::new();
    for pattern in [Pattern::Even, Pattern::Bursts] {
        for times in OFFERED {
            for workers in WORKERS {
                let code = policy.load_code(&object, policy.data(None)?)?;
                let offer = Offer { pattern, pps: times * RATE_PPS as f64, workers, length_ns: TURN_NS };
                let seen = offer.to(&code)?;
                let row = Row::default().of("pattern", pattern.name()).of("offered", &format!("{times} x"));
                rows.push(compared(row.of("workers", &workers.to_string()), &seen));
            }
        }
    }
    Ok(rows)
}

fn policy() -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let path = directory.path().join("rate-accuracy.weir");
    let text = format!("upstream {{ limit rate {RATE_PPS}pps burst {BURST}; accept }}\ndownstream {{ accept }}\n");
    fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    Policy::load(&path)
}

/// Weir's figures and those of the models.
fn compared(row: Row, seen: &[Seen]) -> Row {
    let own = Passed::of(seen, |seen| seen.passed.into());
    let of_model = |model: &mut dyn Model| Passed::of(seen, |seen| model.passed(seen));
    let exact = of_model(&mut Exact::new(RATE_PPS, BURST));
    let mut refilled = Refilled::new(RATE_PPS);
    let of_refilled = of_model(&mut refilled);
    let offered = Passed::of(seen, |seen| seen.packets.into());
    let row = row
        .number("offered_kpps", offered.kpps)
        .number("kpps", own.kpps)
        .number("exact_kpps", exact.kpps)
        .number("off_percent", 100.0 * (own.kpps / exact.kpps - 1.0))
        .number("deviation_10ms", own.deviation)
        .number("exact_deviation_10ms", exact.deviation);
    if refilled.refills() < REFILLS_MIN {
        return row;
    }
    row.number("refilled_kpps", of_refilled.kpps).number("refilled_deviation_10ms", of_refilled.deviation)
}

/// What passed of a turn once it had settled.
struct Passed {
    /// Thousands a second.
    kpps: f64,
    /// Standard deviation of the packets in a window.
    deviation: f64,
}

impl Passed {
    /// `passed` is asked in order of time.
    fn of(seen: &[Seen], mut passed: impl FnMut(&Seen) -> u64) -> Self {
        let mut windows = vec![0_u64; ((TURN_NS - SETTLE_NS) / WINDOW_NS) as usize];
        for seen in seen {
            let count = passed(seen);
            // A worker that got its core late has packets behind the end.
            let window = seen.at_ns.checked_sub(SETTLE_NS).map(|since_ns| (since_ns / WINDOW_NS) as usize);
            if let Some(window) = window.and_then(|index| windows.get_mut(index)) {
                *window += count;
            }
        }
        let (count, sum) = (windows.len() as f64, windows.iter().sum::<u64>() as f64);
        let mean = sum / count;
        let variance = windows.iter().map(|&passed| (passed as f64 - mean).powi(2)).sum::<f64>() / count;
        Passed { kpps: sum / (TURN_NS - SETTLE_NS) as f64 * 1e6, deviation: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_once_the_bucket_has_settled() {
        let at = |at_ns, passed| Seen { at_ns, packets: 64, passed };
        let seen = [at(SETTLE_NS - 1, 64), at(SETTLE_NS, 30), at(SETTLE_NS + WINDOW_NS, 60), at(TURN_NS, 9)];
        let passed = Passed::of(&seen, |seen| seen.passed.into());
        assert!((passed.kpps - 0.1).abs() < 1e-9, "{}", passed.kpps);
        // 30, 60 and 88 times nothing: a mean of 1, and 3 * 1500 packets squared less that.
        assert!((passed.deviation - (4500.0_f64 / 90.0 - 1.0).sqrt()).abs() < 1e-9, "{}", passed.deviation);
    }
}
