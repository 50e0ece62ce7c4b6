//! The debts of buckets by name, for the disk. Tables of addresses (`limit each`) are not among them: their words
//! depend on the hash seed of the process.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_abi::limit::{ROOM_MAX, TICK_SHIFT, ticks};

use super::buckets::Buckets;
use super::debt_by_name::{EntryName, SavedDebt, SavedDebts};
use super::entry_names::EntryNames;
use super::limit_store::{AssignedBuckets, BucketsDeclared, LimitBinding, LimitStore, WordFormat};
use crate::StateError;
use crate::store::Declared;

/// Limit on the debts that are saved. Others are full after a restart.
pub const DEBTS_MAX: usize = 1 << 21;

impl LimitStore {
    /// Assigns buckets to the limiters of a generation. New buckets are full at `now_ns`, except for the buckets of a
    /// declaration with saved debts. The first generation with its name takes these debts.
    ///
    /// # Errors
    /// Not enough buckets are left. Nothing is assigned then.
    pub fn bind(&self, declared: Vec<Declared<BucketsDeclared>>, now_ns: u64) -> Result<Arc<LimitBinding>, StateError> {
        let binding = self.assign(declared, now_ns)?;
        let mut saved = self.saved();
        for (name, assigned) in binding.named() {
            if let Some(debts) = saved.remove(name) {
                restore(assigned, debts, self.buckets(), now_ns);
            }
        }
        Ok(binding)
    }

    /// Keeps debts for the first generations that declare their buckets.
    pub fn keep_debts(&self, debts: Vec<SavedDebts>) {
        self.saved().extend(debts.into_iter().map(|debts| (debts.name.clone(), debts)));
    }

    /// The debts of all loaded generations at `now_ns`, and the debts that no generation has declared yet. Takes
    /// milliseconds with a million buckets. Packets charge them meanwhile.
    pub fn debts(&self, now_ns: u64) -> Vec<SavedDebts> {
        let mut all = debts(self.loaded().iter().map(|binding| &**binding), self.buckets(), now_ns);
        let undeclared: Vec<SavedDebts> = self.saved().values().cloned().collect();
        all.extend(undeclared.into_iter().filter(|saved| saved.debts.iter().any(|debt| debt.until_ns > now_ns)));
        all
    }
}

/// The debts of generations at `now_ns`. Of declarations with the same name, the first counts.
pub(super) fn debts<'a>(
    loaded: impl Iterator<Item = &'a LimitBinding>,
    buckets: &Buckets,
    now_ns: u64,
) -> Vec<SavedDebts> {
    let (mut seen, mut all, mut room) = (HashSet::new(), Vec::new(), DEBTS_MAX);
    for (name, assigned) in loaded.flat_map(LimitBinding::named) {
        if assigned.format() != WordFormat::Buckets || !seen.insert(name) {
            continue;
        }
        let mut debts = Vec::new();
        for (entry, slot, limiter) in in_debt(assigned, buckets, now_ns).take(room) {
            let debt = buckets.word(slot).wrapping_sub(ticks(now_ns));
            debts
                .push((entry, SavedDebt { entry: EntryName::First, limiter, until_ns: now_ns + (debt >> TICK_SHIFT) }));
        }
        room -= debts.len();
        if !debts.is_empty() {
            all.push(SavedDebts { name: name.to_owned(), debts: with_names(debts, assigned.names()) });
        }
    }
    all
}

/// The buckets in debt: index of the entry, slot, limiter. Sorted by entry.
fn in_debt(assigned: &AssignedBuckets, buckets: &Buckets, now_ns: u64) -> impl Iterator<Item = (usize, u32, u32)> {
    let now = ticks(now_ns);
    let is_in_debt = move |slot: u32| (1..=ROOM_MAX).contains(&buckets.word(slot).wrapping_sub(now));
    let entries = assigned.slots().iter().enumerate();
    let all = entries.flat_map(|(entry, &first)| (0..assigned.width()).map(move |at| (entry, first + at, at)));
    all.filter(move |&(_, slot, _)| is_in_debt(slot))
}

/// Gives debts, sorted by the index of their entry, the names of the entries.
fn with_names(debts: Vec<(usize, SavedDebt)>, names: &EntryNames) -> Vec<SavedDebt> {
    let by_entry: HashMap<usize, EntryName> = match names {
        EntryNames::One => HashMap::new(),
        EntryNames::Prefixes(table, family) => {
            let wanted: HashSet<usize> = debts.iter().map(|&(entry, _)| entry).collect();
            let all = table.prefixes(*family).map(|(label, addr, len)| (label as usize, EntryName::Prefix(addr, len)));
            all.filter(|(entry, _)| wanted.contains(entry)).collect()
        }
        EntryNames::Labels(labels) => {
            labels.iter().enumerate().map(|(index, label)| (1 + index, EntryName::Label(label.clone()))).collect()
        }
    };
    let named = |(entry, debt): (usize, SavedDebt)| match by_entry.get(&entry) {
        Some(name) => SavedDebt { entry: name.clone(), ..debt },
        None => debt,
    };
    debts.into_iter().map(named).collect()
}

/// Puts buckets of a declaration into debt again. Packets charge them only if they were handed over; such buckets have
/// more debt than was saved.
pub(super) fn restore(assigned: &AssignedBuckets, saved: SavedDebts, buckets: &Buckets, now_ns: u64) {
    if assigned.format() != WordFormat::Buckets {
        return;
    }
    let mut by_entry: HashMap<EntryName, Vec<(u32, u64)>> = HashMap::new();
    for SavedDebt { entry, limiter, until_ns } in saved.debts {
        by_entry.entry(entry).or_default().push((limiter, until_ns));
    }
    let mut charge = |index: usize, name: EntryName| {
        for (limiter, until_ns) in by_entry.remove(&name).unwrap_or_default() {
            let debt_ns = until_ns.saturating_sub(now_ns).min(ROOM_MAX >> TICK_SHIFT);
            if limiter >= assigned.width() || debt_ns == 0 {
                continue;
            }
            let (slot, debt) = (assigned.slots()[index] + limiter, debt_ns << TICK_SHIFT);
            let present = buckets.word(slot).wrapping_sub(ticks(now_ns));
            if !(debt..=ROOM_MAX).contains(&present) {
                buckets.set(slot, ticks(now_ns).wrapping_add(debt));
            }
        }
    };
    charge(0, EntryName::First);
    match assigned.names() {
        EntryNames::One => {}
        EntryNames::Prefixes(table, family) => {
            table.prefixes(*family).for_each(|(label, addr, len)| charge(label as usize, EntryName::Prefix(addr, len)));
        }
        EntryNames::Labels(labels) => {
            labels.iter().enumerate().for_each(|(index, label)| charge(1 + index, EntryName::Label(label.clone())));
        }
    }
}
