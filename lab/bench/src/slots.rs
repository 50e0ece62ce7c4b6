//! `slots`: what a slot costs a packet. Policies without a slot, with an empty one, and with a filled one take turns.
//! The rules of the filled slot test the destination, the port and the length. They match no packet, so every packet is
//! compared with all of them.

use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Picks, Scenario};
use std::fs;
use weir_command::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::{NativeFilter, XdpFilter, traffic, tsc};
use weir_instruments::ring;
use weir_loading::{Policy, load};

/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "slots",
    paper: "no paper interprets rules; the goal is that an empty slot costs a load",
    needs: &[Need::Root, Need::Clang],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Nothing,
    seconds: Scaled { full: 30, quick: 8, smoke: 6 },
    run,
    plot: |title, rows| plot::bars(title, "cycles_per_packet", rows),
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of packets of a turn.
    packets: usize,
    /// Number of packets of a turn in the kernel.
    kernel_packets: u32,
    /// Number of turns of each policy.
    rounds: usize,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { packets: 1 << 19, kernel_packets: 1 << 20, rounds: 15 },
    quick: Settings { packets: 1 << 19, kernel_packets: 1 << 20, rounds: 3 },
    smoke: Settings { packets: 1 << 10, kernel_packets: 1 << 10, rounds: 1 },
};

/// The policies: the number of rules in the slot; `None` without a slot.
const RULES: [Option<usize>; 5] = [None, Some(0), Some(1), Some(4), Some(16)];

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, there is no clang, or no right to load BPF programs.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let policies = RULES.into_iter().map(policy).collect::<Result<Vec<_>, _>>()?;
    let mut natives = policies.iter().map(Policy::native).collect::<Result<Vec<_>, _>>()?;
    let mut kernels = policies.iter().map(Policy::xdp).collect::<Result<Vec<_>, _>>()?;
    let mut ring = traffic::packets_from(&[0x0a00_0001; RING]);
    let (mut native, mut kernel) = (vec![Vec::new(); RULES.len()], vec![Vec::new(); RULES.len()]);
    for _ in 0..settings.rounds {
        for (index, filter) in natives.iter_mut().enumerate() {
            native[index].push(cycles(filter, &mut ring, settings.packets)?);
        }
        for (index, filter) in kernels.iter_mut().enumerate() {
            kernel[index].push(kernel_cycles(filter, &ring, settings.kernel_packets)?);
        }
    }
    let rows = [("native", native), ("xdp", kernel)].into_iter().flat_map(|(engine, turns)| rows_of(engine, &turns));
    Ok(rows.collect())
}

fn rows_of(engine: &str, turns: &[Vec<f64>]) -> Vec<Row> {
    let row = |(rules, own): (&Option<usize>, &Vec<f64>)| {
        let more = own.iter().zip(&turns[0]).map(|(own, without)| own - without);
        let cycles = Spread::of(own.clone()).expect("each had its turns");
        let rules = rules.map_or_else(|| "no slot".to_owned(), |rules| rules.to_string());
        Row::default()
            .of("engine", engine)
            .of("rules", &rules)
            .spread("cycles_per_packet", cycles)
            .spread("ns_per_packet", cycles.scaled(1e9 / tsc::frequency_hz()))
            .spread("more_cycles_per_packet", Spread::of(more.collect()).expect("each had its turns"))
    };
    RULES.iter().zip(turns).map(row).collect()
}

/// Average cost of a packet in cycles.
fn cycles(filter: &mut NativeFilter, ring: &mut FrameSet, packets: usize) -> Result<f64, Failure> {
    let mut next = 0;
    let write = |packet: &mut [u8]| {
        next += 1;
        traffic::set_source(packet, next);
    };
    Ok(ring::measure(filter, 0, ring, packets, write)?)
}

/// The same in the kernel, which repeats one packet.
fn kernel_cycles(filter: &mut XdpFilter, ring: &FrameSet, packets: u32) -> Result<f64, Failure> {
    let burst = ring.bursts().next().expect("the ring has packets");
    let took = filter.time_frame(0, &burst, 0, packets)?;
    Ok(took.as_secs_f64() * tsc::frequency_hz())
}

fn policy(rules: Option<usize>) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let (slot, statement) = match rules {
        Some(_) => ("slot attacks { size 16 }\n", "slot attacks; "),
        None => ("", ""),
    };
    let path = directory.path().join("slots.weir");
    let text = format!("{slot}upstream {{ tcp dport 22 accept; {statement}accept }}\ndownstream {{ accept }}\n");
    fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    let mut policy = load(&path)?;
    for nth in 0..rules.unwrap_or(0) {
        let rule = format!("ip daddr 0.0.0.0/0 udp dport {} meta length 9000-9100 drop", 30_000 + nth);
        policy.add_slot_rule("attacks", &rule).map_err(Failure::Runtime)?;
    }
    Ok(policy)
}
