//! Tables that rules change or that count, and the ticks in which additions take effect.
//!
//! Such a table is a map from prefixes to deadlines and counts. Additions of a tick are collected. At the end of the
//! tick, expired entries leave. Additions that overlap an entry of a protected table, as it is then, are refused. Then
//! the others are applied in the order of their first packets.

use super::{Protected, Tables};
use crate::checked::{AddKind, Dynamic};
use crate::ir::{Adder, AdderId, Program, SlotId};
use std::collections::{BTreeMap, HashMap, HashSet};
use weir_abi::EntryCounts;
use weir_abi::addition::{AdditionCounts, TICK_ADDITIONS_MAX, deadline, tick};
use weir_abi::entry::hit_time;

/// The tables of a program whose entries it follows.
pub(super) struct Additions {
    tables: HashMap<SlotId, FollowedTable>,
    /// The tick of the last packet; `None` before the first.
    now: Option<u64>,
    /// The additions of this tick, each once, in the order of their first packets.
    pending: Vec<(AdderId, u128)>,
    seen: HashSet<(AdderId, u128)>,
    counts: AdditionCounts,
}

struct FollowedTable {
    /// `None` if only its entries' counts change.
    bounds: Option<Dynamic>,
    /// Bits of an address.
    bits: u8,
    /// By length, then by prefix.
    entries: BTreeMap<u8, BTreeMap<u128, Entry>>,
    protected: Vec<Protected>,
}

struct Entry {
    label: u32,
    /// The first tick in which it is gone; `None`: it does not expire.
    deadline: Option<u64>,
    counts: EntryCounts,
}

/// The label of all entries of a set.
const SET_LABEL: u32 = 1;

impl Additions {
    pub(super) fn new(program: &Program, tables: &impl Tables) -> Self {
        // Without additions and timeouts, the caller's tables are constant.
        let changes = program.changes_tables();
        let table = |(id, slot): (SlotId, &crate::ir::Slot)| {
            let bounds = slot.dynamic.filter(|_| changes);
            if bounds.is_none() && slot.counted.is_none() {
                return None;
            }
            let mut entries: BTreeMap<u8, BTreeMap<u128, Entry>> = BTreeMap::new();
            for (prefix, length, label) in tables.entries(id)? {
                entries
                    .entry(length)
                    .or_default()
                    .insert(prefix, Entry { label, deadline: None, counts: EntryCounts::default() });
            }
            Some((id, FollowedTable { bounds, bits: slot.family.bits(), entries, protected: tables.protected(id) }))
        };
        Additions {
            tables: (0..).map(SlotId).zip(&program.slots).filter_map(table).collect(),
            now: None,
            pending: Vec::new(),
            seen: HashSet::new(),
            counts: AdditionCounts::default(),
        }
    }

    /// Advances to the tick of a packet. The clock never goes back. Entries that the policy lists get their timeout
    /// with the first packet.
    pub(super) fn advance(&mut self, program: &Program, time_ns: u64) {
        let next = tick(time_ns);
        let Some(now) = self.now else {
            self.now = Some(next);
            return self.tables.values_mut().for_each(|table| table.start(next));
        };
        if next <= now {
            return;
        }
        self.expire(now + 1);
        self.seen.clear();
        let pending = std::mem::take(&mut self.pending);
        let is_refused = |&(id, prefix): &(AdderId, u128)| self.is_protected(program.adder(id), prefix);
        let (refused, allowed): (Vec<_>, Vec<_>) = pending.into_iter().partition(is_refused);
        self.counts.protected += refused.len() as u64;
        for (id, prefix) in allowed {
            self.apply(program.adder(id), prefix, now + 1);
        }
        self.expire(next);
        self.now = Some(next);
    }

    /// Adds an address of a packet in this tick.
    pub(super) fn add(&mut self, program: &Program, id: AdderId, address: u128) {
        let addition = (id, address & program.adder(id).mask());
        if self.seen.contains(&addition) {
            return;
        }
        if self.seen.len() == TICK_ADDITIONS_MAX {
            self.counts.overflow += 1;
            return;
        }
        self.seen.insert(addition);
        self.pending.push(addition);
    }

    /// The result of a lookup; `None` if the table is not followed.
    pub(super) fn find(&self, slot: SlotId, key: u128) -> Option<u32> {
        self.tables.get(&slot).map(|table| table.longest(key).map_or(0, |(_, entry)| entry.label))
    }

