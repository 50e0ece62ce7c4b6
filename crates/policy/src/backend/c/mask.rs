//! Tests of a whole burst as C expressions. Each compares a column and yields a mask of packets.

use super::column::{Column, L3, L4, VLAN_TAGS, Width};
use super::condition::Conditions;
use super::scale::{ALL, Scale, in_set, number};
use crate::field::{Guard, Subject};
use crate::ir::{FindId, Test, ValueSet, Wanted};

impl Conditions<'_> {
    /// Appends masks whose intersection is the packets that pass the test. Bits of packets that are not open mean
    /// nothing. The test must not be evaluated packet by packet ([`Conditions::is_per_packet`]).
    pub(super) fn masks(&self, test: &Test, masks: &mut Vec<String>) {
        match test {
            Test::Guard(guard) => masks.push(guard_mask(*guard)),
            Test::Found { find, wanted, negated } => masks.push(self.found_mask(*find, wanted, *negated)),
            Test::Value { subject, mask, set, negated } => {
                let (width, name) = self.column(*subject).expect("a test of a whole burst has a column");
                if let Subject::Card(answer) = subject {
                    let value = || self.value_mask(*subject, (width, &name), *mask, set, *negated);
                    return self.answers().masks(*answer, (set, *negated), value, masks);
                }
                if matches!(subject, Subject::Raw(_)) {
                    masks.push(format!("u8_is(packets->{name}_there, true)"));
                }
                masks.push(self.value_mask(*subject, (width, &name), *mask, set, *negated));
            }
        }
    }

    fn found_mask(&self, find: FindId, wanted: &Wanted, negated: bool) -> String {
        let column = format!("packets->{}", self.find_name(find));
        let not_found = match wanted {
            Wanted::Any => format!("u32_is({column}, 0)"),
            Wanted::Table(index) => format!("u32_masked({column}, {:#x}, 0, 0)", 1u32 << index),
            Wanted::Labels(labels) => {
                let set = ValueSet::new(labels.iter().map(|label| (u128::from(label.0), u128::from(label.0))));
                let scale = Scale { highest: u128::from(u32::MAX), hexadecimal: false };
                return in_set(&set, negated, |start, end| between(Width::U32, &column, scale, start, end));
            }
        };
        if negated { not_found } else { format!("~{not_found}") }
    }

    fn value_mask(
        &self,
        subject: Subject,
        (width, name): (Width, &str),
        mask: Option<u128>,
        set: &ValueSet,
        negated: bool,
    ) -> String {
        let prefix = width.prefix();
        if let Some(large) = self.large_set(subject, mask, set) {
            let not = if negated { "~" } else { "" };
            return format!("{not}{prefix}_in(packets->{name}, {}, {})", large.name, set.ranges().len());
        }
        let scale = Scale::of(subject, mask);
        in_set(set, negated, |start, end| match (width, mask) {
            (Width::Wide, mask) => wide_between(&format!("&packets->{name}"), mask, start, end),
            (_, None) => between(width, &format!("packets->{name}"), scale, start, end),
            (_, Some(mask)) => {
                let [mask, low, high] = [mask, start, end].map(|value| scale.constant(value));
                format!("{prefix}_masked(packets->{name}, {mask}, {low}, {high})")
            }
        })
    }
}

fn guard_mask(guard: Guard) -> String {
    let is = |column: Column, value: &str| format!("u8_is(packets->{}, {value})", column.name);
    match guard {
        Guard::Any => ALL.to_owned(),
        Guard::Vlan => format!("~{}", is(VLAN_TAGS, "0")),
        Guard::QinQ => is(VLAN_TAGS, "2"),
        Guard::Ipv4 => is(L3, "L3_IPV4"),
        Guard::Ipv6 => is(L3, "L3_IPV6"),
        Guard::Ip => format!("u8_between(packets->{}, L3_IPV4, L3_IPV6)", L3.name),
        Guard::Tcp => is(L4, "L4_TCP"),
        Guard::Udp => is(L4, "L4_UDP"),
        Guard::Icmp => is(L4, "L4_ICMP"),
        Guard::Icmp6 => is(L4, "L4_ICMP6"),
        Guard::Ports => format!("({} | {} | {})", is(L4, "L4_TCP"), is(L4, "L4_UDP"), is(L4, "L4_PORTS")),
        Guard::Transport => format!("~{}", is(L4, "L4_NONE")),
    }
}

fn between(width: Width, column: &str, scale: Scale, start: u128, end: u128) -> String {
    let (low, high) = (scale.constant(start), scale.constant(end));
    let prefix = width.prefix();
    match (start, end) {
        (0, _) if end >= scale.highest => ALL.to_owned(),
        _ if start == end => format!("{prefix}_is({column}, {low})"),
        _ => format!("{prefix}_between({column}, {low}, {high})"),
    }
}

fn wide_between(column: &str, mask: Option<u128>, start: u128, end: u128) -> String {
    let halves = |value: u128| [value >> 64, value & u128::from(u64::MAX)].map(|half| number(half, true)).join(", ");
    let (low, high) = (halves(start), halves(end));
    match mask {
        Some(mask) => format!("wide_column_masked({column}, {}, {low}, {high})", halves(mask)),
        None if start == end => format!("wide_column_is({column}, {low})"),
        None => format!("wide_column_between({column}, {low}, {high})"),
    }
}
