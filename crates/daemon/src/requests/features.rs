//! Requests for the last snapshot of what is observed.

mod sampled;

use std::cmp::Reverse;
use std::net::IpAddr;
use weir_abi::features::key_address;
use weir_abi::{FeatureCell, FeatureShape, PacketClass};
use weir_command::failure::Failure;
use weir_control::{AddressFeatures, DirectionFeatures, FEATURES_MAX, FeatureCounts, FeaturesShown};
use weir_policy::ir::Program;
use weir_state::SharedState;
use weir_state::features::{DirectionSnapshot, FeatureEntry, KnownPeers, Snapshot, Taken};

/// The last snapshot of what a program observes, with the `top` addresses that have most packets.
///
/// # Errors
/// The program does not observe, or there was no snapshot yet.
pub fn shown(top: usize, program: &Program, shared: &SharedState) -> Result<FeaturesShown, Failure> {
    let Some(shape) = program.observe.as_ref().map(|observe| observe.shape()) else {
        return Err(Failure::Nothing("the active policy does not observe".to_owned()));
    };
    let features = shared.observed().into_iter().find(|features| *features.shape() == shape);
    let features = features.expect("the active generation is bound to what it observes");
    let Taken { last, before, turns, totals } = features.taken();
    let Some(snapshot) = last else {
        return Err(Failure::Nothing("nothing was observed yet: ask again in a second".to_owned()));
    };
    let Snapshot { directions: [upstream, downstream], from_ns, to_ns } = &*snapshot;
    Ok(FeaturesShown {
        seconds: to_ns.saturating_sub(*from_ns) as f64 / 1e9,
        age_s: weir_state::now_ns().saturating_sub(*to_ns) as f64 / 1e9,
        turns,
        size: features.shape().size,
        upstream: direction(upstream, totals[0]),
        downstream: direction(downstream, totals[1]),
        addresses: heaviest(&snapshot, &before, top.min(FEATURES_MAX), features.shape()),
    })
}

fn direction(of: &DirectionSnapshot, (all_packets, all_bytes): (u64, u64)) -> DirectionFeatures {
    let DirectionSnapshot { entries, rest, without_address, outside, samples } = of;
    let all = entries.iter().map(|entry| &entry.counts).chain([rest, without_address, outside]);
    let total = sum(all);
    let [rest, without_address, outside] = [rest, without_address, outside].map(|cell| sum([cell]));
    let (addresses, samples) = (entries.len(), sampled::shares(samples));
    DirectionFeatures { all_packets, all_bytes, addresses, total, rest, without_address, outside, samples }
}

/// The addresses with the most packets in both directions together, in descending order.
fn heaviest(snapshot: &Snapshot, known: &KnownPeers, top: usize, shape: &FeatureShape) -> Vec<AddressFeatures> {
    let mut all: Vec<(usize, &FeatureEntry)> = Vec::new();
    for (direction, of) in snapshot.directions.iter().enumerate() {
        all.extend(of.entries.iter().map(|entry| (direction, entry)));
    }
    all.sort_unstable_by_key(|(direction, entry)| (entry.key, *direction));
    let both = all.chunk_by(|(_, one), (_, other)| one.key == other.key);
    let packets = |both: &[(usize, &FeatureEntry)]| both.iter().map(|(_, entry)| entry.counts.total()).sum::<u64>();
    let mut both: Vec<_> = both.map(|both| (Reverse(packets(both)), both[0].1.key, both)).collect();
    if top < both.len() && top > 0 {
        both.select_nth_unstable(top - 1);
    }
    both.truncate(top);
    both.sort_unstable();
    let shown = |both: &[(usize, &FeatureEntry)]| {
        let of = |wanted: usize| {
            let entry = both.iter().find(|(direction, _)| *direction == wanted);
            entry.map(|(_, entry)| sum([&entry.counts])).unwrap_or_default()
        };
        let upstream = both.iter().find(|(direction, _)| *direction == 0);
        let new_sources = upstream.map_or(0, |(_, entry)| known.new_peers(entry));
        let address = prefix(key_address(both[0].1.key), shape);
        AddressFeatures { address, upstream: of(0), downstream: of(1), new_sources }
    };
    both.iter().map(|(_, _, both)| shown(both)).collect()
}

fn prefix(address: IpAddr, shape: &FeatureShape) -> String {
    match (address, shape.lengths) {
        (IpAddr::V4(_), [32, _]) | (IpAddr::V6(_), [_, 128]) => address.to_string(),
        (IpAddr::V4(_), [length, _]) | (IpAddr::V6(_), [_, length]) => format!("{address}/{length}"),
    }
}

fn sum<'a>(cells: impl IntoIterator<Item = &'a FeatureCell>) -> FeatureCounts {
    let (mut counts, mut all) = (FeatureCounts::default(), FeatureCell::default());
    for cell in cells {
        counts.packets += cell.total();
        counts.bytes += cell.bytes;
        for (class, &packets) in PacketClass::ALL.iter().zip(&cell.packets) {
            if packets > 0 {
                *counts.classes.entry(class.name().to_owned()).or_default() += u64::from(packets);
            }
        }
        all.see_peers_of(cell);
    }
    counts.peers = all.peers();
    counts
}
