//! `live`: policies where packets come in, beside the RFPF paper's Fig. 4 and what an operator would use instead.
//!
//! * What a dropped packet costs on a veth pair (`dropped.rs`): Weir's in-kernel engine, nftables, the kernel's own maps, nothing at all.
//!
//! All of it lives in a network namespace of one thread, which is gone with it.

mod contender;
mod dropped;
mod nft;
mod peers;
mod spent;
mod wire;

use super::data::{Data, Dataset};
use super::traffic::SplitMix;
use super::{Row, traffic};
use crate::cli::BenchOptions;
use crate::failure::Failure;
use contender::{Contender, XdpPeer};
use nft::NftSet;
use spent::Core;
use weir_engine::clang::Clang;
use weir_engine::cpu;
use weir_engine::xdp::generate::Generator;

/// Runs the scenario.
///
/// # Errors
/// There is no right to make interfaces, or something that it needs is missing.
pub fn run(options: &BenchOptions) -> Result<Vec<Row>, Failure> {
    let data = Dataset::BLOCK_178K.load(&options.data)?;
    wire::in_namespace(|| dropped_rows(&data))
}

/// Rows of what a dropped packet costs.
fn dropped_rows(data: &Data) -> Result<Vec<Row>, Failure> {
    let clang = Clang::find()?;
    let core = generating_core()?;
    let addresses = data.addresses();
    let [near, far] = wire::pair(["near", "far"], 1)?;
    let mut generator = Generator::load(&clang, near.index, &traffic::small_packet(0), &shuffled(&addresses))?;
    let mut contenders = contenders(&clang, &addresses)?;
    let row = Row::default().of("table", data.name).of("source", data.source);
    dropped::race(&mut contenders, &mut generator, &far, &Core::new(core), &row)
}

/// Keeps this thread on the last core, because the first has more interrupts to answer; or on the one that it runs on.
fn generating_core() -> Result<usize, Failure> {
    let last = std::thread::available_parallelism().map_or(1, usize::from) - 1;
    match cpu::pin_to(last) {
        Ok(()) => Ok(last),
        Err(_not_allowed) => cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}"))),
    }
}

fn contenders(clang: &Clang, addresses: &[u32]) -> Result<Vec<Box<dyn Contender>>, Failure> {
    let peers = peers::load(clang, addresses)?;
    let xdp = |name, program| -> Box<dyn Contender> { Box::new(XdpPeer::new(name, program, &peers)) };
    let mut contenders = vec![
        xdp(dropped::DROP_ALL, "peer_drop_all"),
        xdp("xdp-hash-map", "peer_hash_map"),
        xdp("xdp-lpm-trie", "peer_lpm_trie"),
    ];
    for set in [NftSet::hash(addresses), NftSet::interval(addresses)] {
        match set {
            Ok(set) => contenders.push(Box::new(set)),
            Err(failure) => eprintln!("weir: left out: {}", failure.message()),
        }
    }
    Ok(contenders)
}

/// In random order.
fn shuffled(addresses: &[u32]) -> Vec<u32> {
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
