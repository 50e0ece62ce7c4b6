//! Changes by whole tables: insertion, removal and replacement of many prefixes at once.

use std::iter;

use weir_abi::Layout;

use super::rib::{Net, Rib};
use super::{LiveError, LiveTable, Step, is_in};
use crate::entries::{Kind, Table};
use crate::image::BuildError;
use crate::merge::merge;

/// Steps that were merged with the contents of a table.
enum Merged {
    /// Few steps.
    Steps(Vec<Step>),
    /// The contents after many steps, and their number.
    Contents(Box<Rib>, usize),
}

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
            Layout::ExactSet | Layout::ExactSets | Layout::ExactSet6 | Layout::ExactSets6 => {
                nets(table).try_for_each(|(net, _)| Ok(self.suits(net)?))
            }
            _ => Ok(()),
        }
    }

    /// Inserts all entries of `table` into set `set`. Entries that are there get the new label. Returns how many
    /// prefixes changed.
    ///
    /// # Errors
    /// As for [`LiveTable::check`] and [`LiveTable::change`].
    pub fn insert_all(&mut self, set: usize, table: &Table) -> Result<usize, LiveError> {
        self.check(set, table)?;
        let ids = self.ids(table)?;
        let (sets, rib) = (self.sets, &self.rib);
        let step = |(net, label)| {
            let old = rib.get(net);
            Step { net, old, new: with(sets, set, old, label) }
        };
        let steps = entries(table, &ids).map(step).collect();
        self.make_steps(steps)
    }

    /// Number of entries of `table` that set `set` does not have, whatever their labels.
    pub fn count_new(&self, set: usize, table: &Table) -> usize {
        nets(table).filter(|&(net, _)| !is_in(self.sets, set, self.rib.get(net))).count()
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
        let (sets, rib) = (self.sets, &self.rib);
        let step = |net, old| Step { net, old, new: with(sets, set, old, 0) };
        if self.numbers.is_none() && self.is_batch(table.facts().entries) {
            let both =
                |(net, old, gone): (Net, Option<u32>, Option<u32>)| Some(step(net, old.filter(|_| gone.is_some())?));
            let merged = self.merged(|| merge(rib.iter(), nets(table)).filter_map(both))?;
            return self.apply_merged(merged);
        }
        let steps = nets(table).map(|(net, _)| step(net, rib.get(net))).collect();
        self.make_steps(steps)
    }

    /// Replaces the contents of set `set` by the contents of `table`. Returns how many prefixes changed.
    ///
    /// # Errors
    /// As for [`LiveTable::check`] and [`LiveTable::change`].
    pub fn replace(&mut self, set: usize, table: &Table) -> Result<usize, LiveError> {
        self.check(set, table)?;
        let ids = self.ids(table)?;
        self.replace_by(set, || entries(table, &ids))
    }

    /// Removes all entries of set `set`. Returns how many there were.
    ///
    /// # Errors
    /// There is no such set, or readers are behind ([`LiveTable::change`]).
    pub fn remove_set(&mut self, set: usize) -> Result<usize, LiveError> {
        if set >= self.sets {
            return Err(LiveError::NoSuchSet { set, sets: self.sets });
        }
        self.replace_by(set, iter::empty)
    }

    /// Replaces the contents of a set by entries in order.
    fn replace_by<I: Iterator<Item = (Net, u32)>>(
        &mut self,
        set: usize,
        entries: impl Fn() -> I,
    ) -> Result<usize, LiveError> {
        let (sets, rib) = (self.sets, &self.rib);
        if self.numbers.is_some() {
            let steps = differences(rib.iter(), entries(), sets, set).collect();
            return self.make_steps(steps);
        }
        let merged = self.merged(|| differences(rib.iter(), entries(), sets, set))?;
        self.apply_merged(merged)
    }

    /// What steps in order come to. A step takes 48 bytes, so they are only counted if there are many.
    fn merged<I: Iterator<Item = Step>>(&self, steps: impl Fn() -> I) -> Result<Merged, LiveError> {
        let steps = || steps().filter(Step::changes);
        let (mut count, mut more, mut fewer) = (0, 0, 0);
        steps().for_each(|step| {
            count += 1;
            more += usize::from(step.old == 0);
            fewer += usize::from(step.new == 0);
        });
        if !self.is_batch(count) {
            return Ok(Merged::Steps(steps().collect()));
        }
        self.check_size(more, fewer)?;
        let contents = self.rib.changed(steps().map(|step| (step.net, step.new)));
        Ok(Merged::Contents(Box::new(contents), count))
    }

    /// Makes merged steps. Returns their number.
    fn apply_merged(&mut self, merged: Merged) -> Result<usize, LiveError> {
        match merged {
            Merged::Steps(steps) => self.apply(steps),
            Merged::Contents(contents, count) => self.rebuild_with(*contents).map(|()| count),
        }
    }

    /// The ids of the labels of a table.
    fn ids(&mut self, table: &Table) -> Result<Vec<u32>, LiveError> {
        table.labels().iter().map(|name| Ok(self.intern(name)?)).collect()
    }
}

/// A label, or mask of fused sets, after set `set` got a prefix with label `label`; 0 removes it from the set.
fn with(sets: usize, set: usize, old: u32, label: u32) -> u32 {
    match (sets, label) {
        (1, label) => label,
        (_, 0) => old & !(1 << set),
        (_, _) => old | 1 << set,
    }
}

/// The steps that make the contents of set `set` equal to `entries`. Both are in order.
fn differences(
    rib: impl Iterator<Item = (Net, u32)>,
    entries: impl Iterator<Item = (Net, u32)>,
    sets: usize,
    set: usize,
) -> impl Iterator<Item = Step> {
    merge(rib, entries).map(move |(net, old, entry)| {
        let old = old.unwrap_or(0);
        Step { net, old, new: with(sets, set, old, entry.unwrap_or(0)) }
    })
}

/// The entries of a table with the ids of their labels, in order.
fn entries<'t>(table: &'t Table, ids: &'t [u32]) -> impl Iterator<Item = (Net, u32)> + 't {
    let id = move |label: u32| match table.kind() {
        Kind::Labels => ids[label as usize - 1],
        Kind::Set => label,
    };
    nets(table).map(move |(net, label)| (net, id(label)))
}

/// The prefixes of a table with their labels, in order.
pub(super) fn nets(table: &Table) -> impl Iterator<Item = (Net, u32)> {
    let nets4 = table.prefixes4().iter().map(|prefix| (Net::of4(prefix.addr, prefix.len), prefix.label));
    let nets6 = table.prefixes6().iter().map(|prefix| (Net::new(prefix.addr, prefix.len), prefix.label));
    nets4.chain(nets6)
}
