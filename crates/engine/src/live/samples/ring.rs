//! The ring of samples of programs in the kernel (datapath/observe/kernel_samples.h).

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};

use weir_abi::kernel::SampleRecord;

use crate::EngineError;
use crate::live::lane::Side;
use crate::live::ring::RecordRing;
use crate::xdp::load::SAMPLES;

/// Bytes of records: about 4,000, as the queue of workers has.
const RING_BYTES: usize = 1 << 20;

/// The ring. One thread reads.
#[derive(Debug)]
pub struct SampleRing(RecordRing);

impl SampleRing {
    /// Creates a ring.
    ///
    /// # Errors
    /// The process lacks the right to create BPF maps.
    pub fn create() -> Result<Self, EngineError> {
        RecordRing::create(SAMPLES, RING_BYTES).map(SampleRing)
    }

    /// The map, for programs.
    pub(crate) fn map(&self) -> BorrowedFd<'_> {
        self.0.map()
    }

    /// Number of samples that were written, or are being written, and not read.
    pub fn waiting(&self) -> u64 {
        self.0.waiting_bytes() / RecordRing::taken_by(size_of::<SampleRecord>()) as u64
    }

    /// Copies the next sample to `frame`. Returns its bytes, the length of the packet and its side; `None` if there is
    /// none now.
    pub fn read(&self, frame: &mut [u8]) -> Option<(usize, u32, Side)> {
        self.0.read(|record| {
            let record: &[u8; size_of::<SampleRecord>()] = record.try_into().ok()?;
            let half = |at: usize| u16::from_ne_bytes([record[at], record[at + 1]]);
            let bytes = &record[offset_of!(SampleRecord, bytes)..];
            let captured = usize::from(half(offset_of!(SampleRecord, cap))).min(bytes.len()).min(frame.len());
            frame[..captured].copy_from_slice(&bytes[..captured]);
            let len = u32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            Some((captured, len, Side::of_number(half(offset_of!(SampleRecord, side)))))
        })
    }
}

impl AsFd for SampleRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map()
    }
}

const _: () = assert!(offset_of!(SampleRecord, len) == 0);
