//! The table of flows: buckets of [`SLOTS`] slots. Each key has two buckets.
//!
//! All engines follow the same steps, so that they agree on which flow is refused or evicted. An expired flow counts as
//! absent. Its slot is freed by a lookup of its key, or when a bucket has no free slot.

use crate::ir::Tracking;
use weir_abi::flow::{
    ENTRY_WORDS, Flow, FlowClass, FlowKey, HashKeys, Hashed, PREFERRED, Proxied, RECLAIM_TICKS, REPLAY_SEED, SLOTS,
    TAG_HASH, Timeouts, buckets, share_of_bucket,
};
use weir_abi::seats::Claim;

const TCP: u8 = 6;

/// The flows.
pub(super) struct FlowTable {
    tags: Vec<[u16; SLOTS]>,
    entries: Vec<[[u64; ENTRY_WORDS]; SLOTS]>,
    keys: HashKeys,
    /// Most embryonic flows of a bucket.
    embryonic_max: usize,
    /// Most unproven flows of a bucket, until connections become unproven.
    unproven_max: usize,
    timeouts: Timeouts,
    /// What proxied flows need; empty if the policy answers no SYNs.
    proxied: Vec<[Proxied; SLOTS]>,
}

/// A slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    bucket: usize,
    slot: usize,
}

/// Where a new flow goes.
enum Place {
    Free(Slot),
    Evict(Slot),
    Full,
}

impl FlowTable {
    pub(super) fn new(settings: &Tracking) -> Self {
        let count = buckets(settings.size) as usize;
        FlowTable {
            tags: vec![[0; SLOTS]; count],
            entries: vec![[[0; ENTRY_WORDS]; SLOTS]; count],
            keys: HashKeys::of(REPLAY_SEED),
            embryonic_max: share_of_bucket(settings.embryonic_percent),
            unproven_max: share_of_bucket(settings.unproven_percent),
            timeouts: settings.timeouts(),
            proxied: vec![[Proxied::default(); SLOTS]; if settings.synproxy.is_some() { count } else { 0 }],
        }
    }

    /// The hash of a key.
    pub(super) fn hash(&self, key: &FlowKey) -> Hashed {
        self.keys.hash(key, self.tags.len() as u32)
    }

    /// The slots of a hash's buckets that have its tag.
    fn tagged(&self, hashed: &Hashed) -> impl Iterator<Item = Slot> {
        let tag = hashed.tag;
        let slots = hashed.buckets.into_iter().flat_map(|bucket| (0..SLOTS).map(move |slot| (bucket as usize, slot)));
        let slots = slots.map(|(bucket, slot)| Slot { bucket, slot });
        slots.filter(move |at| self.tags[at.bucket][at.slot] & TAG_HASH == tag)
    }

    /// The flow of a key, expired or not.
    pub(super) fn get(&self, key: &FlowKey) -> Option<Flow> {
        let hashed = self.hash(key);
        let flows = self.tagged(&hashed).map(|at| &self.entries[at.bucket][at.slot]);
        let mut same = flows.filter(|entry| entry[..5] == key.words && unpack(entry).1 == key.is_ipv6);
        same.next().map(|entry| unpack(entry).0)
    }

    /// Whether a flow of a hash has not expired and makes a claim.
    pub(super) fn any_of(&self, hashed: &Hashed, now: u32, claim: Claim) -> bool {
        let claims = |at: &Slot| Claim::of(&unpack(&self.entries[at.bucket][at.slot]).0) == claim;
        self.tagged(hashed).any(|at| claims(&at) && !self.has_expired(at, now))
    }

    /// Finds the flow of a key. If it has expired, its slot is freed.
    pub(super) fn find(&mut self, key: &FlowKey, now: u32) -> Option<(Slot, Flow)> {
        let hashed = self.hash(key);
        let slots = hashed.buckets.into_iter().flat_map(|bucket| (0..SLOTS).map(move |slot| (bucket as usize, slot)));
        for (bucket, slot) in slots {
            let entry = &self.entries[bucket][slot];
            if self.tags[bucket][slot] & TAG_HASH != hashed.tag || entry[..5] != key.words {
                continue;
            }
            let (flow, is_ipv6) = unpack(entry);
            if is_ipv6 != key.is_ipv6 {
                continue;
            }
            let at = Slot { bucket, slot };
            if self.has_expired(at, now) {
                self.remove(at);
                return None;
            }
            return Some((at, flow));
        }
        None
    }

