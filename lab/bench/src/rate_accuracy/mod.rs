//! Accuracy of limits: one bucket of 100,000 packets per second gets from half to a hundred times that rate. Packets
//! come evenly or in bursts of a millisecond, from one or several workers, in real time.
//!
//! The result is compared with models that get the same packets at the same times ([`model`]). One is an exact leaky
//! bucket. The other one is the paper's bucket, which gets tokens after every millionth packet (MoonPol section IV-E)
//! and therefore passes packets in square waves. The standard deviation of passed packets per 10 ms shows that.

mod chart;
mod model;
mod offer;

use crate::need::Need;
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Picks, Scenario};
use model::{Exact, Model, Refilled};
use offer::{Offer, Pattern, Seen};
use std::fs;
use weir_command::failure::Failure;
use weir_engine::cpu::Cpu;
use weir_loading::{Policy, load};

pub use chart::draw as plot;

/// The limit in packets per second, and its burst: the packets of 10 ms.
const RATE_PPS: u64 = 100_000;
const BURST: u64 = 1000;
/// The part at the start of a run that is ignored, because a full bucket passes more.
const SETTLE_NS: u64 = 100_000_000;
/// Minimum number of refills in a run for a result of the refilled model.
const REFILLS_MIN: usize = 5;
/// Length of a sample.
const WINDOW_NS: u64 = 10_000_000;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "rate-accuracy",
    paper: "MoonPol section IV-E: tokens are added after every millionth packet, and a limit is to be a horizontal line, not a square wave",
    needs: &[Need::Clang],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Nothing,
    seconds: Scaled { full: 40, quick: 20, smoke: 2 },
    run,
    plot,
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Offered rates in multiples of the limit, over all workers.
    offered: &'static [f64],
    /// Numbers of workers.
    workers: &'static [usize],
    /// Duration of a run.
    turn_ns: u64,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { offered: &[0.5, 0.9, 1.1, 2.0, 10.0, 100.0], workers: &[1, 2, 4], turn_ns: 1_000_000_000 },
    quick: Settings { offered: &[0.5, 0.9, 1.1, 2.0, 10.0, 100.0], workers: &[1, 2, 4], turn_ns: 400_000_000 },
    smoke: Settings { offered: &[0.5, 2.0], workers: &[1, 2], turn_ns: 150_000_000 },
};

/// Runs the scenario.
///
/// # Errors
/// There is no clang, or a worker fails.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let Settings { offered, workers, turn_ns } = SETTINGS.at(plan.scale);
    let policy = policy()?;
    let compiled = policy.compile_native(Cpu::Native)?;
    let mut rows = Vec::new();
    for pattern in [Pattern::Even, Pattern::Bursts] {
        for times in offered {
            for &workers in workers {
                let code = compiled.load(policy.bind(None)?)?;
                let offer = Offer { pattern, pps: times * RATE_PPS as f64, workers, length_ns: turn_ns };
                let seen = offer.to(&code)?;
                let row = Row::default().of("pattern", pattern.name()).of("offered", &format!("{times} x"));
                rows.push(compared(row.of("workers", &workers.to_string()), &seen, turn_ns));
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
    Ok(load(&path)?)
}

/// Adds the results of Weir and the models.
fn compared(row: Row, seen: &[Seen], turn_ns: u64) -> Row {
    let own = Passed::of(seen, turn_ns, |seen| seen.passed.into());
    let of_model = |model: &mut dyn Model| Passed::of(seen, turn_ns, |seen| model.passed(seen));
    let exact = of_model(&mut Exact::new(RATE_PPS, BURST));
    let mut refilled = Refilled::new(RATE_PPS);
    let of_refilled = of_model(&mut refilled);
    let offered = Passed::of(seen, turn_ns, |seen| seen.packets.into());
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

/// The packets that passed in a run, without its start.
struct Passed {
    /// Passed packets in thousands per second.
    kpps: f64,
    /// Standard deviation of the packets per window.
    deviation: f64,
}

impl Passed {
    /// Adds up the result of `passed` for each burst, in order of time.
    fn of(seen: &[Seen], turn_ns: u64, mut passed: impl FnMut(&Seen) -> u64) -> Self {
        let mut windows = vec![0_u64; ((turn_ns - SETTLE_NS) / WINDOW_NS) as usize];
        for seen in seen {
            let count = passed(seen);
            // A worker that runs late has bursts after the end.
            let window = seen.at_ns.checked_sub(SETTLE_NS).map(|since_ns| (since_ns / WINDOW_NS) as usize);
            if let Some(window) = window.and_then(|index| windows.get_mut(index)) {
                *window += count;
            }
        }
        let (count, sum) = (windows.len() as f64, windows.iter().sum::<u64>() as f64);
        let mean = sum / count;
        let variance = windows.iter().map(|&passed| (passed as f64 - mean).powi(2)).sum::<f64>() / count;
        Passed { kpps: sum / (turn_ns - SETTLE_NS) as f64 * 1e6, deviation: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN_NS: u64 = SETTINGS.full.turn_ns;

    #[test]
    fn windows_are_counted_once_the_bucket_has_settled() {
        let at = |at_ns, passed| Seen { at_ns, packets: 64, passed };
        let seen = [at(SETTLE_NS - 1, 64), at(SETTLE_NS, 30), at(SETTLE_NS + WINDOW_NS, 60), at(TURN_NS, 9)];
        let passed = Passed::of(&seen, TURN_NS, |seen| seen.passed.into());
        assert!((passed.kpps - 0.1).abs() < 1e-9, "{}", passed.kpps);
        // Windows with 30, 60 and 88 times 0 packets: the mean is 1, the mean of squares (900 + 3600) / 90.
        assert!((passed.deviation - (4500.0_f64 / 90.0 - 1.0).sqrt()).abs() < 1e-9, "{}", passed.deviation);
    }
}
