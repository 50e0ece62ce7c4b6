//! Random prefix sets, the keys where lookups go wrong, and tables of known shape.

#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub mod live;
pub mod shim;

use proptest::prelude::*;
use weir_abi::Family;
use weir_tables::{Entries, Kind};

/// An address, a prefix length and a label number.
pub type Entry<A> = (A, u8, u32);

/// IPv4 prefixes that nest and neighbour each other: few first octets, all lengths.
pub fn entries4() -> impl Strategy<Value = Vec<Entry<u32>>> {
    let addr = prop_oneof![
        3 => (0u32..4, any::<u32>()).prop_map(|(top, low)| 0x0a00_0000 | top << 16 | low & 0xffff),
        3 => any::<u16>().prop_map(|low| 0xc0a8_1000 | u32::from(low) & 0xfff),
        1 => any::<u32>(),
        1 => prop_oneof![Just(0), Just(u32::MAX), Just(0xffff_0000), Just(0xfffe_ffff)],
    ];
    let len = prop_oneof![1 => 0u8..=12, 2 => 13u8..=24, 4 => 25u8..=32, 2 => Just(32u8)];
    proptest::collection::vec((addr, len, 1u32..6), 0..200)
}

/// IPv4 addresses, some in one /16, some with the remainders that look like marks.
pub fn addresses4() -> impl Strategy<Value = Vec<Entry<u32>>> {
    let addr = prop_oneof![
        2 => any::<u16>().prop_map(|low| 0x0a01_0000 | u32::from(low)),
        1 => any::<u16>().prop_map(|low| 0xfffe_0000 | u32::from(low) << 1),
        2 => any::<u32>(),
    ];
    proptest::collection::vec(addr.prop_map(|addr| (addr, 32, 1)), 0..300)
}

/// IPv6 prefixes that nest and neighbour each other, dense enough in places to need nodes.
pub fn entries6() -> impl Strategy<Value = Vec<Entry<u128>>> {
    let addr = prop_oneof![
        3 => any::<u16>().prop_map(|low| 0x2001_0db8 << 96 | u128::from(low) << 80),
        3 => any::<u8>().prop_map(|low| 0x2001_0db8_0000_0001 << 64 | u128::from(low)),
        2 => any::<u64>().prop_map(|high| u128::from(high) << 64),
        1 => any::<u128>(),
        1 => prop_oneof![Just(0), Just(u128::MAX)],
    ];
    let len = prop_oneof![1 => 0u8..=31, 3 => 32u8..=48, 2 => 49u8..=64, 3 => 65u8..=128, 1 => Just(128u8)];
    proptest::collection::vec((addr, len, 1u32..6), 0..250)
}

/// IPv6 prefixes of /64 and /128 only. Some look like the marks of exact sets.
pub fn exact6() -> impl Strategy<Value = Vec<Entry<u128>>> {
    let half = || prop_oneof![4 => 0u64..40, 1 => any::<u64>(), 1 => (0u64..3).prop_map(|back| u64::MAX - back)];
    let entry = (half(), half(), prop_oneof![Just(64u8), Just(128u8)]);
    let entry = entry.prop_map(|(high, low, len)| (u128::from(high) << 64 | u128::from(low), len, 1));
    proptest::collection::vec(entry, 0..200)
}

/// A /42 with the same IPv6 prefix in each of its /48s, so that all lead to one block, beside /48s that force a finer
/// division.
pub fn alike6() -> Vec<Entry<u128>> {
    let net = |third: u128| 0x2001_0db8u128 << 96 | third << 80;
    let alike = (0..64).map(|third| (net(third) | 7 << 64, 64, 1));
    alike.chain((256..1024).map(|third| (net(third), 48, third as u32 % 2 + 2))).collect()
}

/// A table of the entries.
pub fn table<A: Copy + Into<Addr>>(family: Family, kind: Kind, list: &[Entry<A>]) -> Entries {
    let mut entries = Entries::new(family, kind);
    for &(addr, len, label) in list {
        let Addr(addr) = addr.into();
        entries.insert_prefix(addr, len, Some(&format!("L{label}"))).unwrap();
    }
    entries
}

/// An address of either family.
pub struct Addr(pub IpAddr);

impl From<u32> for Addr {
    fn from(addr: u32) -> Self {
        Addr(IpAddr::V4(Ipv4Addr::from(addr)))
    }
}

impl From<u128> for Addr {
    fn from(addr: u128) -> Self {
        Addr(IpAddr::V6(Ipv6Addr::from(addr)))
    }
}

/// Before, first, second, last and after of every prefix.
pub fn edges4(list: &[Entry<u32>]) -> Vec<u32> {
    let edges = |&(addr, len, _): &Entry<u32>| {
        let mask = u32::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        let (first, last) = (addr & !mask, addr | mask);
        [addr, first, first.wrapping_sub(1), first.wrapping_add(1), last, last.wrapping_add(1)]
    };
    list.iter().flat_map(edges).chain([0, 1, u32::MAX]).collect()
}

/// Before, first, second, last and after of every prefix.
pub fn edges6(list: &[Entry<u128>]) -> Vec<u128> {
    let edges = |&(addr, len, _): &Entry<u128>| {
        let mask = u128::MAX.checked_shr(u32::from(len)).unwrap_or(0);
        let (first, last) = (addr & !mask, addr | mask);
        [addr, first, first.wrapping_sub(1), first.wrapping_add(1), last, last.wrapping_add(1)]
    };
    list.iter().flat_map(edges).chain([0, 1, u128::MAX]).collect()
}

