//! The ring of samples of programs in the kernel (datapath/observe/kernel_samples.h): the kernel's ring buffer
//! (Documentation/bpf/ringbuf.rst), read without copies by its one reader. Only programs that this process has loaded
//! write to it.
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
use weir_abi::kernel::SampleRecord;

use crate::EngineError;
use crate::live::lane::Side;
use crate::xdp::failed;
use crate::xdp::load::SAMPLES;

/// Bytes of records: about 4,000, as the queue of workers has.
const RING_BYTES: usize = 1 << 20;
/// Flags of a record's length: it is being written, and it was given up.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// Bytes of a record's header.
const HEADER_BYTES: usize = 8;

/// The ring.
pub struct SampleRing {
    map: MapHandle,
    page: usize,
    reader: MmapRaw,
    writers: MmapRaw,
}

// SAFETY: the mappings keep their map alive. Positions and lengths are read and written as atomics; records are read
// only between the two positions, where no writer is.
unsafe impl Send for SampleRing {}
// SAFETY: as above. `read` may be called by one thread at a time only, which `SampleReader` promises.
unsafe impl Sync for SampleRing {}

impl Debug for SampleRing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("SampleRing")
    }
}

impl SampleRing {
    /// Creates a ring.
    ///
    /// # Errors
    /// The process lacks the right to create BPF maps.
    pub fn create() -> Result<Self, EngineError> {
        let options = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
        let map = MapHandle::create(MapType::RingBuf, Some(SAMPLES), 0, 0, RING_BYTES as u32, &options);
        let map = map.map_err(|error| failed(SAMPLES, error.to_string()).caused_by_libbpf(&error))?;
        // SAFETY: it takes no pointers.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let unmapped = |error: io::Error| failed(SAMPLES, format!("cannot be mapped: {error}"));
        let descriptor = map.as_fd().as_raw_fd();
        let reader = MmapOptions::new().len(page).map_raw(descriptor).map_err(unmapped)?;
        let options = MmapOptions::new().offset(page as u64).len(page + 2 * RING_BYTES).to_owned();
        let writers = options.map_raw_read_only(descriptor).map_err(unmapped)?;
        Ok(SampleRing { map, page, reader, writers })
    }

    /// The map, for programs.
    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Number of samples that were written, or are being written, and not read.
    pub fn waiting(&self) -> u64 {
        const RECORD_BYTES: usize = (size_of::<SampleRecord>() + HEADER_BYTES).next_multiple_of(8);
        let (reader, writer) = self.positions();
        let read = reader.load(Ordering::Relaxed);
        writer.load(Ordering::Acquire).saturating_sub(read) / RECORD_BYTES as u64
    }

    /// The positions of the reader and of the writers, in bytes since the ring was created.
    fn positions(&self) -> (&AtomicU64, &AtomicU64) {
        // SAFETY: both positions are aligned words at the beginnings of mappings that live as long as `self`.
        unsafe { (&*self.reader.as_ptr().cast::<AtomicU64>(), &*self.writers.as_ptr().cast::<AtomicU64>()) }
    }

    /// Copies the next sample to `frame`. Returns its bytes, the length of the packet and its side; `None` if there is
    /// none now.
    pub fn read(&self, frame: &mut [u8]) -> Option<(usize, u32, Side)> {
        let (reader, writer) = self.positions();
        loop {
            let position = reader.load(Ordering::Relaxed);
            if position >= writer.load(Ordering::Acquire) {
                return None;
            }
            let at = self.page + (position as usize & (RING_BYTES - 1));
            // SAFETY: records begin at multiples of 8 below the ring's size, and the mapping has the ring twice.
            let length = unsafe { &*self.writers.as_ptr().add(at).cast::<AtomicU32>() }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                return None;
            }
            let bytes = (length & !DISCARDED) as usize;
            let is_whole = length & DISCARDED == 0 && bytes == size_of::<SampleRecord>();
            // SAFETY: the record is complete and between the positions, so no writer changes it. Any bits are a valid
            // record, and it is aligned to 8 bytes.
            let record =
                is_whole.then(|| unsafe { &*self.writers.as_ptr().add(at + HEADER_BYTES).cast::<SampleRecord>() });
            let sample = record.map(|record| {
                let captured = (record.cap as usize).min(record.bytes.len()).min(frame.len());
                frame[..captured].copy_from_slice(&record.bytes[..captured]);
                (captured, record.len, Side::of_number(record.side))
            });
            reader.store(position + (bytes + HEADER_BYTES).next_multiple_of(8) as u64, Ordering::Release);
            if sample.is_some() {
                return sample;
            }
        }
    }
}

impl AsFd for SampleRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map()
    }
}
