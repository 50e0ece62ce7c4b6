//! What the machine takes for a cache line: measured by `weir bench line-costs`, handed to the compiler with `--costs`.
//!
//! The compiler has figures of its own (`CostModel::default()`), so that the same policy becomes the same code everywhere. Where the
//! machine that will run it has other caches, its own figures pick layouts that suit it better.

use crate::failure::Failure;
use serde::Deserialize;
use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use weir_engine::memory::Spread;
use weir_engine::tsc;
use weir_policy::pass::choose_layouts::CostModel;
use weir_tables::memory::Memory;

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

/// Longer than any file of costs.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file of costs, as `weir bench line-costs --json` prints them.
#[derive(Deserialize)]
struct File {
    scenario: String,
    rows: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    bytes: f64,
    cycles_per_line: f64,
}

/// Reads what `weir bench line-costs --json` printed.
///
/// # Errors
/// The file cannot be read, or is of something else.
pub fn read(path: &Path) -> Result<CostModel, Failure> {
    let refuse = |what: String| Failure::Rejected(format!("weir: {}: {what}", path.display()));
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| refuse(error.to_string()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(refuse(format!("longer than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    let file: File = serde_json::from_str(&text).map_err(|error| {
        refuse(format!("line {}: not the JSON of `weir bench line-costs --json`: {error}", error.line()))
    })?;
    if file.scenario != "line-costs" {
        return Err(refuse(format!("is of scenario `{}`, costs are of `line-costs`", file.scenario)));
    }
    let sane = |point: &Point| point.bytes >= 1.0 && point.cycles_per_line > 0.0 && point.cycles_per_line < 1e6;
    if let Some(point) = file.rows.iter().find(|point| !sane(point)) {
        let Point { bytes, cycles_per_line } = point;
        return Err(refuse(format!("{cycles_per_line} cycles for a line of {bytes} bytes are no cost")));
    }
    let points = file.rows.iter().map(|point| (point.bytes as usize, point.cycles_per_line)).collect();
    CostModel::measured(points).ok_or_else(|| refuse("has no rows".to_owned()))
}

/// Measures: bytes, and cycles for a line that is picked from them at random, one of a burst that are asked for at once.
pub fn measure() -> Vec<(usize, Spread)> {
    let sizes: Vec<usize> = (0..SIZES).map(|power| (2 * NEAREST_BYTES) << power).collect();
    let largest = Memory::zeroed(*sizes.last().expect("there are sizes"));
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
