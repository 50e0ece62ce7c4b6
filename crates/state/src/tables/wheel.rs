//! When the entries of a table expire: a hierarchical timing wheel (Varghese and Lauck, "Hashed and hierarchical timing
//! wheels", SOSP 1987) beside an index of its keys.
//!
//! ```text
//!   level 0   512 slots of 1 tick         keys that expire in this window of 256 ticks or in the next one
//!   level 1   512 slots of 256 ticks      ... in this window of 65,536 ticks or in the next one
//!   level 2   512 slots of 65,536 ticks   ... in this window of 2^24 ticks or in the next one
//!   far       one list                    later
//!   due       one list                    keys of slots that time has reached: they expire, or were prolonged
//!   moving    one list                    keys of slots of a higher level that time comes near to
//! ```
//! Slots and lists are rings of nodes, so time moves on without touching a key: a slot is joined to `due` or `moving`
//! as a whole. [`Wheel::step`] then handles a limited number of keys at a time, those that are due first. A key moves
//! to the lower level one window ahead, so it is there in time.
//!
//! A later deadline of a key is only written. The key is placed again when its old slot is due. An earlier deadline
//! moves the key. No key is in the wheel twice, and a removed key leaves it at once.
//!
//! A node takes 20 bytes for IPv4 and 32 bytes for IPv6, and the index 6 to 12 bytes a key.

use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;

/// The unit of deadlines, ns.
pub use weir_abi::addition::TICK_NS;

/// Longest time to a deadline, ms: one year.
pub const TIMEOUT_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// Longest time to a deadline, ticks. Deadlines are kept as their lowest 32 bits. A deadline that seems to be farther
/// away than this has passed.
const LEFT_MAX: u64 = TIMEOUT_MS_MAX * 1_000_000 / TICK_NS + WINDOW;
/// Time moves on by at most this many ticks before all due keys are handled, so that a passed deadline is known as
/// such.
const STRIDE_MAX: u64 = 1 << 30;
const _: () = assert!(LEFT_MAX + STRIDE_MAX < 1 << 32, "passed and coming deadlines are different numbers");

/// Number of levels.
const LEVELS: u32 = 3;
/// Ticks in a slot of level 1, and slots of one level in a slot of the next one.
const WINDOW: u64 = 1 << WINDOW_BITS;
const WINDOW_BITS: u32 = 8;
/// Slots of a level: two windows.
const SLOTS: u64 = 2 * WINDOW;
/// The heads of the lists are the first nodes: the heads of the slots, level by level, then the heads of the other
/// lists.
const FAR: u32 = LEVELS * SLOTS as u32;
const DUE: u32 = FAR + 1;
const MOVING: u32 = FAR + 2;
const HEADS: u32 = FAR + 3;
/// The end of the list of free nodes.
const NONE: u32 = u32::MAX;

/// A key, or the head of a list. Lists are rings.
#[derive(Clone, Copy)]
struct Node<K> {
    key: K,
    /// The lowest 32 bits of the deadline.
    until: u32,
    previous: u32,
    /// Of a free node the next free one.
    next: u32,
}

const _: () = assert!(size_of::<Node<(u32, u8)>>() == 20 && size_of::<Node<([u32; 4], u8)>>() == 32);

/// Keys with their deadlines in ticks.
#[derive(Clone)]
pub(super) struct Wheel<K> {
    /// The present. Slots up to this tick are in `due`.
    now: u64,
    nodes: Vec<Node<K>>,
    free: u32,
    /// The nodes of keys by hash. Keys may be chosen by attackers, so the hash has a random seed.
    index: HashTable<u32>,
    hasher: RandomState,
}

