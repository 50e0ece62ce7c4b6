//! The text of a record. It reads as the same record.

use super::fields::{self, subject};
use super::record::UNITS;
use crate::check::name_of;
use crate::field::{Field, Notation, Subject};
use crate::ir::print;
use weir_abi::Limit;
use weir_abi::slot::{AddressRange, SlotAct, SlotField, SlotRule as Record, header, tested};

/// The fields in the order in which rules name them.
const ORDER: [SlotField; 12] = [
    SlotField::Protocol,
    SlotField::Fragment,
    SlotField::Sport,
    SlotField::Dport,
    SlotField::Flags,
    SlotField::Doff,
    SlotField::Window,
    SlotField::IcmpType,
    SlotField::IcmpCode,
    SlotField::Payload,
    SlotField::Length,
    SlotField::Ttl,
];

/// Protocols that are a match without a field.
const GUARDS: [(u32, &str); 4] =
    [(header::TCP, "tcp"), (header::UDP, "udp"), (header::ICMP, "icmp"), (header::ICMP6, "icmpv6")];

/// The rule of a record: `ip daddr 192.0.2.1 udp sport 53 drop`. What no rule has is printed as `?`.
pub fn text(record: &Record) -> String {
    let mut words = Vec::new();
    let is_ipv6 = record.headers & header::IPV6 != 0;
    let [saddr, daddr] = match is_ipv6 {
        true => [Field::Ip6Saddr, Field::Ip6Daddr],
        false => [Field::IpSaddr, Field::IpDaddr],
    };
    if record.tested & tested::DADDR != 0 {
        words.push(addresses(daddr, &record.daddr));
    }
    if record.tested & tested::SADDR != 0 {
        words.push(addresses(saddr, &record.saddr));
    }
    let mut named = 0;
    for field in ORDER.into_iter().filter(|&field| record.tested >> field as u32 & 1 != 0) {
        let of = subject(field, record.headers);
        named |= fields::header(of.guard()).unwrap_or(0);
        words.push(match field {
            SlotField::Flags => flags(record),
            _ => narrow(of, record.first[field as usize], record.span[field as usize]),
        });
    }
    // Ports of any protocol need no guard. Ports of one protocol name it.
    let missing = GUARDS.iter().filter(|(bit, _)| record.headers & bit != 0 && named & bit == 0);
    words.extend(missing.map(|(_, name)| (*name).to_owned()));
    words.push(act(record));
    words.join(" ")
}

/// `ip daddr 192.0.2.0/24`, `ip daddr 192.0.2.1-192.0.2.7`
fn addresses(field: Field, range: &AddressRange) -> String {
    let (first, last) = range.ends();
    let value = |address| print::value(Subject::Field(field), address);
    let different = first ^ last;
    let is_prefix = different & different.wrapping_add(1) == 0 && first & different == 0;
    match (first == last, is_prefix) {
        (true, _) => format!("{} {}", field.name(), value(first)),
        (false, true) => {
            format!("{} {}/{}", field.name(), value(first), u32::from(field.bits()) - different.count_ones())
        }
        (false, false) => format!("{} {}-{}", field.name(), value(first), value(last)),
    }
}

fn narrow(of: Subject, first: u32, span: u32) -> String {
    let name = print::subject_name(of);
    let last = first.wrapping_add(span);
    let named = match of {
        Subject::Field(field) if matches!(field.notation(), Notation::Protocol | Notation::Fragment) => {
            name_of(field.notation(), first.into())
        }
        _ => None,
    };
    match (span, named, of) {
        (0, Some(value), _) => format!("{name} {value}"),
        (0, None, Subject::Raw(_)) => format!("{name} {first:#010x}"),
        (0, None, _) => format!("{name} {first}"),
        _ => format!("{name} {first}-{last}"),
    }
}

/// `tcp flags == syn,ack`, `tcp flags & (syn | ack) == syn`
fn flags(record: &Record) -> String {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
    let names = |bits: u32, by: &str| {
        let set = NAMES.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0);
        let set: Vec<&str> = set.map(|(_, name)| *name).collect();
        if set.is_empty() { "0".to_owned() } else { set.join(by) }
    };
    let value = names(record.first[SlotField::Flags as usize], ",");
    match record.flags_mask {
        0xff => format!("tcp flags == {value}"),
        mask => format!("tcp flags & ({}) == {value}", names(mask, " | ")),
    }
}

fn act(record: &Record) -> String {
    match SlotAct::from_number(record.act) {
        Some(SlotAct::Count) => "counter".to_owned(),
        Some(SlotAct::Drop) => "drop".to_owned(),
        Some(SlotAct::Limit) => {
            let unit = UNITS.get(record.rate.unit as usize).copied().unwrap_or("?");
            let written = format!("{}{unit} burst {}", record.rate.count, record.rate.burst);
            match written.parse::<Limit>() {
                Ok(limit) => format!("limit rate {limit}"),
                Err(_) => "?".to_owned(),
            }
        }
        None => "?".to_owned(),
    }
}
