//! What a tap wants of the headers of packets, as far as the datapath tests it before it copies a packet.
//!
//! The record of a rule of a slot ([`crate::slot::SlotRule`]) has more fields. Who reads the tap tests all of them. The
//! datapath only leaves out packets that cannot match, so that a rare packet is found in a flood. It reads the first
//! [`TAP_HEAD_BYTES`] bytes of Ethernet frames: VLAN tags, addresses, protocol and ports. What it cannot tell, it does
//! not leave out: other EtherTypes, extension headers, fragments, damaged headers.
//!
//! ```text
//!   0 saddr   32 daddr   64 sport   72 dport   80 proto   88 family   128
//! ```
//! Example: `ip daddr 192.0.2.1 udp sport 53` has one address in `daddr`, 53 in both ends of `sport`, 17 in both ends of
//! `proto`, and the family 4. All other ranges have all values.

use crate::slot::{AddressRange, SlotField, SlotRule, header, pair};

/// Bytes of a packet that are read for this.
pub const TAP_HEAD_BYTES: usize = 128;

/// Ranges that a packet must be in: `struct tap_where`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct TapWhere {
    /// Source addresses.
    pub saddr: AddressRange,
    /// Destination addresses.
    pub daddr: AddressRange,
    /// The lowest and the highest source port.
    pub sport: [u32; 2],
    /// The lowest and the highest destination port.
    pub dport: [u32; 2],
    /// The lowest and the highest protocol.
    pub proto: [u32; 2],
    /// 4 or 6; 0 for both.
    pub family: u32,
    zero: [u32; 9],
}

impl TapWhere {
    /// Every packet.
    pub const ANY: TapWhere = TapWhere {
        saddr: AddressRange::ALL,
        daddr: AddressRange::ALL,
        sport: [0, u32::MAX],
        dport: [0, u32::MAX],
        proto: [0, u32::MAX],
        family: 0,
        zero: [0; 9],
    };

    /// What a rule wants of the headers.
    pub fn of(rule: &SlotRule) -> Self {
        let range = |field: SlotField| {
            let (first, span) = (rule.first[field as usize], rule.span[field as usize]);
            [first, first.saturating_add(span)]
        };
        let has = |bits: u32| rule.headers & bits != 0;
        let only = [(header::TCP, 6), (header::UDP, 17), (header::ICMP, 1), (header::ICMP6, 58)];
        let only = only.into_iter().find(|&(bit, _)| has(bit)).map(|(_, proto)| [proto; 2]);
        let family = match () {
            () if has(header::IPV4 | header::ICMP) => 4,
            () if has(header::IPV6 | header::ICMP6) => 6,
            () => 0,
        };
        TapWhere {
            saddr: rule.saddr,
            daddr: rule.daddr,
            sport: range(SlotField::Sport),
            dport: range(SlotField::Dport),
            proto: only.unwrap_or(range(SlotField::Protocol)),
            family,
            ..TapWhere::ANY
        }
    }

    /// In the order in which they lie in memory.
    pub fn words(&self) -> [u64; size_of::<TapWhere>() / size_of::<u64>()] {
        let mut words = [0; size_of::<TapWhere>() / size_of::<u64>()];
        let addresses = [self.saddr.first, self.saddr.last, self.daddr.first, self.daddr.last].into_iter().flatten();
        let numbers = [self.sport, self.dport, self.proto, [self.family, 0]].map(|[first, second]| pair(first, second));
        words.iter_mut().zip(addresses.chain(numbers)).for_each(|(word, value)| *word = value);
        words
    }
}

const _: () = assert!(size_of::<TapWhere>() == 128);
