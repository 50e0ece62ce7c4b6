//! What sheets have counted between two exchanges, and how it is taken from them.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::features::{ELEMENT_WORDS, FeatureGroup, GROUP, OUTSIDE, RECORDS, REST, SAMPLERS, WITHOUT_ADDRESS};
use weir_abi::{FeatureCell, FeatureRecord, FeatureShape};

/// The word of a cell with its bytes, which are 0 in one that has counted nothing.
pub(super) const BYTES: usize = mem::offset_of!(FeatureCell, bytes) / size_of::<u64>();

/// What was counted between two exchanges.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Upstream, then downstream.
    pub directions: [DirectionSnapshot; 2],
    /// When counting began, ns.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
}

/// What was counted of an address or prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeatureEntry {
    /// The address, or the first one of the prefix, as a key of sheets.
    pub key: [u64; 2],
    /// Its counts.
    pub counts: FeatureCell,
}

/// What was counted of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectionSnapshot {
    /// The protected addresses or prefixes whose packets passed, in no order.
    pub entries: Vec<FeatureEntry>,
    /// Packets whose address had no room.
    pub rest: FeatureCell,
    /// Packets that are not IP, or malformed.
    pub without_address: FeatureCell,
    /// Packets whose address is not protected.
    pub outside: FeatureCell,
    /// Samples of packets to protected addresses, of each worker or CPU that saw any.
    pub samples: Vec<Samples>,
}

/// Samples of one worker or CPU: a uniform sample of all packets that it has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Samples {
    /// Packets to protected addresses.
    pub seen: u64,
    /// Number of samples. If there are more than [`RECORDS`], later ones have replaced some of them.
    pub taken: u64,
    /// The records of the samples.
    pub records: Vec<FeatureRecord>,
}

impl DirectionSnapshot {
    /// All counts together: the counts of all packets that passed.
    pub fn total(&self) -> (u64, u64) {
        let sums = [&self.rest, &self.without_address, &self.outside];
        let all = self.entries.iter().map(|entry| &entry.counts).chain(sums);
        all.fold((0, 0), |(packets, bytes), counts| (packets + counts.total(), bytes + counts.bytes))
    }
}

/// Takes the counts of all sheets and clears them. No worker may write the sheets meanwhile.
pub(super) fn take(shape: &FeatureShape, sheets: &[&[AtomicU64]], snapshot: &mut Snapshot) {
    for (direction, of) in snapshot.directions.iter_mut().enumerate() {
        let sum = |at: usize| {
            let mut sum = FeatureCell::default();
            sheets.iter().for_each(|sheet| sum.add(&FeatureCell::from_words(take_words(element(sheet, at)))));
            sum
        };
        of.rest = sum(REST[direction]);
        of.without_address = sum(WITHOUT_ADDRESS[direction]);
        of.outside = sum(OUTSIDE[direction]);
        of.entries.clear();
        match shape.is_direct() {
            true => take_own(shape, direction, sheets, &mut of.entries),
            false => {
                take_groups(shape, direction, sheets, &mut of.entries);
                clear_recents(shape, direction, sheets);
            }
        }
        of.samples.clear();
        of.samples.extend(sheets.iter().filter_map(|sheet| take_samples(shape, direction, sheet)));
    }
}

/// Takes cells that belong to one prefix each.
fn take_own(shape: &FeatureShape, direction: usize, sheets: &[&[AtomicU64]], entries: &mut Vec<FeatureEntry>) {
    for (index, range) in shape.ranges.iter().enumerate() {
        // A prefix that two ranges share belongs to the second one.
        let end = shape.ranges.get(index + 1).map_or(shape.size, |next| next.place);
        let of_range = (range.place..end).map(|cell| cell as usize);
        for (cell, key) in of_range.zip(shape.keys(range)) {
            let (at, start) = (shape.cells_at(direction) + cell, entries.len());
            for sheet in sheets {
                let words = element(sheet, at);
                if is_counted(words) {
                    add(entries, start, key, words);
                }
            }
        }
    }
}

