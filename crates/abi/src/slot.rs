//! Slots: rules that are data. Generated code interprets them, so they change while packets pass.
//!
//! A rule is one record. All fields that it may test are there; those that it does not test hold a range that every
//! value is in. A slot has two copies of its records. `active` names the copy that is read and the number of its
//! records, in one word. A writer fills the other copy and stores `active`. It changes the old copy only when no reader
//! uses it any more. So every packet is judged by one set of rules.
//!
//! ```text
//!       0 active   copy << 32 | number of rules
//!      64 records  2 copies of 64 records of 256 bytes
//!   32832 buckets  128 words ([`crate::limit`]), one for each cell
//!   33856 counters 32 stripes of 128 cells of 32 bytes
//!  164928
//! ```
//! A rule owns a *cell*: its bucket and its counters. A cell is used again when no reader uses an earlier rule of it.
//! The counters of a cell are the sum of all stripes. A worker or CPU uses the stripe of its number modulo their count.
//! Example: `ip daddr 192.0.2.1 udp sport 53 drop` tests `daddr` and the source port. It needs the headers IPv4 and
//! UDP; `first[2]` is 53 and `span[2]` is 0.

use crate::{Action, LimitProfile};

/// Maximum number of slots of a policy.
pub const SLOTS_MAX: usize = 16;
/// Maximum number of rules of a slot.
pub const RULES_MAX: usize = 64;
/// Number of cells of a slot: enough for two sets of rules.
pub const CELLS: usize = 2 * RULES_MAX;
/// Number of stripes of counters, a power of two.
pub const STRIPES: usize = 32;
/// Number of fields with up to 32 bits.
pub const FIELDS: usize = 12;

/// The verdict on packets that a rule of a slot drops.
pub const VERDICT: Action = Action::Drop;

/// A field with up to 32 bits that a rule may test: `enum slot_field`. The number is its index in [`SlotRule::first`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum SlotField {
    /// Upper-layer protocol.
    Protocol = 0,
    /// Fragment kind.
    Fragment = 1,
    /// Source port.
    Sport = 2,
    /// Destination port.
    Dport = 3,
    /// TCP window.
    Window = 4,
    /// TCP data offset.
    Doff = 5,
    /// ICMP or ICMPv6 type.
    IcmpType = 6,
    /// ICMP or ICMPv6 code.
    IcmpCode = 7,
    /// The TCP flags in [`SlotRule::flags_mask`].
    Flags = 8,
    /// Time to live, hop limit.
    Ttl = 9,
    /// `meta length`
    Length = 10,
    /// `@th,64,32`
    Payload = 11,
}

impl SlotField {
    /// All of them, by number.
    pub const ALL: [SlotField; FIELDS] = [
        SlotField::Protocol,
        SlotField::Fragment,
        SlotField::Sport,
        SlotField::Dport,
        SlotField::Window,
        SlotField::Doff,
        SlotField::IcmpType,
        SlotField::IcmpCode,
        SlotField::Flags,
        SlotField::Ttl,
        SlotField::Length,
        SlotField::Payload,
    ];
}

/// Bits of [`SlotRule::tested`] besides the bits of fields.
pub mod tested {
    /// The source address.
    pub const SADDR: u32 = 1 << 12;
    /// The destination address.
    pub const DADDR: u32 = 1 << 13;
}

/// What a packet must have, as bits of [`SlotRule::headers`]: `enum slot_header`.
pub mod header {
    /// IPv4.
    pub const IPV4: u32 = 1;
    /// IPv6.
    pub const IPV6: u32 = 2;
    /// IPv4 or IPv6.
    pub const IP: u32 = 4;
    /// TCP.
    pub const TCP: u32 = 8;
    /// UDP.
    pub const UDP: u32 = 16;
    /// ICMP in IPv4.
    pub const ICMP: u32 = 32;
    /// ICMPv6 in IPv6.
    pub const ICMP6: u32 = 64;
    /// A header with ports.
    pub const PORTS: u32 = 128;
    /// Any transport header.
    pub const TRANSPORT: u32 = 256;
    /// The bits `@th,64,32`.
    pub const PAYLOAD: u32 = 512;
    /// All of them.
    pub const ALL: u32 = 1023;
}

