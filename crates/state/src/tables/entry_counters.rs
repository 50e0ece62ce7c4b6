//! Counters of the entries of a table, and their labels, by the number of an entry
//! ([`weir_tables::live::NumberedMemory`]).
//!
//! Each worker has counters of its own, and in the kernel each CPU, so that counting never waits. An entry takes 16
//! bytes for each of them, and a map 4 bytes more for the label. In this process, counters that are never used take no
//! memory.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::MmapRaw;
use weir_abi::entry::{EntryCounter, EntryCounts, WaitingHit, hit_time};
use weir_tables::Kind;
use weir_tables::live::NumberedMemory;
use weir_tables::problem::PREFIXES_MAX;

use crate::kernel_map::mapped_array;
use crate::now_ns;
use crate::words::{Words, zeros};

/// Maximum size of the counters of a table in the kernel. The verifier allows no larger offsets.
pub const KERNEL_BYTES_MAX: usize = 1 << 28;
/// Number of words of a counter.
const WORDS: usize = size_of::<EntryCounter>() / size_of::<u64>();
/// Minimum number of counters of a CPU in the kernel.
const KERNEL_ENTRIES_MIN: usize = 1 << 10;

/// The counters of a table with one image, and the labels of its entries.
pub struct EntryCounters {
    /// Number of counters of a worker or CPU. Number 0 belongs to no entry.
    capacity: usize,
    counters: Counters,
    /// The labels by number, if the table is a map.
    labels: Option<Labels>,
    /// When counting began.
    began: u32,
    /// What a card has counted.
    beside: Beside,
    /// Entries that were removed so far.
    removed: AtomicU64,
}

/// Counts by number that neither workers nor programs have counted. Few entries have them.
#[derive(Default)]
struct Beside {
    any: AtomicBool,
    counts: Mutex<HashMap<u32, EntryCounts>>,
}

enum Counters {
    /// One run for each worker of this process that ever counted.
    Workers(Mutex<Vec<Option<Arc<CounterRun>>>>),
    /// One run for each CPU.
    Cpus(CounterRun),
}

/// The maps of the counters of a table.
#[derive(Clone, Copy)]
pub struct EntryMaps<'a> {
    /// Number of counters of a CPU: a power of two.
    pub capacity: usize,
    /// Number of CPUs: a power of two.
    pub cpus: usize,
    /// The counters of all CPUs.
    pub counters: BorrowedFd<'a>,
    /// The labels, if the table is a map.
    pub labels: Option<BorrowedFd<'a>>,
}

/// Runs of counters, two words each.
pub struct CounterRun(Words);

struct Labels {
    memory: MmapRaw,
    map: Option<OwnedFd>,
}

// SAFETY: the labels are accessed only as atomics, here and by compiled code.
unsafe impl Send for Labels {}
// SAFETY: as above.
unsafe impl Sync for Labels {}

impl EntryCounters {
    fn of(counters: Counters) -> Self {
        let (beside, removed) = (Beside::default(), AtomicU64::new(0));
        EntryCounters { capacity: 0, counters, labels: None, began: now(), beside, removed }
    }

    /// Counters that workers of this process write.
    ///
    /// # Errors
    /// There is not enough memory for labels.
    pub(super) fn for_workers(kind: Kind) -> io::Result<Self> {
        let capacity = PREFIXES_MAX + 1;
        let labels = (kind == Kind::Labels)
            .then(|| Ok::<_, io::Error>(Labels { memory: zeros(capacity * size_of::<u32>())?, map: None }))
            .transpose()?;
        Ok(EntryCounters { capacity, labels, ..Self::of(Counters::Workers(Mutex::default())) })
    }

    /// Counters that programs on `cpus` CPUs write, for a table that may get as many entries.
    ///
    /// # Errors
    /// The kernel refuses the memory, or it would be more than [`KERNEL_BYTES_MAX`].
    pub(super) fn for_kernel(kind: Kind, entries: usize, cpus: usize) -> io::Result<Self> {
        let capacity = kernel_capacity(entries);
        let bytes = capacity * cpus * size_of::<EntryCounter>();
        if bytes > KERNEL_BYTES_MAX {
            let mib = |bytes: usize| bytes >> 20;
            return Err(io::Error::other(format!(
                "the counters of {capacity} entries on {cpus} CPUs take {} MiB, and the kernel allows {} MiB; declare a smaller `size`, or no `counters`",
                mib(bytes),
                mib(KERNEL_BYTES_MAX)
            )));
        }
        let counted = CounterRun(Words::of_kernel("weir_entries", capacity * cpus * WORDS)?);
        let labels = match kind {
            Kind::Set => None,
            Kind::Labels => {
                let (map, memory) = mapped_array("weir_labels", capacity * size_of::<u32>(), 1)?;
                Some(Labels { memory, map: Some(map) })
            }
        };
        Ok(EntryCounters { capacity, labels, ..Self::of(Counters::Cpus(counted)) })
    }