    /// Replaces the flow of a slot.
    pub(super) fn set(&mut self, at: Slot, flow: &Flow) {
        let entry = &mut self.entries[at.bucket][at.slot];
        let (_, is_ipv6) = unpack(entry);
        entry[5..].copy_from_slice(&flow.pack(is_ipv6));
        let tag = &mut self.tags[at.bucket][at.slot];
        *tag = flow.class().tag(*tag & TAG_HASH);
    }

    /// The flow of a slot; `None` if the slot is free.
    pub(super) fn at(&self, at: Slot) -> Option<Flow> {
        let is_taken = self.tags[at.bucket][at.slot] != 0;
        is_taken.then(|| unpack(&self.entries[at.bucket][at.slot]).0)
    }

    /// What a proxied flow needs.
    pub(super) fn proxied(&self, at: Slot) -> Proxied {
        self.proxied[at.bucket][at.slot]
    }

    /// Replaces what a proxied flow needs.
    pub(super) fn set_proxied(&mut self, at: Slot, proxied: Proxied) {
        self.proxied[at.bucket][at.slot] = proxied;
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, at: Slot) {
        self.tags[at.bucket][at.slot] = 0;
        self.entries[at.bucket][at.slot] = [0; ENTRY_WORDS];
    }

    /// Whether a new flow has room. Frees the slots that an insertion would free.
    pub(super) fn has_room(&mut self, key: &FlowKey, now: u32) -> bool {
        !matches!(self.place(key, now), Place::Full)
    }

    /// Enters a flow. Returns its slot, if it had room.
    pub(super) fn insert(&mut self, key: &FlowKey, flow: &Flow, now: u32) -> Option<Slot> {
        let at = match self.place(key, now) {
            Place::Free(at) | Place::Evict(at) => at,
            Place::Full => return None,
        };
        let entry = &mut self.entries[at.bucket][at.slot];
        entry[..5].copy_from_slice(&key.words);
        entry[5..].copy_from_slice(&flow.pack(key.is_ipv6));
        self.tags[at.bucket][at.slot] = self.hash(key).tag;
        self.set(at, flow);
        Some(at)
    }

    /// Finds a slot for a new flow:
    ///
    /// 1. The better of its two buckets is the one in which its class has not its share. If that is no difference, the
    ///    first, if fewer than [`PREFERRED`] of its slots have flows that do not close; else the one with fewer of
    ///    them; else the first.
    /// 2. If its class has its share of that bucket, one of the class makes room.
    /// 3. Else, if [`PREFERRED`] slots of that bucket are used, a closing flow makes room whose weighted age is at
    ///    least [`RECLAIM_TICKS`].
    /// 4. Else the first free slot is taken.
    /// 5. If there is none, both buckets are freed of expired flows, and steps 1 to 4 are repeated.
    /// 6. If there is still none, a closing flow makes room, or an unproven one, or for a connection an embryonic one:
    ///    in that bucket, or in the other one.
    ///
    /// Of a class, the flow with the highest weighted age makes room.
    fn place(&mut self, key: &FlowKey, now: u32) -> Place {
        let hashed = self.hash(key);
        let (candidates, start) = (hashed.buckets.map(|bucket| bucket as usize), usize::from(hashed.tag));
        let class = new_class(key);
        for _ in 0..2 {
            let better = self.better(candidates, class);
            if self.has_share(better, class) {
                return self.spare(better, class, start, now).map_or(Place::Full, |(at, _)| Place::Evict(at));
            }
            if self.used(better) >= PREFERRED
                && let Some((at, _)) =
                    self.spare(better, FlowClass::Closing, start, now).filter(|&(_, age)| age >= RECLAIM_TICKS)
            {
                return Place::Evict(at);
            }
            if let Some(slot) = self.tags[better].iter().position(|&tag| tag == 0) {
                return Place::Free(Slot { bucket: better, slot });
            }
            candidates.iter().for_each(|&bucket| self.free_expired(bucket, now));
        }
        let better = self.better(candidates, class);
        let other = if better == candidates[0] { candidates[1] } else { candidates[0] };
        let yields = [FlowClass::Closing, FlowClass::Unproven, FlowClass::Embryonic];
        let yields = if class == FlowClass::Embryonic { &yields[..] } else { &yields[..2] };
        let spare = |&class: &FlowClass| {
            let of_better = self.spare(better, class, start, now);
            of_better.or_else(|| self.spare(other, class, start, now))
        };
        yields.iter().find_map(spare).map_or(Place::Full, |(at, _)| Place::Evict(at))
    }

