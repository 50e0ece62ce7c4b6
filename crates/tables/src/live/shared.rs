//! An image that readers use while its writer changes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use weir_abi::Layout;

use crate::cells::{Cells, CellsMut};
use crate::image::Image;
use crate::layout::exact_leaf::Parts;
use crate::layout::exact_set::ExactBuckets;
use crate::layout::exact_set6::Exact6Buckets;
use crate::layout::rank_leaf::Offsets;
use crate::layout::{exact_sets, rank_leaf};
use crate::live::two_halves::TwoHalves;

/// How the image of a layout is changed and read at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) enum LiveLayout {
    /// One or more sets of IPv4 addresses.
    Exact(ExactBuckets, exact_sets::Ends),
    /// One or more sets of IPv6 /64s and /128s.
    Exact6(Exact6Buckets),
    /// IPv4 prefixes.
    RankLeaf(Offsets),
    /// IPv6 prefixes.
    RankLeaf6(Offsets),
    /// A set of prefixes of either family, most of them hosts.
    ExactLeaf(Parts),
    /// Other layouts: the image is replaced as a whole.
    Frozen,
}

/// An image and the positions of its words.
pub(super) struct SharedImage {
    memory: Memory,
    bytes: usize,
    live: LiveLayout,
}

/// The location of an image.
enum Memory {
    /// Unless the layout is `Frozen`, no slice of its bytes exists once readers have it. They are accessed as atomic
    /// words only.
    Image(Arc<Image>),
    /// A half of memory that programs in the kernel read. No slice of its bytes exists.
    Half(Arc<dyn TwoHalves>, usize),
}

impl SharedImage {
    pub fn new(image: Image) -> Self {
        SharedImage {
            bytes: image.as_bytes().len(),
            live: Self::layout_of(&image),
            memory: Memory::Image(Arc::new(image)),
        }
    }

    /// Copies an image to a half that no reader uses.
    ///
    /// # Panics
    /// Panics if the half is too small.
    pub fn copied(image: &Image, halves: &Arc<dyn TwoHalves>, half: usize) -> Self {
        let bytes = image.as_bytes();
        assert!(bytes.len() <= halves.capacity(), "the caller has compared the sizes");
        // SAFETY: a half has `capacity` bytes, and nothing else accesses this one (the caller's promise).
        unsafe { halves.start(half).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        SharedImage { bytes: bytes.len(), live: Self::layout_of(image), memory: Memory::Half(halves.clone(), half) }
    }

    fn layout_of(image: &Image) -> LiveLayout {
        let header = image.header();
        let (layout, bytes) = (image.layout(), image.as_bytes());
        let exact = || ExactBuckets::open(&header, bytes).expect("an image is valid by construction");
        let leaves = || rank_leaf::View::open(&header, bytes).expect("an image is valid by construction").offsets();
        match layout {
            Layout::ExactSet => {
                let buckets = exact();
                LiveLayout::Exact(buckets, exact_sets::Ends::whole(buckets.geometry))
            }
            Layout::ExactSets => {
                let buckets = exact();
                let ends = exact_sets::open_ends(&header, buckets.geometry);
                LiveLayout::Exact(buckets, ends.expect("an image is valid by construction"))
            }
            Layout::ExactSet6 | Layout::ExactSets6 => {
                LiveLayout::Exact6(Exact6Buckets::open(&header, bytes).expect("an image is valid by construction"))
            }
            Layout::RankLeaf => LiveLayout::RankLeaf(leaves()),
            Layout::RankLeaf6 => LiveLayout::RankLeaf6(leaves()),
            Layout::ExactLeaf | Layout::ExactLeaf6 => {
                LiveLayout::ExactLeaf(Parts::open(&header, bytes).expect("an image is valid by construction"))
            }
            Layout::Dxr16x4 | Layout::Range6 | Layout::CountedLeaf => LiveLayout::Frozen,
        }
    }

    /// An image that does not change. Others may read its bytes.
    pub fn constant(image: Arc<Image>) -> Self {
        SharedImage { bytes: image.as_bytes().len(), live: LiveLayout::Frozen, memory: Memory::Image(image) }
    }

    pub fn live_layout(&self) -> LiveLayout {
        self.live
    }

    /// The start of the image, for C lookups.
    pub fn start(&self) -> *const u8 {
        self.first()
    }

    fn first(&self) -> *mut u8 {
        match &self.memory {
            Memory::Image(image) => image.start(),
            Memory::Half(halves, half) => halves.start(*half),
        }
    }

    /// A constant image.
    fn frozen(&self) -> &Image {
        match &self.memory {
            Memory::Image(image) => image,
            Memory::Half(..) => panic!("only programs in the kernel look up a constant image in a half"),
        }
    }

    pub fn find4(&self, addr: u32) -> u32 {
        match &self.live {
            LiveLayout::Exact(buckets, ends) => {
                let (hits, overflow) = buckets.find(self, addr);
                ends.members_of(hits) | overflow
            }
            LiveLayout::RankLeaf(offsets) => offsets.find4(self, addr),
            LiveLayout::ExactLeaf(parts) => parts.find4(self, addr),
            LiveLayout::Exact6(_) | LiveLayout::RankLeaf6(_) => 0,
            LiveLayout::Frozen => self.frozen().view().find4(addr),
        }
    }

    /// Size of the image in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn find6(&self, addr: u128) -> u32 {
        match &self.live {
            LiveLayout::Exact(..) | LiveLayout::RankLeaf(_) => 0,
            LiveLayout::RankLeaf6(offsets) => offsets.find6(self, addr),
            LiveLayout::Exact6(buckets) => buckets.find(self, addr),
            LiveLayout::ExactLeaf(parts) => parts.find6(self, addr),
            LiveLayout::Frozen => self.frozen().view().find6(addr),
        }
    }

