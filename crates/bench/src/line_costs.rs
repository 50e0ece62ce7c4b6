//! `line-costs`: what the machine takes for a cache line, one of a burst that are asked for at once, by the bytes that lines are picked
//! from. Its JSON is what `weir check --costs` and `weir compile --costs` read.

use crate::options::Options;
use crate::row::Row;
use std::hint::black_box;
use weir::failure::Failure;
use weir_engine::measure::Spread;
use weir_engine::{cpu, tsc};
use weir_policy::pass::choose_layouts::CostModel;
use weir_tables::image_memory::ImageMemory;

/// Bytes of a cache line.
const LINE: usize = 64;
/// The smallest memory measured lies in the first level of every cache; a line of it costs [`NEAREST_CYCLES`].
const NEAREST_BYTES: usize = 16 << 10;
/// What a load from the first level costs among others: three a cycle at best.
const NEAREST_CYCLES: f64 = 0.3;
/// Memories measured: from 32 KiB on, each twice the one before.
const SIZES: usize = 13;
/// Lines picked from each in a round, no two rounds the same.
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

/// Measures: bytes, and cycles for a line that is picked from them at random, one of a burst that are asked for at once.
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

/// A number that looks random, without waiting for the one before.
fn scattered(number: u32) -> u32 {
    let x = number.wrapping_mul(0x9e37_79b1);
    (x ^ x >> 15).wrapping_mul(0x85eb_ca77)
}

/// The compiler's model of this machine.
pub fn model() -> CostModel {
    let points = measure().into_iter().map(|(bytes, cycles)| (bytes, cycles.median)).collect();
    CostModel::measured(points).expect("there are sizes")
}