    /// Whether a declaration with as many entries has room.
    pub(super) fn has_room_for(&self, entries: usize) -> bool {
        match self.counters {
            Counters::Workers(_) => true,
            Counters::Cpus(_) => kernel_capacity(entries) <= self.capacity,
        }
    }

    /// The counters of a worker of this process. Only one thread may write them at a time.
    ///
    /// # Errors
    /// There is not enough address space.
    ///
    /// # Panics
    /// Panics if programs in the kernel count.
    pub fn of_worker(&self, worker: usize) -> io::Result<Arc<CounterRun>> {
        let Counters::Workers(workers) = &self.counters else { panic!("programs in the kernel count") };
        let mut workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
        if workers.len() <= worker {
            workers.resize_with(worker + 1, || None);
        }
        if let Some(counted) = &workers[worker] {
            return Ok(counted.clone());
        }
        let counted = Arc::new(CounterRun(Words::of_process(self.capacity * WORDS)?));
        Ok(workers[worker].insert(counted).clone())
    }

    /// The labels by number, for compiled code; null for a set.
    pub fn labels(&self) -> *const u32 {
        self.labels.as_ref().map_or(std::ptr::null(), |labels| labels.memory.as_ptr().cast())
    }

    /// The maps, if programs in the kernel count.
    pub fn maps(&self) -> Option<EntryMaps<'_>> {
        let Counters::Cpus(counted) = &self.counters else { return None };
        let counters = counted.0.map()?;
        let labels = self.labels.as_ref().and_then(|labels| labels.map.as_ref());
        let cpus = counted.len() / self.capacity;
        Some(EntryMaps { capacity: self.capacity, cpus, counters, labels: labels.map(AsFd::as_fd) })
    }

    /// What all workers have counted for a number. `now` is the time of the call, in units of [`weir_abi::entry`].
    /// Without packets, the time of the last hit is when the entry was added.
    pub fn read(&self, number: u32, now: u32) -> EntryCounts {
        let (mut sum, mut added) = (EntryCounts::default(), None);
        self.each(number, |words, waiting| {
            let counts = read_with(words, waiting, number, now);
            sum = sum.plus(counts, now);
            added = added.or((counts.last != 0).then_some(counts.last));
        });
        let sum = sum.plus(self.beside.of(number), now);
        match sum.packets {
            0 => EntryCounts { last: added.unwrap_or(self.began), ..sum },
            _ => sum,
        }
    }

    /// Adds what a card has counted for a number, whose entry is in the table, until the time `now`.
    pub(super) fn count_beside(&self, number: u32, counts: EntryCounts, now: u32) {
        let mut beside = self.beside.lock();
        let sum = beside.entry(number).or_default();
        *sum = sum.plus(counts, now);
        self.beside.any.store(true, Ordering::Release);
    }

    /// Number of entries that were removed so far. It tells that something was removed without looking at all entries.
    pub fn removed_so_far(&self) -> u64 {
        self.removed.load(Ordering::Acquire)
    }

    /// Visits the words of a number, of each worker or CPU, and the words in which a hit of the CPU waits.
    fn each(&self, number: u32, mut visit: impl FnMut(&[AtomicU64; WORDS], Option<&[AtomicU64; WORDS]>)) {
        assert!((number as usize) < self.capacity, "numbers are below the capacity");
        match &self.counters {
            Counters::Workers(workers) => {
                let workers = workers.lock().unwrap_or_else(PoisonError::into_inner);
                workers.iter().flatten().for_each(|counted| visit(counted.words(number as usize), None));
            }
            Counters::Cpus(counted) => {
                for first in (0..counted.len()).step_by(self.capacity) {
                    visit(counted.words(first + number as usize), Some(counted.words(first)));
                }
            }
        }
    }

    fn set_label_word(&self, number: u32, label: u32) {
        if let Some(labels) = &self.labels {
            labels.word(number).store(label, Ordering::Release);
        }
    }

    /// Stores the labels of the entries of a new table, numbered from 1 on.
    pub(super) fn begin_with(&self, labels: impl Iterator<Item = u32>) {
        if self.labels.is_some() {
            (1..).zip(labels).for_each(|(number, label)| self.set_label_word(number, label));
        }
    }
}