    /// The entry of a slot with counters that a lookup finds.
    pub(super) fn found_entry(&self, slot: SlotId, key: u128) -> Option<FoundEntry> {
        let (length, _) = self.tables.get(&slot)?.longest(key)?;
        Some(FoundEntry { slot, length, key })
    }

    /// Counts a packet at an entry.
    pub(super) fn count(&mut self, FoundEntry { slot, length, key }: FoundEntry, bytes: u32, time_ns: u64) {
        let table = self.tables.get_mut(&slot).expect("the entry was found in it");
        let prefix = key & !table.host_bits(length);
        let entry = table.entries.get_mut(&length).and_then(|entries| entries.get_mut(&prefix));
        let counts = &mut entry.expect("entries stay for the packet").counts;
        counts.packets += 1;
        counts.bytes += u64::from(bytes);
        counts.last = hit_time(time_ns);
    }

    /// Calls `visit` with each entry of a slot that was hit: prefix, length and counts.
    pub(super) fn entry_counts(&self, slot: SlotId, visit: &mut dyn FnMut(u128, u8, EntryCounts)) {
        let Some(table) = self.tables.get(&slot) else { return };
        for (&length, entries) in &table.entries {
            for (&prefix, entry) in entries.iter().filter(|(_, entry)| entry.counts.packets > 0) {
                visit(prefix, length, entry.counts);
            }
        }
    }

    pub(super) fn counts(&self) -> AdditionCounts {
        self.counts
    }

    fn expire(&mut self, tick: u64) {
        for entries in self.tables.values_mut().flat_map(|table| table.entries.values_mut()) {
            entries.retain(|_, entry| entry.deadline.is_none_or(|deadline| deadline > tick));
        }
    }

    /// Whether an addition overlaps an entry of a table that its own must not have.
    fn is_protected(&self, adder: &Adder, prefix: u128) -> bool {
        let table = &self.tables[&adder.slot];
        let overlaps = |other: u128, length: u8| {
            let host_bits = table.host_bits(adder.length.min(length));
            prefix & !host_bits == other & !host_bits
        };
        table.protected.iter().any(|protected| match protected {
            Protected::Prefixes(prefixes) => prefixes.iter().any(|&(other, length)| overlaps(other, length)),
            Protected::Slot(slot) => self.tables.get(slot).is_some_and(|other| {
                let mut entries =
                    other.entries.iter().flat_map(|(&length, of)| of.keys().map(move |&key| (key, length)));
                entries.any(|(other, length)| overlaps(other, length))
            }),
        })
    }

    /// Applies an addition whose timeout begins with the tick `from`.
    fn apply(&mut self, adder: &Adder, prefix: u128, from: u64) {
        let table = self.tables.get_mut(&adder.slot).expect("an adder has a dynamic table");
        let bounds = table.bounds.expect("an adder has a dynamic table");
        let ends = adder.timeout_ms.or(bounds.timeout_ms).map(|timeout_ms| deadline(from, timeout_ms));
        let count: usize = table.entries.values().map(BTreeMap::len).sum();
        let entries = table.entries.entry(adder.length).or_default();
        match entries.get_mut(&prefix) {
            Some(entry) => {
                if adder.kind == AddKind::Update && entry.deadline != ends {
                    entry.deadline = ends;
                    self.counts.updated += 1;
                }
            }
            None if count >= bounds.size as usize => self.counts.table_full += 1,
            None => {
                entries.insert(prefix, Entry { label: SET_LABEL, deadline: ends, counts: EntryCounts::default() });
                self.counts.added += 1;
            }
        }
    }
}

/// An entry that a lookup has found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundEntry {
    slot: SlotId,
    length: u8,
    key: u128,
}

impl FollowedTable {
    /// Starts the timeouts of the entries that the policy lists.
    fn start(&mut self, tick: u64) {
        let ends = self.bounds.and_then(|bounds| bounds.timeout_ms).map(|timeout_ms| deadline(tick, timeout_ms));
        self.entries.values_mut().flat_map(BTreeMap::values_mut).for_each(|entry| entry.deadline = ends);
    }

    /// The longest prefix that contains the key, as its length and entry.
    fn longest(&self, key: u128) -> Option<(u8, &Entry)> {
        let longest_first = self.entries.iter().rev();
        let mut found = longest_first
            .filter_map(|(&length, entries)| Some((length, entries.get(&(key & !self.host_bits(length)))?)));
        found.next()
    }

    /// The bits of an address after the first `length`.
    fn host_bits(&self, length: u8) -> u128 {
        u128::MAX.checked_shr(u32::from(128 - self.bits + length)).unwrap_or(0)
    }
}
