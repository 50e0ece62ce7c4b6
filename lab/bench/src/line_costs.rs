//! `line-costs`: the time for a random cache line of a memory area, when a burst of lines is requested at once. `weir
//! check --costs` and `weir compile --costs` read its JSON.

use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::{Scale, Scaled};
use crate::scenario::{Picks, Scenario};
use std::hint::black_box;
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_engine::{cpu, tsc};
use weir_policy::pass::choose_layouts::CostModel;
use weir_tables::image_memory::ImageMemory;

/// Size of a cache line in bytes.
const LINE: usize = 64;
/// The smallest area, which fits the first-level cache of every processor. A line of it costs [`NEAREST_CYCLES`].
const NEAREST_BYTES: usize = 16 << 10;
/// Cost of a load from the first-level cache among other loads: at best three loads per cycle.
const NEAREST_CYCLES: f64 = 0.3;
/// Number of areas: 32 KiB and its doublings.
const SIZES: usize = 13;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "line-costs",
    paper: "RFPF section II: a lookup costs the memory accesses of its scheme, each by the cache that its table fits in",
    needs: &[],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Nothing,
    seconds: Scaled { full: 5, quick: 3, smoke: 1 },
    run,
    plot: |title, rows| plot::bars(title, "cycles_per_line", rows),
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of lines read in a round. Every round reads other lines.
    picks: u32,
    /// Number of rounds.
    rounds: u32,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { picks: 1 << 20, rounds: 5 },
    quick: Settings { picks: 1 << 20, rounds: 3 },
    smoke: Settings { picks: 1 << 12, rounds: 1 },
};

/// Runs the scenario.
///
/// # Errors
/// The thread cannot be pinned to a core.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}")))?;
    let row = |(bytes, cycles): (usize, _)| {
        let name = format!("{} KiB", bytes >> 10);
        Row::default().of("memory", &name).number("bytes", bytes as f64).spread("cycles_per_line", cycles)
    };
    Ok(measure(plan.scale).into_iter().map(row).collect())
}

/// Measures the cost of random lines. Returns size of the area in bytes and cycles per line.
fn measure(scale: Scale) -> Vec<(usize, Spread)> {
    let Settings { picks: count, rounds } = SETTINGS.at(scale);
    let sizes: Vec<usize> = (0..SIZES).map(|power| (2 * NEAREST_BYTES) << power).collect();
    let largest = ImageMemory::zeroed(*sizes.last().expect("there are sizes"));
    let turn = |bytes: usize, round: u32| {
        let mask = bytes - LINE;
        let picks = (round * count..).take(count as usize).map(|number| scattered(number) as usize & mask);
        let start = tsc::now();
        black_box(picks.map(|at| u64::from(largest[at])).sum::<u64>());
        (tsc::now() - start) as f64 / f64::from(count)
    };
    let cost = |bytes: usize| {
        turn(bytes, 0);
        let extra = |round| (turn(bytes, round) - turn(NEAREST_BYTES, round)).max(0.0);
        let samples = (1..=rounds).map(|round| NEAREST_CYCLES + extra(round));
        Spread::of(samples.collect()).expect("there are rounds")
    };
    sizes.into_iter().map(|bytes| (bytes, cost(bytes))).collect()
}

/// A hash of the number, so that addresses do not depend on previous loads.
fn scattered(number: u32) -> u32 {
    let x = number.wrapping_mul(0x9e37_79b1);
    (x ^ x >> 15).wrapping_mul(0x85eb_ca77)
}

/// The compiler's cost model of this machine.
pub fn model(scale: Scale) -> CostModel {
    let points = measure(scale).into_iter().map(|(bytes, cycles)| (bytes, cycles.median)).collect();
    CostModel::measured(points).expect("there are sizes")
}
