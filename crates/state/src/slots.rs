//! Slots: rules that are put in while packets pass ([`weir_abi::slot`]). They outlive generations by the name of their
//! slot.
//!
//! A change fills the copy of the records that is not read, and selects it. It takes effect with the next packet or
//! burst. The next change waits until no reader uses the other copy: until each worker has begun another burst, in the
//! kernel for a grace period (tens of milliseconds).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_abi::limit::{debt, ticks};
use weir_abi::slot::{CELLS, RULES_MAX, STRIPES, SlotAct, SlotCounter, SlotImage, SlotRule};
use weir_tables::live::Readers;

use crate::Memory;
use crate::words::Words;

/// The longest wait for readers of the other copy.
const WAIT_MAX: Duration = Duration::from_secs(2);
const WAIT_STEP: Duration = Duration::from_micros(200);

/// Index of the first word of each part of [`SlotImage`].
const RECORDS_AT: usize = std::mem::offset_of!(SlotImage, records) / size_of::<u64>();
const BUCKETS_AT: usize = std::mem::offset_of!(SlotImage, buckets) / size_of::<u64>();
const COUNTERS_AT: usize = std::mem::offset_of!(SlotImage, counters) / size_of::<u64>();
/// Words of a counter.
const COUNTER_WORDS: usize = size_of::<SlotCounter>() / size_of::<u64>();

/// Why a slot was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// The slot has as many rules as the policy reserves.
    #[error("it is full: the policy reserves {size} rules")]
    Full {
        /// The number of rules.
        size: usize,
    },
    /// The slot has no such rule.
    #[error("it has no rule {0}")]
    NoRule(u32),
    /// Readers still use the other copy.
    #[error("packets are still judged by the rules before the last change; try again")]
    Behind,
}

/// The rules of a slot, for the next program in this process. They have the layout of [`weir_abi::ABI_VERSION`].
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct HandedRules {
    /// In the order in which packets meet them.
    rules: Vec<HandedRule>,
    /// The number of the rule that was added last.
    last: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct HandedRule {
    record: Vec<u64>,
    expires_ns: Option<u64>,
    counts: [u64; COUNTER_WORDS],
}

/// A rule of a slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listed {
    /// The record, with its number.
    pub record: SlotRule,
    /// What it has counted.
    pub counts: SlotCounter,
    /// When it expires; `None`: never.
    pub expires_ns: Option<u64>,
}

/// The rules of a slot, for packets and for changes.
pub struct RuleSlot {
    words: Words,
    rules: Mutex<Rules>,
    /// The readers of the records; `None` if no code reads them while they change.
    readers: Option<Readers>,
}

#[derive(Default)]
struct Rules {
    /// In the order in which packets meet them. A record without a cell is new.
    installed: Vec<InstalledRule>,
    /// The number of the rule that was added last.
    last: u32,
    /// The copy that is read.
    copy: usize,
    /// The epoch after which no reader uses the other copy.
    other_is_free: Option<u64>,
}

#[derive(Clone, Copy)]
struct InstalledRule {
    record: SlotRule,
    has_cell: bool,
    expires_ns: Option<u64>,
}