    fn better(&self, [first, second]: [usize; 2], class: FlowClass) -> usize {
        let rank = |bucket: usize| {
            let busy = self.used(bucket) - self.count(bucket, FlowClass::Closing);
            (self.has_share(bucket, class), busy)
        };
        let (has_share, busy) = rank(first);
        let of_first = (has_share, if busy < PREFERRED { 0 } else { busy });
        if rank(second) < of_first { second } else { first }
    }

    /// Used slots of a bucket.
    fn used(&self, bucket: usize) -> usize {
        self.tags[bucket].iter().filter(|&&tag| tag != 0).count()
    }

    /// Flows of a class in a bucket.
    fn count(&self, bucket: usize, class: FlowClass) -> usize {
        self.tags[bucket].iter().filter(|&&tag| tag != 0 && FlowClass::of_tag(tag) == class).count()
    }

    /// Whether a class of new flows has its share of a bucket.
    fn has_share(&self, bucket: usize, class: FlowClass) -> bool {
        let share = if class == FlowClass::Embryonic { self.embryonic_max } else { self.unproven_max };
        self.count(bucket, class) >= share
    }

    /// The flow of a class that makes room first, and its weighted age. Of several with the same age, as in a flood,
    /// the first from slot `start` on, so that each of them may be chosen.
    fn spare(&self, bucket: usize, class: FlowClass, start: usize, now: u32) -> Option<(Slot, u32)> {
        let slots = (start..start + SLOTS).map(|slot| slot % SLOTS);
        let is_of_class = |&slot: &usize| {
            let tag = self.tags[bucket][slot];
            tag != 0 && FlowClass::of_tag(tag) == class
        };
        let aged = slots.filter(is_of_class).map(|slot| {
            let (flow, _) = unpack(&self.entries[bucket][slot]);
            (Slot { bucket, slot }, flow.weighted_age(now))
        });
        aged.reduce(|oldest, next| if next.1 > oldest.1 { next } else { oldest })
    }

    fn free_expired(&mut self, bucket: usize, now: u32) {
        for slot in 0..SLOTS {
            let at = Slot { bucket, slot };
            if self.tags[bucket][slot] != 0 && self.has_expired(at, now) {
                self.remove(at);
            }
        }
    }

    fn has_expired(&self, at: Slot, now: u32) -> bool {
        let entry = &self.entries[at.bucket][at.slot];
        self.timeouts.has_passed(&unpack(entry).0, (entry[4] >> 24) as u8, now)
    }

    /// Calls `visit` with each flow, also with expired ones.
    pub(super) fn each(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        for bucket in 0..self.tags.len() {
            for slot in (0..SLOTS).filter(|&slot| self.tags[bucket][slot] != 0) {
                let entry = &self.entries[bucket][slot];
                let (flow, is_ipv6) = unpack(entry);
                let words = entry[..5].try_into().expect("five words");
                visit(&FlowKey { words, is_ipv6 }, &flow);
            }
        }
    }

    /// Checks the invariants of the table, for tests. Panics if one is violated.
    pub(super) fn verify(&self) {
        let mut keys = std::collections::HashSet::new();
        for bucket in 0..self.tags.len() {
            for slot in 0..SLOTS {
                let (tag, entry) = (self.tags[bucket][slot], &self.entries[bucket][slot]);
                if tag == 0 {
                    assert_eq!(*entry, [0; ENTRY_WORDS], "a free slot is empty");
                    continue;
                }
                let (flow, is_ipv6) = unpack(entry);
                let key = FlowKey { words: entry[..5].try_into().expect("five words"), is_ipv6 };
                let hashed = self.hash(&key);
                assert_eq!(tag & TAG_HASH, hashed.tag);
                assert_eq!(FlowClass::of_tag(tag), flow.class());
                assert!(hashed.buckets.contains(&(bucket as u32)), "a flow is in one of its buckets");
                assert!(!flow.proxied || !self.proxied.is_empty(), "only a policy with a proxy has proxied flows");
                assert!(keys.insert(key), "a key is in the table once");
            }
        }
    }
}