    fn at(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.is_multiple_of(bytes) && at + bytes <= self.bytes, "a word of the image, aligned");
        // SAFETY: the offset is inside the image's memory, as just asserted.
        unsafe { self.first().add(at) }
    }

    fn atomic8(&self, at: usize) -> &AtomicU8 {
        // SAFETY: the word is in bounds (`at`), and the image's memory lives as long as `self`. Its words are accessed
        // as atomics of this size only (see the field and `Cells`).
        unsafe { AtomicU8::from_ptr(self.at(at, 1)) }
    }

    fn atomic16(&self, at: usize) -> &AtomicU16 {
        // SAFETY: as above, and aligned.
        unsafe { AtomicU16::from_ptr(self.at(at, 2).cast()) }
    }

    fn atomic32(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as above, and aligned.
        unsafe { AtomicU32::from_ptr(self.at(at, 4).cast()) }
    }

    fn atomic64(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as above, and aligned.
        unsafe { AtomicU64::from_ptr(self.at(at, 8).cast()) }
    }
}

impl Cells for SharedImage {
    fn u8(&self, at: usize) -> u8 {
        self.atomic8(at).load(Ordering::Acquire)
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le(self.atomic16(at).load(Ordering::Acquire))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le(self.atomic32(at).load(Ordering::Acquire))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le(self.atomic64(at).load(Ordering::Acquire))
    }
}

impl CellsMut for SharedImage {
    fn set_u8(&self, at: usize, word: u8) {
        self.atomic8(at).store(word, Ordering::Release);
    }

    fn set_u16(&self, at: usize, word: u16) {
        self.atomic16(at).store(word.to_le(), Ordering::Release);
    }

    fn set_u32(&self, at: usize, word: u32) {
        self.atomic32(at).store(word.to_le(), Ordering::Release);
    }

    fn set_u64(&self, at: usize, word: u64) {
        self.atomic64(at).store(word.to_le(), Ordering::Release);
    }
}
