//! The kernel's ring buffer (Documentation/bpf/ringbuf.rst), read without copies by its one reader. Only programs that
//! this process has loaded write to it.
//!
//! ```text
//! page 0  position of the reader   page 1  position of the writers   pages 2...  records, mapped twice in a row
//! record: u32 length with two flags, u32 page offset, data, padded to 8 bytes
//! ```

use std::fmt::{self, Debug, Formatter};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapHandle, MapType};
use memmap2::{MmapOptions, MmapRaw};

use crate::EngineError;
use crate::xdp::failed;

/// Flags of a record's length: it is being written, and it was given up.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes of a record's header.
const HEADER_BYTES: usize = 8;

/// The ring.
pub(in crate::live) struct RecordRing {
    map: MapHandle,
    page: usize,
    bytes: usize,
    reader: MmapRaw,
    writers: MmapRaw,
}

// SAFETY: the mappings keep their map alive. Positions and lengths are read and written as atomics; records are read
// only between the two positions, where no writer is.
unsafe impl Send for RecordRing {}
// SAFETY: as above. `read` is called by one thread at a time only, which the owners promise.
unsafe impl Sync for RecordRing {}

impl Debug for RecordRing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("RecordRing")
    }
}

impl RecordRing {
    /// Creates a ring of `bytes` bytes, a power of two and a multiple of a page.
    ///
    /// # Errors
    /// The process lacks the right to create BPF maps.
    pub fn create(name: &str, bytes: usize) -> Result<Self, EngineError> {
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
        let map = MapHandle::create(MapType::RingBuf, Some(name), 0, 0, bytes as u32, &options);
        let map = map.map_err(|error| failed(name, error.to_string()).caused_by_libbpf(&error))?;
        // SAFETY: it takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let unmapped = |error: io::Error| failed(name, format!("cannot be mapped: {error}"));
        let descriptor = map.as_fd().as_raw_fd();
        let reader = MmapOptions::new().len(page).map_raw(descriptor).map_err(unmapped)?;
        let options = MmapOptions::new().offset(page as u64).len(page + 2 * bytes).to_owned();
        let writers = options.map_raw_read_only(descriptor).map_err(unmapped)?;
        Ok(RecordRing { map, page, bytes, reader, writers })
    }

    /// The map, for programs.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Bytes of records that were written, or are being written, and not read.
    pub fn waiting_bytes(&self) -> u64 {
        let (reader, writer) = self.positions();
        let read = reader.load(Ordering::Relaxed);
        writer.load(Ordering::Acquire).saturating_sub(read)
    }

    /// Bytes that a record of this length takes.
    pub const fn taken_by(length: usize) -> usize {
        (length + HEADER_BYTES).next_multiple_of(8)
    }

    /// The positions of the reader and of the writers, in bytes since the ring was created.
    fn positions(&self) -> (&AtomicU64, &AtomicU64) {
        // SAFETY: both positions are aligned words at the beginnings of mappings that live as long as `self`.
        unsafe { (&*self.reader.as_ptr().cast::<AtomicU64>(), &*self.writers.as_ptr().cast::<AtomicU64>()) }
    }

    /// Shows the next records to `take` until it returns something; `None` if there is no further record now. A record
    /// that was shown is gone.
    pub fn read<T>(&self, mut take: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
        let (reader, writer) = self.positions();
        loop {
            let position = reader.load(Ordering::Relaxed);
            if position >= writer.load(Ordering::Acquire) {
                return None;
            }
            let at = self.page + (position as usize & (self.bytes - 1));
            // SAFETY: records begin at multiples of 8 below the ring's size, and the mapping has the ring twice.
            let length = unsafe { &*self.writers.as_ptr().add(at).cast::<AtomicU32>() }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                return None;
            }
            let bytes = (length & !DISCARDED) as usize;
            let taken = if length & DISCARDED == 0 && bytes <= self.bytes {
                // SAFETY: the record is complete and between the positions, so no writer changes it, and it is not
                // longer than the ring, which the mapping has twice.
                take(unsafe { std::slice::from_raw_parts(self.writers.as_ptr().add(at + HEADER_BYTES), bytes) })
            } else {
                None
            };
            reader.store(position + Self::taken_by(bytes) as u64, Ordering::Release);
            if taken.is_some() {
                return taken;
            }
        }
    }
}
