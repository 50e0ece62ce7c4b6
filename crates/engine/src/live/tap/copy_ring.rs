//! The copies of one worker for one tap: a ring of bytes with one writer and one reader. It is allocated and touched
//! before the worker sees it. So a copy costs the worker a write to memory: no allocation, no lock, no system call.
//!
//! ```text
//!            read                written
//!   memory    |  record  record  |                (positions in bytes; they only grow)
//!   record    head (32 bytes)  bytes of the packet, padded to 8
//! ```
//! A record never wraps around. The writer leaves a gap at the end, which the reader skips. Records become visible
//! together, once for each burst. It is Lamport's queue (1983). Each side keeps the last known position of the other
//! one until that does not suffice, as in DPDK's `rte_ring` and FastForward.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_abi::tap::TAP_BYTES_MAX;
use weir_abi::{Link, Verdict};

use crate::live::lane::Side;

/// Bytes of a ring: 650 packets of 1,500 bytes, or 10,000 of 64.
pub(super) const RING_BYTES: usize = 1 << 20;
const _: () = assert!(RING_BYTES.is_power_of_two() && RING_BYTES > 4 * (HEAD_BYTES + TAP_BYTES_MAX));

const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES == 32);
/// What new memory is filled with, so that the worker never meets a page that the kernel has yet to provide.
const TOUCHED: u64 = !0;

/// What is known of a copied packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(super) struct Head {
    /// Bytes of the packet that follow; [`Head::GAP`] if nothing does until the end of the ring.
    pub captured: u32,
    pub wire_len: u32,
    pub verdict: Verdict,
    pub policy: u32,
    pub at_ns: u64,
    pub link: Link,
    pub from: Side,
}

impl Head {
    const GAP: u32 = u32::MAX;

    /// Bytes that a record takes in the ring.
    const fn taken(captured: u32) -> usize {
        (HEAD_BYTES + captured as usize).next_multiple_of(8)
    }
}

/// What a worker counts for a tap. Only this worker writes them, so it needs no atomic addition.
#[derive(Debug, Default)]
pub(super) struct WorkerCounts {
    pub matched: AtomicU64,
    pub copied: AtomicU64,
    pub over: AtomicU64,
    pub excluded: AtomicU64,
    pub lost: AtomicU64,
}

impl WorkerCounts {
    /// Adds to a counter of the own worker.
    pub fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }
}

/// A value in cache lines of its own, because the other side reads it. Processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Line<T>(T);

/// The ring.
pub(super) struct CopyRing {
    memory: Box<[UnsafeCell<u64>]>,
    written: Line<AtomicU64>,
    read: Line<AtomicU64>,
    counts: Line<WorkerCounts>,
    has_writer: AtomicBool,
    has_reader: AtomicBool,
}

// SAFETY: the writer writes only between `written` and `read` plus the ring's size, the reader reads only between
// `read` and `written`. Each side is one value, which takes `&mut self` (`has_writer`, `has_reader`).
unsafe impl Sync for CopyRing {}
// SAFETY: it owns its memory.
unsafe impl Send for CopyRing {}

impl CopyRing {
    pub fn new() -> Arc<Self> {
        let memory = (0..RING_BYTES / size_of::<u64>()).map(|_| UnsafeCell::new(TOUCHED)).collect();
        let [written, read] = [Line::default(), Line::default()];
        let [has_writer, has_reader] = [AtomicBool::new(false), AtomicBool::new(false)];
        Arc::new(CopyRing { memory, written, read, counts: Line::default(), has_writer, has_reader })
    }

    pub fn counts(&self) -> &WorkerCounts {
        &self.counts.0
    }

    fn at(&self, position: u64) -> *mut u8 {
        let offset = position as usize & (RING_BYTES - 1);
        UnsafeCell::raw_get(self.memory.as_ptr().wrapping_add(offset / size_of::<u64>())).cast()
    }

    /// The worker's end.
    ///
    /// # Panics
    /// Panics if there is one.
    pub fn writer(self: &Arc<Self>) -> RingWriter {
        assert!(!self.has_writer.swap(true, Ordering::Acquire), "a ring has one writer");
        let at = self.written.0.load(Ordering::Relaxed);
        RingWriter { ring: self.clone(), at, read: self.read.0.load(Ordering::Acquire), waiting: 0 }
    }

