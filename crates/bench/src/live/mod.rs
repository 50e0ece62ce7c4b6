//! `live`: policies on interfaces, compared with Fig. 4 of the RFPF paper and with an operator's alternatives.
//!
//! * The cost of a dropped packet on a veth pair (`dropped.rs`): Weir's kernel engine, nftables, the kernel's own maps,
//!   and a program that drops all packets.
//! * Forward and drop by engine and number of workers: from memory (`memory_engine.rs`) and on interfaces
//!   (`engines.rs`), with the paper's figures (`paper.rs`).
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
mod weir_xdp;
pub mod wire;

use super::data::{Data, Dataset};
use crate::options::Options;
use crate::row::Row;
use contender::{Contender, XdpPeer};
use engines::Wires;
use nft::NftSet;
use rulesets::Ruleset;
use spent::Core;
use weir::failure::Failure;
use weir_engine::clang::Clang;
use weir_engine::cpu;
use weir_engine::traffic;
use weir_engine::traffic::SplitMix;
use weir_engine::xdp::generate::Generator;
use weir_xdp::WeirXdp;

/// The contenders that drop packets on a veth pair.
const CONTENDERS: [&str; 6] =
    [dropped::DROP_ALL, dropped::WEIR, "xdp-hash-map", "xdp-lpm-trie", "nft-hash", "nft-interval"];
/// The engines in the rows of Fig. 4.
const ENGINES: [&str; 4] = ["memory", engines::ENGINES[0], engines::ENGINES[1], engines::ENGINES[2]];
/// The engines in the rows of Fig. 4 on DPDK ports, if built with DPDK.
#[cfg(feature = "dpdk")]
const DPDK_ENGINES: &[&str] = &dpdk::ENGINES;
#[cfg(not(feature = "dpdk"))]
const DPDK_ENGINES: &[&str] = &[];

/// Draws the rows.
pub fn plot(title: &str, rows: &[Row]) -> String {
    chart::svg(title, rows)
}

/// Runs the scenario.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let selection = Selection::of(&options.only)?;
    let mut rows = Vec::new();
    if CONTENDERS.iter().any(|name| selection.has(name)) {
        let data = Dataset::BLOCK_178K.load(&options.data)?;
        rows.extend(wire::in_namespace(|| dropped_rows(&data, &selection))?);
    }
    if ENGINES.iter().chain(DPDK_ENGINES).any(|name| selection.has(name)) {
        rows.extend(figure4_rows(options, &selection)?);
    }
    Ok(rows)
}

/// The names in `--only`.
struct Selection<'a>(&'a [String]);

impl<'a> Selection<'a> {
    fn of(only: &'a [String]) -> Result<Self, Failure> {
        let known: Vec<&str> = CONTENDERS.into_iter().chain(ENGINES).chain(DPDK_ENGINES.iter().copied()).collect();
        match only.iter().find(|name| !known.contains(&name.as_str())) {
            Some(unknown) => {
                Err(Failure::Rejected(format!("weir: --only {unknown}: unknown; known are {}", known.join(", "))))
            }
            None => Ok(Selection(only)),
        }
    }

    /// Whether the name is selected, or nothing is.
    fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|wanted| wanted == name)
    }
}

/// Measures the rows of Fig. 4.
fn figure4_rows(options: &Options, selection: &Selection<'_>) -> Result<Vec<Row>, Failure> {
    let baselines = [Ruleset::forward()?, Ruleset::drop()?];
    let mut rows = Vec::new();
    if selection.has("memory") {
        for ruleset in baselines.iter().chain(&[Ruleset::three_tables(options)?]) {
            rows.extend(memory_engine::rows(ruleset, &Row::default())?);
        }
    }
    for engine in engines::ENGINES.into_iter().filter(|name| selection.has(name)) {
        // A separate namespace, so that nothing of the previous engine remains.
        rows.extend(
            wire::in_namespace(|| {
                let queues = engines::WORKERS[engines::WORKERS.len() - 1];
                let [source, lower] = wire::pair(["source", "lower"], queues)?;
                let [upper, sink] = wire::pair(["upper", "sink"], queues)?;
                let wires = Wires { source, lower, upper, sink, generator: Generator::compile(&Clang::find()?)? };
                let rows = baselines.iter().map(|ruleset| engines::rows(engine, ruleset, &wires, &Row::default()));
                rows.collect::<Result<Vec<_>, Failure>>()
            })?
            .into_iter()
            .flatten(),
        );
    }
    #[cfg(feature = "dpdk")]
    rows.extend(dpdk::rows(&baselines, |name| selection.has(name), &Row::default())?);
    rows.extend(paper::rows());
    Ok(rows)
}

/// Measures the rows for the cost of a dropped packet.
fn dropped_rows(data: &Data, selection: &Selection<'_>) -> Result<Vec<Row>, Failure> {
    let clang = Clang::find()?;
    let core = generating_core()?;
    let addresses = data.addresses();
    let [near, far] = wire::pair(["near", "far"], 1)?;
    let [upper, _] = wire::pair(["upper", "beyond"], 1)?;
    let mut generator =
        Generator::load(&Generator::compile(&clang)?, near.index, &traffic::small_packet(0), &shuffled(&addresses))?;
    let peers = peers::load(&clang, &addresses)?;
    let mut contenders = Vec::new();
    for name in CONTENDERS.into_iter().filter(|name| selection.has(name)) {
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
            Err(failure) if name.starts_with("nft") => eprintln!("weir: {name} is left out: {}", failure.message()),
            Err(failure) => return Err(failure),
        }
    }
    let row = Row::default().of("table", &data.name).of("source", data.source);
    dropped::race(&mut contenders, &mut generator, &far, &Core::new(core), &row)
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
