//! Tables that programs in the kernel read.
//!
//! An image is in the value of a map, which programs of all generations that share the image address directly. The
//! value has two halves. A bit says which of them a packet reads, and each generation has the bits of its slots in
//! words of its own (`struct words` in datapath/core/env_bpf.h). A program reads the word of the first 64 slots once
//! a packet. So a packet sees a swap of such a table as a whole or not at all.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use memmap2::MmapRaw;
use weir_abi::Layout;
use weir_abi::kernel::Words;
use weir_tables::live::TwoHalves;

use crate::kernel_map::mapped_array;

/// Maximum size of a half. The verifier allows offsets below twice as much.
pub const HALF_BYTES_MAX: usize = 1 << 28;
/// Bytes behind the second half. Programs read words of up to 8 bytes from any byte of it.
const PADDING: usize = size_of::<u64>();

/// Minimum size of a half. The root of rank leaves alone takes 256 KiB, and their minimum of spare words 112 KiB.
const EXACT_BYTES_MIN: usize = 1 << 16;
const LEAF_BYTES_MIN: usize = 1 << 19;

/// Size of a half for an image that may grow to half as many entries again, and to `size` entries if its table is
/// dynamic. `None` if the image is too large for two halves of at most `max` bytes.
///
/// Rank leaves of a million random addresses take 11 bytes each, of random IPv6 networks (/64) 48. Random hosts in
/// random networks take 164, for which there may be no room. Exact sets of IPv4 are at least a third full, and those of
/// IPv6 with their room for changes more than half full.
pub(super) fn half_bytes(layout: Layout, image_bytes: usize, size: usize, max: usize) -> Option<usize> {
    let (least, bytes_each) = match layout {
        Layout::ExactSet | Layout::ExactSets => (EXACT_BYTES_MIN, 8),
        Layout::ExactSet6 => (EXACT_BYTES_MIN, 32),
        // Each kind has at least 64 KiB of buckets.
        Layout::ExactSets6 => (4 * EXACT_BYTES_MIN, 32),
        Layout::RankLeaf | Layout::CountedLeaf | Layout::Dxr16x4 => (LEAF_BYTES_MIN, 14),
        Layout::RankLeaf6 | Layout::Range6 => (LEAF_BYTES_MIN, 64),
        // All entries may be prefixes.
        Layout::ExactLeaf => (2 * LEAF_BYTES_MIN, 14),
        Layout::ExactLeaf6 => (2 * LEAF_BYTES_MIN, 64),
    };
    let grown = match layout {
        // The number of buckets of these layouts doubles.
        Layout::ExactSet | Layout::ExactSets | Layout::ExactLeaf => 2 * image_bytes + image_bytes / 8,
        _ => image_bytes + image_bytes / 2,
    };
    let wanted = grown.max(least + size * bytes_each).next_power_of_two();
    let half = wanted.min(max);
    (half >= image_bytes).then_some(half)
}

/// The halves that the programs of a generation read: a bit for each slot in [`Words`].
pub struct SelectedHalves {
    memory: MmapRaw,
}

impl SelectedHalves {
    /// The words in a map's memory.
    ///
    /// # Panics
    /// Panics if the memory is too small.
    pub fn of_map(memory: MmapRaw) -> Self {
        assert!(memory.len() >= size_of::<Words>(), "the words are in the map");
        SelectedHalves { memory }
    }

    fn word(&self, slot: usize) -> &AtomicU64 {
        // SAFETY: the words are in the mapping, which `of_map` checked, and their offsets are multiples of 8. Others
        // only read them.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().add(Words::halves_at(slot)).cast()) }
    }

    fn select(&self, slot: usize, half: usize) {
        let bit = 1u64 << (slot % 64);
        match half {
            0 => self.word(slot).fetch_and(!bit, Ordering::SeqCst),
            _ => self.word(slot).fetch_or(bit, Ordering::SeqCst),
        };
    }
}

// SAFETY: the words are accessed only as atomics.
unsafe impl Send for SelectedHalves {}
// SAFETY: as above.
unsafe impl Sync for SelectedHalves {}

/// The map of an image.
pub struct KernelImage {
    map: OwnedFd,
    memory: MmapRaw,
    capacity: usize,
    selected: Mutex<Selected>,
}

struct Selected {
    half: usize,
    /// The words of loaded generations, with the image's slot in each.
    words: Vec<(Weak<SelectedHalves>, usize)>,
}

// SAFETY: only the publisher of the value writes the memory, and as atomics wherever programs read it.
unsafe impl Send for KernelImage {}
// SAFETY: as above.
unsafe impl Sync for KernelImage {}

impl KernelImage {
    /// A map with two halves of `capacity` bytes, a power of two of at least 64 and at most [`HALF_BYTES_MAX`].
    ///
    /// # Errors
    /// The kernel refuses the map or its memory.
    pub(super) fn create(capacity: usize) -> io::Result<Self> {
        assert!(capacity.is_power_of_two() && capacity <= HALF_BYTES_MAX, "the caller rounds");
        let bytes = 2 * capacity + PADDING;
        let (map, memory) = mapped_array("weir_table", bytes, 1)?;
        let selected = Mutex::new(Selected { half: 0, words: Vec::new() });
        Ok(KernelImage { map, memory, capacity, selected })
    }

    /// The map, which replaces the section of a slot in each program.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// Bytes of a half.
    pub fn bytes(&self) -> usize {
        self.capacity
    }

    /// Keeps the bit of a slot of a generation up to date, as long as the generation is loaded.
    pub fn follow(&self, word: &Arc<SelectedHalves>, slot: usize) {
        let mut selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
        word.select(slot, selected.half);
        selected.words.retain(|(word, _)| word.strong_count() > 0);
        selected.words.push((Arc::downgrade(word), slot));
    }
}

// SAFETY: the mapping begins at a page, `capacity` is a power of two of at least 64, and two halves fit (`create`).
unsafe impl TwoHalves for KernelImage {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn start(&self, half: usize) -> *mut u8 {
        assert!(half < 2, "there are two halves");
        // SAFETY: the mapping has two halves.
        unsafe { self.memory.as_mut_ptr().add(half * self.capacity) }
    }

    fn select(&self, half: usize) {
        let mut selected = self.selected.lock().unwrap_or_else(PoisonError::into_inner);
        selected.half = half;
        for (word, slot) in &selected.words {
            if let Some(word) = word.upgrade() {
                word.select(*slot, half);
            }
        }
    }
}
