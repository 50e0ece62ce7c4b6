//! Packets that wait in the queue of a sheet when the sheets are exchanged. Programs in the kernel count them when the
//! queue is full (`datapath/engine/cpu_observe.h`). What is there at the exchange is counted here, in the same way. The
//! sampler, which is beside the queue, is copied into the sheet.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::features::{ELEMENT_WORDS, GROUP, QUEUE, REST, SAMPLERS, WAITING_WORDS, WaitingPacket};
use weir_abi::FeatureShape;

use super::snapshot::{BYTES, element};

/// Counts the packets of a queue in its sheet, which nobody writes, and empties it.
pub(super) fn count_waiting(shape: &FeatureShape, direction: usize, queue: &[AtomicU64], sheet: &[AtomicU64]) {
    let ([waiting, sampler @ ..], packets) = queue.split_at(ELEMENT_WORDS) else { unreachable!("a queue has words") };
    let count = (waiting.load(Ordering::Relaxed) as usize).min(QUEUE);
    // The sheet's sampler has one word more, which is 0.
    for (to, word) in element(sheet, SAMPLERS[direction]).iter().zip(sampler) {
        to.store(word.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
    for words in packets.chunks_exact(WAITING_WORDS).take(count) {
        let packet = WaitingPacket::from_words(array::from_fn(|word| words[word].load(Ordering::Relaxed)));
        count_packet(&packet, element(sheet, counted_at(shape, direction, &packet, sheet)));
    }
    waiting.store(0, Ordering::Relaxed);
}

/// The element that counts a packet. A key without a cell gets a free one.
fn counted_at(shape: &FeatureShape, direction: usize, packet: &WaitingPacket, sheet: &[AtomicU64]) -> usize {
    let at = packet.element as usize;
    let Some(group) = at.checked_sub(shape.keys_at(direction)) else { return at };
    let keys = element(sheet, at);
    let place = |key: [u64; 2]| {
        keys.chunks_exact(2).position(|of| of.iter().zip(key).all(|(of, half)| of.load(Ordering::Relaxed) == half))
    };
    let place = place(packet.key).or_else(|| {
        let free = place([0, 0])?;
        keys[2 * free..].iter().zip(packet.key).for_each(|(of, half)| of.store(half, Ordering::Relaxed));
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
