//! What the machine takes for a cache line: measured by `weir bench line-costs`, handed to the compiler with `--costs`.
//!
//! The compiler has figures of its own (`CostModel::default()`), so that the same policy becomes the same code everywhere. Where the
//! machine that will run it has other caches, its own figures pick layouts that suit it better.

use crate::failure::Failure;
use serde::Deserialize;
use std::fs;
use std::io::Read;
use std::path::Path;
use weir_policy::pass::choose_layouts::CostModel;

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
