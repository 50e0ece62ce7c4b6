//! The flows that policies track (`docs/reference/tracking.md`, [`weir_abi::flow`]).

use std::io;
use std::mem::offset_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use weir_abi::flow::{
    BUCKET_BYTES, ENTRY_WORDS, Flow, FlowClass, FlowHead, FlowKey, FlowSecrets, HashKeys, Hashed, Proxied, SLOTS,
    TAG_HASH, TICKS, age, buckets, ticks,
};

use crate::words::Words;
use crate::{Memory, StateError};

/// Words of a bucket, and of its tags.
const BUCKET_WORDS: usize = BUCKET_BYTES / size_of::<u64>();
const TAGS_WORDS: usize = SLOTS / TAGS_IN_WORD;
/// Tags in a word of 64 bits, the first one in the lowest bits.
const TAGS_IN_WORD: usize = 4;
/// Words of [`Proxied`].
const PROXIED_WORDS: usize = size_of::<Proxied>() / size_of::<u64>();
/// Words of [`FlowHead`].
const HEAD_WORDS: usize = size_of::<FlowHead>() / size_of::<u64>();
/// The bit of an entry's last word that says that code is changing it.
const LOCK: u64 = 1 << 63;
/// Reads of an entry that code is changing, before it is left out.
const READS_MAX: usize = 1000;

/// Flows that are entered at once.
const FLOWS_AT_ONCE: usize = 64;

const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The slot has no flow.
    Free,
    /// Code is changing it, for longer than a reader waits.
    Busy,
    /// The slot has this flow.
    Flow(KnownFlow),
}

/// A flow of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFlow {
    /// Its key.
    pub key: FlowKey,
    /// Its state.
    pub flow: Flow,
    /// What translates its packets, if a SYN proxy opened it.
    pub proxied: Option<Proxied>,
}

/// A table of flows. Compiled code changes it; this process reads it.
pub struct FlowTable {
    head: Words,
    buckets: Words,
    /// What is kept of proxied flows, one for each slot, once a policy needs it.
    proxied: OnceLock<Words>,
    memory: Memory,
    count: u32,
    keys: HashKeys,
    /// When old times were brought forward last, ns.
    refreshed_ns: AtomicU64,
}