/// What happens to packets that a rule matches: `enum slot_act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum SlotAct {
    /// The packets are counted.
    Count = 0,
    /// The packets are dropped.
    Drop = 1,
    /// The packets are dropped above a rate.
    Limit = 2,
}

impl SlotAct {
    /// The act of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        [SlotAct::Count, SlotAct::Drop, SlotAct::Limit].into_iter().find(|act| *act as u32 == number)
    }
}

/// A range of addresses with both ends, each as its higher and its lower half: `struct slot_range`. IPv4 addresses are
/// in the lower halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct AddressRange {
    /// The lowest address.
    pub first: [u64; 2],
    /// The highest address.
    pub last: [u64; 2],
}

impl AddressRange {
    /// All addresses.
    pub const ALL: AddressRange = AddressRange { first: [0; 2], last: [u64::MAX; 2] };

    /// A range of numbers.
    pub const fn new(first: u128, last: u128) -> Self {
        AddressRange { first: [(first >> 64) as u64, first as u64], last: [(last >> 64) as u64, last as u64] }
    }

    /// The ends as numbers.
    pub const fn ends(&self) -> (u128, u128) {
        let AddressRange { first, last } = *self;
        ((first[0] as u128) << 64 | first[1] as u128, (last[0] as u128) << 64 | last[1] as u128)
    }
}

/// The text of a rate in a record, in the order in which it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SlotRate {
    /// Packets per `unit`, or bits per second.
    pub count: u64,
    /// The burst in packets or bytes.
    pub burst: u64,
    /// 0 packets per second, 1 per minute, 2 per hour, 3 bits per second.
    pub unit: u32,
    zero: u32,
}

impl SlotRate {
    /// A rate.
    pub const fn new(count: u64, burst: u64, unit: u32) -> Self {
        SlotRate { count, burst, unit, zero: 0 }
    }
}

/// A rule of a slot: `struct slot_rule`.
///
/// ```text
///   0 saddr        32 daddr      64 first   112 span
/// 160 headers     164 tested    168 flags_mask   172 cell   176 act   180 number
/// 184 limit       216 rate      240 zero        256
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SlotRule {
    /// Source addresses.
    pub saddr: AddressRange,
    /// Destination addresses.
    pub daddr: AddressRange,
    /// The lowest value of each field, by [`SlotField`].
    pub first: [u32; FIELDS],
    /// The highest value less the lowest one.
    pub span: [u32; FIELDS],
    /// What the packet must have ([`header`]).
    pub headers: u32,
    /// The fields that are tested: `1 << field`, and [`tested`].
    pub tested: u32,
    /// The TCP flags that are compared.
    pub flags_mask: u32,
    /// Its bucket and counters, below [`CELLS`].
    pub cell: u32,
    /// A [`SlotAct`].
    pub act: u32,
    /// Its number, unique in its slot.
    pub number: u32,
    /// The rate that its bucket is charged by; [`SlotAct::Limit`] only.
    pub limit: LimitProfile,
    /// The rate of `limit` as it was written.
    pub rate: SlotRate,
    zero: [u64; 2],
}

impl SlotRule {
    /// The rule that every packet matches, and that counts.
    pub const ANY: SlotRule = SlotRule {
        saddr: AddressRange::ALL,
        daddr: AddressRange::ALL,
        first: [0; FIELDS],
        span: [u32::MAX; FIELDS],
        headers: 0,
        tested: 0,
        flags_mask: 0,
        cell: 0,
        act: SlotAct::Count as u32,
        number: 0,
        limit: LimitProfile { per_packet: 0, per_byte: 0, room: 0, coarse: 0 },
        rate: SlotRate::new(0, 0, 0),
        zero: [0; 2],
    };

    /// This rule with another number.
    pub const fn numbered(self, number: u32) -> Self {
        SlotRule { number, ..self }
    }

    /// Number of words.
    pub const WORDS: usize = size_of::<SlotRule>() / size_of::<u64>();