    /// The reader's end.
    ///
    /// # Panics
    /// Panics if there is one.
    pub fn reader(self: &Arc<Self>) -> RingReader {
        assert!(!self.has_reader.swap(true, Ordering::Acquire), "a ring has one reader");
        let at = self.read.0.load(Ordering::Relaxed);
        RingReader { ring: self.clone(), at, written: at }
    }
}

/// The worker's end of a ring.
pub(super) struct RingWriter {
    ring: Arc<CopyRing>,
    /// Where the next record begins.
    at: u64,
    /// Up to here the reader has read, as far as the writer knows.
    read: u64,
    /// Records that the reader does not see yet.
    waiting: u64,
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        self.ring.has_writer.store(false, Ordering::Release);
    }
}

impl RingWriter {
    pub fn counts(&self) -> &WorkerCounts {
        self.ring.counts()
    }

    /// Whether `bytes` fit. Looks at the reader's position only if they do not fit by the last look.
    fn has_room(&mut self, bytes: u64) -> bool {
        let end = self.at + bytes;
        if end - self.read > RING_BYTES as u64 {
            self.read = self.ring.read.0.load(Ordering::Acquire);
        }
        end - self.read <= RING_BYTES as u64
    }

    /// Writes a record, or counts it as lost. The reader sees it after [`RingWriter::publish`].
    ///
    /// # Panics
    /// Panics if `head.captured` is not the number of bytes, or they are more than [`TAP_BYTES_MAX`].
    pub fn push(&mut self, head: Head, bytes: &[u8]) {
        assert!(bytes.len() <= TAP_BYTES_MAX && head.captured as usize == bytes.len(), "no more is copied");
        let taken = Head::taken(head.captured) as u64;
        let rest = RING_BYTES as u64 - (self.at & (RING_BYTES as u64 - 1));
        let gap = if taken > rest { rest } else { 0 };
        if !self.has_room(gap + taken) {
            WorkerCounts::add(&self.counts().lost, 1);
            return;
        }
        if gap > 0 {
            // SAFETY: positions are multiples of 8, so 8 bytes are there before the end of the ring. They have room.
            unsafe { self.ring.at(self.at).cast::<u32>().write(Head::GAP) };
            self.at += gap;
        }
        let to = self.ring.at(self.at);
        // SAFETY: `taken` bytes are there before the end of the ring, and `has_room` found that no unread record is in
        // them. `to` is aligned to 8. The packet is not in the ring.
        unsafe {
            to.cast::<Head>().write(head);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(HEAD_BYTES), bytes.len());
        }
        self.at += taken;
        self.waiting += 1;
    }

    /// Shows the records to the reader.
    pub fn publish(&mut self) {
        // The count comes first: a reader never has more copies than are counted.
        let copied = std::mem::take(&mut self.waiting);
        WorkerCounts::add(&self.counts().copied, copied);
        self.ring.written.0.store(self.at, Ordering::Release);
    }
}

/// The reader's end of a ring.
pub(super) struct RingReader {
    ring: Arc<CopyRing>,
    at: u64,
    /// Up to here records are known to be complete.
    written: u64,
}

impl Drop for RingReader {
    fn drop(&mut self) {
        self.ring.has_reader.store(false, Ordering::Release);
    }
}

impl RingReader {
    /// The head of the next record.
    pub fn head(&mut self) -> Option<Head> {
        if self.at == self.written {
            self.written = self.ring.written.0.load(Ordering::Acquire);
        }
        if self.at == self.written {
            return None;
        }
        // SAFETY: a record or a gap begins here, because `at` is before `written`. 8 bytes of either are in the ring.
        if unsafe { self.ring.at(self.at).cast::<u32>().read() } == Head::GAP {
            self.at = (self.at | (RING_BYTES as u64 - 1)) + 1;
        }
        // SAFETY: a gap is followed by a record, and published with it.
        Some(unsafe { self.ring.at(self.at).cast::<Head>().read() })
    }

