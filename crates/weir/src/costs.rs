//! Reads the cost of cache lines on a machine. `weir bench line-costs` measures it, `--costs` passes it to the
//! compiler.
//!
//! By default the compiler uses fixed costs (`CostModel::default()`), so that a policy compiles to the same code
//! everywhere. On a machine with other caches, measured costs choose better layouts.

use serde::Deserialize;
use std::fs;
use std::io::Read;
use std::path::Path;
use weir_command::failure::Failure;
use weir_policy::pass::choose_layouts::CostModel;

/// Largest file that is read, bytes. Valid files are shorter.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The output of `weir bench line-costs --json`.
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

/// Reads the output of `weir bench line-costs --json`.
///
/// # Errors
/// The file cannot be read or has other content.
pub fn read(path: &Path) -> Result<CostModel, Failure> {
    let refuse = |what: String| Failure::Rejected(format!("weir: {}: {what}", path.display()));
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| refuse(error.to_string()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| refuse(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(refuse(format!("longer than {} MiB", FILE_BYTES_MAX >> 20)));
    }
    let file: File = serde_json::from_str(&text).map_err(|error| {
        refuse(format!("line {}: not output of `weir bench line-costs --json`: {error}", error.line()))
    })?;
    if file.scenario != "line-costs" {
        return Err(refuse(format!("has the scenario `{}` instead of `line-costs`", file.scenario)));
    }
    let sane = |point: &Point| point.bytes >= 1.0 && point.cycles_per_line > 0.0 && point.cycles_per_line < 1e6;
    if let Some(point) = file.rows.iter().find(|point| !sane(point)) {
        let Point { bytes, cycles_per_line } = point;
        return Err(refuse(format!("{cycles_per_line} cycles for a line of {bytes} bytes is not a valid cost")));
    }
    let points = file.rows.iter().map(|point| (point.bytes as usize, point.cycles_per_line)).collect();
    CostModel::measured(points).ok_or_else(|| refuse("has no rows".to_owned()))
}
