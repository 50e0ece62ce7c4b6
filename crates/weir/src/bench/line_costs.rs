//! `line-costs`: what the machine takes for a cache line, one of a burst that are asked for at once, by the bytes that lines are picked
//! from. Its JSON is what `weir check --costs` and `weir compile --costs` read.

use super::Row;
use crate::cli::BenchOptions;
use crate::costs;
use crate::failure::Failure;
use weir_engine::cpu;

/// Runs the scenario.
///
/// # Errors
/// The thread cannot be pinned to a core.
pub fn run(_: &BenchOptions) -> Result<Vec<Row>, Failure> {
    cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}")))?;
    let row = |(bytes, cycles): (usize, _)| {
        let name = format!("{} KiB", bytes >> 10);
        Row::default().of("memory", &name).number("bytes", bytes as f64).spread("cycles_per_line", cycles)
    };
    Ok(costs::measure().into_iter().map(row).collect())
}
