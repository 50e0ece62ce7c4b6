//! The part of a list that matters for some packets: the entries that contain one of their addresses.
//!
//! A lookup of these addresses finds the same entry as in the whole list, and a list of a million entries does not
//! become a part of each export.

use std::collections::HashSet;
use std::fmt::Write;
use weir_abi::Family;
use weir_abi::packet::L3;
use weir_loading::ListedLimits;
use weir_mitigate::excerpt::Packet;
use weir_policy::ir::eval::packet::{self, Frame};
use weir_tables::{LimitTable, Table};

/// Entries of a line.
const PER_LINE: usize = 6;

/// The addresses of packets, sorted.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    ipv4: Vec<u128>,
    ipv6: Vec<u128>,
}

impl Addresses {
    /// The source and destination addresses of packets.
    pub fn of(packets: &[Packet]) -> Self {
        let mut addresses = Addresses::default();
        for one in packets {
            let frame = Frame { bytes: &one.bytes, wire_len: one.wire_len, link: one.link, time_ns: one.time_ns };
            let parsed = packet::parse(frame).0;
            let of_family = match parsed.l3 {
                L3::Ipv4 => &mut addresses.ipv4,
                L3::Ipv6 => &mut addresses.ipv6,
                L3::Arp | L3::None => continue,
            };
            of_family.extend([parsed.saddr, parsed.daddr]);
        }
        for of_family in [&mut addresses.ipv4, &mut addresses.ipv6] {
            of_family.sort_unstable();
            of_family.dedup();
        }
        addresses
    }

    /// Whether a prefix contains one of the addresses.
    fn meet(&self, family: Family, first: u128, length: u8) -> bool {
        let (addresses, bits) = match family {
            Family::Ipv4 => (&self.ipv4, 32),
            Family::Ipv6 => (&self.ipv6, 128),
        };
        let last = first | u128::MAX.checked_shr(u32::from(length) + 128 - bits).unwrap_or(0);
        let at = addresses.partition_point(|&address| address < first);
        addresses.get(at).is_some_and(|&address| address <= last)
    }
}

/// An entry of a table as text, with its label.
struct Entry {
    prefix: String,
    label: Option<String>,
}

/// The entries of a table that matter, as `elements` of a policy, and their number. A label in `needed` keeps an entry,
/// because rules name it. `added` are further entries.
pub fn elements(table: &Table, addresses: &Addresses, needed: &HashSet<&str>, added: &[String]) -> (String, usize) {
    let mut missing = needed.clone();
    let mut entries: Vec<Entry> = Vec::new();
    let mut take = |meets: bool, prefix: &dyn Fn() -> String, label: u32| {
        let label = (label as usize).checked_sub(1).and_then(|index| table.labels().get(index));
        let is_missing = label.is_some_and(|label| missing.remove(&**label));
        if meets || is_missing {
            entries.push(Entry { prefix: prefix(), label: label.map(ToString::to_string) });
        }
    };
    match table.family() {
        Family::Ipv4 => table.prefixes4().iter().for_each(|prefix| {
            take(addresses.meet(Family::Ipv4, prefix.addr.into(), prefix.len), &|| prefix.to_string(), prefix.label);
        }),
        Family::Ipv6 => table.prefixes6().iter().for_each(|prefix| {
            take(addresses.meet(Family::Ipv6, prefix.addr, prefix.len), &|| prefix.to_string(), prefix.label);
        }),
    }
    for prefix in added {
        if !entries.iter().any(|entry| entry.prefix.split('/').next() == Some(prefix)) {
            entries.push(Entry { prefix: prefix.clone(), label: None });
        }
    }
    (written(&entries), entries.len())
}

fn written(entries: &[Entry]) -> String {
    let mut text = String::new();
    for (at, Entry { prefix, label }) in entries.iter().enumerate() {
        text += match at {
            0 => "",
            _ if at % PER_LINE == 0 => ",\n    ",
            _ => ", ",
        };
        text += prefix;
        if let Some(label) = label {
            let _ = write!(text, " : \"{label}\"");
        }
    }
    text
}

/// Number of entries of a table.
pub fn len(table: &Table) -> usize {
    match table.family() {
        Family::Ipv4 => table.prefixes4().len(),
        Family::Ipv6 => table.prefixes6().len(),
    }
}

/// The limits that matter, as `elements` of a policy, with their number and the number of all limits.
pub fn limits(listed: &ListedLimits, addresses: &Addresses) -> (String, usize, usize) {
    let (limits, all) = match listed {
        ListedLimits::Prefixes(table) => prefix_limits(table, addresses),
        ListedLimits::Labels { rates, labels } => {
            let of_label = |label: &str| Some(format!("\"{label}\" : {}", rates.limit(label)?));
            (labels.iter().filter_map(|label| of_label(label)).collect(), rates.len())
        }
    };
    let mut text = String::new();
    for (at, limit) in limits.iter().enumerate() {
        text += if at == 0 { "" } else { ",\n    " };
        text += limit;
    }
    (text, limits.len(), all)
}

fn prefix_limits(table: &LimitTable, addresses: &Addresses) -> (Vec<String>, usize) {
    let mut limits = Vec::new();
    for family in [Family::Ipv4, Family::Ipv6] {
        for (label, first, length) in table.prefixes(family) {
            let first = match first {
                std::net::IpAddr::V4(first) => first.to_bits().into(),
                std::net::IpAddr::V6(first) => first.to_bits(),
            };
            if addresses.meet(family, first, length) {
                let (prefix, limit) = table.limit(family, label);
                limits.push(format!("{prefix} : {limit}"));
            }
        }
    }
    (limits, [Family::Ipv4, Family::Ipv6].map(|family| table.len(family)).iter().sum())
}

#[cfg(test)]
mod tests {
    use super::Addresses;
    use weir_abi::Family;

    #[test]
    fn a_prefix_meets_an_address_from_its_first_to_its_last() {
        let addresses = Addresses { ipv4: vec![0x0a00_00ff, 0xc000_0201], ipv6: vec![1, u128::MAX] };
        let meets = |first, length| addresses.meet(Family::Ipv4, first, length);
        assert!(meets(0x0a00_00ff, 32) && meets(0x0a00_0000, 24) && meets(0, 0) && meets(0xc000_0200, 31));
        assert!(!meets(0x0a00_00fe, 32) && !meets(0x0a00_0100, 24) && !meets(0xc000_0202, 31));
        let meets = |first, length| addresses.meet(Family::Ipv6, first, length);
        assert!(meets(0, 0) && meets(u128::MAX, 128) && meets(0, 127) && !meets(2, 127));
    }
}