impl<K: Copy + Default + Eq + Hash> Wheel<K> {
    /// A wheel without keys. The time is tick `now`.
    pub fn new(now: u64) -> Self {
        let head = |at: u32| Node { key: K::default(), until: 0, previous: at, next: at };
        let nodes = (0..HEADS).map(head).collect();
        Wheel { now, nodes, free: NONE, index: HashTable::new(), hasher: RandomState::new() }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// The deadline of a key. One that has passed is the present.
    pub fn until(&self, key: K) -> Option<u64> {
        let at = self.find(key)?;
        Some(self.now + self.left(self.node(at).until))
    }

    /// Sets the deadline of a key, new or known. One that has passed is due at the next step. One more than a year
    /// ahead is a year ahead.
    pub fn set(&mut self, key: K, until: u64) {
        let ahead = until.saturating_sub(self.now).min(LEFT_MAX);
        let until = (self.now + ahead) as u32;
        match self.find(key) {
            Some(at) => {
                let before = self.left(self.node(at).until);
                self.node_mut(at).until = until;
                // Passed and due are the same list.
                if ahead < before {
                    self.unlink(at);
                    self.place(at);
                }
            }
            None => {
                let at = self.take(Node { key, until, previous: NONE, next: NONE });
                let Wheel { index, nodes, hasher, .. } = self;
                let hash = |at: &u32| hasher.hash_one(nodes[*at as usize].key);
                index.insert_unique(hash(&at), at, hash);
                self.place(at);
            }
        }
    }

    /// Removes a key. Returns whether it was there.
    pub fn remove(&mut self, key: K) -> bool {
        let Some(at) = self.find(key) else { return false };
        self.unlink(at);
        self.forget(at);
        true
    }

    /// Moves time on to tick `to`, or a part of the way. Returns whether that was all. Due keys must be handled before
    /// the next call ([`Wheel::step`]).
    pub fn advance(&mut self, to: u64) -> bool {
        if self.index.is_empty() {
            self.now = self.now.max(to);
        }
        let next = to.min(self.now + STRIDE_MAX).max(self.now);
        for level in 0..LEVELS {
            let shift = level * WINDOW_BITS;
            let (begun, ahead, into) = if level == 0 { (self.now, 0, DUE) } else { (self.now >> shift, 1, MOVING) };
            for window in (begun + 1..=next >> shift).take(SLOTS as usize) {
                self.join(level * SLOTS as u32 + ((window + ahead) % SLOTS) as u32, into);
            }
        }
        let shift = LEVELS * WINDOW_BITS;
        if next >> shift > self.now >> shift {
            self.join(FAR, MOVING);
        }
        self.now = next;
        next >= to
    }

    /// Handles up to `keys` keys. Expired keys are removed and added to `expired`. Returns whether nothing is left to
    /// be done at this tick.
    pub fn step(&mut self, keys: usize, expired: &mut Vec<K>) -> bool {
        for _ in 0..keys {
            let due = self.node(DUE).next;
            let at = if due == DUE { self.node(MOVING).next } else { due };
            if at == MOVING {
                return true;
            }
            self.unlink(at);
            if due == at && self.left(self.node(at).until) == 0 {
                expired.push(self.node(at).key);
                self.forget(at);
            } else {
                self.place(at);
            }
        }
        self.node(DUE).next == DUE && self.node(MOVING).next == MOVING
    }

    /// Whether at least `count` keys are due now. Looks at twice as many at most, so the answer may be no although
    /// there are enough, if more than half of the keys were prolonged.
    pub fn has_due(&self, count: usize) -> bool {
        let (mut at, mut due) = (self.node(DUE).next, 0);
        for _ in 0..2 * count {
            if due == count || at == DUE {
                break;
            }
            due += usize::from(self.left(self.node(at).until) == 0);
            at = self.node(at).next;
        }
        due == count
    }

    /// Ticks until a deadline, 0 if it has passed.
    fn left(&self, until: u32) -> u64 {
        match u64::from(until.wrapping_sub(self.now as u32)) {
            left if left <= LEFT_MAX => left,
            _ => 0,
        }
    }

    /// Links a node into the list of its deadline.
    fn place(&mut self, at: u32) {
        let left = self.left(self.node(at).until);
        let until = self.now + left;
        // Whether the deadline is in this window of a level or in the next one.
        let is_near =
            |level: u32| until >> ((level + 1) * WINDOW_BITS) <= (self.now >> ((level + 1) * WINDOW_BITS)) + 1;
        let list = match (0..LEVELS).find(|&level| is_near(level)) {
            _ if left == 0 => DUE,
            Some(level) => level * SLOTS as u32 + ((until >> (level * WINDOW_BITS)) % SLOTS) as u32,
            None => FAR,
        };
        let last = self.node(list).previous;
        (self.node_mut(at).previous, self.node_mut(at).next) = (last, list);
        (self.node_mut(last).next, self.node_mut(list).previous) = (at, at);
    }

    fn unlink(&mut self, at: u32) {
        let Node { previous, next, .. } = *self.node(at);
        self.node_mut(previous).next = next;
        self.node_mut(next).previous = previous;
    }

    /// Appends all nodes of one list to another one.
    fn join(&mut self, from: u32, to: u32) {
        let Node { previous: last, next: first, .. } = *self.node(from);
        if first == from {
            return;
        }
        let before = self.node(to).previous;
        (self.node_mut(before).next, self.node_mut(first).previous) = (first, before);
        (self.node_mut(last).next, self.node_mut(to).previous) = (to, last);
        (self.node_mut(from).previous, self.node_mut(from).next) = (from, from);
    }

    /// Puts a key into a free node or a new one.
    fn take(&mut self, node: Node<K>) -> u32 {
        match self.free {
            NONE => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
            at => {
                self.free = self.node(at).next;
                *self.node_mut(at) = node;
                at
            }
        }
    }

    /// Frees a node that is in no list.
    fn forget(&mut self, at: u32) {
        let hash = self.hasher.hash_one(self.node(at).key);
        if let Ok(found) = self.index.find_entry(hash, |&one| one == at) {
            found.remove();
        }
        self.node_mut(at).next = self.free;
        self.free = at;
    }

    fn find(&self, key: K) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.index.find(hash, |&at| self.node(at).key == key).copied()
    }

    fn node(&self, at: u32) -> &Node<K> {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node<K> {
        &mut self.nodes[at as usize]
    }
}

#[cfg(test)]
#[path = "wheel/tests.rs"]
mod tests;
