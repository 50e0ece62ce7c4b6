//! One place of the card that drops packets by their sources: its hardware table, or its CPU.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use memmap2::MmapRaw;
use weir_abi::wire_card::{CardCount, CardKey};
use weir_state::Grace;

/// Bytes of a counter.
pub const COUNT_BYTES: usize = size_of::<CardCount>();

/// The counters of all entries, by CPU and number.
pub struct Counters {
    pub(super) memory: MmapRaw,
    pub(super) cpus: usize,
    pub(super) stride: usize,
}

// SAFETY: the mapping keeps its map alive, and its words are accessed only as atomics.
unsafe impl Send for Counters {}
// SAFETY: as above.
unsafe impl Sync for Counters {}

/// Why a place refuses an entry.
#[derive(Debug)]
pub enum Refused {
    /// The place has no room.
    Full,
    /// The kernel refuses.
    Failed(io::Error),
}

/// An entry and what it has dropped since it was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The source.
    pub source: IpAddr,
    /// What it has dropped.
    pub count: CardCount,
}

/// The sources that a place of the card drops.
pub struct CardTable {
    map: MapHandle,
    counters: Arc<Counters>,
    grace: Arc<Grace>,
    capacity: usize,
    update: Duration,
    /// The number of each source.
    numbers: HashMap<IpAddr, u32>,
    /// Numbers that no program uses.
    free: Vec<u32>,
}

impl CardTable {
    pub(super) fn new(
        map: MapHandle,
        numbers: Range<usize>,
        update: Duration,
        counters: Arc<Counters>,
        grace: Arc<Grace>,
    ) -> Self {
        let capacity = numbers.len();
        let free = numbers.rev().map(|number| number as u32).collect();
        CardTable { map, counters, grace, capacity, update, numbers: HashMap::new(), free }
    }

    /// Number of entries that it can have.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The time that a change takes.
    pub fn update(&self) -> Duration {
        self.update
    }

    /// Adds a source. It takes [`CardTable::update`] until packets are dropped. A source that is there stays.
    ///
    /// # Errors
    /// There is no room, or the kernel refuses.
    pub fn add(&mut self, source: IpAddr) -> Result<(), Refused> {
        if self.numbers.contains_key(&source) {
            return Ok(());
        }
        let number = self.free.pop().ok_or(Refused::Full)?;
        thread::sleep(self.update);
        self.counters.reset(number);
        let key = CardKey::of(source).bytes();
        match self.map.update(&key, &number.to_ne_bytes(), MapFlags::NO_EXIST) {
            Ok(()) => _ = self.numbers.insert(source, number),
            Err(error) => {
                self.free.push(number);
                return Err(Refused::Failed(io::Error::other(error.to_string())));
            }
        }
        Ok(())
    }

    /// Deletes a source, in the time of one change. Returns what it has dropped; `None` if it was not there.
    ///
    /// # Errors
    /// The kernel refuses. The entry is still there.
    pub fn delete(&mut self, source: IpAddr) -> Result<Option<CardCount>, Refused> {
        if !self.numbers.contains_key(&source) {
            return Ok(None);
        }
        thread::sleep(self.update);
        self.unlink(source)?;
        Ok(self.retire(&[source]).pop().map(|entry| entry.count))
    }

    /// Deletes all sources, in the time of one change. Returns what they have dropped.
    ///
    /// # Errors
    /// The kernel refuses one. All others are deleted.
    pub fn clear(&mut self) -> Result<Vec<Entry>, Refused> {
        if self.numbers.is_empty() {
            return Ok(Vec::new());
        }
        thread::sleep(self.update);
        let (mut gone, mut refused) = (Vec::new(), None);
        for source in self.numbers.keys().copied() {
            match self.unlink(source) {
                Ok(()) => gone.push(source),
                Err(error) => refused = Some(error),
            }
        }
        let entries = self.retire(&gone);
        refused.map_or(Ok(entries), Err)
    }

    /// The sources, with what each has dropped.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.numbers.iter().map(|(&source, &number)| Entry { source, count: self.counters.read(number) })
    }

    /// From now on programs do not find the source. Some may still be about to count a packet of it.
    fn unlink(&self, source: IpAddr) -> Result<(), Refused> {
        let deleted = self.map.delete(&CardKey::of(source).bytes());
        deleted.map_err(|error| Refused::Failed(io::Error::other(error.to_string())))
    }

    /// Waits for programs and frees the numbers of sources that were unlinked.
    fn retire(&mut self, gone: &[IpAddr]) -> Vec<Entry> {
        self.grace.wait();
        let mut entries = Vec::new();
        for &source in gone {
            let number = self.numbers.remove(&source).expect("it was in the table");
            entries.push(Entry { source, count: self.counters.read(number) });
            self.free.push(number);
        }
        entries
    }
}

impl Counters {
    /// The words of a number on a CPU.
    fn words(&self, cpu: usize, number: u32) -> &[AtomicU64; CardCount::WORDS] {
        let at = cpu * self.stride + number as usize;
        assert!((at + 1) * COUNT_BYTES <= self.memory.len(), "the counter is in the mapping");
        // SAFETY: the counter is in the mapping, whose start is a page. It lives as long as the borrow, and all
        // accesses are atomic.
        unsafe { &*self.memory.as_mut_ptr().cast::<[AtomicU64; CardCount::WORDS]>().add(at) }
    }

    /// What all CPUs have counted for a number.
    fn read(&self, number: u32) -> CardCount {
        let of = |cpu| {
            let words = self.words(cpu, number).each_ref();
            CardCount::from_words(words.map(|word| word.load(Ordering::Relaxed)))
        };
        (0..self.cpus).map(of).fold(CardCount::default(), CardCount::plus)
    }

    /// Sets the counters of a number to 0. No program uses it.
    fn reset(&self, number: u32) {
        for cpu in 0..self.cpus {
            self.words(cpu, number).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }
}
