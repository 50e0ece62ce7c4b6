//! The queue of additions between one worker, or one CPU, and the thread that changes tables.
//!
//! It is one flat run of words, the same in a map of the kernel and in this process
//! ([`weir_abi::kernel::AdditionRing`]). One side appends, the other takes. A full ring counts what it cannot take, so
//! no packet ever waits. A small cache of recent additions suppresses repetitions: a source that floods appends one
//! record between two takes.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::Addition;
use weir_abi::kernel::{AdditionRing as Layout, RECENT_ADDITIONS, RecentAddition, ring_records};

use crate::words::Words;

const HEAD: usize = word(offset_of!(Layout, head));
const LOST: usize = word(offset_of!(Layout, lost));
const TAIL: usize = word(offset_of!(Layout, tail));
const EPOCH: usize = word(offset_of!(Layout, epoch));
const RECENT: usize = word(offset_of!(Layout, recent));
const RECORDS: usize = word(offset_of!(Layout, records));
/// Words of a record and of an entry of the cache.
const RECORD_WORDS: usize = word(size_of::<Addition>());
const RECENT_WORDS: usize = word(size_of::<RecentAddition>());

const fn word(bytes: usize) -> usize {
    bytes / size_of::<u64>()
}

/// Rings in one run of words.
pub struct AdditionRings {
    memory: Memory,
    /// Number of records of each ring.
    records: usize,
}

enum Memory {
    /// Of this process, for one worker.
    Own(Box<[AtomicU64]>),
    /// A map of the kernel, with a ring for each CPU.
    Map(Words),
}

impl AdditionRings {
    /// The rings in a map of the kernel, one for each of `cpus` CPUs, a power of two.
    pub fn of_map(words: Words, cpus: usize) -> Self {
        AdditionRings { memory: Memory::Map(words), records: ring_records(cpus) }
    }

    fn rings(&self) -> std::slice::ChunksExact<'_, AtomicU64> {
        let words = match &self.memory {
            Memory::Own(words) => words,
            Memory::Map(words) => words.all(),
        };
        words.chunks_exact(RECORDS + self.records * RECORD_WORDS)
    }

    /// Appends an addition to the first ring, unless it was appended since the last [`AdditionRings::take`]. Only one
    /// thread may call this.
    pub fn push(&self, addition: &Addition) {
        let ring = self.rings().next().expect("there is a ring");
        let get = |at: usize| ring[at].load(Ordering::Relaxed);
        let set = |at: usize, word: u64| ring[at].store(word, Ordering::Relaxed);
        let Addition { high, low, adder, .. } = *addition;
        // 0 is no epoch, so that an empty cache has no entries.
        let (epoch, recent) = (get(EPOCH) + 1, RECENT + recent(addition) * RECENT_WORDS);
        let seen = [high, low, adder.into(), epoch];
        if seen.iter().zip(recent..).all(|(&word, at)| get(at) == word) {
            return;
        }
        let head = get(HEAD);
        if head - ring[TAIL].load(Ordering::Acquire) >= self.records as u64 {
            set(LOST, get(LOST) + 1);
            return;
        }
        let record = RECORDS + (head as usize % self.records) * RECORD_WORDS;
        set(record, high);
        set(record + 1, low);
        set(record + 2, adder.into());
        ring[HEAD].store(head + 1, Ordering::Release);
        seen.iter().zip(recent..).for_each(|(&word, at)| set(at, word));
    }

    /// Takes all additions and starts another epoch of the cache. Returns the number of additions that were lost so
    /// far. Only one thread may call this.
    pub fn take(&self, mut visit: impl FnMut(Addition)) -> u64 {
        let mut lost = 0;
        for ring in self.rings() {
            // First the epoch: what is appended from here on is not suppressed by what is taken now.
            ring[EPOCH].store(ring[EPOCH].load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            let (head, tail) = (ring[HEAD].load(Ordering::Acquire), ring[TAIL].load(Ordering::Relaxed));
            for at in tail..head {
                let record = RECORDS + (at as usize % self.records) * RECORD_WORDS;
                let [high, low, adder] = [0, 1, 2].map(|word| ring[record + word].load(Ordering::Relaxed));
                visit(Addition { high, low, adder: adder as u32, packet: 0 });
            }
            ring[TAIL].store(head, Ordering::Release);
            lost += ring[LOST].load(Ordering::Relaxed);
        }
        lost
    }
}

/// A ring in the memory of this process.
impl Default for AdditionRings {
    fn default() -> Self {
        let (cpus, words) = (1, word(size_of::<Layout>()));
        let memory = Memory::Own((0..words).map(|_| AtomicU64::new(0)).collect());
        AdditionRings { memory, records: ring_records(cpus) }
    }
}

/// The place of an addition in the cache: `recent_place()` in datapath/tables/kernel_addition.h.
fn recent(Addition { high, low, adder, .. }: &Addition) -> usize {
    let mixed = (high.wrapping_add(u64::from(*adder)) ^ low.rotate_left(32) ^ low).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % RECENT_ADDITIONS
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::kernel::ADDITIONS_MAX;

    fn addition(low: u64) -> Addition {
        Addition { high: 0, low, adder: 1, packet: 0 }
    }

    fn taken(rings: &AdditionRings) -> (Vec<u64>, u64) {
        let mut taken = Vec::new();
        let lost = rings.take(|addition| taken.push(addition.low));
        (taken, lost)
    }

    #[test]
    fn a_repetition_is_suppressed_until_the_next_take() {
        let rings = AdditionRings::default();
        rings.push(&Addition::default());
        [1, 1, 2, 1].iter().for_each(|&low| rings.push(&addition(low)));
        assert_eq!(taken(&rings), (vec![0, 1, 2], 0));
        rings.push(&addition(1));
        rings.push(&Addition { adder: 2, ..addition(1) });
        assert_eq!(taken(&rings), (vec![1, 1], 0));
        assert_eq!(taken(&rings), (vec![], 0));
    }

    #[test]
    fn a_full_ring_counts_what_it_loses_and_goes_on() {
        let rings = AdditionRings::default();
        let all = ADDITIONS_MAX as u64;
        (0..all + 3).for_each(|low| rings.push(&addition(low)));
        assert_eq!(taken(&rings), ((0..all).collect(), 3));
        // What was lost is not in the cache.
        rings.push(&addition(all + 2));
        assert_eq!(taken(&rings), (vec![all + 2], 3));
        (0..2 * all).for_each(|low| {
            rings.push(&addition(low));
            if low % 1000 == 999 {
                taken(&rings);
            }
        });
        assert_eq!(taken(&rings).1, 3);
    }
}
