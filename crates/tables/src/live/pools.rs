//! Tracks which entries and lanes of a rank leaf image are free, and how many parents share each one in use.

use std::collections::{BTreeSet, HashMap};

/// Number of run sizes: 2^0 to 2^26 entries.
const SIZES: usize = 27;

/// Free entries: those after the last one ever used, and returned runs by size.
#[derive(Clone)]
pub(super) struct Entries {
    /// The first entry that was never used.
    next: usize,
    end: usize,
    free: [Vec<u32>; SIZES],
}

impl Entries {
    /// Entries `next..end` are free.
    pub fn new(next: usize, end: usize) -> Self {
        Entries { next, end, free: [const { Vec::new() }; SIZES] }
    }

    /// Takes `count` entries, a power of two. They come from a returned run of that size, from unused entries, or from
    /// a larger run.
    pub fn take(&mut self, count: usize) -> Option<usize> {
        let size = count.ilog2() as usize;
        if let Some(at) = self.free[size].pop() {
            return Some(at as usize);
        }
        if count <= self.end - self.next {
            self.next += count;
            return Some(self.next - count);
        }
        let larger = (size + 1..SIZES).find(|&larger| !self.free[larger].is_empty())?;
        let at = self.free[larger].pop()? as usize;
        (size..larger).for_each(|half| self.free[half].push((at + (1 << half)) as u32));
        Some(at)
    }

    /// Returns `count` entries.
    pub fn give_back(&mut self, at: usize, count: usize) {
        self.free[count.ilog2() as usize].push(at as u32);
    }
}

/// Free lanes, line by line.
#[derive(Clone)]
pub(super) struct Lanes {
    /// Lanes of a line.
    line: usize,
    /// Mask of the lanes in use, for each line. Bits behind a line's lanes are set.
    taken: Vec<u32>,
    /// Lines that have free lanes, by their longest run of free lanes.
    by_room: BTreeSet<(u8, u32)>,
}

impl Lanes {
    /// Lines of `line` lanes with these masks of lanes in use.
    pub fn new(line: usize, taken: Vec<u32>) -> Self {
        let rooms = taken.iter().zip(0u32..).map(|(&taken, line)| (room(taken), line));
        Lanes { by_room: rooms.filter(|&(room, _)| room > 0).collect(), line, taken }
    }

    /// Takes `count` (1 to the lanes of a line) adjacent lanes of the line whose room fits best. Returns the first lane.
    pub fn take(&mut self, count: usize) -> Option<usize> {
        let &(_, line) = self.by_room.range((count as u8, 0)..).next()?;
        let mut starts = !self.taken[line as usize];
        (1..count).for_each(|_| starts &= starts >> 1);
        let lane = starts.trailing_zeros();
        self.mark(line, run(count) << lane);
        Some(line as usize * self.line + lane as usize)
    }

    /// Returns `count` lanes.
    pub fn give_back(&mut self, lane: usize, count: usize) {
        self.mark((lane / self.line) as u32, run(count) << (lane % self.line));
    }

    /// Toggles lanes of a line between free and in use.
    fn mark(&mut self, line: u32, lanes: u32) {
        let taken = &mut self.taken[line as usize];
        self.by_room.remove(&(room(*taken), line));
        *taken ^= lanes;
        if room(*taken) > 0 {
            self.by_room.insert((room(*taken), line));
        }
    }
}

/// A mask of the lowest `count` bits.
pub(super) fn run(count: usize) -> u32 {
    u32::MAX >> (u32::BITS as usize - count)
}

/// Length of the longest run of clear bits.
fn room(taken: u32) -> u8 {
    let mut free = !taken;
    let mut room = 0;
    while free != 0 {
        free &= free << 1;
        room += 1;
    }
    room
}

/// A leaf or block that the change in progress has written.
#[derive(Clone, Copy)]
pub(super) enum Made {
    /// The entry that leads to a leaf.
    Leaf(u32),
    /// First entry and number of entries of a block.
    Block(usize, usize),
}

/// Number of parents of each thing. Most have one parent, so only the others are stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parents {
    not_one: HashMap<u32, u32>,
}

impl Parents {
    /// Adds a new thing without a parent.
    pub fn insert(&mut self, thing: u32) {
        self.not_one.insert(thing, 0);
    }

    /// Adds a parent to a thing.
    pub fn add(&mut self, thing: u32) {
        match self.not_one.get_mut(&thing) {
            None => {
                self.not_one.insert(thing, 2);
            }
            Some(0) => {
                self.not_one.remove(&thing);
            }
            Some(parents) => *parents += 1,
        }
    }

    /// Removes a parent of a thing. Returns whether it was the last one.
    pub fn remove(&mut self, thing: u32) -> bool {
        match self.not_one.get_mut(&thing) {
            None => true,
            Some(2) => {
                self.not_one.remove(&thing);
                false
            }
            Some(parents) => {
                *parents -= 1;
                false
            }
        }
    }

    /// Whether a new thing has no parent yet.
    pub fn has_none(&self, thing: u32) -> bool {
        self.not_one.get(&thing) == Some(&0)
    }

    /// Whether a thing has exactly one parent.
    pub fn is_one(&self, thing: u32) -> bool {
        !self.not_one.contains_key(&thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Entries {
        /// Number of entries in use.
        pub(in crate::live) fn taken(&self) -> usize {
            self.next - self.free.iter().enumerate().map(|(size, runs)| runs.len() << size).sum::<usize>()
        }
    }

    impl Lanes {
        /// Mask of the lanes in use, for each line.
        pub(in crate::live) fn taken(&self) -> &[u32] {
            &self.taken
        }
    }

    #[test]
    fn entries_are_taken_given_back_and_split() {
        let mut entries = Entries::new(10, 19);
        assert_eq!([entries.take(8), entries.take(2), entries.take(1)], [Some(10), None, Some(18)]);
        entries.give_back(10, 8);
        assert_eq!(
            [entries.take(2), entries.take(1), entries.take(4), entries.take(2)],
            [Some(10), Some(12), Some(14), None]
        );
        assert_eq!([entries.take(1), entries.take(1)], [Some(13), None]);
    }

    #[test]
    fn lanes_are_taken_where_they_fit_best() {
        let mut lanes = Lanes::new(32, vec![0x0000_ff0f, 0xffff_fff0, u32::MAX]);
        assert_eq!([lanes.take(4), lanes.take(3), lanes.take(16)], [Some(32), Some(4), Some(16)]);
        assert_eq!([lanes.take(2), lanes.take(1), lanes.take(1)], [None, Some(7), None]);
        lanes.give_back(33, 2);
        lanes.give_back(16, 16);
        assert_eq!([lanes.take(2), lanes.take(16), lanes.take(1)], [Some(33), Some(16), None]);
        lanes.give_back(64, 32);
        assert_eq!([lanes.take(32), lanes.take(1)], [Some(64), None]);
    }

    #[test]
    fn parents_are_counted() {
        let mut parents = Parents::default();
        parents.insert(7);
        assert!(!parents.is_one(7));
        parents.add(7);
        assert!(parents.is_one(7));
        parents.add(7);
        parents.add(7);
        assert_eq!([0; 3].map(|_| parents.remove(7)), [false, false, true]);
        assert!(parents.is_one(8) && parents.not_one.is_empty());
    }
}
