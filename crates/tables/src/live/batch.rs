//! Changes by whole tables: insertion, removal and replacement of many prefixes at once.

use std::collections::BTreeMap;

use weir_abi::Layout;

use super::held::Net;
use super::{LiveError, LiveTable, is_in};
use crate::entries::{Kind, Table};
use crate::image::BuildError;

impl LiveTable {
    /// Runs changes that take effect at once: no burst sees a part of one. A change of several prefixes rebuilds the
    /// image beside the published one, also where it could be made in place.
    pub fn at_once<R>(&mut self, changes: impl FnOnce(&mut Self) -> R) -> R {
        self.at_once = true;
        let result = changes(self);
        self.at_once = false;
        result
    }

    /// Checks that the entries of `table` fit set `set`. A table without fused sets has one set, 0.
    ///
    /// # Errors
    /// There is no such set, the entries are of the other family or kind, or the layout cannot hold one of them.
    pub fn check(&self, set: usize, table: &Table) -> Result<(), LiveError> {
        if table.family() != self.family() {
            return Err(BuildError::Family { layout: self.layout, family: table.family() }.into());
        }
        if table.kind() != self.kind {
            return Err(BuildError::Labelled { layout: self.layout }.into());
        }
        if set >= self.sets {
            return Err(LiveError::NoSuchSet { set, sets: self.sets });
        }
        match self.layout {
            Layout::ExactSet | Layout::ExactSets | Layout::ExactSet6 => {
                nets(table).try_for_each(|(net, _)| Ok(self.suits(net)?))
            }
            _ => Ok(()),
        }
    }

    /// Inserts all entries of `table` into set `set`. Entries that are there get the new label. Returns how many
    /// prefixes changed.
    ///
    /// # Errors
    /// The same as [`LiveTable::check`] and [`LiveTable::change`].
    pub fn insert_all(&mut self, set: usize, table: &Table) -> Result<usize, LiveError> {
        self.check(set, table)?;
        let wanted = self.with_entries(BTreeMap::new(), set, table)?;
        self.apply(wanted)
    }

    /// Number of entries of `table` that set `set` does not have, whatever their labels.
    pub fn count_new(&self, set: usize, table: &Table) -> usize {
        nets(table).filter(|&(net, _)| !is_in(self.sets, set, self.held.get(net))).count()
    }

    /// Removes all prefixes of `table` from set `set`, whatever their labels. Returns how many were there.
    ///
    /// # Errors
    /// The entries are of the other family, there is no such set, or readers are behind ([`LiveTable::change`]).
    pub fn remove_all(&mut self, set: usize, table: &Table) -> Result<usize, LiveError> {
        if table.family() != self.family() {
            return Err(BuildError::Family { layout: self.layout, family: table.family() }.into());
        }
        if set >= self.sets {
            return Err(LiveError::NoSuchSet { set, sets: self.sets });
        }
        let without = |net: Net| (net, self.without(set, self.held.get(net)));
        let wanted = nets(table).map(|(net, _)| without(net)).collect();
        self.apply(wanted)
    }

    /// Replaces the contents of set `set` by those of `table`. Returns how many prefixes changed.
    ///
    /// # Errors
    /// The same as [`LiveTable::check`] and [`LiveTable::change`].
    pub fn replace(&mut self, set: usize, table: &Table) -> Result<usize, LiveError> {
        self.check(set, table)?;
        let removed = self.held.iter().map(|(net, label)| (net, self.without(set, label))).collect();
        let wanted = self.with_entries(removed, set, table)?;
        self.apply(wanted)
    }

    /// Removes all entries of set `set`. Returns how many there were.
    ///
    /// # Errors
    /// There is no such set, or readers are behind ([`LiveTable::change`]).
    pub fn remove_set(&mut self, set: usize) -> Result<usize, LiveError> {
        if set >= self.sets {
            return Err(LiveError::NoSuchSet { set, sets: self.sets });
        }
        let removed = self.held.iter().map(|(net, label)| (net, self.without(set, label))).collect();
        self.apply(removed)
    }

    /// A label, or mask of fused sets, without set `set`.
    fn without(&self, set: usize, label: u32) -> u32 {
        if self.sets == 1 { 0 } else { label & !(1 << set) }
    }

    /// Adds the entries of `table` in set `set` to the wanted labels. Prefixes that are not in `wanted` keep the other
    /// sets that they are in.
    fn with_entries(
        &mut self,
        mut wanted: BTreeMap<Net, u32>,
        set: usize,
        table: &Table,
    ) -> Result<BTreeMap<Net, u32>, LiveError> {
        let ids = table.labels().iter().map(|name| self.intern(name)).collect::<Result<Vec<u32>, _>>()?;
        for (net, label) in nets(table) {
            let now = wanted.entry(net).or_insert_with(|| self.held.get(net));
            *now = match (self.sets, self.kind) {
                (1, Kind::Labels) => ids[label as usize - 1],
                (1, Kind::Set) => label,
                _ => *now | 1 << set,
            };
        }
        Ok(wanted)
    }
}

/// The prefixes of a table with their labels.
fn nets(table: &Table) -> impl Iterator<Item = (Net, u32)> {
    let nets4 = table.prefixes4().iter().map(|prefix| (Net::of4(prefix.addr, prefix.len), prefix.label));
    let nets6 = table.prefixes6().iter().map(|prefix| (Net::new(prefix.addr, prefix.len), prefix.label));
    nets4.chain(nets6)
}
