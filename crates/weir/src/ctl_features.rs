//! `weir ctl features`: shows what was observed in the last second.

use std::fmt::Write;
use weir_command::figures;
use weir_control::{AddressFeatures, DirectionFeatures, FeatureCounts, FeaturesShown, SampledFeatures};
use weir_policy::diag::printable::printable;

/// Values of each kind that are shown.
const SHARES_MAX: usize = 5;

/// The answer as text.
pub fn text(shown: &FeaturesShown) -> String {
    let FeaturesShown { seconds, age_s, turns: _, size, upstream, downstream, addresses } = shown;
    let size = figures::grouped((*size).into());
    let mut text = format!("{seconds:.1} s, {age_s:.1} s ago; room for {size} addresses in each direction\n");
    for (name, direction) in [("upstream", upstream), ("downstream", downstream)] {
        let DirectionFeatures { addresses, total, rest, without_address, outside, samples, .. } = direction;
        let _ = writeln!(text, "{name}: {}, {} addresses", counts(total), figures::grouped(*addresses as u64));
        for (what, part) in [("no room", rest), ("no address", without_address), ("not inside", outside)] {
            if part.packets > 0 {
                let _ = writeln!(text, "  {what}: {}", counts(part));
            }
        }
        describe(&mut text, samples);
    }
    for AddressFeatures { address, upstream, downstream, new_sources } in addresses {
        let new = figures::grouped(*new_sources);
        let _ = writeln!(text, "{}: about {new} new sources", printable(address));
        for (arrow, part) in [("to", upstream), ("from", downstream)] {
            if part.packets > 0 {
                let _ = writeln!(text, "  {arrow:>4}  {}", counts(part));
            }
        }
    }
    let all = upstream.addresses.max(downstream.addresses);
    if addresses.len() < all {
        let _ = writeln!(text, "{} of at least {} addresses (--top N)", addresses.len(), figures::grouped(all as u64));
    }
    text
}

/// `  source ports: udp 53 61%, tcp 443 12%`
fn describe(text: &mut String, samples: &SampledFeatures) {
    let SampledFeatures { seen: _, samples: _, sources, source_ports, destination_ports, lengths, ttls } = samples;
    let kinds = [
        ("sources", sources),
        ("source ports", source_ports),
        ("destination ports", destination_ports),
        ("lengths", lengths),
        ("TTL", ttls),
    ];
    for (kind, shares) in kinds.into_iter().filter(|(_, shares)| !shares.is_empty()) {
        let shares = shares.iter().take(SHARES_MAX);
        let shares: Vec<String> =
            shares.map(|of| format!("{} {:.0}%", printable(&of.value), of.share * 100.0)).collect();
        let _ = writeln!(text, "  {kind}: {}", shares.join(", "));
    }
}

/// `1,234 packets, 56.7 kB, about 20 peers (syn 1,000, udp 234)`
fn counts(FeatureCounts { packets, bytes, peers, classes }: &FeatureCounts) -> String {
    let mut classes: Vec<(&String, &u64)> = classes.iter().collect();
    classes.sort_by(|one, other| other.1.cmp(one.1).then(one.0.cmp(other.0)));
    let classes: Vec<String> =
        classes.iter().map(|(name, packets)| format!("{} {}", printable(name), figures::grouped(**packets))).collect();
    let classes = if classes.is_empty() { String::new() } else { format!(" ({})", classes.join(", ")) };
    let peers = if *peers > 0 { format!(", about {} peers", figures::grouped(*peers)) } else { String::new() };
    format!("{} packets, {}{peers}{classes}", figures::grouped(*packets), figures::bytes(*bytes))
}
