//! The entries of a live table, one by one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_abi::Family;

use super::batch::nets;
use super::rib::Net;
use super::{LiveTable, is_in};
use crate::difference::Overlap;
use crate::entries::{Kind, Prefixes, Table};
use crate::prefix::Prefix;

/// An entry: a prefix, with its label unless the table is a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveEntry<'a> {
    /// The lowest address.
    pub addr: IpAddr,
    /// Length of the prefix in bits.
    pub len: u8,
    /// The label; `None` in a set.
    pub label: Option<&'a str>,
    /// Its number in a table with counters, else 0.
    pub number: u32,
}

impl fmt::Display for LiveEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_host = self.len == if self.addr.is_ipv4() { Family::Ipv4.bits() } else { Family::Ipv6.bits() };
        if is_host { write!(f, "{}", self.addr) } else { write!(f, "{}/{}", self.addr, self.len) }
    }
}

impl LiveTable {
    /// The entries of set `set` in the order of their addresses, shorter prefixes first. A table that is not fused has
    /// one set, 0.
    pub fn entries(&self, set: usize) -> impl Iterator<Item = LiveEntry<'_>> {
        self.rib
            .iter()
            .filter(move |&(_, label)| is_in(self.sets, set, label))
            .map(|(net, label)| self.entry(net, label))
    }

    /// Whether a prefix of the table's family has an address in common with an entry of set `set`.
    pub fn overlaps_prefix(&self, set: usize, addr: IpAddr, len: u8) -> bool {
        let net = match addr {
            IpAddr::V4(addr) => Net::of4(addr.into(), len),
            IpAddr::V6(addr) => Net::new(addr.into(), len),
        };
        // Fused sets have only addresses.
        let around = if self.sets == 1 { self.rib.cover(net) } else { self.rib.get(net) };
        is_in(self.sets, set, around) || self.rib.under(net).any(|(_, label)| is_in(self.sets, set, label))
    }

    /// Whether an entry had this label since the table was made.
    pub fn has_label(&self, label: &str) -> bool {
        self.labels.id(label).is_some()
    }

    /// The contents of set `set` as a table with the same label ids.
    pub fn contents(&self, set: usize) -> Table {
        let all = self.rib.iter().filter(|&(_, label)| is_in(self.sets, set, label));
        let label = |value: u32| match self.sets {
            1 => self.label_of(value),
            _ => 1,
        };
        let prefixes = match self.family() {
            Family::Ipv4 => Prefixes::V4(
                all.map(|(net, value)| Prefix { addr: net.addr4(), len: net.len, label: label(value) }).collect(),
            ),
            Family::Ipv6 => Prefixes::V6(
                all.map(|(net, value)| Prefix { addr: net.first, len: net.len, label: label(value) }).collect(),
            ),
        };
        Table::settled(self.kind, prefixes, self.labels.names().to_vec())
    }

    /// Whether the prefix of `len` bits at `addr` is an entry of set `set`, whatever its label.
    pub fn holds(&self, set: usize, addr: IpAddr, len: u8) -> bool {
        let net = match (addr, self.family()) {
            (IpAddr::V4(addr), Family::Ipv4) => Net::of4(addr.into(), len),
            (IpAddr::V6(addr), Family::Ipv6) => Net::new(addr.into(), len),
            _ => return false,
        };
        is_in(self.sets, set, self.rib.get(net))
    }

    /// Number of entries of set `set`.
    pub fn count(&self, set: usize) -> usize {
        self.lengths[set]
    }

    /// The longest prefix of set `set` that contains an address.
    pub fn longest(&self, set: usize, addr: IpAddr) -> Option<LiveEntry<'_>> {
        let net = match (addr, self.family()) {
            (IpAddr::V4(addr), Family::Ipv4) => Net::of4(addr.into(), Family::Ipv4.bits()),
            (IpAddr::V6(addr), Family::Ipv6) => Net::new(addr.into(), Family::Ipv6.bits()),
            _ => return None,
        };
        let prefixes = (0..=net.len).rev().map(|len| Net::new(net.first, len));
        let mut found = prefixes.map(|net| (net, self.rib.get(net)));
        found.find(|&(_, label)| is_in(self.sets, set, label)).map(|(net, label)| self.entry(net, label))
    }

    /// Where the prefixes of `table` overlap the prefixes of set `set`. It costs a few lookups for each prefix of
    /// `table`.
    pub fn overlap(&self, set: usize, table: &Table) -> Option<Overlap> {
        if table.family() != self.family() {
            return None;
        }
        let is_in = |&(_, label): &(Net, u32)| is_in(self.sets, set, label);
        let overlaps = |net: Net| {
            let around = (0..=net.len).map(|len| Net::new(net.first, len)).map(|net| (net, self.rib.get(net)));
            around.chain(self.rib.under(net)).find(is_in).map(|(other, label)| (net, self.entry(other, label)))
        };
        let mut overlapping = nets(table).filter_map(|(net, _)| overlaps(net));
        let (net, other) = overlapping.next()?;
        let (entry, other) = (self.entry(net, 0).to_string(), other.to_string());
        Some(Overlap { entry, other, count: 1 + overlapping.count() })
    }

    fn entry(&self, net: Net, value: u32) -> LiveEntry<'_> {
        let addr = match self.family() {
            Family::Ipv4 => Ipv4Addr::from(net.addr4()).into(),
            Family::Ipv6 => Ipv6Addr::from(net.first).into(),
        };
        let label = match self.kind {
            Kind::Set => None,
            Kind::Labels => self.labels.name(self.label_of(value)),
        };
        LiveEntry { addr, len: net.len, label, number: if self.numbers.is_some() { value } else { 0 } }
    }
}