/// Takes a cell of the entry at `place`, or of a new entry if there is none.
fn add(entries: &mut Vec<FeatureEntry>, place: usize, key: [u64; 2], words: &[AtomicU64]) {
    let counts = FeatureCell::from_words(take_words(words));
    match entries.get_mut(place) {
        Some(entry) => entry.counts.add(&counts),
        None => entries.push(FeatureEntry { key, counts }),
    }
}

/// Takes groups, whose cells belong to the keys that are there.
fn take_groups(shape: &FeatureShape, direction: usize, sheets: &[&[AtomicU64]], entries: &mut Vec<FeatureEntry>) {
    for group in 0..shape.groups() {
        let start = entries.len();
        for (index, sheet) in sheets.iter().enumerate() {
            let keys = element(sheet, shape.keys_at(direction) + group);
            for place in 0..GROUP {
                let key = FeatureGroup::words_of(place).map(|word| take_word(&keys[word]));
                let words = element(sheet, shape.cells_at(direction) + group * GROUP + place);
                if is_counted(words) {
                    // All sheets have the same seed, so an address is in the same group of each.
                    let known = entries[start..].iter().position(|known| index > 0 && known.key == key);
                    add(entries, known.map_or(entries.len(), |known| start + known), key, words);
                }
            }
        }
    }
}

/// Forgets the cells of recent prefixes: the cells have no keys any more.
fn clear_recents(shape: &FeatureShape, direction: usize, sheets: &[&[AtomicU64]]) {
    let (start, end) = (shape.recents_at(direction), shape.recents_at(direction + 1));
    for sheet in sheets {
        for word in &sheet[start * ELEMENT_WORDS..end * ELEMENT_WORDS] {
            take_word(word);
        }
    }
}

/// Takes the samples of a sheet, unless it has seen no packets.
fn take_samples(shape: &FeatureShape, direction: usize, sheet: &[AtomicU64]) -> Option<Samples> {
    let [seen, _next, taken, ..] = take_words(element(sheet, SAMPLERS[direction]));
    // Records are not cleared: those that count are written first.
    let record = |place: usize| {
        let words = element(sheet, shape.records_at(direction) + place);
        FeatureRecord::from_words(std::array::from_fn(|word| words[word].load(Ordering::Relaxed)))
    };
    (seen > 0).then(|| Samples { seen, taken, records: (0..RECORDS.min(taken as usize)).map(record).collect() })
}

pub(super) fn element(sheet: &[AtomicU64], at: usize) -> &[AtomicU64] {
    &sheet[at * ELEMENT_WORDS..(at + 1) * ELEMENT_WORDS]
}

/// Whether the cell of an address has counted anything. Packets with an address have bytes; a frame behind a card that
/// ends with its header has none.
fn is_counted(words: &[AtomicU64]) -> bool {
    words[BYTES].load(Ordering::Relaxed) > 0
}

fn take_words(words: &[AtomicU64]) -> [u64; ELEMENT_WORDS] {
    std::array::from_fn(|word| take_word(&words[word]))
}

/// Takes a word. A page that was never written stays without memory.
fn take_word(word: &AtomicU64) -> u64 {
    let taken = word.load(Ordering::Relaxed);
    if taken > 0 {
        word.store(0, Ordering::Relaxed);
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::features::SIZE_MIN;

    #[test]
    fn packets_without_bytes_are_taken_once() {
        let shape = FeatureShape::new(SIZE_MIN, [32, 128], [&[], &[]]);
        let sheet: Vec<AtomicU64> = (0..shape.elements() * ELEMENT_WORDS).map(|_| AtomicU64::new(0)).collect();
        element(&sheet, WITHOUT_ADDRESS[1])[0].store(3, Ordering::Relaxed);
        let mut snapshot = Snapshot::default();
        for packets in [3, 0] {
            take(&shape, &[&sheet], &mut snapshot);
            assert_eq!(snapshot.directions[1].without_address.packets[0], packets);
        }
    }
}
