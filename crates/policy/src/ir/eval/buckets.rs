//! The buckets of a program's limiters, and the clock that they go by.

use super::Tables;
use crate::ir::{LimiterId, LimiterKind, Program};
use std::sync::Arc;
use weir_abi::LimitEntries;
use weir_abi::limit::{charge, ticks};

/// The buckets of all limiters.
pub(super) struct Buckets {
    limiters: Vec<Limiter>,
    /// Time of the last packet, ns; `None` before the first.
    clock_ns: Option<u64>,
}

struct Limiter {
    entries: Arc<LimitEntries>,
    /// One a label, as the entries.
    words: Vec<u64>,
}

impl Buckets {
    pub(super) fn new(program: &Program, tables: &impl Tables) -> Self {
        let entries = |(id, limiter): (u16, &crate::ir::Limiter)| match limiter.kind {
            LimiterKind::Rate(limit) => Arc::new(LimitEntries::single(limit.profile())),
            LimiterKind::Prefixes { .. } | LimiterKind::Labels => tables.limits(LimiterId(id)),
        };
        let limiters = (0..).zip(&program.limiters).map(entries).map(|entries| {
            let words = vec![0; entries.entries.len()];
            Limiter { entries, words }
        });
        Buckets { limiters: limiters.collect(), clock_ns: None }
    }

    /// Sets the clock, which never goes back. At the first packet all buckets are full.
    pub(super) fn tick(&mut self, time_ns: u64) {
        if self.clock_ns.is_none() {
            let full = ticks(time_ns);
            self.limiters.iter_mut().for_each(|limiter| limiter.words.fill(full));
        }
        self.clock_ns = self.clock_ns.max(Some(time_ns));
    }

    /// Charges a packet to the bucket of a label and, if limits are nested, to those around it: to all of them, or to none. Whether
    /// there was room.
    pub(super) fn has_room(&mut self, limiter: LimiterId, label: u32, bytes: u32) -> bool {
        let now = ticks(self.clock_ns.expect("the clock is set before a packet is judged"));
        let Limiter { entries, words } = &mut self.limiters[usize::from(limiter.0)];
        let mut charged = Vec::new();
        let mut bucket = label as usize;
        loop {
            let entry = entries.entries[bucket];
            let profile = entries.profiles[entry.profile as usize];
            match charge(words[bucket], now, profile.cost(bytes), profile.room) {
                Some(word) => charged.push((bucket, word)),
                None => return false,
            }
            if entry.parent == 0 {
                break;
            }
            bucket = entry.parent as usize;
        }
        charged.into_iter().for_each(|(bucket, word)| words[bucket] = word);
        true
    }
}