/// Random numbers that are the same in every run (xorshift64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }
}

/// `count` addresses, a tenth of them crowded into one /12.
pub fn crowd4(count: usize, seed: u64) -> Vec<Entry<u32>> {
    let mut random = Random(seed);
    let addr = |word: u64| {
        if word.is_multiple_of(10) { 0x0a00_0000 | (word >> 32) as u32 & 0xf_ffff } else { (word >> 24) as u32 }
    };
    (0..count).map(|_| (addr(random.next()), 32, 1)).collect()
}

/// IPv6 prefixes of /64 and /128 only, close to each other, some that look like the marks of exact sets.
pub fn nets_and_hosts6(nets: usize, hosts: usize, seed: u64) -> Vec<Entry<u128>> {
    let mut random = Random(seed);
    let mut addr = |index: usize| {
        let high = match index % 50 {
            0 => u64::MAX - random.next() % 3,
            1 => random.next(),
            _ => 0x2001_0db8_0001_0000 | random.next() & 0xffff,
        };
        let low = match index % 40 {
            2 => u64::MAX,
            3 => 0,
            _ => random.next() % 4000,
        };
        u128::from(high) << 64 | u128::from(low)
    };
    let nets: Vec<_> = (0..nets).map(|index| (addr(index), 64, 1)).collect();
    nets.into_iter().chain((0..hosts).map(|index| (addr(index), 128, 1))).collect()
}

/// One image of several sets.
pub fn fused(lists: &[Vec<Entry<u32>>]) -> weir_tables::Image {
    let tables: Vec<_> = lists.iter().map(|list| table(Family::Ipv4, Kind::Set, list).settle()).collect();
    weir_tables::fused(&tables.iter().collect::<Vec<_>>()).unwrap()
}

/// One image of several sets of IPv6 networks and hosts.
pub fn fused6(lists: &[Vec<Entry<u128>>]) -> weir_tables::Image {
    let tables: Vec<_> = lists.iter().map(|list| table(Family::Ipv6, Kind::Set, list).settle()).collect();
    weir_tables::fused(&tables.iter().collect::<Vec<_>>()).unwrap()
}

/// Every second address of a /19: range blocks of 4096 ranges, whose count stands at the head.
pub fn comb4() -> Vec<Entry<u32>> {
    (0..4096).map(|index| (0x0a01_0000 + 2 * index, 32, 1 + index % 5)).collect()
}

/// Prefixes whose labels count up but for some, and so many that an image of counted leaves is smaller than one of rank
/// leaves. The first lie in 10.0.0.0/8 and are of all kinds; their number.
pub fn counting4() -> (Vec<Entry<u32>>, usize) {
    let (mut list, mut late) = (Vec::new(), Vec::new());
    for net in 0..240u32 {
        let first = 0x0a00_0000 + (net << 16);
        let mut add = |low: u32, len: u8| list.push((first + low, len, 0));
        match net % 6 {
            0 => (0..8 * net).for_each(|index| add(0x1000 + 2 * index, 32)),
            1 => (0..256).filter(|index| index % 3 > 0).for_each(|index| add(index << 8, 24)),
            2 => {
                [(0, 16)].into_iter().chain((0..net).map(|index| (index << 8, 24))).for_each(|(low, len)| add(low, len))
            }
            3 => (0..24 + net / 12).for_each(|index| add(0x4242 + index, 32)),
            4 => late.push((first + 0x8000, 20, 0)),
            _ => {}
        }
    }
    let special = list.len();
    let nets = (0..1 << 16)
        .filter(|net| net >> 8 != 10)
        .flat_map(|net| (0..4).map(move |part| (net << 16 | part << 14, 18, 0)));
    list.extend(nets.filter(|&(addr, ..)| addr >> 14 & 63 != 5));
    list.extend(late);
    list.iter_mut().zip(1..).for_each(|(entry, label)| entry.2 = label);
    (list, special)
}

/// A /48 with a thousand hosts (blocks whose count stands at the head) and a crowd of /48s that needs nodes.
pub fn crowd6() -> Vec<Entry<u128>> {
    let hosts = (0..1000u128).map(|index| ((0x2001_0db8_0001 << 80) + index * 3, 128, 1 + index as u32 % 5));
    let nets = (0..3000u128).map(|index| ((0x2a00_0000_0000 + index * 7) << 80, 48, 1 + index as u32 % 5));
    hosts.chain(nets).chain([(0x2000 << 112, 3, 2), (0, 0, 1)]).collect()
}

/// Changes an image as a broken or hostile bundle might: single bits, words of interest, the header, its end.
pub fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(3) {
        let word = match random.below(4) {
            0 => random.below(16),
            1 => bytes.len() / 4 - 1 - random.below(bytes.len() / 64),
            _ => random.below(bytes.len() / 4),
        };
        let value = match random.below(5) {
            0 => 0,
            1 => u32::MAX,
            2 => 1 << random.below(32),
            3 => random.next() as u32,
            _ => {
                let old = u32::from_le_bytes(bytes[4 * word..4 * word + 4].try_into().unwrap());
                old.wrapping_add(random.below(9) as u32).wrapping_sub(4)
            }
        };
        bytes[4 * word..4 * word + 4].copy_from_slice(&value.to_le_bytes());
    }
    if random.below(20) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    if bytes.len() < 64 {
        bytes.resize(64, 0);
    }
}
