//! `live`: policies on interfaces, compared with Fig. 4 of the RFPF paper and with an operator's alternatives.
//!
//! * The cost of a dropped packet on a veth pair (`dropped.rs`): Weir's kernel engine, nftables, the kernel's own maps,
//!   and a program that drops all packets.
//! * Forward and drop by engine and number of workers: from memory (`memory_engine.rs`) and on interfaces
//!   (`engines.rs`), with the paper's figures (`paper.rs`).
//! * What a tap and a shadow cost each engine (`watched.rs`).
//!
//! All interfaces are in the network namespace of one thread, which the kernel removes with the thread.

mod chart;
mod contender;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod dropped;
mod engines;
pub mod forwarder;
pub mod memory_engine;
pub mod nft;
mod paper;
pub mod peers;
mod rulesets;
pub mod spent;
mod watched;
mod weir_xdp;
pub mod wire;

use super::data::{Data, Dataset};
use crate::need::Need;
use crate::plan::Plan;
use crate::plot::Drawing;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Axis, Member, Picks, Scenario};
use contender::{Contender, XdpPeer};
use engines::Wires;
use nft::NftSet;
use rulesets::Ruleset;
use spent::Core;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_engine::clang::Clang;
use weir_engine::cpu;
use weir_engine::traffic;
use weir_engine::traffic::SplitMix;
use weir_instruments::generate::Generator;
use weir_xdp::WeirXdp;

/// The contenders that drop packets on a veth pair, the engines in the rows of Fig. 4, and those on DPDK ports if built
/// with DPDK.
const MEMBERS: &[Member] = &[
    Member::plain(dropped::DROP_ALL),
    Member::plain(dropped::WEIR),
    Member::plain("xdp-hash-map"),
    Member::plain("xdp-lpm-trie"),
    Member::with("nft-hash", &[Need::Program("nft")]),
    Member::with("nft-interval", &[Need::Program("nft")]),
    Member::with(MEMORY, &[Need::List("country.csv")]),
    Member::plain(engines::ENGINES[0]),
    Member::plain(engines::ENGINES[1]),
    Member::plain(engines::ENGINES[2]),
    Member::plain(watched::WATCHED),
    #[cfg(feature = "dpdk")]
    Member::with(dpdk::ENGINES[0], &[Need::Weir]),
    #[cfg(feature = "dpdk")]
    Member::with(dpdk::ENGINES[1], &[Need::Weir]),
    #[cfg(feature = "dpdk")]
    Member::with(dpdk::ENGINES[2], &[Need::Weir]),
];
/// The engine without interfaces.
const MEMORY: &str = "memory";
/// The engines on DPDK ports.
#[cfg(feature = "dpdk")]
const DPDK_ENGINES: &[&str] = &dpdk::ENGINES;
#[cfg(not(feature = "dpdk"))]
const DPDK_ENGINES: &[&str] = &[];

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "live",
    paper: "RFPF Fig. 4: 28 Mpps forwarded and 29.8 dropped on one core of 3.6 GHz, 7.3 and 11.5 by the paper's XDP programs",
    needs: &[Need::Root, Need::Clang, Need::Program("ip"), Need::Program("ethtool")],
    axes: &[Axis { name: "contender", members: MEMBERS }],
    smoke_only: &[],
    picks: Picks::Members,
    seconds: Scaled { full: 150, quick: 60, smoke: 12 },
    run,
    plot,
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Turns of contenders that drop.
    dropped: dropped::Effort,
    /// Turns in memory.
    memory: memory_engine::Effort,
    /// Turns on interfaces.
    engines: engines::Effort,
    /// Number of turns on DPDK ports.
    #[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "only DPDK's ports read it"))]
    dpdk_rounds: usize,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings {
        dropped: dropped::Effort { rounds: 21, turn: Duration::from_millis(100), packets_min: 1 << 17 },
        memory: memory_engine::Effort { rounds: 7, windows: 9, window: 1 << 20 },
        engines: engines::Effort { rounds: 3, turn: Duration::from_millis(500), warm_up: 1 << 17 },
        dpdk_rounds: 5,
    },
    quick: Settings {
        dropped: dropped::Effort { rounds: 5, turn: Duration::from_millis(100), packets_min: 1 << 17 },
        memory: memory_engine::Effort { rounds: 3, windows: 5, window: 1 << 20 },
        engines: engines::Effort { rounds: 1, turn: Duration::from_millis(500), warm_up: 1 << 17 },
        dpdk_rounds: 2,
    },
    smoke: Settings {
        dropped: dropped::Effort { rounds: 1, turn: Duration::from_millis(1), packets_min: 1 << 12 },
        memory: memory_engine::Effort { rounds: 1, windows: 1, window: 1 << 14 },
        engines: engines::Effort { rounds: 1, turn: Duration::from_millis(5), warm_up: 1 << 12 },
        dpdk_rounds: 1,
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
    let is_engine = |name: &&str| {
        [MEMORY, watched::WATCHED].contains(name) || engines::ENGINES.contains(name) || DPDK_ENGINES.contains(name)
    };
    let (engines, dropping): (Vec<&'static str>, Vec<&'static str>) =
        plan.members("contender").iter().partition(|name| is_engine(name));
    let mut rows = Vec::new();
    if !dropping.is_empty() {
        plan.begin("dropped packets");
        let data = plan.load(Dataset::BLOCK_178K)?;
        rows.extend(wire::in_namespace(|| dropped_rows(&data, &dropping, plan))?);
    }
    if !engines.is_empty() {
        rows.extend(figure4_rows(plan, &engines)?);
    }
    Ok(rows)
}

