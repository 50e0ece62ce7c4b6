//! Rings shared with the kernel (Documentation/networking/af_xdp.rst).
//!
//! ```text
//!  fill        we --- frames to receive into ---> kernel
//!  rx          kernel --- received packets -----> we
//!  tx          we --- packets to send ----------> kernel
//!  completion  kernel --- frames that were sent -> we
//! ```
//! Producer and consumer each have a free-running counter that only it writes. The index of an entry is the counter
//! modulo the ring's size, a power of two. Entries are written before the producer's counter (release) and read after
//! it (acquire).

use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

/// The parts that producer and consumer share.
struct Shared<T> {
    start: *mut u8,
    bytes: usize,
    offset: XdpRingOffset,
    size: u32,
    entries: PhantomData<T>,
}

impl<T: Copy> Shared<T> {
    fn map(socket: impl AsFd, offset: XdpRingOffset, page_offset: u64, size: u32) -> Result<Self, Errno> {
        let bytes = offset.desc as usize + size as usize * size_of::<T>();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: this creates a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), bytes, protection, flags, socket, page_offset)? };
        Ok(Shared { start: start.cast(), bytes, offset, size, entries: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: by the kernel's offsets, an aligned word is there in the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.start.add(offset as usize).cast()) }
    }

    fn entry(&self, number: u32) -> *mut T {
        // SAFETY: the mapping has `size` entries from `desc` on.
        unsafe { self.start.add(self.offset.desc as usize).cast::<T>().add((number & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: `map` mapped this length.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        unmapped.expect("what was mapped can be unmapped");
    }
}

/// A ring into which this process puts entries.
pub(super) struct Producer<T> {
    shared: Shared<T>,
    produced: u32,
}

impl<T: Copy> Producer<T> {
    /// Maps a ring of `size` entries, a power of two.
    pub fn map(socket: impl AsFd, offset: XdpRingOffset, page_offset: u64, size: u32) -> Result<Self, Errno> {
        Ok(Producer { shared: Shared::map(socket, offset, page_offset, size)?, produced: 0 })
    }

    /// Number of free entries.
    pub fn room(&self) -> u32 {
        self.shared.size - self.produced.wrapping_sub(self.consumed())
    }

    /// Puts an entry into the ring, which must have room.
    pub fn put(&mut self, entry: T) {
        // SAFETY: the kernel has consumed the old entry, or room() would not have counted it.
        unsafe { self.shared.entry(self.produced).write(entry) };
        self.produced = self.produced.wrapping_add(1);
    }

    /// Publishes the new entries to the kernel.
    pub fn publish(&self) {
        self.shared.word(self.shared.offset.producer).store(self.produced, Ordering::Release);
    }

    /// Total number of entries that the kernel has consumed, modulo 2^32.
    pub fn consumed(&self) -> u32 {
        self.shared.word(self.shared.offset.consumer).load(Ordering::Acquire)
    }

    /// Total number of entries that were put in, modulo 2^32.
    pub fn produced(&self) -> u32 {
        self.produced
    }

    /// The entry with that number. At most the ring's size may have been put in since.
    pub fn entry(&self, number: u32) -> T {
        // SAFETY: only this thread writes entries.
        unsafe { self.shared.entry(number).read() }
    }

    /// Overwrites an entry that the kernel has not consumed and is not reading.
    pub fn overwrite(&mut self, number: u32, entry: T) {
        // SAFETY: by the caller's promise the kernel is not reading it. Even a torn entry is plain data, which the
        // kernel checks.
        unsafe { self.shared.entry(number).write(entry) };
    }

    /// Whether the kernel has consumed all entries.
    pub fn is_drained(&self) -> bool {
        self.room() == self.shared.size
    }

    /// Whether the kernel must be called to continue.
    pub fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.shared.offset.flags else { return true };
        self.shared.word(flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// A ring from which this process takes entries.
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    consumed: u32,
}

impl<T: Copy> Consumer<T> {
    /// Maps a ring of `size` entries, a power of two.
    pub fn map(socket: impl AsFd, offset: XdpRingOffset, page_offset: u64, size: u32) -> Result<Self, Errno> {
        Ok(Consumer { shared: Shared::map(socket, offset, page_offset, size)?, consumed: 0 })
    }

    /// Number of entries that wait.
    pub fn ready(&self) -> u32 {
        self.shared.word(self.shared.offset.producer).load(Ordering::Acquire).wrapping_sub(self.consumed)
    }

    /// Reads a waiting entry; 0 is the next.
    pub fn peek(&self, place: u32) -> T {
        // SAFETY: the kernel wrote the entry before its counter (acquire in ready()), and does not overwrite it before
        // take().
        unsafe { self.shared.entry(self.consumed.wrapping_add(place)).read() }
    }

    /// Takes entries that were peeked at. The kernel may then reuse them.
    pub fn take(&mut self, entries: u32) {
        self.consumed = self.consumed.wrapping_add(entries);
        self.shared.word(self.shared.offset.consumer).store(self.consumed, Ordering::Release);
    }
}