impl FlowTable {
    /// An empty table for `size` flows.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(memory: Memory, size: u32, secrets: FlowSecrets) -> Result<Arc<Self>, StateError> {
        let count = buckets(size);
        let words = BUCKET_WORDS * count as usize;
        let reserve = || {
            Ok(match memory {
                Memory::Process => (Words::of_process(HEAD_WORDS)?, Words::of_process(words)?),
                Memory::Kernel => (
                    Words::of_kernel("weir_flow_head", HEAD_WORDS)?,
                    Words::elements_of_kernel("weir_flows", BUCKET_BYTES, count)?,
                ),
            })
        };
        let (head, buckets) = reserve().map_err(|source| StateError::Memory { count: words, source })?;
        let new = FlowHead::new(count, secrets);
        let keys = new.keys;
        for (word, value) in head.all().iter().zip(new.words()) {
            word.store(value, Ordering::Relaxed);
        }
        let refreshed_ns = AtomicU64::new(crate::now_ns());
        Ok(Arc::new(FlowTable { head, buckets, proxied: OnceLock::new(), memory, count, keys, refreshed_ns }))
    }

    /// A table of `count` buckets in maps that were handed over: those of its head and of its buckets, and of what is
    /// kept of proxied flows. Programs may change it meanwhile.
    ///
    /// # Errors
    /// They are not such maps.
    pub fn handed([head, buckets]: [OwnedFd; 2], proxied: Option<OwnedFd>, count: u32) -> io::Result<Arc<Self>> {
        let head = Words::handed_block(head, "weir_flow_head", HEAD_WORDS)?;
        let buckets = Words::handed(buckets, "weir_flows", BUCKET_BYTES, count)?;
        let proxied_bytes = SLOTS * size_of::<Proxied>();
        let proxied = proxied.map(|map| Words::handed(map, "weir_proxied", proxied_bytes, count)).transpose()?;
        let word = |at: usize| head.all()[at / size_of::<u64>()].load(Ordering::Relaxed);
        if word(offset_of!(FlowHead, buckets)) != u64::from(count) {
            return Err(io::Error::other("the table of flows has another number of buckets"));
        }
        let keys = std::array::from_fn(|index| word(offset_of!(FlowHead, keys) + index * size_of::<u64>()));
        let (keys, memory) = (HashKeys::of_words(keys), Memory::Kernel);
        let kept = OnceLock::new();
        proxied.into_iter().for_each(|words| _ = kept.set(words));
        // Old times are brought forward at the next occasion.
        let refreshed_ns = AtomicU64::new(0);
        Ok(Arc::new(FlowTable { head, buckets, proxied: kept, memory, count, keys, refreshed_ns }))
    }

    /// Number of buckets.
    pub fn buckets(&self) -> u32 {
        self.count
    }

    /// The head and the buckets for compiled code.
    pub fn as_ptrs(&self) -> (*mut FlowHead, *mut u64) {
        (self.head.as_ptr().cast(), self.buckets.as_ptr())
    }

    /// The maps of the head and of the buckets, if they are in the kernel.
    pub fn maps(&self) -> Option<(BorrowedFd<'_>, BorrowedFd<'_>)> {
        self.head.map().zip(self.buckets.map())
    }

    /// Makes room for what is kept of proxied flows. It stays as long as the table, so flows stay proxied when policies
    /// follow one another.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn keep_proxied(&self) -> Result<(), StateError> {
        if self.proxied.get().is_some() {
            return Ok(());
        }
        let bytes = SLOTS * size_of::<Proxied>();
        let count = PROXIED_WORDS * self.slot_count();
        let words = match self.memory {
            Memory::Process => Words::of_process(count),
            Memory::Kernel => Words::elements_of_kernel("weir_proxied", bytes, self.count),
        };
        let words = words.map_err(|source| StateError::Memory { count, source })?;
        // If another thread was faster, its memory is used.
        self.proxied.get_or_init(|| words);
        Ok(())
    }

    /// What is kept of proxied flows, by slot, for compiled code. Null before [`FlowTable::keep_proxied`].
    pub fn proxied(&self) -> *mut Proxied {
        self.proxied.get().map_or(std::ptr::null_mut(), |words| words.as_ptr().cast())
    }

    /// Its map, if it is in the kernel.
    pub fn proxied_map(&self) -> Option<BorrowedFd<'_>> {
        self.proxied.get()?.map()
    }

    /// Calls `visit` with the key and state of each flow, also of expired ones. Code may change flows meanwhile; each
    /// flow is as it was at some time.
    pub fn each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        for (bucket, slot) in self.slots().filter(|&(bucket, slot)| self.tag(bucket, slot) != 0) {
            if let Some(known) = self.read(bucket, slot) {
                visit(&known.key, &known.flow);
            }
        }
    }

    /// Number of flows of each [`FlowClass`], also of expired ones. Reads the tags only.
    pub fn classes(&self) -> [u64; 4] {
        let mut classes = [0; 4];
        for bucket in 0..self.count as usize {
            for tag in self.tags(bucket).into_iter().filter(|&tag| tag != 0) {
                classes[FlowClass::of_tag(tag) as usize] += 1;
            }
        }
        classes
    }

    /// Number of slots.
    pub fn slot_count(&self) -> usize {
        self.count as usize * SLOTS
    }

    /// A slot by its number, below [`FlowTable::slot_count`]. Code may change it meanwhile.
    pub fn slot(&self, number: usize) -> Slot {
        let (bucket, slot) = (number / SLOTS, number % SLOTS);
        if self.tag(bucket, slot) == 0 {
            return Slot::Free;
        }
        self.read(bucket, slot).map_or(Slot::Busy, Slot::Flow)
    }

    /// Enters flows, each in place of one with the same key. Returns how many had room; a proxied flow has none before
    /// [`FlowTable::keep_proxied`]. No code may use the table meanwhile.
    pub fn enter(&self, flows: &[KnownFlow]) -> usize {
        let mut entered = 0;
        for flows in flows.chunks(FLOWS_AT_ONCE) {
            let hashed: Vec<Hashed> = flows.iter().map(|known| self.keys.hash(&known.key, self.count)).collect();
            // Waits for the tags of all of them at once. Otherwise each flow waits for memory.
            let words = hashed.iter().flat_map(|hashed| hashed.buckets).map(|bucket| bucket as usize * BUCKET_WORDS);
            let touched = words.fold(0, |all, word| all ^ self.buckets.all()[word].load(Ordering::Relaxed));
            std::hint::black_box(touched);
            let had_room = flows.iter().zip(&hashed).filter(|(known, hashed)| self.enter_one(known, hashed));
            entered += had_room.count();
        }
        entered
    }

    fn enter_one(&self, &KnownFlow { key, flow, proxied }: &KnownFlow, &Hashed { buckets, tag }: &Hashed) -> bool {
        if proxied.is_some() && self.proxied.get().is_none() {
            return false;
        }
        let buckets = buckets.map(|bucket| bucket as usize);
        let tags = buckets.map(|bucket| self.tags(bucket));
        let has_key = |bucket: usize, slot: usize| self.read(bucket, slot).is_some_and(|known| known.key == key);
        let known = (0..2).find_map(|side| {
            let hits = mask(&tags[side], |of| of & TAG_HASH == tag);
            let slot = (0..SLOTS).find(|&slot| hits >> slot & 1 != 0 && has_key(buckets[side], slot))?;
            Some((buckets[side], slot))
        });
        // The better bucket is the one with more free slots: step 1 of docs/reference/tracking.md#the-table.
        let free = tags.map(|tags| mask(&tags, |of| of == 0));
        let better = usize::from(free[1].count_ones() > free[0].count_ones());
        let first_free = Some(free[better].trailing_zeros() as usize).filter(|&slot| slot < SLOTS);
        let Some((bucket, slot)) = known.or(first_free.map(|slot| (buckets[better], slot))) else { return false };
        let words = key.words.into_iter().chain(flow.pack(key.is_ipv6));
        self.entry(bucket, slot).iter().zip(words).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        if let Some((words, proxied)) = self.proxied_words(bucket, slot).zip(proxied) {
            words.iter().zip(proxied.pack()).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        }
        let tag = flow.class().tag(tag);
        let shift = 16 * (slot % TAGS_IN_WORD);
        let word = &self.buckets.all()[bucket * BUCKET_WORDS + slot / TAGS_IN_WORD];
        let others = word.load(Ordering::Relaxed) & !(0xffff << shift);
        word.store(others | u64::from(tag) << shift, Ordering::Relaxed);
        true
    }

    /// Each slot: its bucket, and its number there.
    fn slots(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count as usize).flat_map(|bucket| (0..SLOTS).map(move |slot| (bucket, slot)))
    }

    /// Ends the flows that are wanted, at the time `now`, while code may change them: their times become so old that
    /// they have expired. Returns their number. Only code frees slots.
    pub fn end(&self, now: u32, is_wanted: &dyn Fn(&FlowKey, &Flow) -> bool) -> usize {
        self.slots().filter(|&(bucket, slot)| self.end_one(bucket, slot, now, is_wanted)).count()
    }

    fn end_one(&self, bucket: usize, slot: usize, now: u32, is_wanted: &dyn Fn(&FlowKey, &Flow) -> bool) -> bool {
        let word = &self.entry(bucket, slot)[ENTRY_WORDS - 1];
        for _ in 0..READS_MAX {
            if self.tag(bucket, slot) == 0 {
                return false;
            }
            let status = word.load(Ordering::Acquire);
            let Some(KnownFlow { key, flow, .. }) = self.read(bucket, slot) else { return false };
            if !is_wanted(&key, &flow) {
                return false;
            }
            // A packet that passes meanwhile changes the time, and the flow is tried again.
            let ended = flow.pack(key.is_ipv6)[2] == status;
            let old = status & !u64::from(TICKS - 1) | u64::from(now.wrapping_sub(TICKS / 2) & (TICKS - 1));
            if ended && word.compare_exchange(status, old, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return true;
            }
        }
        false
    }

    /// Brings the times forward of flows that expired so long ago that their times would wrap around. To be called
    /// every few days at least. It reads the whole table, but once a day only.
    pub fn refresh(&self, now_ns: u64) {
        let last_ns = self.refreshed_ns.load(Ordering::Relaxed);
        if now_ns.saturating_sub(last_ns) < DAY_NS {
            return;
        }
        self.refreshed_ns.store(now_ns, Ordering::Relaxed);
        let now = ticks(now_ns);
        self.end(now, &|_, flow| age(now, flow.time) > TICKS / 2);
    }

    /// Frees all slots, sets the clock back, and forgets that cookies were made. No code may use the table meanwhile.
    pub fn clear(&self) {
        self.buckets.all().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        let changing = [
            offset_of!(FlowHead, clock)..offset_of!(FlowHead, buckets),
            offset_of!(FlowHead, cookies_made)..size_of::<FlowHead>(),
        ];
        for bytes in changing {
            let words = &self.head.all()[bytes.start / size_of::<u64>()..bytes.end / size_of::<u64>()];
            words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// Checks the invariants of the table, for tests. No code may use it meanwhile.
    ///
    /// # Errors
    /// The invariant that is violated.
    pub fn verify(&self) -> Result<(), String> {
        let mut keys = std::collections::HashSet::new();
        for (bucket, slot) in self.slots() {
            let (tag, at) = (self.tag(bucket, slot), format!("slot {slot} of bucket {bucket}"));
            if tag == 0 {
                let is_empty = self.entry(bucket, slot).iter().all(|word| word.load(Ordering::Relaxed) == 0);
                is_empty.then_some(()).ok_or(format!("{at} is free and not empty"))?;
                continue;
            }
            let KnownFlow { key, flow, .. } = self.read(bucket, slot).ok_or(format!("{at} is locked"))?;
            let Hashed { buckets, tag: hashed } = self.keys.hash(&key, self.count);
            let problem = match () {
                () if tag & TAG_HASH != hashed => "has the tag of another key",
                () if FlowClass::of_tag(tag) != flow.class() => "has a tag with another class",
                () if !buckets.contains(&(bucket as u32)) => "is in no bucket of its key",
                () if !keys.insert(key) => "has a key that another slot has",
                () => continue,
            };
            return Err(format!("{at} {problem}"));
        }
        Ok(())
    }

    fn tags(&self, bucket: usize) -> [u16; SLOTS] {
        let words = &self.buckets.all()[bucket * BUCKET_WORDS..][..TAGS_WORDS];
        std::array::from_fn(|slot| {
            (words[slot / TAGS_IN_WORD].load(Ordering::Relaxed) >> (16 * (slot % TAGS_IN_WORD))) as u16
        })
    }

    fn tag(&self, bucket: usize, slot: usize) -> u16 {
        let word = self.buckets.all()[bucket * BUCKET_WORDS + slot / TAGS_IN_WORD].load(Ordering::Acquire);
        (word >> (16 * (slot % TAGS_IN_WORD))) as u16
    }

    fn entry(&self, bucket: usize, slot: usize) -> &[AtomicU64] {
        let first = bucket * BUCKET_WORDS + TAGS_WORDS + slot * ENTRY_WORDS;
        &self.buckets.all()[first..first + ENTRY_WORDS]
    }

    /// What is kept of a proxied flow, if the table keeps it.
    fn proxied_words(&self, bucket: usize, slot: usize) -> Option<&[AtomicU64]> {
        let first = PROXIED_WORDS * (bucket * SLOTS + slot);
        Some(&self.proxied.get()?.all()[first..first + PROXIED_WORDS])
    }

    /// The flow of a slot. `None` if it was freed meanwhile, or stays locked.
    fn read(&self, bucket: usize, slot: usize) -> Option<KnownFlow> {
        let entry = self.entry(bucket, slot);
        for _ in 0..READS_MAX {
            let words: [u64; ENTRY_WORDS] = std::array::from_fn(|index| entry[index].load(Ordering::Acquire));
            let status = words[ENTRY_WORDS - 1];
            let found = Flow::read([words[5], words[6], status]);
            let beside = found.filter(|(flow, _)| flow.proxied).and_then(|_| self.proxied_words(bucket, slot));
            let proxied =
                beside.map(|beside| Proxied::unpack(std::array::from_fn(|at| beside[at].load(Ordering::Acquire))));
            // Code that changes other words changes the last one before and afterwards.
            if status & LOCK == 0 && entry[ENTRY_WORDS - 1].load(Ordering::Acquire) == status {
                let (flow, is_ipv6) = found?;
                let key = FlowKey { words: words[..5].try_into().expect("five words"), is_ipv6 };
                return Some(KnownFlow { key, flow, proxied });
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// The slots whose tags have a property, the first in the lowest bit.
fn mask(tags: &[u16; SLOTS], has: impl Fn(u16) -> bool) -> u32 {
    (0..SLOTS).fold(0, |mask, slot| mask | u32::from(has(tags[slot])) << slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::flow::{Agreed, Arrival, FlowState, Side, Window};

    const SECRETS: FlowSecrets = FlowSecrets { seed: 1, cookies: [2, 3] };

    #[test]
    fn an_empty_table_has_no_flows_and_takes_no_memory() {
        let table = FlowTable::new(Memory::Process, 10_000_000, SECRETS).expect("it is only set aside");
        assert_eq!(table.buckets(), 312_500);
        let (head, _) = table.as_ptrs();
        assert!(!head.is_null());
        assert_eq!(table.keys, HashKeys::of(1));
        let table = FlowTable::new(Memory::Process, 1000, SECRETS).expect("it is little");
        table.each(&mut |key, _| panic!("{key:?}"));
        assert_eq!(table.verify(), Ok(()));
    }

    fn established(nth: u32, una: u32) -> KnownFlow {
        let key = FlowKey::of(Arrival::Outside, (nth.into(), 1024), (1 << 30, 80), 6, [0; 2], false);
        let opener = Arrival::Outside.side();
        let sides = [Side { una, next: una, window: Window::of(1000), ..Side::default() }; 2];
        let state = FlowState::Established;
        let flow = Flow { time: 1, state, opener, liberal: true, replied: true, syn: false, proxied: false, sides };
        KnownFlow { key, flow, proxied: None }
    }

    #[test]
    fn what_translates_a_flow_lies_beside_its_slot() {
        let table = FlowTable::new(Memory::Process, 320, SECRETS).expect("it is little");
        let agreed = Agreed { client_scale: 3, told_scale: 7, timestamps: true, sack: true };
        let known = |nth: u32| {
            let known = established(nth, nth);
            let state = if nth.is_multiple_of(2) { FlowState::Established } else { FlowState::SynReceived };
            let flow = Flow { proxied: true, state, ..known.flow };
            KnownFlow { flow, proxied: Some(Proxied::new(nth, 1000 + nth, 1460, agreed)), ..known }
        };
        let all: Vec<KnownFlow> = (0..100).map(known).collect();
        assert_eq!(table.enter(&all), 0, "nothing is kept beside slots");
        table.keep_proxied().expect("it is little");
        assert_eq!(table.enter(&all), 100);
        assert_eq!(table.verify(), Ok(()));
        for known in all {
            let has = |number: usize| table.slot(number) == Slot::Flow(known);
            let number = (0..table.slot_count()).find(|&number| has(number)).expect("it was entered");
            // SAFETY: the memory has an element for each slot, and no code uses it.
            assert_eq!(Some(unsafe { *table.proxied().add(number) }), known.proxied, "as compiled code sees it");
        }
    }

    #[test]
    fn flows_are_entered_until_the_table_is_full_and_once_each() {
        let table = FlowTable::new(Memory::Process, 320, SECRETS).expect("it is little");
        let entered: Vec<u32> = (0..1000).filter(|&nth| table.enter(&[established(nth, nth)]) == 1).collect();
        assert_eq!(entered.len(), table.slot_count(), "all slots are used");
        assert_eq!(table.verify(), Ok(()));
        let known = established(entered[0], 7);
        assert_eq!(table.enter(&[known]), 1, "it takes its own place");
        let slots = (0..table.slot_count()).map(|number| table.slot(number));
        assert_eq!(slots.filter(|&slot| slot == Slot::Flow(known)).count(), 1);
        assert_eq!(table.verify(), Ok(()));
        table.clear();
        assert!((0..table.slot_count()).all(|number| table.slot(number) == Slot::Free));
    }

    #[test]
    fn a_table_with_a_wrong_tag_is_found() {
        let table = FlowTable::new(Memory::Process, 64, SECRETS).expect("it is little");
        table.buckets.all()[0].store(1 << 16, Ordering::Relaxed);
        assert_eq!(table.verify(), Err("slot 1 of bucket 0 is locked".to_owned()));
    }
}
