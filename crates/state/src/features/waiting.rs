//! Packets that wait in the queue of a sheet when the sheets are exchanged. Programs in the kernel count them when the
//! queue is full (`datapath/observe/kernel.h`). What is there at the exchange is counted here, in the same way. The
//! sampler, which is beside the queue, is copied into the sheet.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::FeatureShape;
use weir_abi::features::{
    ELEMENT_WORDS, FeatureGroup, GROUP, KEYED4, KEYED6, QUEUE, REST, SAMPLERS, WAITING_WORDS, WaitingPacket, group_of,
};

use super::snapshot::{BYTES, element};

/// Counts the packets of a queue in its sheet, and empties the queue. No worker may write the sheet meanwhile.
pub(super) fn count_waiting(
    shape: &FeatureShape,
    seed: u64,
    direction: usize,
    queue: &[AtomicU64],
    sheet: &[AtomicU64],
) {
    let ([waiting, sampler @ ..], packets) = queue.split_at(ELEMENT_WORDS) else { unreachable!("a queue has words") };
    let count = (waiting.load(Ordering::Relaxed) as usize).min(QUEUE);
    // The sheet's sampler has one word more, which is 0.
    for (to, word) in element(sheet, SAMPLERS[direction]).iter().zip(sampler) {
        to.store(word.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
    for words in packets.chunks_exact(WAITING_WORDS).take(count) {
        let packet = WaitingPacket::from_words(array::from_fn(|word| words[word].load(Ordering::Relaxed)));
        count_packet(&packet, element(sheet, counted_at(shape, seed, direction, &packet, sheet)));
    }
    waiting.store(0, Ordering::Relaxed);
}

/// The element that counts a packet. A key without a cell gets a free one.
fn counted_at(shape: &FeatureShape, seed: u64, direction: usize, packet: &WaitingPacket, sheet: &[AtomicU64]) -> usize {
    if !matches!(packet.element, KEYED4 | KEYED6) {
        return packet.element as usize;
    }
    let group = group_of(seed, packet.key, shape.groups());
    let keys = element(sheet, shape.keys_at(direction) + group);
    let place = |key: [u64; 2]| {
        (0..GROUP).find(|&place| FeatureGroup::words_of(place).map(|word| keys[word].load(Ordering::Relaxed)) == key)
    };
    let place = place(packet.key).or_else(|| {
        let free = place([0, 0])?;
        for (word, half) in FeatureGroup::words_of(free).into_iter().zip(packet.key) {
            keys[word].store(half, Ordering::Relaxed);
        }
        Some(free)
    });
    place.map_or(REST[direction], |place| shape.cells_at(direction) + group * GROUP + place)
}

/// Counts a packet in a cell.
fn count_packet(packet: &WaitingPacket, cell: &[AtomicU64]) {
    let change = |word: usize, of: &dyn Fn(u64) -> u64| {
        cell[word].store(of(cell[word].load(Ordering::Relaxed)), Ordering::Relaxed);
    };
    let (word, shift) = (usize::from(packet.packets_at) / 8, 8 * (packet.packets_at % 8));
    // A program adds to 32 bits, so no class changes the next one.
    let sum = |old: u64| ((old >> shift) as u32).wrapping_add(packet.packets.into());
    change(word, &|old| old & !(0xffff_ffff << shift) | u64::from(sum(old)) << shift);
    change(BYTES, &|bytes| bytes + u64::from(packet.bytes));
    let (word, shift) = (usize::from(packet.bit_at) / 8, 8 * (packet.bit_at % 8));
    change(word, &|old| old | u64::from(packet.bit) << shift);
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::FeatureCell;
    use weir_abi::features::{QUEUE_WORDS, SIZE_MIN};

    const SEED: u64 = 5;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    /// A queue whose packets have 60 bytes, class 3 and bit 2 of lane 5; `of` are their keys and elements.
    fn queue(of: &[([u64; 2], u32)]) -> Vec<AtomicU64> {
        let queue = words(QUEUE_WORDS);
        queue[0].store(of.len() as u64, Ordering::Relaxed);
        for (&([high, low], element), at) in of.iter().zip(queue[ELEMENT_WORDS..].chunks_exact(WAITING_WORDS)) {
            let packet = [high, low, 60 << 32 | u64::from(element), 58 << 40 | 12 << 32 | 4 << 16 | 1];
            at.iter().zip(packet).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
        }
        queue
    }

    fn cell(sheet: &[AtomicU64], at: usize) -> FeatureCell {
        let words = element(sheet, at);
        FeatureCell::from_words(array::from_fn(|word| words[word].load(Ordering::Relaxed)))
    }

    #[test]
    fn packets_are_added_to_their_cells_and_the_queue_is_empty() {
        let shape = FeatureShape::new(SIZE_MIN, [32, 128], [&[(0xc000_0200, 0xc000_021f)], &[]]);
        let sheet = words(shape.elements() * ELEMENT_WORDS);
        let at = shape.cells_at(1) + 7;
        // The class before it is full: nothing is carried into this one, nor from it.
        element(&sheet, at)[1].store(u64::from(u32::MAX) << 32 | u64::from(u32::MAX), Ordering::Relaxed);
        let queue = queue(&[([0, 0], at as u32), ([0, 0], at as u32), ([0, 0], REST[1] as u32)]);
        queue[1..4].iter().zip([100, 120, 2]).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        count_waiting(&shape, SEED, 1, &queue, &sheet);
        let counted = cell(&sheet, at);
        assert_eq!(counted.packets[1..5], [0, u32::MAX, 1, 0], "{counted:?}");
        assert_eq!((counted.bytes, counted.peers), (120, [0, 0, 0, 0, 0, 4, 0, 0]));
        assert_eq!(cell(&sheet, REST[1]).total(), 1);
        let sampler: Vec<u64> = element(&sheet, SAMPLERS[1])[..3].iter().map(|of| of.load(Ordering::Relaxed)).collect();
        assert_eq!(sampler, [100, 120, 2]);
        assert!(queue[..4].iter().all(|word| word.load(Ordering::Relaxed) == 0));
        count_waiting(&shape, SEED, 1, &queue, &sheet);
        assert_eq!(cell(&sheet, at), counted, "once");
    }

    #[test]
    fn a_key_is_found_or_gets_a_place_or_is_counted_with_the_rest() {
        let shape = FeatureShape::new(SIZE_MIN, [32, 128], [&[], &[]]);
        let sheet = words(shape.elements() * ELEMENT_WORDS);
        let group = |key| group_of(SEED, key, shape.groups());
        // As many keys of one group as there are places, and one more.
        let wanted = group(shape.key(false, 0));
        let keys = (0..).map(|address| shape.key(false, address)).filter(|&key| group(key) == wanted);
        let mut of: Vec<([u64; 2], u32)> = keys.take(GROUP + 1).map(|key| (key, KEYED4)).collect();
        of.push(of[2]);
        count_waiting(&shape, SEED, 0, &queue(&of), &sheet);
        let counted: Vec<u64> =
            (0..GROUP).map(|place| cell(&sheet, shape.cells_at(0) + wanted * GROUP + place).total()).collect();
        assert_eq!(counted, [1, 1, 2, 1]);
        assert_eq!(cell(&sheet, REST[0]).total(), 1);
    }

    #[test]
    fn lower_halves_of_keys_come_first() {
        let shape = FeatureShape::new(SIZE_MIN, [32, 128], [&[], &[]]);
        let sheet = words(shape.elements() * ELEMENT_WORDS);
        let group = |key| group_of(SEED, key, shape.groups());
        let ipv4 = shape.key(false, 0xc000_0201);
        let mut all = (0..).map(|low| shape.key(true, 0x2001_0db8 << 96 | low));
        let ipv6 = all.find(|&key| group(key) == group(ipv4)).expect("some key has the same group");
        count_waiting(&shape, SEED, 0, &queue(&[(ipv4, KEYED4), (ipv6, KEYED6)]), &sheet);
        let words: Vec<u64> =
            element(&sheet, shape.keys_at(0) + group(ipv4)).iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(words, [0xffff_c000_0201, ipv6[1], 0, 0, 0, 0x2001_0db8 << 32, 0, 0]);
    }
}