    /// Takes the next record: shows it, and gives its room back.
    pub fn take<T>(&mut self, visit: impl FnOnce(Head, &[u8]) -> T) -> Option<T> {
        let head = self.head()?;
        // SAFETY: the record is complete and not given back, so its writer leaves it alone.
        let bytes =
            unsafe { std::slice::from_raw_parts(self.ring.at(self.at).add(HEAD_BYTES), head.captured as usize) };
        let result = visit(head, bytes);
        self.at += Head::taken(head.captured) as u64;
        self.ring.read.0.store(self.at, Ordering::Release);
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use weir_tables::SplitMix;

    fn head(number: u64, captured: usize) -> Head {
        Head {
            captured: captured as u32,
            wire_len: 9,
            verdict: Verdict(7),
            policy: 3,
            at_ns: number,
            link: Link::Ethernet,
            from: Side::Upper,
        }
    }

    /// The bytes of a packet, which its number determines.
    fn packet(number: u64) -> Vec<u8> {
        let mut random = SplitMix::new(number);
        let bytes = match random.below(8) {
            0 => random.below(TAP_BYTES_MAX as u64 + 1),
            _ => random.below(200),
        };
        vec![number as u8; bytes as usize]
    }

    #[test]
    fn what_is_written_is_read_in_order_around_the_end() {
        let ring = CopyRing::new();
        let (mut writer, mut reader) = (ring.writer(), ring.reader());
        // 4,000 packets take more than twice the ring.
        for number in 0..4000 {
            let bytes = packet(number);
            writer.push(head(number, bytes.len()), &bytes);
            assert!(reader.head().is_none(), "it is not published");
            writer.publish();
            let taken = reader.take(|head, bytes| (head, bytes.to_vec())).expect("it was written");
            assert_eq!(taken, (head(number, bytes.len()), bytes));
        }
        assert!(reader.at > 2 * RING_BYTES as u64);
        assert_eq!(ring.counts().copied.load(Ordering::Relaxed), 4000);
        assert_eq!(ring.counts().lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_full_ring_keeps_what_it_has() {
        let ring = CopyRing::new();
        let (mut writer, mut reader) = (ring.writer(), ring.reader());
        let longest = [5; TAP_BYTES_MAX];
        let room = (RING_BYTES / Head::taken(TAP_BYTES_MAX as u32)) as u64;
        // Behind a longest packet that has no room, a short one has.
        (0..room + 9).for_each(|number| writer.push(head(number, TAP_BYTES_MAX), &longest));
        writer.push(head(room, 1), &[1]);
        writer.publish();
        assert_eq!(ring.counts().lost.load(Ordering::Relaxed), 9);
        for number in 0..room {
            let is_whole = |taken: Head, bytes: &[u8]| taken == head(number, TAP_BYTES_MAX) && bytes == longest;
            assert_eq!(reader.take(is_whole), Some(true));
        }
        assert_eq!(reader.take(|head, bytes| (head.at_ns, bytes.to_vec())), Some((room, vec![1])));
        assert!(reader.head().is_none());
        writer.push(head(0, TAP_BYTES_MAX), &longest);
        writer.publish();
        assert!(reader.head().is_some(), "there is room again");
    }

    #[test]
    fn a_reader_in_another_thread_gets_all_that_is_not_lost() {
        let ring = CopyRing::new();
        let (mut writer, mut reader) = (ring.writer(), ring.reader());
        const PACKETS: u64 = 20_000;
        let reading = thread::spawn(move || {
            let (mut read, mut last) = (0, None);
            while last != Some(PACKETS) {
                let Some(number) = reader.take(|head, bytes| {
                    assert_eq!(bytes, packet(head.at_ns));
                    head.at_ns
                }) else {
                    thread::yield_now();
                    continue;
                };
                assert!(last < Some(number), "in order");
                (read, last) = (read + 1, Some(number));
            }
            read
        });
        for number in 0..=PACKETS {
            let bytes = packet(number);
            let lost = ring.counts().lost.load(Ordering::Relaxed);
            writer.push(head(number, bytes.len()), &bytes);
            writer.publish();
            // The last one ends the reader.
            while number == PACKETS && ring.counts().lost.load(Ordering::Relaxed) > lost {
                thread::yield_now();
                ring.counts().lost.store(lost, Ordering::Relaxed);
                writer.push(head(number, bytes.len()), &bytes);
                writer.publish();
            }
        }
        let read: u64 = reading.join().expect("it saw what was written");
        assert_eq!(read + ring.counts().lost.load(Ordering::Relaxed), PACKETS + 1);
        assert_eq!(ring.counts().copied.load(Ordering::Relaxed), read);
    }
}
