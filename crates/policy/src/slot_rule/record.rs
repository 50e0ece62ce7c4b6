//! Makes the record of a rule from the ranges of its matches.

use super::fields::Target;
use super::rule::Act;
use weir_abi::rate::{Per, Rate};
use weir_abi::slot::{AddressRange, SlotField, SlotRate, SlotRule as Record, header, tested};

/// Units of [`SlotRate`].
pub(super) const UNITS: [&str; 4] = ["/second", "/minute", "/hour", "bit"];

/// Two matches that no packet can satisfy together.
pub(super) struct Conflict;

/// A record whose rate is not known yet.
pub(super) struct Draft(Record);

impl Default for Draft {
    fn default() -> Self {
        Draft(Record::ANY)
    }
}

/// Pairs of headers. A packet has at most one header of each pair.
const EXCLUSIVE: [(u32, u32); 4] = [
    (header::IPV4 | header::ICMP, header::IPV6 | header::ICMP6),
    (header::TCP, header::UDP),
    (header::TCP | header::UDP | header::PORTS, header::ICMP | header::ICMP6),
    (header::ICMP, header::ICMP6),
];

/// What every packet with a header has besides. Records leave it out, so equal rules are equal records.
const IMPLIED: [(u32, u32); 5] = [
    (header::TCP | header::UDP, header::PORTS | header::TRANSPORT | header::IP),
    (header::ICMP | header::ICMP6, header::TRANSPORT | header::IP),
    (header::PORTS, header::TRANSPORT | header::IP),
    (header::TRANSPORT, header::IP),
    (header::IPV4 | header::IPV6, header::IP),
];

impl Draft {
    pub(super) fn require(&mut self, headers: u32) -> Result<(), Conflict> {
        self.0.headers |= headers;
        let has = |bits: u32| self.0.headers & bits != 0;
        if EXCLUSIVE.iter().any(|&(one, other)| has(one) && has(other)) { Err(Conflict) } else { Ok(()) }
    }

    /// Narrows the range of a field.
    pub(super) fn narrow(&mut self, target: Target, first: u128, last: u128) -> Result<(), Conflict> {
        let record = &mut self.0;
        let field = match target {
            Target::Saddr => return intersect(&mut record.saddr, &mut record.tested, tested::SADDR, first, last),
            Target::Daddr => return intersect(&mut record.daddr, &mut record.tested, tested::DADDR, first, last),
            Target::Narrow(field) => field,
        };
        let index = field as usize;
        let before = (record.first[index], record.first[index] + record.span[index]);
        let (first, last) = (before.0.max(first as u32), before.1.min(last as u32));
        record.first[index] = first;
        record.span[index] = last.checked_sub(first).ok_or(Conflict)?;
        record.tested |= 1 << index;
        if field == SlotField::Payload {
            record.headers |= header::PAYLOAD;
        }
        Ok(())
    }

    /// Requires that the flags of a mask have a value.
    pub(super) fn flags(&mut self, mask: u32, value: u32) -> Result<(), Conflict> {
        let (record, index) = (&mut self.0, SlotField::Flags as usize);
        let both = record.flags_mask & mask;
        if value & !mask != 0 || (record.first[index] ^ value) & both != 0 {
            return Err(Conflict);
        }
        record.flags_mask |= mask;
        record.first[index] |= value;
        record.span[index] = 0;
        record.tested |= 1 << index;
        Ok(())
    }

    pub(super) fn record(self, act: Act) -> Record {
        let mut record = self.0;
        for (header, implied) in IMPLIED {
            if record.headers & header != 0 {
                record.headers &= !implied;
            }
        }
        record.act = act.number() as u32;
        if let Act::Limit(limit) = act {
            let (count, unit) = match limit.rate() {
                Rate::Packets { count, per: Per::Second } => (count, 0),
                Rate::Packets { count, per: Per::Minute } => (count, 1),
                Rate::Packets { count, per: Per::Hour } => (count, 2),
                Rate::Bits(bits) => (bits, 3),
            };
            record.limit = limit.profile();
            record.rate = SlotRate::new(count, limit.burst(), unit);
        }
        record
    }
}

fn intersect(range: &mut AddressRange, tested: &mut u32, bit: u32, first: u128, last: u128) -> Result<(), Conflict> {
    let before = range.ends();
    let (first, last) = (before.0.max(first), before.1.min(last));
    *range = AddressRange::new(first, last);
    *tested |= bit;
    if first > last { Err(Conflict) } else { Ok(()) }
}
