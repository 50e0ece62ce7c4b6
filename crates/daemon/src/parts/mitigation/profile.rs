//! What the packets of an attack are, from a sample of their headers.

use std::collections::{HashMap, HashSet};
use weir_control::{AttackProfile, Share};
use weir_mitigate::header::{Header, protocol};
use weir_mitigate::prefix::Prefix;

/// Values of each field that are listed.
const TOP: usize = 5;
/// Bytes of an Ethernet header, which the length of a header does not contain.
const ETHERNET_BYTES: u32 = 14;

/// The profile of a sample; `None` if it is empty.
pub fn of(sample: &[Header]) -> Option<AttackProfile> {
    if sample.is_empty() {
        return None;
    }
    let length = |header: &Header| header.length + ETHERNET_BYTES;
    let sources: HashSet<(bool, u128)> = sample.iter().map(|header| (header.is_ipv6, header.saddr)).collect();
    let bytes: u64 = sample.iter().map(|header| u64::from(length(header))).sum();
    Some(AttackProfile {
        samples: sample.len(),
        sources_seen: sources.len(),
        mean_bytes: (bytes as f64 / sample.len() as f64).round(),
        sources: top(sample, |header| Some(Prefix::of(header.is_ipv6, header.saddr, u8::MAX).to_string())),
        source_ports: top(sample, |header| port(header, header.sport)),
        destination_ports: top(sample, |header| port(header, header.dport)),
        lengths: top(sample, |header| Some(length(header).to_string())),
    })
}

/// A port with its protocol. Later fragments and protocols without ports have none.
fn port(header: &Header, port: u16) -> Option<String> {
    let protocol = match header.protocol {
        protocol::TCP => "tcp".to_owned(),
        protocol::UDP => "udp".to_owned(),
        other => other.to_string(),
    };
    header.has_ports.then(|| format!("{protocol} {port}"))
}

/// The most frequent values and their shares of the whole sample.
fn top(sample: &[Header], value: impl Fn(&Header) -> Option<String>) -> Vec<Share> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    sample.iter().filter_map(value).for_each(|value| *counts.entry(value).or_default() += 1);
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(&other.0)));
    let share = |(value, samples): (String, usize)| {
        let share = samples as f64 / sample.len() as f64;
        Share { value, share: (share * 1000.0).round() / 1000.0, samples }
    };
    counts.into_iter().take(TOP).map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::of;
    use weir_mitigate::header::Header;

    #[test]
    fn a_profile_has_the_most_frequent_values_first() {
        let header = |saddr: u32, sport: u16| Header {
            protocol: 17,
            has_ports: true,
            sport,
            dport: 80,
            length: 86,
            ..Header::between(saddr, 0xc000_0201)
        };
        let sample = [header(1, 53), header(2, 53), header(2, 123), Header { protocol: 47, ..Header::between(3, 9) }];
        let profile = of(&sample).expect("it has packets");
        let values = |shares: &[weir_control::Share]| -> Vec<(String, usize)> {
            shares.iter().map(|of| (of.value.clone(), of.samples)).collect()
        };
        assert_eq!((profile.samples, profile.sources_seen), (4, 3));
        assert_eq!(values(&profile.sources)[0], ("0.0.0.2".to_owned(), 2));
        assert_eq!(values(&profile.source_ports), [("udp 53".to_owned(), 2), ("udp 123".to_owned(), 1)]);
        assert_eq!(values(&profile.destination_ports), [("udp 80".to_owned(), 3)]);
        assert_eq!(profile.destination_ports[0].share, 0.75);
        assert_eq!(of(&[]), None);
    }
}