impl RuleSlot {
    /// An empty slot.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(memory: Memory, readers: Option<Readers>) -> io::Result<Arc<Self>> {
        let words = match memory {
            Memory::Process => Words::of_process(SlotImage::WORDS)?,
            Memory::Kernel => Words::of_kernel("weir_slot", SlotImage::WORDS)?,
        };
        Ok(Arc::new(RuleSlot { words, rules: Mutex::default(), readers }))
    }

    /// What the next program in this process continues with.
    pub(crate) fn hand_over(&self) -> HandedRules {
        let rules = self.lock();
        let handed = |rule: &InstalledRule| HandedRule {
            record: rule.record.words().to_vec(),
            expires_ns: rule.expires_ns,
            counts: self.counts_words(rule.record.cell as usize),
        };
        HandedRules { rules: rules.installed.iter().map(handed).collect(), last: rules.last }
    }

    /// A slot whose rules were handed over. With their map, packets meet them without a pause; otherwise they are put
    /// into new memory, with full buckets.
    ///
    /// # Errors
    /// It is not such a map, or a rule is not one of it, or there is not enough memory.
    pub(crate) fn handed(
        map: Option<OwnedFd>,
        handed: HandedRules,
        memory: Memory,
        readers: Option<Readers>,
        now_ns: u64,
    ) -> io::Result<Arc<Self>> {
        let damaged = || io::Error::other("the rules of a slot are damaged");
        let HandedRules { rules: given, last } = handed;
        let mut installed = Vec::new();
        for rule in &given {
            let record = record_of(&rule.record).ok_or_else(damaged)?;
            installed.push(InstalledRule { record, has_cell: map.is_some(), expires_ns: rule.expires_ns });
        }
        let mut cells: Vec<u32> = installed.iter().map(|rule| rule.record.cell).collect();
        cells.sort_unstable();
        cells.dedup();
        if cells.len() != given.len() || given.len() > RULES_MAX {
            return Err(damaged());
        }
        let Some(map) = map else {
            let slot = RuleSlot::new(memory, readers)?;
            slot.publish(&mut slot.lock(), installed, now_ns).map_err(io::Error::other)?;
            slot.lock().last = last;
            for (rule, listed) in given.iter().zip(slot.list()) {
                let first = slot.counters(listed.record.cell as usize).next().expect("there is a stripe");
                first.iter().zip(rule.counts).for_each(|(word, count)| word.store(count, Ordering::Relaxed));
            }
            return Ok(slot);
        };
        let words = Words::handed_block(map, "weir_slot", SlotImage::WORDS)?;
        let active = words.all()[0].load(Ordering::Acquire);
        let copy = (active >> 32) as usize;
        if copy > 1 || SlotImage::active(copy, given.len()) != active {
            return Err(damaged());
        }
        // Programs may still use the other copy, if the last change was made just before the upgrade.
        let other_is_free = readers.as_ref().map(Readers::next_epoch);
        let rules = Rules { installed, last, copy, other_is_free };
        Ok(Arc::new(RuleSlot { words, rules: Mutex::new(rules), readers }))
    }

    /// The slot for compiled code.
    pub fn as_ptr(&self) -> *mut SlotImage {
        self.words.as_ptr().cast()
    }

    /// Its map, if it is in the kernel.
    pub fn map(&self) -> Option<BorrowedFd<'_>> {
        self.words.map()
    }

    /// The registry of its readers.
    pub fn readers(&self) -> Option<&Readers> {
        self.readers.as_ref()
    }

    /// Number of rules.
    pub fn count(&self) -> usize {
        self.lock().installed.len()
    }

    /// Appends a rule, if there are fewer than `size`. Its bucket is full at `now_ns`. Returns its number.
    ///
    /// # Errors
    /// The slot is full, or readers are behind.
    pub fn add(&self, record: SlotRule, expires_ns: Option<u64>, size: usize, now_ns: u64) -> Result<u32, SlotError> {
        let mut rules = self.lock();
        let size = size.min(RULES_MAX);
        if rules.installed.len() >= size {
            return Err(SlotError::Full { size });
        }
        let number = rules.last + 1;
        let mut installed = rules.installed.clone();
        installed.push(InstalledRule { record: record.numbered(number), has_cell: false, expires_ns });
        self.publish(&mut rules, installed, now_ns)?;
        rules.last = number;
        Ok(number)
    }

    /// Puts a rule in place of another one. It keeps the number, its counters begin at 0.
    ///
    /// # Errors
    /// There is no such rule, or readers are behind.
    pub fn replace(
        &self,
        number: u32,
        record: SlotRule,
        expires_ns: Option<u64>,
        now_ns: u64,
    ) -> Result<(), SlotError> {
        let mut rules = self.lock();
        let mut installed = rules.installed.clone();
        let old = installed.iter_mut().find(|rule| rule.record.number == number).ok_or(SlotError::NoRule(number))?;
        *old = InstalledRule { record: record.numbered(number), has_cell: false, expires_ns };
        self.publish(&mut rules, installed, now_ns)
    }

    /// Sets when a rule expires, which packets do not notice. Returns what it has counted.
    ///
    /// # Errors
    /// There is no such rule.
    pub fn renew(&self, number: u32, expires_ns: Option<u64>) -> Result<SlotCounter, SlotError> {
        let mut rules = self.lock();
        let rule = rules.installed.iter_mut().find(|rule| rule.record.number == number);
        let rule = rule.ok_or(SlotError::NoRule(number))?;
        rule.expires_ns = expires_ns;
        Ok(self.counts(rule.record.cell as usize))
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// There is no such rule, or readers are behind.
    pub fn remove(&self, number: u32) -> Result<(), SlotError> {
        match self.retain(|rule| rule.record.number != number)? {
            0 => Err(SlotError::NoRule(number)),
            _ => Ok(()),
        }
    }

    /// Removes all rules and returns their number.
    ///
    /// # Errors
    /// Readers are behind.
    pub fn flush(&self) -> Result<usize, SlotError> {
        self.retain(|_| false)
    }

    /// Removes the rules whose time is over, and returns their number. Never waits: if the slot is being changed, or
    /// readers are behind, a later call removes them.
    pub fn expire(&self, now_ns: u64) -> usize {
        let Some(mut rules) = self.try_lock().filter(|rules| self.is_free(rules)) else { return 0 };
        // There is no reader to wait for.
        self.retain_in(&mut rules, |rule| rule.expires_ns.is_none_or(|at| at > now_ns)).unwrap_or(0)
    }

    /// Whether a rule has a timeout, or may have one because the slot is being changed.
    pub fn can_expire(&self) -> bool {
        self.try_lock().is_none_or(|rules| rules.installed.iter().any(|rule| rule.expires_ns.is_some()))
    }

    /// All rules, in the order in which packets meet them.
    pub fn list(&self) -> Vec<Listed> {
        let rules = self.lock();
        let listed = |rule: &InstalledRule| Listed {
            record: rule.record,
            counts: self.counts(rule.record.cell as usize),
            expires_ns: rule.expires_ns,
        };
        rules.installed.iter().map(listed).collect()
    }

    /// Fills all buckets. No program charges them meanwhile.
    pub fn fill(&self, now_ns: u64) {
        self.buckets().iter().for_each(|bucket| bucket.store(ticks(now_ns), Ordering::Relaxed));
    }

    /// Sets buckets in the past to the present, before they wrap around.
    pub fn refresh(&self, now_ns: u64) {
        let now = ticks(now_ns);
        for bucket in self.buckets() {
            let word = bucket.load(Ordering::Relaxed);
            if debt(word, now) == 0 {
                // If it was charged meanwhile, it needs nothing.
                let _charged = bucket.compare_exchange(word, now, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    fn retain(&self, keep: impl Fn(&InstalledRule) -> bool) -> Result<usize, SlotError> {
        self.retain_in(&mut self.lock(), keep)
    }

    fn retain_in(&self, rules: &mut Rules, keep: impl Fn(&InstalledRule) -> bool) -> Result<usize, SlotError> {
        let installed: Vec<InstalledRule> = rules.installed.iter().filter(|rule| keep(rule)).copied().collect();
        let removed = rules.installed.len() - installed.len();
        if removed > 0 {
            self.publish(rules, installed, 0)?;
        }
        Ok(removed)
    }

    /// Makes these the rules that packets meet.
    fn publish(&self, rules: &mut Rules, mut installed: Vec<InstalledRule>, now_ns: u64) -> Result<(), SlotError> {
        self.wait(rules)?;
        // No reader uses a record that is not in the active copy, so its cell can be used again.
        let mut used = [false; CELLS];
        rules.installed.iter().for_each(|rule| used[rule.record.cell as usize] = true);
        let mut free = (0..CELLS).filter(|&cell| !used[cell]);
        for rule in installed.iter_mut().filter(|rule| !rule.has_cell) {
            let cell = free.next().expect("two sets of rules have as many cells");
            self.begin(cell, now_ns);
            rule.record.cell = cell as u32;
            rule.has_cell = true;
        }
        let copy = 1 - rules.copy;
        for (index, rule) in installed.iter().enumerate() {
            let first = RECORDS_AT + (copy * RULES_MAX + index) * SlotRule::WORDS;
            let words = self.words.all()[first..].iter().zip(rule.record.words());
            words.for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        }
        self.words.all()[0].store(SlotImage::active(copy, installed.len()), Ordering::Release);
        rules.other_is_free = self.readers.as_ref().map(Readers::next_epoch);
        rules.copy = copy;
        rules.installed = installed;
        Ok(())
    }

    /// Waits until no reader uses the other copy.
    fn wait(&self, rules: &mut Rules) -> Result<(), SlotError> {
        let started = Instant::now();
        while !self.is_free(rules) {
            if started.elapsed() > WAIT_MAX {
                return Err(SlotError::Behind);
            }
            thread::sleep(WAIT_STEP);
        }
        rules.other_is_free = None;
        Ok(())
    }

    /// Whether no reader uses the other copy.
    fn is_free(&self, rules: &Rules) -> bool {
        match (&self.readers, rules.other_is_free) {
            (Some(readers), Some(epoch)) => readers.has_passed(epoch),
            _ => true,
        }
    }

    /// Sets the counters of a cell to 0 and fills its bucket.
    fn begin(&self, cell: usize, now_ns: u64) {
        self.counters(cell).flatten().for_each(|word| word.store(0, Ordering::Relaxed));
        self.buckets()[cell].store(ticks(now_ns), Ordering::Relaxed);
    }

    fn buckets(&self) -> &[AtomicU64] {
        &self.words.all()[BUCKETS_AT..BUCKETS_AT + CELLS]
    }

    /// The counters of a cell in each stripe.
    fn counters(&self, cell: usize) -> impl Iterator<Item = &[AtomicU64]> {
        (0..STRIPES).map(move |stripe| {
            let first = COUNTERS_AT + (stripe * CELLS + cell) * COUNTER_WORDS;
            &self.words.all()[first..first + COUNTER_WORDS]
        })
    }

    fn counts(&self, cell: usize) -> SlotCounter {
        let [packets, bytes, dropped, dropped_bytes] = self.counts_words(cell);
        SlotCounter { packets, bytes, dropped, dropped_bytes }
    }

    fn counts_words(&self, cell: usize) -> [u64; COUNTER_WORDS] {
        let mut sum = [0u64; COUNTER_WORDS];
        for words in self.counters(cell) {
            sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += word.load(Ordering::Relaxed));
        }
        sum
    }

    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while the slot is being changed, which may take as long as readers do.
    fn try_lock(&self) -> Option<MutexGuard<'_, Rules>> {
        match self.rules.try_lock() {
            Ok(rules) => Some(rules),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The record of these words, if it can be one.
fn record_of(words: &[u64]) -> Option<SlotRule> {
    let words: [u64; SlotRule::WORDS] = words.try_into().ok()?;
    // SAFETY: a record is as long as these words, has no padding, and all of its fields are integers.
    let record = unsafe { std::mem::transmute::<[u64; SlotRule::WORDS], SlotRule>(words) };
    ((record.cell as usize) < CELLS && SlotAct::from_number(record.act).is_some()).then_some(record)
}

#[cfg(test)]
#[path = "slots/tests.rs"]
mod tests;
