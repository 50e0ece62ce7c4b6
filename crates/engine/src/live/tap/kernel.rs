//! The taps of programs in the kernel (datapath/observe/kernel_tap.h): their memory, which all generations share, and
//! the ring of copies.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use memmap2::MmapRaw;
use weir_abi::kernel::{WORDS_TAPS, Words};
use weir_abi::tap::{TAP_RECORD_HEAD, TAPS, Tap, TapCount, TapCpu, TapRecord, Taps as TapsHead, kind_shift};
use weir_abi::tap_where::TapWhere;
use weir_abi::{Link, Verdict};
use weir_tables::SplitMix;

use super::filter::TapFilter;
use super::open_tap::{TapCounts, renew};
use super::policy_bits::PolicyBits;
use crate::EngineError;
use crate::live::lane::Side;
use crate::live::ring::RecordRing;
use crate::xdp::failed;
use crate::xdp::load::{TAP_RING, TAPS_SECTION};

/// Bytes of copies: 200 packets of the largest size, or 1,300 of 1,500 bytes.
const RING_BYTES: usize = 1 << 21;
/// The most copies that a reader takes at once, so that its own are not kept waiting.
const TURN: usize = 512;

/// The taps of programs in the kernel.
pub(in crate::live) struct KernelTaps {
    map: OwnedFd,
    memory: MmapRaw,
    cpus: usize,
    ring: RecordRing,
    /// Held by the one reader that takes copies from the ring.
    reading: Mutex<()>,
}

// SAFETY: the mapping keeps its map alive. Its words are read and written as atomics.
unsafe impl Send for KernelTaps {}
// SAFETY: as above.
unsafe impl Sync for KernelTaps {}

/// A copy, as it lies in the ring.
pub(super) struct Record<'a> {
    pub at_ns: u64,
    pub verdict: Verdict,
    pub wire_len: u32,
    pub policy: u32,
    pub epoch: u32,
    pub taps: u8,
    pub from: Side,
    pub bytes: &'a [u8],
}

impl Record<'_> {
    /// The link layer of packets in the kernel.
    pub const LINK: Link = Link::Ethernet;

    fn read(record: &[u8]) -> Option<Record<'_>> {
        let (head, bytes) = record.split_first_chunk::<TAP_RECORD_HEAD>()?;
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| head[at + byte]));
        let cap = word(offset_of!(TapRecord, cap)) as usize;
        Some(Record {
            at_ns: u64::from_ne_bytes(std::array::from_fn(|byte| head[byte])),
            verdict: Verdict(word(offset_of!(TapRecord, verdict))),
            wire_len: word(offset_of!(TapRecord, len)),
            policy: word(offset_of!(TapRecord, policy)),
            epoch: word(offset_of!(TapRecord, epoch)),
            taps: head[offset_of!(TapRecord, taps)],
            from: Side::of_number(head[offset_of!(TapRecord, side)].into()),
            bytes: bytes.get(..cap)?,
        })
    }
}

impl KernelTaps {
    /// Creates the memory and the ring.
    ///
    /// # Errors
    /// The process lacks the right to create BPF maps.
    pub fn create() -> Result<Self, EngineError> {
        let refused = |error: std::io::Error| failed(TAPS_SECTION, error.to_string()).caused_by(&error);
        let cpus = weir_state::cpus().map_err(refused)?;
        let (map, memory) = weir_state::mapped_array("weir_taps", Self::bytes(cpus), 1).map_err(refused)?;
        Ok(KernelTaps { map, memory, cpus, ring: RecordRing::create(TAP_RING, RING_BYTES)?, reading: Mutex::default() })
    }

    /// Length of the section of taps.
    pub fn bytes(cpus: usize) -> usize {
        offset_of!(TapsHead, cpu) + cpus * size_of::<TapCpu>()
    }