impl Beside {
    fn lock(&self) -> MutexGuard<'_, HashMap<u32, EntryCounts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, number: u32) -> EntryCounts {
        match self.any.load(Ordering::Acquire) {
            true => self.lock().get(&number).copied().unwrap_or_default(),
            false => EntryCounts::default(),
        }
    }

    /// Forgets the counts of a number, or replaces them by the counts of another one.
    fn begin(&self, number: u32, like: Option<u32>) {
        if self.any.load(Ordering::Acquire) {
            let mut counts = self.lock();
            match like.and_then(|like| counts.get(&like).copied()) {
                Some(same) => counts.insert(number, same),
                None => counts.remove(&number),
            };
        }
    }
}

/// Number of counters of a CPU in the kernel for a table that may get as many entries: a power of two.
fn kernel_capacity(entries: usize) -> usize {
    (entries + 1).max(KERNEL_ENTRIES_MIN).next_power_of_two()
}

/// The time in units of counters.
fn now() -> u32 {
    hit_time(now_ns())
}

/// Reads two words while a worker or CPU may write them.
fn read([head, size]: &[AtomicU64; WORDS]) -> EntryCounter {
    let mut before = head.load(Ordering::Acquire);
    loop {
        let size = size.load(Ordering::Acquire);
        let after = head.load(Ordering::Acquire);
        if before == after {
            return EntryCounter { head: after, size };
        }
        before = after;
    }
}

/// Reads the counter of a number with the hit that may wait for it. A hit is counted before it is removed. So if the
/// same hit waits before and after, the sum is right. If another one waits before, the counter is at most as old as
/// that.
fn read_with(words: &[AtomicU64; WORDS], waiting: Option<&[AtomicU64; WORDS]>, number: u32, now: u32) -> EntryCounts {
    let waits = || WaitingHit::of(read(waiting?)).filter(|hit| hit.number == number);
    loop {
        let before = waits();
        let counts = read(words).counts();
        match before {
            None => return counts,
            Some(hit) if waits() == before => return counts.plus(hit.counts, now),
            Some(_) => {}
        }
    }
}

impl NumberedMemory for EntryCounters {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn begin(&self, number: u32, label: u32) {
        let mut added = Some(EntryCounter::of(EntryCounts { last: now(), ..EntryCounts::default() }));
        self.each(number, |words, _| {
            // The first counter has the time of the addition, until it counts.
            let EntryCounter { head, size } = added.take().unwrap_or_default();
            for (word, value) in words.iter().zip([head, size]) {
                // Reading takes no memory where nothing was counted.
                if word.load(Ordering::Relaxed) != value {
                    word.store(value, Ordering::Relaxed);
                }
            }
        });
        self.beside.begin(number, None);
        self.set_label_word(number, label);
    }

    fn carry(&self, from: u32, to: u32, label: u32) {
        self.begin(to, label);
        self.beside.begin(to, Some(from));
        let (mut counts, now) = (Vec::new(), now());
        self.each(from, |words, waiting| counts.push(read_with(words, waiting, from, now)));
        let mut counts = counts.into_iter();
        self.each(to, |words, _| {
            // A worker that came meanwhile has counted nothing yet.
            let EntryCounter { head, size } = EntryCounter::of(counts.next().unwrap_or_default());
            for (word, count) in words.iter().zip([head, size]) {
                if count != 0 {
                    word.store(count, Ordering::Relaxed);
                }
            }
        });
    }

