//! `line-costs`: the time for a random cache line of a memory area, when a burst of lines is requested at once. `weir
//! check --costs` and `weir compile --costs` read its JSON.

use crate::options::Options;
use crate::row::Row;
use std::hint::black_box;
use weir::failure::Failure;
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
/// Number of lines read in a round. Every round reads other lines.
const PICKS: u32 = 1 << 20;
const ROUNDS: u32 = 5;

/// Runs the scenario.
///
/// # Errors
/// The thread cannot be pinned to a core.
pub fn run(_: &Options) -> Result<Vec<Row>, Failure> {
    cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}")))?;
    let row = |(bytes, cycles): (usize, _)| {
        let name = format!("{} KiB", bytes >> 10);
        Row::default().of("memory", &name).number("bytes", bytes as f64).spread("cycles_per_line", cycles)
    };
    Ok(measure().into_iter().map(row).collect())
}

/// Measures the cost of random lines. Returns size of the area in bytes and cycles per line.
pub fn measure() -> Vec<(usize, Spread)> {
    let sizes: Vec<usize> = (0..SIZES).map(|power| (2 * NEAREST_BYTES) << power).collect();
    let largest = ImageMemory::zeroed(*sizes.last().expect("there are sizes"));
    let turn = |bytes: usize, round: u32| {
        let mask = bytes - LINE;
        let picks = (round * PICKS..).take(PICKS as usize).map(|number| scattered(number) as usize & mask);
        let start = tsc::now();
        black_box(picks.map(|at| u64::from(largest[at])).sum::<u64>());
        (tsc::now() - start) as f64 / f64::from(PICKS)
    };
    let cost = |bytes: usize| {
        turn(bytes, 0);
        let extra = |round| (turn(bytes, round) - turn(NEAREST_BYTES, round)).max(0.0);
        let samples = (1..=ROUNDS).map(|round| NEAREST_CYCLES + extra(round));
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
pub fn model() -> CostModel {
    let points = measure().into_iter().map(|(bytes, cycles)| (bytes, cycles.median)).collect();
    CostModel::measured(points).expect("there are sizes")
}
