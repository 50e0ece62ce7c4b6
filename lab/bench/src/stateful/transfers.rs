//! Transfers of a real server and real clients through each device, with and without a flood of SYNs (RFC 9411,
//! sections 7.2 to 7.5): pages of 1 KB and 1 MB over new connections, and connections that are held at the same time.

use super::device::{Device, is_p4};
use super::flood::{Flood, Kind};
use super::held;
use super::hosts::Hosts;
use super::http::{self, Measured, Server};
use crate::row::Row;
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::measure::Spread;

/// Pages with their names.
const PAGES: [(&str, usize); 2] = [("1 KB", 1 << 10), ("1 MB", 1 << 20)];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Numbers of connections at the same time.
    pub connections: &'static [usize],
    /// Number of turns of each.
    pub rounds: usize,
    /// Duration of a turn.
    pub turn: Duration,
    /// Number of connections that are held.
    pub held: usize,
    /// Time after which a flood has filled every table.
    pub filling: Duration,
}

/// Measures the devices.
///
/// # Errors
/// The process may not make network namespaces, or something that a device needs is missing.
pub fn rows(devices: &[&str], effort: Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for device in devices {
        rows.extend(of_device(device, effort)?);
    }
    Ok(rows)
}

fn of_device(name: &str, effort: Effort) -> Result<Vec<Row>, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let hosts = Hosts::new()?;
    let device = Device::start(name, &hosts, folder.path())?;
    let row = |part: &str, flood: &str| Row::default().of("part", part).of("device", name).of("flood", flood);
    let as_in_paper = is_p4(name);
    let mut rows = match as_in_paper {
        true => vec![],
        false => held::rows(&row("held", "none"), &hosts, &device, effort.held)?,
    };
    let server = Server::start(&hosts.server)?;
    // The first requests warm up.
    http::request(&hosts.client, 8, PAGES[0].1, effort.turn);
    rows.extend(pages(&row("http", "none"), &hosts, effort, None));
    if as_in_paper {
        return Ok(rows);
    }
    let flood = Flood::start(&hosts, Kind::Syn);
    thread::sleep(effort.filling);
    rows.extend(pages(&row("http", "SYN"), &hosts, effort, Some(&flood)));
    if let Some(flows) = device.flows(&hosts) {
        rows.push(row("held", "SYN").number("flood_syns", flood.sent() as f64).number("flows", flows));
    }
    flood.stop()?;
    drop(server);
    Ok(rows)
}

/// Measures each page over each number of connections.
fn pages(row: &Row, hosts: &Hosts, effort: Effort, flood: Option<&Flood>) -> Vec<Row> {
    let sent = || flood.map_or(0, Flood::sent);
    let mut rows = Vec::new();
    for (page, bytes) in PAGES {
        for &connections in effort.connections {
            let turn = |_| http::request(&hosts.client, connections, bytes, effort.turn);
            let (before, start) = (sent(), Instant::now());
            let turns: Vec<Measured> = (0..effort.rounds).map(turn).collect();
            let syns_per_s = (sent() - before) as f64 / start.elapsed().as_secs_f64();
            let row = row
                .clone()
                .number("flood_syns_per_s", syns_per_s)
                .of("page", page)
                .of("connections", &connections.to_string());
            rows.push(to_row(row, bytes, &turns));
        }
    }
    rows
}

fn to_row(row: Row, bytes: usize, turns: &[Measured]) -> Row {
    let spread = |of: &dyn Fn(&Measured) -> f64| Spread::of(turns.iter().map(of).collect()).expect("there were turns");
    let done = |turn: &Measured| turn.last_ms.len() as f64;
    let mut row = row
        .spread("requests_per_s", spread(&|turn| done(turn) / turn.seconds))
        .spread("mbit_per_s", spread(&|turn| done(turn) * bytes as f64 * 8e-6 / turn.seconds))
        .number("requests", turns.iter().map(done).sum())
        .number("failed_requests", turns.iter().map(|turn| turn.failed as f64).sum());
    for (field, of) in [
        ("first_byte_ms", (|turn| &turn.first_ms) as fn(&Measured) -> &Vec<f64>),
        ("last_byte_ms", |turn| &turn.last_ms),
    ] {
        let all: Vec<f64> = turns.iter().flat_map(|turn| of(turn).iter().copied()).collect();
        if let Some(spread) = Spread::of(all.clone()) {
            row = row.spread(field, spread).number(&format!("{field}_p99"), p99(all));
        }
    }
    row
}

fn p99(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[(samples.len() * 99 / 100).min(samples.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_answered_requests() {
        let turn =
            |done: usize| Measured { seconds: 0.5, first_ms: vec![1.0; done], last_ms: vec![2.0; done], failed: 3 };
        let row = to_row(Row::default(), 1 << 20, &[turn(10), turn(20), turn(30)]);
        assert_eq!((row.get("requests_per_s"), row.get("requests_per_s_max")), (Some(40.0), Some(60.0)));
        assert_eq!((row.get("mbit_per_s"), row.get("failed_requests")), (Some(335.544), Some(9.0)));
        assert_eq!((row.get("first_byte_ms"), row.get("last_byte_ms_p99")), (Some(1.0), Some(2.0)));
        let none = to_row(Row::default(), 1024, &[Measured { seconds: 1.0, failed: 1, ..Measured::default() }]);
        assert_eq!((none.get("requests_per_s"), none.get("last_byte_ms")), (Some(0.0), None));
    }
}
