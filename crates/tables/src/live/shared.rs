//! An image that readers use while its writer changes it.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use weir_abi::Layout;

use crate::cells::{Cells, CellsMut};
use crate::image::Image;
use crate::layout::{exact_set, exact_set6, exact_sets, rank_leaf};

/// How the image of a layout is changed and read at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// One or more sets of IPv4 addresses.
    Exact(exact_set::Place, exact_sets::Ends),
    /// A set of IPv6 /64s and /128s.
    Exact6(exact_set6::Place),
    /// IPv4 prefixes.
    RankLeaf(rank_leaf::Place),
    /// IPv6 prefixes.
    RankLeaf6(rank_leaf::Place),
    /// Other layouts: the image is replaced as a whole.
    Frozen,
}

/// An image and the positions of its words.
pub(super) struct SharedImage {
    /// Unless `place` is `Frozen`, no slice of its bytes exists once readers have it. They are accessed as atomic words
    /// only.
    image: Image,
    bytes: usize,
    place: Place,
}

impl SharedImage {
    pub fn new(image: Image) -> Self {
        let header = image.header();
        let (layout, bytes) = (image.layout(), image.as_bytes());
        let exact = || exact_set::Place::open(&header, bytes).expect("an image is valid by construction");
        let leaves = || rank_leaf::View::open(&header, bytes).expect("an image is valid by construction").place();
        let place = match layout {
            Layout::ExactSet => {
                let place = exact();
                Place::Exact(place, exact_sets::Ends::whole(place.geometry))
            }
            Layout::ExactSets => {
                let place = exact();
                let ends = exact_sets::open_ends(&header, place.geometry);
                Place::Exact(place, ends.expect("an image is valid by construction"))
            }
            Layout::ExactSet6 => {
                Place::Exact6(exact_set6::Place::open(&header, bytes).expect("an image is valid by construction"))
            }
            Layout::RankLeaf => Place::RankLeaf(leaves()),
            Layout::RankLeaf6 => Place::RankLeaf6(leaves()),
            Layout::Dxr16x4 | Layout::Range6 | Layout::CountedLeaf => Place::Frozen,
        };
        SharedImage { bytes: bytes.len(), place, image }
    }

    pub fn place(&self) -> Place {
        self.place
    }

    /// The start of the image, for C lookups.
    pub fn start(&self) -> *const u8 {
        self.image.start()
    }

    pub fn find4(&self, addr: u32) -> u32 {
        match &self.place {
            Place::Exact(place, ends) => {
                let (hits, overflow) = place.find(self, addr);
                ends.members_of(hits) | overflow
            }
            Place::RankLeaf(place) => place.find4(self, addr),
            Place::Exact6(_) | Place::RankLeaf6(_) => 0,
            Place::Frozen => self.image.view().find4(addr),
        }
    }

    /// Size of the image in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn find6(&self, addr: u128) -> u32 {
        match &self.place {
            Place::Exact(..) | Place::RankLeaf(_) => 0,
            Place::RankLeaf6(place) => place.find6(self, addr),
            Place::Exact6(place) => place.find(self, addr),
            Place::Frozen => self.image.view().find6(addr),
        }
    }

    fn at(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at.is_multiple_of(bytes) && at + bytes <= self.bytes, "a word of the image, aligned");
        // SAFETY: the offset is inside the image's memory, as just asserted.
        unsafe { self.image.start().add(at) }
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
