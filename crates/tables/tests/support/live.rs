//! A plain model of a live table, and random changes to it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_abi::{Family, Layout};
use weir_tables::live::Change;
use weir_tables::{Entries, Kind, Table};

use super::Random;

/// Labels that models use: label `n` is called `L<n>`.
pub const LABELS: usize = 5;

/// The address and length of a prefix; IPv4 addresses are the highest 32 of the 128 bits.
pub type Net = (u128, u8);

/// What a table holds, by definition.
pub struct Model {
    pub layout: Layout,
    pub kind: Kind,
    pub family: Family,
    pub held: BTreeMap<Net, u32>,
}

impl Model {
    pub fn new(layout: Layout, kind: Kind) -> Self {
        let family = match layout {
            Layout::Range6 | Layout::RankLeaf6 | Layout::ExactSet6 | Layout::ExactSets6 | Layout::ExactLeaf6 => {
                Family::Ipv6
            }
            _ => Family::Ipv4,
        };
        Model { layout, kind, family, held: BTreeMap::new() }
    }

    /// A table of `count` random prefixes.
    pub fn random(layout: Layout, kind: Kind, count: usize, random: &mut Random) -> Self {
        let mut model = Model::new(layout, kind);
        for _ in 0..count {
            let net = model.net(random);
            model.set(net, 1 + random.below(LABELS) as u32);
        }
        model
    }

    /// Gives a prefix a label, 0 for none.
    pub fn set(&mut self, net: Net, label: u32) {
        match label {
            0 => self.held.remove(&net),
            _ => self.held.insert(net, label),
        };
    }

    /// The label of the longest prefix that holds the key: a set's is 1.
    pub fn find(&self, key: u128) -> u32 {
        let bits = self.family.bits();
        let found = (0..=bits).rev().find_map(|len| self.held.get(&(key & !host_mask(len), len)).copied());
        match self.kind {
            Kind::Set => u32::from(found.is_some()),
            Kind::Labels => found.unwrap_or(0),
        }
    }

    /// A random prefix that the layout can hold, in the few places where there are others.
    pub fn net(&self, random: &mut Random) -> Net {
        let bits = self.family.bits();
        let len = match self.layout {
            Layout::ExactSet | Layout::ExactSets => 32,
            Layout::ExactSet6 | Layout::ExactSets6 => [64, 128][random.below(2)],
            Layout::ExactLeaf6 if random.below(4) == 0 => 64,
            _ => match random.below(60) {
                0 => random.below(17) as u8,
                1..24 => 16 + random.below(usize::from(bits) - 15) as u8,
                24..42 => [24, 48][usize::from(bits == 128)],
                _ => bits,
            },
        };
        match self.layout {
            Layout::ExactSet | Layout::ExactSets | Layout::ExactLeaf if len == 32 && random.below(2) == 0 => {
                (crowded(random), len)
            }
            _ => (self.key(random) & !host_mask(len), len),
        }
    }

    /// A random key, in the same places.
    pub fn key(&self, random: &mut Random) -> u128 {
        let low = random.next() as u128;
        match (self.family, random.below(8)) {
            (Family::Ipv4, 0) => (low & 0xffff_ffff) << 96,
            (Family::Ipv4, 1) => (0xfffe_0000 | low & 0x1_ffff) << 96,
            (Family::Ipv4, 2..5) => (0x0a00_0000 | low & 0x3_ffff) << 96,
            (Family::Ipv4, _) => (0x0a01_0000 | low & 0x3ff) << 96,
            (Family::Ipv6, 0) => low << 64 | random.next() as u128,
            (Family::Ipv6, 1) => (u128::MAX << 66) | low & 3 << 64 | u128::from(u64::MAX - random.next() % 3),
            (Family::Ipv6, 2..4) => 0x2001_0db8 << 96 | (low & 0x3ff) << 76,
            (Family::Ipv6, 4..6) => 0x2001_0db8_0001 << 80 | (low & 0x3ff) << 64,
            (Family::Ipv6, _) => 0x2001_0db8_0001_0002 << 64 | low & 0x3ff,
        }
    }

    /// Keys at both ends of a prefix, inside and outside.
    pub fn edges(&self, (addr, len): Net) -> Vec<u128> {
        let one = 1u128 << (128 - u32::from(self.family.bits()));
        let last = addr | host_mask(len) & !(one - 1);
        [addr, addr.wrapping_sub(one), addr.wrapping_add(one), last, last.wrapping_add(one)]
            .map(|key| key & !(one - 1))
            .to_vec()
    }

    /// A random change: an insertion, another label, a removal of what is there or of what is not.
    pub fn wish(&self, random: &mut Random) -> (Net, u32) {
        let net = self.net(random);
        let held = || self.held.range(net..).next().map_or(net, |(&held, _)| held);
        match random.below(10) {
            0..5 => (net, 1 + random.below(LABELS) as u32),
            5..9 => (held(), 0),
            _ => (net, 0),
        }
    }

    /// Random changes, made to the model as well.
    pub fn change(&mut self, random: &mut Random, count: usize) -> Vec<(Net, u32)> {
        let mut change = |_| {
            let (net, label) = self.wish(random);
            self.set(net, label);
            (net, label)
        };
        (0..count).map(&mut change).collect()
    }

    /// A change as live tables take it.
    pub fn as_change<'a>(&self, (net, label): (Net, u32), names: &'a [String]) -> Change<'a> {
        let (addr, len) = (self.address(net.0), net.1);
        match label {
            0 => Change::remove(addr, len),
            _ => Change::insert(addr, len, Some(&names[label as usize])),
        }
    }

    /// The table of what is held.
    pub fn table(&self) -> Table {
        self.table_of(self.held.iter().map(|(&net, &label)| (net, label)))
    }

    /// A table of these prefixes.
    pub fn table_of(&self, prefixes: impl Iterator<Item = (Net, u32)>) -> Table {
        let mut entries = Entries::new(self.family, self.kind);
        for ((addr, len), label) in prefixes {
            entries.insert_prefix(self.address(addr), len, Some(&format!("L{label}"))).unwrap();
        }
        entries.settle()
    }

    pub fn address(&self, addr: u128) -> IpAddr {
        match self.family {
            Family::Ipv4 => Ipv4Addr::from((addr >> 96) as u32).into(),
            Family::Ipv6 => Ipv6Addr::from(addr).into(),
        }
    }
}

/// Names of labels by number.
pub fn names(count: usize) -> Vec<String> {
    (0..count).map(|label| format!("L{label}")).collect()
}

/// One of 600 addresses that share 50 of 2^16 buckets, as exact_set.rs has them: more than fit there.
fn crowded(random: &mut Random) -> u128 {
    let (high, bucket) = (1 + random.below(12) as u32, random.below(50) as u32);
    let low = bucket ^ high.wrapping_mul(0x9e37_79b1) >> 16;
    u128::from(high << 16 | low & 0xffff) << 96
}

fn host_mask(len: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
}