    /// The maps for programs, by section.
    pub fn maps(&self) -> [(String, BorrowedFd<'_>); 2] {
        [(TAPS_SECTION.to_owned(), self.map.as_fd()), (TAP_RING.to_owned(), self.ring.map())]
    }

    /// The bits of a policy's programs, whose section of words is `memory`. Copies have this number.
    pub fn bits(memory: MmapRaw, number: u32, reasons: usize) -> PolicyBits {
        assert!(memory.len() >= size_of::<Words>(), "the section has the words");
        // SAFETY: the mapping has the word, as just asserted, and is aligned to a page. No program runs yet.
        unsafe { &*memory.as_ptr().add(offset_of!(Words, policy)).cast::<AtomicU32>() }
            .store(number, Ordering::Relaxed);
        PolicyBits::mapped(number, memory, WORDS_TAPS, reasons)
    }

    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.memory.len(), "it is in the map");
        // SAFETY: the mapping has these bytes, as just asserted. It begins at a page and lives as long as `self`.
        // Callers ask for atomics at offsets of fields, which are aligned.
        unsafe { &*self.memory.as_ptr().add(offset).cast::<T>() }
    }

    fn tap<T>(&self, tap: usize, field: usize) -> &T {
        self.at(offset_of!(TapsHead, tap) + tap * size_of::<Tap>() + field)
    }

    /// A counter of a CPU for a tap.
    fn count(&self, cpu: usize, tap: usize, field: usize) -> &AtomicU64 {
        let of_cpu = offset_of!(TapsHead, cpu) + cpu * size_of::<TapCpu>() + offset_of!(TapCpu, count);
        self.at(of_cpu + tap * size_of::<TapCount>() + field)
    }

    /// Copies that a tap may still get.
    pub fn left(&self, tap: usize) -> &AtomicI64 {
        self.tap(tap, offset_of!(Tap, left))
    }

    /// Sets what a tap wants. It is not open.
    pub fn set(&self, tap: usize, filter: &TapFilter) {
        let Tap { skips, lets_by, snap, .. } = Tap::new(filter.one_in, filter.snap(), filter.tests_headers());
        self.tap::<AtomicU64>(tap, offset_of!(Tap, skips)).store(skips, Ordering::Relaxed);
        self.tap::<AtomicU64>(tap, offset_of!(Tap, lets_by)).store(lets_by, Ordering::Relaxed);
        // The first packets are chosen by chance too.
        let mut random = SplitMix::new(RandomState::new().build_hasher().finish());
        for cpu in 0..self.cpus {
            let word = |field: usize| self.count(cpu, tap, field);
            let matched = word(offset_of!(TapCount, matched)).load(Ordering::Relaxed);
            word(offset_of!(TapCount, next)).store(matched + random.below(skips + 1), Ordering::Relaxed);
        }
        self.tap::<AtomicU32>(tap, offset_of!(Tap, snap)).store(snap, Ordering::Relaxed);
        self.left(tap).store(0, Ordering::Relaxed);
        renew(self.left(tap), filter.budget_pps.into(), filter.budget_pps.into());
        let wheres = self.at::<AtomicU32>(offset_of!(TapsHead, wheres));
        wheres.fetch_and(!(1 << tap), Ordering::Relaxed);
        wheres.fetch_or(u32::from(filter.tests_headers()) << tap, Ordering::Relaxed);
        let headers = offset_of!(TapsHead, headers) + tap * size_of::<TapWhere>();
        for (number, word) in filter.headers.words().into_iter().enumerate() {
            self.at::<AtomicU64>(headers + number * size_of::<u64>()).store(word, Ordering::Relaxed);
        }
    }

    /// Says which taps are open, from the next packet on.
    pub fn open<'a>(&self, epoch: u32, taps: impl Iterator<Item = (usize, &'a TapFilter)>) {
        let kinds_of = |(tap, filter): (usize, &TapFilter)| {
            let kinds = filter.actions.iter().flat_map(|&action| filter.sides.iter().map(move |&side| (action, side)));
            kinds.fold(0, |bits: u64, (action, side)| bits | 1 << (kind_shift(action, side as usize) + tap))
        };
        let bits = taps.map(kinds_of).fold(0, |all, bits| all | bits);
        self.at::<AtomicU64>(offset_of!(TapsHead, open)).store(u64::from(epoch) << 32 | bits, Ordering::Release);
    }

    /// What programs have counted for a tap since the start. They do not know what was copied.
    pub fn counts(&self, tap: usize) -> TapCounts {
        let of_cpu = |cpu: usize| {
            let word = |field: usize| self.count(cpu, tap, field).load(Ordering::Relaxed);
            [
                offset_of!(TapCount, matched),
                offset_of!(TapCount, over),
                offset_of!(TapCount, lost),
                offset_of!(TapCount, excluded),
            ]
            .map(word)
        };
        assert!(tap < TAPS, "there are few");
        let sums =
            (0..self.cpus).map(of_cpu).fold([0; 4], |sum: [u64; 4], one| std::array::from_fn(|at| sum[at] + one[at]));
        let [matched, over, lost, excluded] = sums;
        TapCounts { matched: matched + excluded, copied: 0, over, excluded, lost }
    }

    /// Shows waiting copies to `visit`, unless another reader does. Returns whether there were any.
    pub(super) fn read(&self, mut visit: impl FnMut(Record<'_>)) -> bool {
        let Ok(_alone) = self.reading.try_lock() else { return false };
        let mut shown = 0;
        while shown < TURN && self.ring.read(|record| Record::read(record).map(&mut visit)).is_some() {
            shown += 1;
        }
        shown > 0
    }
}
