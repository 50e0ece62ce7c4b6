//! The buckets of a program's limiters, and the clock that they go by.

use super::Tables;
use crate::ir::{LimiterId, LimiterKind, Log, Program};
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
    log: Log,
    /// One a label.
    counts: Vec<Charged>,
}

/// What was counted for a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Packets that it had no room for.
    pub exceeded: u64,
    /// Packets that were charged to it.
    pub passed: u64,
}

impl Buckets {
    pub(super) fn new(program: &Program, tables: &impl Tables) -> Self {
        let limiter = |(id, limiter): (u16, &crate::ir::Limiter)| {
            let entries = match limiter.kind {
                LimiterKind::Rate(limit) => Arc::new(LimitEntries::single(limit.profile())),
                LimiterKind::Prefixes { .. } | LimiterKind::Labels => tables.limits(LimiterId(id)),
            };
            let count = entries.entries.len();
            Limiter { entries, words: vec![0; count], log: limiter.log, counts: vec![Charged::default(); count] }
        };
        Buckets { limiters: (0..).zip(&program.limiters).map(limiter).collect(), clock_ns: None }
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
    /// there was room. The innermost bucket without room counts the packet, or all that were charged.
    pub(super) fn has_room(&mut self, limiter: LimiterId, label: u32, bytes: u32) -> bool {
        let now = ticks(self.clock_ns.expect("the clock is set before a packet is judged"));
        let Limiter { entries, words, log, counts } = &mut self.limiters[usize::from(limiter.0)];
        let mut charged = Vec::new();
        let mut bucket = label as usize;
        loop {
            let entry = entries.entries[bucket];
            let profile = entries.profiles[entry.profile as usize];
            match charge(words[bucket], now, profile.cost(bytes), profile.room) {
                Some(word) => charged.push((bucket, word)),
                None => {
                    counts[bucket].exceeded += u64::from(entry.profile != 0 && *log != Log::Off);
                    return false;
                }
            }
            if entry.parent == 0 {
                break;
            }
            bucket = entry.parent as usize;
        }
        for (bucket, word) in charged {
            words[bucket] = word;
            counts[bucket].passed += u64::from(entries.entries[bucket].profile != 0 && *log == Log::All);
        }
        true
    }

    /// What was counted for the buckets of a limiter, by label.
    pub(super) fn counts(&self, limiter: LimiterId) -> &[Charged] {
        &self.limiters[usize::from(limiter.0)].counts
    }
}