/// The class of a flow that begins.
fn new_class(key: &FlowKey) -> FlowClass {
    if key.protocol() == TCP { FlowClass::Embryonic } else { FlowClass::Unproven }
}

fn unpack(entry: &[u64; ENTRY_WORDS]) -> (Flow, bool) {
    Flow::unpack(entry[5..].try_into().expect("three words"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::flow::{Arrival, FlowState, Side, Window, timeout_ticks};

    fn key(nth: u32) -> FlowKey {
        FlowKey::of(Arrival::Outside, (u128::from(nth), 1), (1 << 40, 80), 6, [0; 2], true)
    }

    fn flow(state: FlowState, time: u32) -> Flow {
        let replied = state != FlowState::SynSent;
        Flow {
            time,
            state,
            opener: 0,
            liberal: false,
            replied,
            syn: false,
            proxied: false,
            sides: [Side { window: Window::of(65535), ..Side::default() }; 2],
        }
    }

    fn table(size: u32, embryonic_percent: u8) -> FlowTable {
        FlowTable::new(&Tracking { size, embryonic_percent, ..Tracking::default() })
    }

    #[test]
    fn embryonic_flows_take_their_share_and_the_oldest_goes_first() {
        let mut table = table(64, 25);
        for nth in 0..1000 {
            assert!(table.insert(&key(nth), &flow(FlowState::SynSent, nth), nth).is_some());
            table.verify();
        }
        let mut times = Vec::new();
        table.each(&mut |_, flow| times.push(flow.time));
        assert_eq!(times.len(), 16, "a quarter of 64");
        assert!(times.iter().all(|&time| time >= 960), "{times:?}");
    }

    #[test]
    fn established_flows_are_never_evicted() {
        let mut table = table(64, 25);
        let established = flow(FlowState::Established, 0);
        let entered: Vec<u32> = (0..200).filter(|&nth| table.insert(&key(nth), &established, 0).is_some()).collect();
        assert_eq!(entered.len(), 64, "all slots are used");
        assert!((1000..2000).all(|nth| !table.has_room(&key(nth), 1)));
        assert!(entered.iter().all(|&nth| table.find(&key(nth), 1).is_some()));
        table.verify();
    }

    #[test]
    fn a_full_table_evicts_embryonic_flows() {
        let mut table = table(32, 25);
        let entered =
            (0..28).filter(|&nth| table.insert(&key(nth), &flow(FlowState::Established, 0), 0).is_some()).count();
        assert_eq!(entered, 28);
        for nth in 100..110 {
            assert!(table.insert(&key(nth), &flow(FlowState::SynSent, nth), nth).is_some());
        }
        let alive: Vec<u32> = (100..110).filter(|&nth| table.find(&key(nth), 110).is_some()).collect();
        assert_eq!(alive, [106, 107, 108, 109]);
        assert!((0..28).all(|nth| table.find(&key(nth), 110).is_some()));
    }

    #[test]
    fn expired_flows_make_room() {
        let mut table = table(64, 25);
        let established = flow(FlowState::Established, 0);
        (0..200).for_each(|nth| _ = table.insert(&key(nth), &established, 0));
        let after = timeout_ticks(5 * 24 * 3_600_000) + 1;
        assert!(!table.has_room(&key(500), after - 1));
        assert!(table.has_room(&key(500), after));
        assert!(table.find(&key(0), after).is_none());
        table.verify();
    }

    #[test]
    fn closing_flows_make_room_and_those_that_are_over_go_first() {
        let mut table = table(32, 25);
        let half_closed = flow(FlowState::CloseWait, 0);
        (0..20).for_each(|nth| _ = table.insert(&key(nth), &half_closed, 0).expect("there is room"));
        let over = flow(FlowState::TimeWait, 10);
        (100..112).for_each(|nth| _ = table.insert(&key(nth), &over, 10).expect("there is room"));
        let established = flow(FlowState::Established, 11);
        (200..212).for_each(|nth| _ = table.insert(&key(nth), &established, 11).expect("closing flows make room"));
        assert!((0..20).all(|nth| table.find(&key(nth), 11).is_some()), "half closed connections go last");
        assert!((100..112).all(|nth| table.find(&key(nth), 11).is_none()));
        (300..320).for_each(|nth| _ = table.insert(&key(nth), &established, 11).expect("closing flows make room"));
        assert!(!table.has_room(&key(500), 11), "established flows do not");
        table.verify();
    }

    #[test]
    fn closing_flows_leave_early_while_room_is_short() {
        let mut table = table(32, 25);
        let over = flow(FlowState::TimeWait, 0);
        (0..32).for_each(|nth| _ = table.insert(&key(nth), &over, 0).expect("nothing is old enough to go"));
        let second = timeout_ticks(1000) + 1;
        let open = flow(FlowState::SynSent, second);
        (100..108).for_each(|nth| _ = table.insert(&key(nth), &open, second).expect("a second is enough"));
        assert_eq!((0..32).filter(|&nth| table.find(&key(nth), second).is_some()).count(), 24);
        table.verify();
    }

    fn datagram(nth: u32) -> FlowKey {
        FlowKey::of(Arrival::Outside, (u128::from(nth), 1), (1 << 40, 53), 17, [0; 2], true)
    }

    #[test]
    fn unproven_flows_take_their_share_and_no_room_of_connections() {
        let mut table = table(64, 25);
        let connections: Vec<u32> = (0..16).collect();
        let established = flow(FlowState::Established, 0);
        connections.iter().for_each(|&nth| _ = table.insert(&key(nth), &established, 0).expect("there is room"));
        for nth in 0..1000 {
            assert!(table.insert(&datagram(nth), &flow(FlowState::Replied, nth), nth).is_some());
        }
        table.verify();
        assert!(connections.iter().all(|&nth| table.find(&key(nth), 1000).is_some()));
        let mut unproven = 0;
        table.each(&mut |key, _| unproven += usize::from(key.protocol() == 17));
        assert_eq!(unproven, 32, "half of 64");
        (100..116).for_each(|nth| _ = table.insert(&key(nth), &established, 1000).expect("connections have room"));
        (200..210).for_each(|nth| _ = table.insert(&key(nth), &established, 1000).expect("and take that of others"));
        assert!((0..16).chain(100..116).chain(200..210).all(|nth| table.find(&key(nth), 1000).is_some()));
        table.verify();
    }

    #[test]
    fn unanswered_flows_go_before_answered_ones_and_these_before_assured_ones() {
        let mut table = table(32, 25);
        let enter = |table: &mut FlowTable, nth: u32, state: FlowState, time: u32| {
            table.insert(&datagram(nth), &flow(state, time), time).expect("there is room");
        };
        (0..5).for_each(|nth| enter(&mut table, nth, FlowState::Assured, 0));
        (5..10).for_each(|nth| enter(&mut table, nth, FlowState::Replied, 0));
        (10..16).for_each(|nth| enter(&mut table, nth, FlowState::Unreplied, 0));
        let alive = |table: &mut FlowTable, range: std::ops::Range<u32>| {
            range.filter(|&nth| table.find(&datagram(nth), 100).is_some()).count()
        };
        (100..106).for_each(|nth| enter(&mut table, nth, FlowState::Assured, 100));
        assert_eq!([alive(&mut table, 0..5), alive(&mut table, 5..10), alive(&mut table, 10..16)], [5, 5, 0]);
        (106..111).for_each(|nth| enter(&mut table, nth, FlowState::Assured, 100));
        assert_eq!([alive(&mut table, 0..5), alive(&mut table, 5..10)], [5, 0]);
        (111..116).for_each(|nth| enter(&mut table, nth, FlowState::Assured, 100));
        assert_eq!(alive(&mut table, 0..5), 0);
    }

    #[test]
    fn two_choices_fill_a_table_nearly_completely() {
        let mut table = table(32 * 1000, 25);
        let established = flow(FlowState::Established, 0);
        let refused = (0..32_000).find(|&nth| table.insert(&key(nth), &established, 0).is_none()).unwrap_or(32_000);
        assert!(refused > 29_500, "the first flow was refused after {refused} of 32000");
    }

    #[test]
    fn an_expired_flow_is_absent() {
        let mut table = table(64, 25);
        table.insert(&key(1), &flow(FlowState::Closed, 0), 0);
        assert!(table.find(&key(1), timeout_ticks(10_000)).is_some());
        assert!(table.find(&key(1), timeout_ticks(10_000) + 1).is_none());
        assert!(table.find(&key(1), 0).is_none(), "its slot was freed");
    }
}