    fn forget(&self, numbers: &[u32]) -> Vec<u32> {
        let mut noted = Vec::new();
        // Each CPU has one hit that waits, whatever the number.
        self.each(0, |_, waiting| {
            let Some(waiting) = waiting else { return };
            let words = read(waiting);
            let Some(hit) = WaitingHit::of(words).filter(|hit| numbers.contains(&hit.number)) else { return };
            // If it is another hit by now, this one has been counted.
            let _other = waiting[0].compare_exchange(words.head, 0, Ordering::AcqRel, Ordering::Relaxed);
            if !noted.contains(&hit.number) {
                noted.push(hit.number);
            }
        });
        noted
    }

    fn set_label(&self, number: u32, label: u32) {
        self.set_label_word(number, label);
    }

    fn removed(&self, entries: u64) {
        self.removed.fetch_add(entries, Ordering::AcqRel);
    }
}

impl CounterRun {
    /// The counters for compiled code.
    pub fn as_ptr(&self) -> *mut EntryCounter {
        self.0.as_ptr().cast()
    }

    fn len(&self) -> usize {
        self.0.all().len() / WORDS
    }

    /// The words of the counter at an index.
    fn words(&self, at: usize) -> &[AtomicU64; WORDS] {
        self.0.all()[WORDS * at..].first_chunk().expect("the counter is in the memory")
    }
}

impl Labels {
    fn word(&self, number: u32) -> &AtomicU32 {
        assert!((number as usize) < self.memory.len() / size_of::<u32>(), "the label is in the mapping");
        // SAFETY: the label is in the mapping, whose start is a page. It lives as long as the borrow, and all accesses
        // are atomic.
        unsafe { AtomicU32::from_ptr(self.memory.as_mut_ptr().cast::<u32>().add(number as usize)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 4;

    /// Counters of two CPUs in memory that this process has made.
    fn counters() -> EntryCounters {
        let counted = CounterRun(Words::of_process(2 * CAPACITY * WORDS).expect("there is memory"));
        EntryCounters { capacity: CAPACITY, ..EntryCounters::of(Counters::Cpus(counted)) }
    }

    /// Writes the words of a number on a CPU, as a program does.
    fn put(counters: &EntryCounters, cpu: usize, number: usize, head: u64, size: u64) {
        let Counters::Cpus(counted) = &counters.counters else { unreachable!("they are of CPUs") };
        let words = counted.words(cpu * CAPACITY + number);
        words[0].store(head, Ordering::Relaxed);
        words[1].store(size, Ordering::Relaxed);
    }

    /// The words of a hit that waits: `datapath/tables/kernel_entry_counter.h`.
    fn wait(counters: &EntryCounters, cpu: usize, number: u64, packets: u64, bytes: u64, time: u64) {
        put(counters, cpu, 0, packets << 32 | number, bytes << 24 | time);
    }

    #[test]
    fn a_hit_that_waits_is_read_at_its_number_only() {
        let counters = counters();
        put(&counters, 0, 2, 10 << 16, 1000 << 8 | 7);
        put(&counters, 1, 2, 5 << 16, 500 << 8 | 8);
        wait(&counters, 0, 2, 1, 60, 9);
        wait(&counters, 1, 3, 40, 60_000, 9);
        assert_eq!(counters.read(2, 9), EntryCounts { packets: 16, bytes: 1560, last: 9 });
        assert_eq!(counters.read(3, 9), EntryCounts { packets: 40, bytes: 60_000, last: 9 });
        assert_eq!(counters.read(1, 9).packets, 0);
        // An entry with another number continues the counts, with the hit.
        counters.carry(2, 1, 0);
        assert_eq!(counters.read(1, 9), EntryCounts { packets: 16, bytes: 1560, last: 9 });
    }

    #[test]
    fn hits_of_removed_entries_are_forgotten_once() {
        let counters = counters();
        wait(&counters, 0, 3, 1, 60, 9);
        wait(&counters, 1, 2, 1, 60, 9);
        assert_eq!(counters.forget(&[1, 3]), [3]);
        assert_eq!(counters.forget(&[1, 3]), []);
        assert_eq!((counters.read(3, 9).packets, counters.read(2, 9).packets), (0, 1));
    }

    #[test]
    fn workers_have_no_hits_that_wait() {
        let counters = EntryCounters::for_workers(Kind::Set).expect("there is memory");
        let counted = counters.of_worker(0).expect("there is address space");
        counted.words(0)[0].store(1 << 32 | 5, Ordering::Relaxed);
        assert_eq!(counters.forget(&[5]), []);
        assert_eq!(counters.read(5, 9).packets, 0);
    }
}
