//! `stateful`: what tracking costs and how it behaves, beside the kernel's conntrack and its SYN proxy.
//!
//! * In memory (`memory.rs`): cycles a packet, beside the bare access to the same table and the same policy without
//!   tracking; and new flows (`fresh.rs`).
//! * The CPU time of a forwarded packet of established flows (`forwarded.rs`).
//! * After RFC 9411: throughput (`throughput.rs`), and transfers and connections of real hosts with and without a flood
//!   (`transfers.rs`, `held.rs`).
//! * The part of a constant demand that a web server answers under floods (`demand.rs`).

mod chart;
mod demand;
mod device;
pub mod filters;
mod flood;
mod forwarded;
mod fresh;
mod held;
pub mod hosts;
pub mod http;
mod memory;
pub mod rules;
pub mod segments;
mod throughput;
mod transfers;
pub mod wires;

use crate::options::Options;
use crate::row::Row;
use device::DEVICES;
use weir::failure::Failure;

/// The parts of the scenario.
const PARTS: [&str; 5] = ["memory", "forwarded", "throughput", "transfers", "demand"];

/// Draws the rows.
pub fn plot(title: &str, rows: &[Row]) -> String {
    chart::svg(title, rows)
}

/// Runs the scenario. `--only` selects parts, devices, or both.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let known: Vec<&str> = PARTS.iter().chain(DEVICES).copied().collect();
    if let Some(unknown) = options.only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::Rejected(format!("weir: --only {unknown}: unknown; known are {}", known.join(", "))));
    }
    let (parts, devices) = (selected(&PARTS, &options.only), selected(DEVICES, &options.only));
    let (effort, quick) = if options.quick { (transfers::QUICK, 1) } else { (transfers::FULL, 0) };
    let mut rows = Vec::new();
    for part in parts {
        rows.extend(match part {
            "memory" => [memory::rows()?, fresh::rows()?].concat(),
            "forwarded" => forwarded::rows(forwarded::ROUNDS[quick])?,
            "throughput" => throughput::rows(&devices, throughput::ROUNDS[quick])?,
            "transfers" => transfers::rows(&devices, effort)?,
            _ => demand::rows(&devices, demand::DURING[quick])?,
        });
    }
    Ok(rows)
}

/// The names among `all` that are selected: all of them, if `only` has none.
pub fn selected<'a>(all: &[&'a str], only: &[String]) -> Vec<&'a str> {
    let chosen: Vec<&str> = all.iter().copied().filter(|name| only.iter().any(|only| only == name)).collect();
    if chosen.is_empty() { all.to_vec() } else { chosen }
}

#[cfg(test)]
mod tests {
    use super::selected;

    #[test]
    fn parts_and_devices_are_selected_apart() {
        let only = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(selected(&["a", "b"], &only(&["b", "x"])), ["b"]);
        assert_eq!(selected(&["a", "b"], &only(&["x"])), ["a", "b"]);
    }
}
