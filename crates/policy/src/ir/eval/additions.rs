//! Tables that rules add to, and the ticks in which additions take effect.
//!
//! A dynamic table is a map from prefixes to deadlines. Additions of a tick are collected. At the end of the tick,
//! expired entries leave. Additions that overlap an entry of a protected table, as it is then, are refused. Then the
//! others are applied in the order of their first packets.

use super::{Protected, Tables};
use crate::checked::{AddKind, Dynamic};
use crate::ir::{Adder, AdderId, Program, SlotId};
use std::collections::{BTreeMap, HashMap, HashSet};
use weir_abi::addition::{AdditionCounts, TICK_ADDITIONS_MAX, deadline, tick};

/// The dynamic tables of a program.
pub(super) struct Additions {
    tables: HashMap<SlotId, DynamicTable>,
    /// The tick of the last packet; `None` before the first.
    now: Option<u64>,
    /// The additions of this tick, each once, in the order of their first packets.
    pending: Vec<(AdderId, u128)>,
    seen: HashSet<(AdderId, u128)>,
    counts: AdditionCounts,
}

struct DynamicTable {
    bounds: Dynamic,
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
}

/// The label of all entries of a set.
const SET_LABEL: u32 = 1;

impl Additions {
    pub(super) fn new(program: &Program, tables: &impl Tables) -> Self {
        // Without additions and timeouts, the caller's tables are constant.
        let dynamic = (0..).map(SlotId).zip(&program.slots).filter(|_| program.changes_tables());
        let table = |(id, slot): (SlotId, &crate::ir::Slot)| {
            let bounds = slot.dynamic?;
            let mut entries: BTreeMap<u8, BTreeMap<u128, Entry>> = BTreeMap::new();
            for (prefix, length, label) in tables.entries(id)? {
                entries.entry(length).or_default().insert(prefix, Entry { label, deadline: None });
            }
            Some((id, DynamicTable { bounds, bits: slot.family.bits(), entries, protected: tables.protected(id) }))
        };
        Additions {
            tables: dynamic.filter_map(table).collect(),
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

    /// The result of a lookup; `None` if the table does not change.
    pub(super) fn find(&self, slot: SlotId, key: u128) -> Option<u32> {
        self.tables.get(&slot).map(|table| table.find(key))
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
        let ends = adder.timeout_ms.or(table.bounds.timeout_ms).map(|timeout_ms| deadline(from, timeout_ms));
        let count: usize = table.entries.values().map(BTreeMap::len).sum();
        let entries = table.entries.entry(adder.length).or_default();
        match entries.get_mut(&prefix) {
            Some(entry) => {
                if adder.kind == AddKind::Update && entry.deadline != ends {
                    entry.deadline = ends;
                    self.counts.updated += 1;
                }
            }
            None if count >= table.bounds.size as usize => self.counts.table_full += 1,
            None => {
                entries.insert(prefix, Entry { label: SET_LABEL, deadline: ends });
                self.counts.added += 1;
            }
        }
    }
}

impl DynamicTable {
    /// Starts the timeouts of the entries that the policy lists.
    fn start(&mut self, tick: u64) {
        let ends = self.bounds.timeout_ms.map(|timeout_ms| deadline(tick, timeout_ms));
        self.entries.values_mut().flat_map(BTreeMap::values_mut).for_each(|entry| entry.deadline = ends);
    }

    /// The label of the longest prefix that contains the key, or 0.
    fn find(&self, key: u128) -> u32 {
        let longest_first = self.entries.iter().rev();
        let mut found = longest_first.filter_map(|(&length, entries)| entries.get(&(key & !self.host_bits(length))));
        found.next().map_or(0, |entry| entry.label)
    }

    /// The bits of an address after the first `length`.
    fn host_bits(&self, length: u8) -> u128 {
        u128::MAX.checked_shr(u32::from(128 - self.bits + length)).unwrap_or(0)
    }
}
