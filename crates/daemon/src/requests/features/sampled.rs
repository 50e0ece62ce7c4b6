//! What samples show: the most frequent sources, ports, lengths and TTLs.
//!
//! Each worker or CPU has a uniform sample of the packets that it has seen. So a record stands for as many packets as
//! its worker has seen for each of its records. A value that 1% of the packets have is in about ten of 1024 records.

use std::collections::HashMap;
use std::hash::Hash;
use weir_abi::FeatureRecord;
use weir_abi::features::key_address;
use weir_control::{SampledFeatures, Share};
use weir_state::features::Samples;

/// Values that are shown of each kind.
const VALUES_MAX: usize = 10;
/// With so many records, a value is shown only if more than one record has it: fewer are chance.
const CHANCE: usize = 16;

/// The shares of the packets that the samples stand for.
pub(super) fn shares(samples: &[Samples]) -> SampledFeatures {
    let weighted = || {
        samples.iter().flat_map(|of| {
            let weight = of.seen as f64 / of.records.len().max(1) as f64;
            of.records.iter().map(move |record| (record, weight))
        })
    };
    let records: Vec<(&FeatureRecord, f64)> = weighted().collect();
    let seen = samples.iter().map(|of| of.seen).sum();
    let all = Shares { records: &records, seen };
    let port = |proto: u8, port: u16| (port > 0).then_some((proto, port));
    let name = |(proto, port): (u8, u16)| match proto {
        6 => format!("tcp {port}"),
        17 => format!("udp {port}"),
        other => format!("{other} {port}"),
    };
    SampledFeatures {
        seen,
        samples: records.len(),
        sources: all.of(|record| Some(record.source), |key| key_address(key).to_string()),
        source_ports: all.of(|record| port(record.proto, record.sport), name),
        destination_ports: all.of(|record| port(record.proto, record.dport), name),
        lengths: all.of(|record| Some(record.len), |len| len.to_string()),
        ttls: all.of(|record| Some(record.ttl), |ttl| ttl.to_string()),
    }
}

struct Shares<'a> {
    records: &'a [(&'a FeatureRecord, f64)],
    seen: u64,
}

impl Shares<'_> {
    /// The most frequent values, in descending order.
    fn of<V: Copy + Ord + Hash>(
        &self,
        value: impl Fn(&FeatureRecord) -> Option<V>,
        name: impl Fn(V) -> String,
    ) -> Vec<Share> {
        let mut counts: HashMap<V, (f64, usize)> = HashMap::new();
        for (record, weight) in self.records {
            if let Some(value) = value(record) {
                let count = counts.entry(value).or_default();
                *count = (count.0 + weight, count.1 + 1);
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        if self.records.len() >= CHANCE {
            counts.retain(|(_, (_, samples))| *samples > 1);
        }
        counts.sort_by(|one, other| other.1.0.total_cmp(&one.1.0).then_with(|| one.0.cmp(&other.0)));
        counts.truncate(VALUES_MAX);
        let share = |packets: f64| packets / self.seen.max(1) as f64;
        let shown = counts.into_iter();
        shown.map(|(value, (packets, samples))| Share { value: name(value), share: share(packets), samples }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(source: u64, sport: u16) -> FeatureRecord {
        FeatureRecord { source: [0, 0xffff_0000_0000 | source], sport, proto: 17, ..FeatureRecord::default() }
    }

    #[test]
    fn records_stand_for_what_their_worker_has_seen() {
        let busy = Samples { seen: 900, taken: 2, records: vec![record(1, 53); 2] };
        let idle = Samples { seen: 100, taken: 1, records: vec![record(2, 0)] };
        let shares = shares(&[busy, idle]);
        assert_eq!((shares.seen, shares.samples), (1000, 3));
        let of = |shares: &[Share]| -> Vec<(String, f64)> {
            shares.iter().map(|share| (share.value.clone(), share.share)).collect()
        };
        assert_eq!(of(&shares.sources), [("0.0.0.1".to_owned(), 0.9), ("0.0.0.2".to_owned(), 0.1)]);
        assert_eq!(of(&shares.source_ports), [("udp 53".to_owned(), 0.9)]);
    }

    #[test]
    fn a_value_of_one_record_among_many_is_chance() {
        let records = (0..100).map(|source| record(source.min(90), 1)).collect();
        let sources = shares(&[Samples { seen: 6400, taken: 100, records }]).sources;
        assert_eq!(sources.len(), 1);
        assert_eq!((sources[0].value.as_str(), sources[0].samples), ("0.0.0.90", 10));
    }
}
