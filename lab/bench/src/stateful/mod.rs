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
mod paper;
pub mod rules;
pub mod segments;
mod throughput;
mod transfers;
pub mod wires;

use crate::need::Need;
use crate::plan::Plan;
use crate::plot::Drawing;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Axis, Member, Picks, Scenario};
use demand::FLOODS;
use device::DEVICES;
use std::time::Duration;
use weir_command::failure::Failure;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "stateful",
    paper: "Moving down the stack, Fig. 5: throughputs of a stateful firewall by technology and threads; up to 50 Gbps with packets of 1500 bytes",
    needs: &[Need::Root, Need::Clang, Need::Program("ip"), Need::Program("ethtool")],
    axes: &[
        Axis {
            name: "part",
            members: &[
                Member::plain("memory"),
                // One of the forwarders is the kernel with conntrack.
                Member::with("forwarded", &[Need::Program("nft")]),
                Member::plain("throughput"),
                Member::plain("transfers"),
                Member::plain("demand"),
            ],
        },
        Axis { name: "device", members: DEVICES },
    ],
    smoke_only: &["synproxy", "afpacket", "xdp-synproxy", device::P4, device::SPLIT],
    picks: Picks::Members,
    seconds: Scaled { full: 1320, quick: 540, smoke: 30 },
    run,
    plot,
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    memory: memory::Effort,
    fresh: fresh::Effort,
    forwarded: forwarded::Effort,
    throughput: throughput::Effort,
    transfers: transfers::Effort,
    demand: demand::Effort,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings {
        memory: memory::Effort { connections: &[4096, 1_000_000, 10_000_000], packets: 1 << 19, rounds: 9 },
        fresh: fresh::Effort { size: 1 << 20, rounds: 5 },
        forwarded: forwarded::Effort {
            connections: &[4096, 32_768],
            rounds: 15,
            turn: Duration::from_millis(100),
            packets_min: 1 << 17,
        },
        throughput: throughput::Effort { rounds: 5, turn: Duration::from_millis(400), times: 50 },
        // Four minutes with all devices.
        transfers: transfers::Effort {
            connections: &[1, 4, 16, 64, 256],
            rounds: 3,
            turn: Duration::from_millis(500),
            held: 9000,
            filling: Duration::from_secs(5),
        },
        demand: demand::Effort { floods: &FLOODS, during: Duration::from_secs(10), filling: Duration::from_secs(3) },
    },
    quick: Settings {
        memory: memory::Effort { connections: &[4096, 1_000_000, 10_000_000], packets: 1 << 19, rounds: 9 },
        fresh: fresh::Effort { size: 1 << 20, rounds: 5 },
        forwarded: forwarded::Effort {
            connections: &[4096, 32_768],
            rounds: 5,
            turn: Duration::from_millis(100),
            packets_min: 1 << 17,
        },
        throughput: throughput::Effort { rounds: 2, turn: Duration::from_millis(400), times: 50 },
        transfers: transfers::Effort {
            connections: &[1, 16, 256],
            rounds: 1,
            turn: Duration::from_millis(400),
            held: 2000,
            filling: Duration::from_secs(5),
        },
        demand: demand::Effort { floods: &FLOODS, during: Duration::from_secs(3), filling: Duration::from_secs(3) },
    },
    smoke: Settings {
        memory: memory::Effort { connections: &[4096], packets: 1 << 10, rounds: 1 },
        fresh: fresh::Effort { size: 1 << 12, rounds: 1 },
        forwarded: forwarded::Effort {
            connections: &[4096],
            rounds: 1,
            turn: Duration::from_millis(1),
            packets_min: 1 << 12,
        },
        throughput: throughput::Effort { rounds: 1, turn: Duration::from_millis(5), times: 2 },
        transfers: transfers::Effort {
            connections: &[4],
            rounds: 1,
            turn: Duration::from_millis(20),
            held: 16,
            filling: Duration::from_millis(20),
        },
        demand: demand::Effort {
            floods: FLOODS.split_at(2).0,
            during: Duration::from_millis(100),
            filling: Duration::from_millis(20),
        },
    },
};

/// Draws the rows.
pub fn plot(title: &str, rows: &[Row]) -> Drawing {
    chart::draw(title, rows)
}

/// Runs the scenario.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let devices = plan.members("device");
    let mut rows = if devices.iter().any(|name| device::is_p4(name)) { paper::rows() } else { Vec::new() };
    for part in plan.each("part") {
        rows.extend(match part {
            "memory" => [memory::rows(settings.memory)?, fresh::rows(settings.fresh)?].concat(),
            "forwarded" => forwarded::rows(settings.forwarded)?,
            "throughput" => throughput::rows(devices, settings.throughput)?,
            "transfers" => transfers::rows(devices, settings.transfers)?,
            _ => demand::rows(devices, settings.demand)?,
        });
    }
    Ok(rows)
}
