//! `stateful`: what tracking costs and how it behaves, beside the kernel's conntrack.
//!
//! * In memory (`memory.rs`): cycles a packet, beside the bare access to the same table and the same policy without
//!   tracking; and new flows (`fresh.rs`).
//! * The CPU time of a forwarded packet of established flows (`forwarded.rs`).

mod filters;
mod forwarded;
mod fresh;
mod memory;
mod segments;
mod wires;

use crate::options::Options;
use crate::row::Row;
use weir::failure::Failure;

/// The parts of the scenario, which `--only` selects.
const PARTS: [&str; 2] = ["memory", "forwarded"];

/// Runs the scenario.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    if let Some(unknown) = options.only.iter().find(|name| !PARTS.contains(&name.as_str())) {
        return Err(Failure::Rejected(format!("weir: --only {unknown}: unknown; known are {}", PARTS.join(", "))));
    }
    let wanted = |part: &str| options.only.is_empty() || options.only.iter().any(|only| only == part);
    let mut rows = Vec::new();
    if wanted("memory") {
        rows.extend(memory::rows()?);
        rows.extend(fresh::rows()?);
    }
    if wanted("forwarded") {
        rows.extend(forwarded::rows()?);
    }
    Ok(rows)
}
