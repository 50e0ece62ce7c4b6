//! Rings shared with the kernel (Documentation/networking/af_xdp.rst).
//!
//! ```text
//!  fill        we --- frames to receive into ---> kernel
//!  rx          kernel --- received packets -----> we
//!  tx          we --- packets to send ----------> kernel
//!  completion  kernel --- frames that were sent -> we
//! ```
//! Producer and consumer each have a counter that only it writes and that runs freely; an entry's place is the counter modulo the ring's
//! size, a power of two. Entries are written before the producer's counter (release) and read after it (acquire).

use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{XdpRingFlags, XdpRingOffset};

/// What producer and consumer have in common.
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
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), bytes, protection, flags, socket, page_offset)? };
        Ok(Shared { start: start.cast(), bytes, offset, size, entries: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the kernel said that an aligned word is there in the mapping, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(self.start.add(offset as usize).cast()) }
    }

    fn entry(&self, number: u32) -> *mut T {
        // SAFETY: the mapping has `size` entries from `desc` on.
        unsafe { self.start.add(self.offset.desc as usize).cast::<T>().add((number & (self.size - 1)) as usize) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        unmapped.expect("what was mapped can be unmapped");
    }
}

/// A ring that we put entries into.
pub(super) struct Producer<T> {
    shared: Shared<T>,
    produced: u32,
}

impl<T: Copy> Producer<T> {
    /// Maps a ring of `size` entries, a power of two.
    pub fn map(socket: impl AsFd, offset: XdpRingOffset, page_offset: u64, size: u32) -> Result<Self, Errno> {
        Ok(Producer { shared: Shared::map(socket, offset, page_offset, size)?, produced: 0 })
    }

    /// Entries that there is room for.
    pub fn room(&self) -> u32 {
        self.shared.size - self.produced.wrapping_sub(self.consumed())
    }

    /// Puts an entry in, for which there is room.
    pub fn put(&mut self, entry: T) {
        // SAFETY: the kernel has consumed what was there, or room() would not have counted it.
        unsafe { self.shared.entry(self.produced).write(entry) };
        self.produced = self.produced.wrapping_add(1);
    }

    /// Shows the kernel what was put in.
    pub fn publish(&self) {
        self.shared.word(self.shared.offset.producer).store(self.produced, Ordering::Release);
    }

    /// Entries that the kernel has consumed, since the beginning; the counter runs over.
    pub fn consumed(&self) -> u32 {
        self.shared.word(self.shared.offset.consumer).load(Ordering::Acquire)
    }

    /// Entries that were put in, since the beginning; the counter runs over.
    pub fn produced(&self) -> u32 {
        self.produced
    }

    /// The entry of that number, which is still there: not more than the ring's size were put in since.
    pub fn entry(&self, number: u32) -> T {
        // SAFETY: entries are written by us alone, on this thread.
        unsafe { self.shared.entry(number).read() }
    }

    /// Puts another entry in the place of one that the kernel has not consumed and does not read now.
    pub fn overwrite(&mut self, number: u32, entry: T) {
        // SAFETY: the caller says that nobody reads it; an entry that is read half old is data, which the kernel checks.
        unsafe { self.shared.entry(number).write(entry) };
    }

    /// Whether the kernel has consumed everything.
    pub fn is_drained(&self) -> bool {
        self.room() == self.shared.size
    }

    /// Whether the kernel sleeps until it is called.
    pub fn needs_wakeup(&self) -> bool {
        let Some(flags) = self.shared.offset.flags else { return true };
        self.shared.word(flags).load(Ordering::Relaxed) & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// A ring that we take entries out of.
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    consumed: u32,
}

impl<T: Copy> Consumer<T> {
    /// Maps a ring of `size` entries, a power of two.
    pub fn map(socket: impl AsFd, offset: XdpRingOffset, page_offset: u64, size: u32) -> Result<Self, Errno> {
        Ok(Consumer { shared: Shared::map(socket, offset, page_offset, size)?, consumed: 0 })
    }

    /// Entries that wait.
    pub fn ready(&self) -> u32 {
        self.shared.word(self.shared.offset.producer).load(Ordering::Acquire).wrapping_sub(self.consumed)
    }

    /// Looks at an entry that is ready; 0 is the next.
    pub fn peek(&self, place: u32) -> T {
        // SAFETY: the kernel wrote it before it counted it (acquire in ready()), and does not write it again before take().
        unsafe { self.shared.entry(self.consumed.wrapping_add(place)).read() }
    }

    /// Takes so many entries, which were looked at: their places are the kernel's again.
    pub fn take(&mut self, entries: u32) {
        self.consumed = self.consumed.wrapping_add(entries);
        self.shared.word(self.shared.offset.consumer).store(self.consumed, Ordering::Release);
    }
}
