//! The queue of samples of workers in user space: memory of this process, so no other process can write to it. Many
//! workers write, one thread reads, and no thread waits for another (D. Vyukov's bounded queue).
//!
//! ```text
//!  turn of slot s, when the queue has N slots and `at` counts samples (at % N == s):
//!    at      free: the writer of sample `at` may take it, by moving `written` from `at` to `at + 1`
//!    at + 1  full: the reader may copy sample `at`
//!    at + N  free again
//! ```
//! A full queue loses samples, which is known: the port counts those that were made. Samples are read in the order in
//! which workers took their slots. So an answer is read after what it answers, also if two workers have them.

use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::kernel::SAMPLE_BYTES;

use crate::live::lane::Side;
use crate::live::samples::sample::Sample;

/// Samples that wait to be read: the reader may pause for a quarter of a second at 16,000 packets a second.
const SLOTS: u64 = 4096;
const WORD_BYTES: usize = size_of::<u64>();

/// A place for a sample. Its words are atomic, so that a mistake in the turns could mix two samples, and nothing worse.
struct Slot {
    turn: AtomicU64,
    /// Length of the packet, then its captured bytes, then its side: 32, 16 and 16 bits.
    about: AtomicU64,
    words: [AtomicU64; SAMPLE_BYTES / WORD_BYTES],
}

/// The queue.
pub struct SampleQueue {
    slots: Box<[Slot]>,
    /// Slots that were taken by writers.
    written: AtomicU64,
    /// Samples that were read. Only the reader writes it.
    read: AtomicU64,
}

impl Default for SampleQueue {
    /// An empty queue.
    fn default() -> Self {
        let slot = |at| Slot { turn: AtomicU64::new(at), about: AtomicU64::new(0), words: Default::default() };
        let slots = (0..SLOTS).map(slot).collect();
        SampleQueue { slots, written: AtomicU64::new(0), read: AtomicU64::new(0) }
    }
}

impl SampleQueue {
    /// Appends the beginning of a packet. If there is no room, it is lost.
    pub(in crate::live) fn put(&self, Sample { bytes, wire_len, from }: Sample<'_>) {
        let Some((slot, at)) = self.take_slot() else { return };
        let bytes = &bytes[..bytes.len().min(SAMPLE_BYTES)];
        slot.about.store(u64::from(wire_len) << 32 | (bytes.len() as u64) << 16 | from as u64, Ordering::Relaxed);
        for (word, chunk) in slot.words.iter().zip(bytes.chunks(WORD_BYTES)) {
            let mut padded = [0; WORD_BYTES];
            padded[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_ne_bytes(padded), Ordering::Relaxed);
        }
        slot.turn.store(at + 1, Ordering::Release);
    }

    /// The next free slot, which is the caller's until it sets its turn, and the number of its sample.
    fn take_slot(&self) -> Option<(&Slot, u64)> {
        let mut at = self.written.load(Ordering::Relaxed);
        loop {
            let slot = self.slot(at);
            let turn = slot.turn.load(Ordering::Acquire);
            if turn < at {
                return None;
            }
            if turn > at {
                // Another writer has taken it.
                at = self.written.load(Ordering::Relaxed);
                continue;
            }
            match self.written.compare_exchange_weak(at, at + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((slot, at)),
                Err(now) => at = now,
            }
        }
    }

    /// Number of samples that were written, or are being written, and not read.
    pub fn waiting(&self) -> u64 {
        let read = self.read.load(Ordering::Relaxed);
        self.written.load(Ordering::Acquire).saturating_sub(read)
    }

    /// Whether there is a sample to read.
    pub fn has_sample(&self) -> bool {
        let at = self.read.load(Ordering::Relaxed);
        self.slot(at).turn.load(Ordering::Acquire) == at + 1
    }

    /// Copies the next sample to `frame`. Returns its bytes, the length of the packet and its side; `None` if there is
    /// none now. One thread reads.
    pub fn read(&self, frame: &mut [u8]) -> Option<(usize, u32, Side)> {
        let at = self.read.load(Ordering::Relaxed);
        let slot = self.slot(at);
        if slot.turn.load(Ordering::Acquire) != at + 1 {
            return None;
        }
        let about = slot.about.load(Ordering::Relaxed);
        let captured = ((about >> 16 & 0xffff) as usize).min(SAMPLE_BYTES).min(frame.len());
        for (chunk, word) in frame[..captured].chunks_mut(WORD_BYTES).zip(&slot.words) {
            chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..chunk.len()]);
        }
        slot.turn.store(at + SLOTS, Ordering::Release);
        self.read.store(at + 1, Ordering::Relaxed);
        Some((captured, (about >> 32) as u32, Side::of_number(about as u16)))
    }

    fn slot(&self, at: u64) -> &Slot {
        &self.slots[(at % SLOTS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn put(queue: &SampleQueue, bytes: &[u8], wire_len: u32, from: Side) {
        queue.put(Sample { bytes, wire_len, from });
    }

    #[test]
    fn samples_are_read_as_they_were_written_and_in_order() {
        let (queue, mut frame) = (SampleQueue::default(), [0; SAMPLE_BYTES]);
        assert!(queue.read(&mut frame).is_none() && !queue.has_sample());
        let long: Vec<u8> = (0..2 * SAMPLE_BYTES).map(|at| at as u8).collect();
        put(&queue, &long[..61], 61, Side::Lower);
        put(&queue, &long, 1500, Side::Upper);
        put(&queue, &[], 9, Side::Lower);
        assert!(queue.has_sample());
        assert_eq!(queue.read(&mut frame), Some((61, 61, Side::Lower)));
        assert_eq!(frame[..61], long[..61]);
        assert_eq!(queue.read(&mut frame), Some((SAMPLE_BYTES, 1500, Side::Upper)));
        assert_eq!(frame, long[..SAMPLE_BYTES]);
        assert_eq!(queue.read(&mut frame), Some((0, 9, Side::Lower)));
        assert_eq!(queue.read(&mut frame), None);
    }

    #[test]
    fn a_full_queue_loses_the_newest_and_has_room_again() {
        let (queue, mut frame) = (SampleQueue::default(), [0; SAMPLE_BYTES]);
        for round in 0..3 {
            (0..SLOTS as u32 + 10).for_each(|len| put(&queue, &[round], len, Side::Lower));
            assert_eq!(queue.waiting(), SLOTS);
            let read: Vec<u32> = std::iter::from_fn(|| queue.read(&mut frame)).map(|(_, len, _)| len).collect();
            assert!(read.iter().copied().eq(0..SLOTS as u32), "{round}: {} samples", read.len());
        }
    }

    #[test]
    fn writers_lose_nothing_that_has_room_and_mix_nothing() {
        const WRITERS: u32 = 4;
        const EACH: u32 = 900;
        let queue = SampleQueue::default();
        let mut seen = vec![Vec::new(); WRITERS as usize];
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let queue = &queue;
                scope.spawn(move || {
                    for number in 0..EACH {
                        put(queue, &[writer as u8; 200], writer << 16 | number, Side::Upper);
                    }
                });
            }
            let (mut frame, mut read) = ([0; SAMPLE_BYTES], 0);
            while read < WRITERS * EACH {
                let Some((bytes, len, _)) = queue.read(&mut frame) else { continue };
                let writer = len >> 16;
                assert!(bytes == 200 && frame[..bytes].iter().all(|byte| u32::from(*byte) == writer));
                seen[writer as usize].push(len & 0xffff);
                read += 1;
            }
        });
        seen.iter().for_each(|numbers| assert!(numbers.iter().copied().eq(0..EACH), "{numbers:?}"));
    }
}