/// Measures the rows of Fig. 4.
fn figure4_rows(plan: &Plan<'_>, wanted: &[&str]) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let baselines = [Ruleset::forward()?, Ruleset::drop()?];
    let mut rows = Vec::new();
    if wanted.contains(&MEMORY) {
        plan.begin(MEMORY);
        for ruleset in baselines.iter().chain(&[Ruleset::three_tables(plan)?]) {
            rows.extend(memory_engine::rows(ruleset, settings.memory, &Row::default())?);
        }
    }
    for engine in engines::ENGINES.into_iter().filter(|name| wanted.contains(name)) {
        plan.begin(engine);
        let measured = between_wires(|wires| {
            let rows = |ruleset| engines::rows(engine, ruleset, wires, settings.engines, &Row::default());
            baselines.iter().map(rows).collect::<Result<Vec<_>, Failure>>()
        })?;
        rows.extend(measured.into_iter().flatten());
    }
    for engine in engines::ENGINES.into_iter().filter(|_| wanted.contains(&watched::WATCHED)) {
        plan.begin(&format!("{} {engine}", watched::WATCHED));
        let [_, drop] = &baselines;
        rows.extend(between_wires(|wires| watched::rows(engine, drop, wires, settings.engines, &Row::default()))?);
    }
    #[cfg(feature = "dpdk")]
    rows.extend(dpdk::rows(&baselines, |name| wanted.contains(&name), settings.dpdk_rounds, &Row::default())?);
    rows.extend(paper::rows());
    Ok(rows)
}

/// Measures between two veth pairs, in a namespace of their own, so that nothing of another engine remains.
fn between_wires<R: Send>(measure: impl FnOnce(&Wires) -> Result<R, Failure> + Send) -> Result<R, Failure> {
    wire::in_namespace(|| {
        let queues = engines::WORKERS[engines::WORKERS.len() - 1];
        let [source, lower] = wire::pair(["source", "lower"], queues)?;
        let [upper, sink] = wire::pair(["upper", "sink"], queues)?;
        measure(&Wires { source, lower, upper, sink, generator: Generator::compile(&Clang::find()?)? })
    })
}

/// Measures the rows for the cost of a dropped packet.
fn dropped_rows(data: &Data, wanted: &[&'static str], plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let clang = Clang::find()?;
    let core = generating_core()?;
    let addresses = data.addresses();
    let [near, far] = wire::pair(["near", "far"], 1)?;
    let [upper, _] = wire::pair(["upper", "beyond"], 1)?;
    let mut generator =
        Generator::load(&Generator::compile(&clang)?, near.index, &traffic::small_packet(0), &shuffled(&addresses))?;
    let peers = peers::load(&clang, &addresses)?;
    let mut contenders = Vec::new();
    for &name in wanted {
        let contender: Result<Box<dyn Contender>, Failure> = match name {
            dropped::WEIR => WeirXdp::load(name, &far, &upper, &addresses).map(boxed),
            dropped::DROP_ALL => Ok(boxed(XdpPeer::new(name, "peer_drop_all", &peers))),
            "xdp-hash-map" => Ok(boxed(XdpPeer::new(name, "peer_hash_map", &peers))),
            "xdp-lpm-trie" => Ok(boxed(XdpPeer::new(name, "peer_lpm_trie", &peers))),
            "nft-hash" => NftSet::hash(name, &addresses).map(boxed),
            "nft-interval" => NftSet::interval(name, &addresses).map(boxed),
            unknown => unreachable!("there is no contender {unknown}"),
        };
        match contender {
            Ok(contender) => contenders.push(contender),
            Err(failure) if name.starts_with("nft") => plan.leave_out(name, &failure),
            Err(failure) => return Err(failure),
        }
    }
    let row = Row::default().of("table", &data.name).of("source", data.source);
    let effort = SETTINGS.at(plan.scale).dropped;
    dropped::race(&mut contenders, &mut generator, &far, &Core::new(core), effort, &row)
}

/// Pins this thread to the last core, because the first handles more interrupts. Falls back to the current core.
///
/// # Errors
/// It cannot be pinned.
pub fn generating_core() -> Result<usize, Failure> {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    match cpu::pin_to(last) {
        Ok(()) => Ok(last),
        Err(_not_allowed) => cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}"))),
    }
}

fn boxed(contender: impl Contender + 'static) -> Box<dyn Contender> {
    Box::new(contender)
}

/// The addresses in random order.
pub fn shuffled(addresses: &[u32]) -> Vec<u32> {
    let mut random = SplitMix::new(29);
    let mut addresses = addresses.to_vec();
    for index in (1..addresses.len()).rev() {
        addresses.swap(index, random.below(index as u64 + 1) as usize);
    }
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_loses_nothing() {
        let sorted: Vec<u32> = (0..1000).collect();
        let mut shuffled = shuffled(&sorted);
        assert_ne!(shuffled, sorted);
        shuffled.sort_unstable();
        assert_eq!(shuffled, sorted);
    }
}