    /// The record as it lies in memory.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let mut words = [0; Self::WORDS];
        let ranges = [self.saddr.first, self.saddr.last, self.daddr.first, self.daddr.last];
        let LimitProfile { per_packet, per_byte, room, coarse } = self.limit;
        let SlotRate { count, burst, unit, zero } = self.rate;
        let addresses = ranges.into_iter().flatten();
        let fields = self.first.as_chunks::<2>().0.iter().chain(self.span.as_chunks::<2>().0);
        let fields = fields.map(|&[low, high]| pair(low, high));
        let numbers = [
            pair(self.headers, self.tested),
            pair(self.flags_mask, self.cell),
            pair(self.act, self.number),
            per_packet,
            per_byte,
            room,
            coarse,
            count,
            burst,
            pair(unit, zero),
        ];
        let values = addresses.chain(fields).chain(numbers).chain(self.zero);
        words.iter_mut().zip(values).for_each(|(word, value)| *word = value);
        words
    }
}

/// Two numbers as they lie in a word.
pub(crate) fn pair(first: u32, second: u32) -> u64 {
    let [[a, b, c, d], [e, f, g, h]] = [first, second].map(u32::to_ne_bytes);
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// What a rule counted on one stripe: `struct slot_counter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SlotCounter {
    /// Packets that matched.
    pub packets: u64,
    /// Bytes of the packets that matched.
    pub bytes: u64,
    /// Packets that the rule dropped.
    pub dropped: u64,
    /// Bytes of the packets that the rule dropped.
    pub dropped_bytes: u64,
}

/// A slot: `struct rule_slot`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SlotImage {
    /// The copy that is read, and the number of its rules.
    pub active: u64,
    zero: [u64; 7],
    /// Two copies, one after the other.
    pub records: [SlotRule; 2 * RULES_MAX],
    /// One for each cell.
    pub buckets: [u64; CELLS],
    /// One for each cell, in every stripe.
    pub counters: [SlotCounter; STRIPES * CELLS],
}

impl SlotImage {
    /// Number of words.
    pub const WORDS: usize = size_of::<SlotImage>() / size_of::<u64>();

    /// The word `active` for `count` rules in a copy.
    pub const fn active(copy: usize, count: usize) -> u64 {
        (copy as u64) << 32 | count as u64
    }
}

const _: () = assert!(size_of::<AddressRange>() == 32 && size_of::<SlotRate>() == 24);
const _: () = assert!(size_of::<SlotRule>() == 256 && size_of::<SlotCounter>() == 32);
const _: () = assert!(size_of::<SlotImage>() == 164_928);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn words_lie_as_the_fields_do() {
        let mut rule = SlotRule { number: 7, act: 2, cell: 9, headers: 3, tested: 5, flags_mask: 18, ..SlotRule::ANY };
        rule.first[11] = 0x1234_5678;
        rule.daddr = AddressRange::new(1 << 64 | 2, 3);
        rule.limit.room = 77;
        rule.rate = SlotRate::new(10, 20, 3);
        let words = rule.words();
        let u32_at = |offset: usize| {
            let bytes = words[offset / 8].to_ne_bytes();
            u32::from_ne_bytes(bytes[offset % 8..offset % 8 + 4].try_into().expect("four bytes"))
        };
        assert_eq!(u32_at(offset_of!(SlotRule, number)), 7);
        assert_eq!(u32_at(offset_of!(SlotRule, cell)), 9);
        assert_eq!(u32_at(offset_of!(SlotRule, act)), 2);
        assert_eq!(u32_at(offset_of!(SlotRule, headers)), 3);
        assert_eq!(u32_at(offset_of!(SlotRule, tested)), 5);
        assert_eq!(u32_at(offset_of!(SlotRule, flags_mask)), 18);
        assert_eq!(u32_at(offset_of!(SlotRule, first) + 44), 0x1234_5678);
        assert_eq!(u32_at(offset_of!(SlotRule, span)), u32::MAX);
        assert_eq!(words[offset_of!(SlotRule, daddr) / 8..][..4], [1, 2, 0, 3]);
        assert_eq!(words[offset_of!(SlotRule, limit) / 8 + 2], 77);
        assert_eq!(words[offset_of!(SlotRule, rate) / 8..][..2], [10, 20]);
        assert_eq!(u32_at(offset_of!(SlotRule, rate) + 16), 3);
        assert_eq!(rule.daddr.ends(), (1 << 64 | 2, 3));
    }
}
