//! Exact set: IPv4 addresses (/32 only) without labels. A lookup compares the key with one bucket.
//!
//! The low half of an address, mixed with a hash of the high half, selects the bucket. The bucket stores the high half,
//! the *remainder*. Bucket and remainder together determine the address, so the answer is exact with 16 bits per
//! address. A bucket has 4, 8, 16 or 32 slots of 16 bits. The builder chooses the fewest with which few buckets
//! overflow.
//!
//! ```text
//! bucket = (address mod 2^16) ^ (address div 2^16) * 0x9e3779b1 mod 2^32 >> shift       shift = 32 - log2(buckets)
//!
//! buckets    2^16 or more of  15   0 15   0       15   0 15   0      at byte 64
//!                            +------+------+ ... +------+------+
//!                            | rem  | rem  |     | ffff | ffff |     remainders, in any slot; ffff: the slot is free
//!                            +------+------+ ... +------+------+
//!                                                          ^ fffe in the last slot: the bucket has overflowed
//! overflow   hashed addresses (overflow.rs): those that a bucket had no room for, and all of 255.254.0.0/15, whose
//!            remainders look like the two marks. Looked at only for a bucket with the mark and for such an address.
//! header     section[4] = shift, section[5] = log2 of the bucket's 64-bit words (0..=3), section[6, 7]: overflow.rs
//! ```
//! Example: 10.1.2.3 = `0x0a01_0203` in 2^16 buckets: `0x0a01 * 0x9e3779b1 mod 2^32 = 0xc8f8_63b1`, so bucket `0xc8f8 ^
//! 0x0203 = 0xcafb` holds the remainder `0x0a01`.
//!
//! A full bucket that has not overflowed has no mark, so its keys need no second lookup. With 178,000 random addresses
//! in 8 slots, 0.5% of the buckets are exactly full and 0.13% overflow.
//!
//! exact_sets.rs divides the slots of a bucket among several sets of addresses, the *members*. Here there is one
//! member.

use std::ops::Range;

use weir_abi::Layout;

use crate::cells::Cells;
use crate::image::{BuildError, HEADER_BYTES, Header, Image, ImageError, Section, Writer};
use crate::layout::{Room, overflow};
use crate::prefix::Prefix4;
use crate::trace::{Trace, TracedLines};

pub(super) const BUCKET_BITS_MIN: u32 = 16;
/// Maximum log2 of the number of buckets: 256 MB of 64-byte buckets, for 80 million addresses.
pub(super) const BUCKET_BITS_MAX: u32 = 22;
/// A bucket has `1 << order` words.
pub(super) const ORDER_MAX: u32 = 3;
pub(crate) const WORD_SLOTS: usize = 4;
/// The value of a free slot.
pub(crate) const FREE: u16 = 0xffff;
/// The mark: the value of the last slot of a bucket that has overflowed.
pub(crate) const OVERFLOWED: u16 = 0xfffe;
/// Remainders from here on are never stored in a bucket.
const REMAINDERS: u16 = OVERFLOWED;
const MULTIPLIER: u32 = 0x9e37_79b1;

pub(super) const SHIFT: usize = 4;
pub(super) const ORDER: usize = 5;

pub(crate) const SECTIONS: [&str; 2] = ["buckets", "overflow"];

/// At most one bucket in this many overflows.
pub(super) const OVERFLOW_ONE_IN: usize = 256;
/// A set that may change has spare room in the overflow for one address in this many, and for at least
/// [`OVERFLOW_SPARE_MIN`].
const OVERFLOW_SPARE_ONE_IN: usize = 32;
const OVERFLOW_SPARE_MIN: usize = 512;

/// The number and size of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub shift: u32,
    pub order: u32,
}

impl Geometry {
    pub fn buckets(self) -> usize {
        1 << (32 - self.shift)
    }

    /// Number of slots per bucket.
    pub fn slots(self) -> usize {
        WORD_SLOTS << self.order
    }

    /// The bucket and the remainder. The remainder is `None` if the address must be in the overflow.
    pub fn split(self, addr: u32) -> (usize, Option<u16>) {
        let remainder = (addr >> 16) as u16;
        (self.bucket(addr & 0xffff, remainder), (remainder < REMAINDERS).then_some(remainder))
    }

    /// The address with a given remainder in a given bucket.
    pub fn join(self, bucket: usize, remainder: u16) -> u32 {
        // The mixing is its own inverse.
        u32::from(remainder) << 16 | self.bucket(bucket as u32, remainder) as u32 & 0xffff
    }

    fn bucket(self, low: u32, remainder: u16) -> usize {
        (low ^ (u32::from(remainder).wrapping_mul(MULTIPLIER) >> self.shift)) as usize
    }

    /// Number of addresses of the set in each bucket.
    pub fn count(self, set: &[Prefix4]) -> Vec<u32> {
        let mut used = vec![0; self.buckets()];
        set.iter().for_each(|prefix| used[self.split(prefix.addr).0] += 1);
        used
    }
}

/// Buckets under construction, and the addresses that did not fit.
pub(super) struct Filler {
    geometry: Geometry,
    pub slots: Vec<u16>,
    /// Addresses, each with the bit of one member.
    pub overflow: Vec<(u32, u32)>,
}

impl Filler {
    pub fn new(geometry: Geometry) -> Self {
        let slots = vec![FREE; geometry.buckets() * geometry.slots()];
        Filler { geometry, slots, overflow: Vec::new() }
    }

    /// Inserts the addresses of a member into its `segment` of each bucket's slots. `last` is the member that owns the
    /// last slot.
    pub fn insert(&mut self, set: &[Prefix4], member: u32, segment: Range<usize>, last: u32) {
        let mut used = vec![0u8; self.geometry.buckets()];
        for prefix in set {
            let (bucket, Some(remainder)) = self.geometry.split(prefix.addr) else {
                self.overflow.push((prefix.addr, 1 << member));
                continue;
            };
            let slots = &mut self.slots[bucket * self.geometry.slots()..][..self.geometry.slots()];
            let slot = segment.start + usize::from(used[bucket]);
            // The last slot may already hold the mark, because another member overflowed.
            if slot < segment.end && slots[slot] == FREE {
                slots[slot] = remainder;
                used[bucket] += 1;
                continue;
            }
            self.overflow.push((prefix.addr, 1 << member));
            let end = slots.last_mut().expect("a bucket has slots");
            let ended = std::mem::replace(end, OVERFLOWED);
            if ended < REMAINDERS {
                self.overflow.push((self.geometry.join(bucket, ended), 1 << last));
            }
        }
    }
}

/// Refuses prefixes shorter than /32.
pub(super) fn addresses_only(layout: Layout, prefixes: &[Prefix4]) -> Result<(), BuildError> {
    match prefixes.iter().find(|prefix| prefix.len != 32) {
        Some(prefix) => Err(BuildError::NotAnAddress { layout, prefix: prefix.to_string() }),
        None => Ok(()),
    }
}

/// Spare room in the overflow of a set of `count` addresses.
pub(super) fn overflow_spare(count: usize, room: Room) -> usize {
    room.beside(count / OVERFLOW_SPARE_ONE_IN, OVERFLOW_SPARE_MIN)
}

/// Builds the image of sorted, distinct /32 prefixes.
pub(crate) fn build(prefixes: &[Prefix4], room: Room) -> Result<Image, BuildError> {
    let layout = Layout::ExactSet;
    addresses_only(layout, prefixes)?;
    let geometry = choose(prefixes);
    let mut filler = Filler::new(geometry);
    filler.insert(prefixes, 0, 0..geometry.slots(), 0);
    let overflow = overflow::build(layout, &filler.overflow, overflow_spare(prefixes.len(), room))?;
    let sections = [Section::U16(&filler.slots), Section::U64(&overflow.words)];
    let numbers = [(SHIFT, geometry.shift), (ORDER, geometry.order)];
    Writer { layout, entries: prefixes.len(), labels: 1 }.write(&sections, &[numbers, overflow.numbers].concat())
}

/// Chooses the geometry with the smallest buckets, then with the fewest, at which few enough buckets overflow.
fn choose(prefixes: &[Prefix4]) -> Geometry {
    for bits in BUCKET_BITS_MIN..BUCKET_BITS_MAX {
        let shift = 32 - bits;
        let used = Geometry { shift, order: 0 }.count(prefixes);
        for order in 0..=ORDER_MAX {
            let geometry = Geometry { shift, order };
            let overflowing = used.iter().filter(|&&used| used as usize > geometry.slots()).count();
            if overflowing <= used.len() / OVERFLOW_ONE_IN {
                return geometry;
            }
        }
    }
    Geometry { shift: 32 - BUCKET_BITS_MAX, order: ORDER_MAX }
}

/// The positions of buckets and overflow in an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExactBuckets {
    pub geometry: Geometry,
    pub overflow: overflow::OverflowTable,
}

impl ExactBuckets {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &[u8]) -> Result<Self, ImageError> {
        let geometry = Geometry { shift: header.section[SHIFT], order: header.section[ORDER] };
        if !(32 - BUCKET_BITS_MAX..=32 - BUCKET_BITS_MIN).contains(&geometry.shift) || geometry.order > ORDER_MAX {
            return Err(header.corrupt("buckets", "dimension"));
        }
        let buckets: &[[u8; 2]] = header.section_at(image, 0, "buckets", HEADER_BYTES)?;
        if buckets.len() != geometry.buckets() * geometry.slots() {
            return Err(header.corrupt("buckets", "section size"));
        }
        Ok(ExactBuckets { geometry, overflow: overflow::OverflowTable::open(header, image)? })
    }

    /// Byte offset of a slot.
    pub fn slot(&self, bucket: usize, slot: usize) -> usize {
        HEADER_BYTES + 2 * (bucket * self.geometry.slots() + slot)
    }

    /// Returns the slots (one bit each) with the address's remainder, and the members that hold the address in the
    /// overflow.
    pub fn find(&self, cells: &(impl Cells + ?Sized), addr: u32) -> (u32, u32) {
        let (bucket, Some(remainder)) = self.geometry.split(addr) else { return (0, self.overflow.find(cells, addr)) };
        let mut hits = 0;
        let mut last = FREE;
        for slot in 0..self.geometry.slots() {
            // The slot is read once, because its remainder and its mark must be consistent.
            last = cells.u16(self.slot(bucket, slot));
            hits |= u32::from(last == remainder) << slot;
        }
        (hits, if last == OVERFLOWED { self.overflow.find(cells, addr) } else { 0 })
    }
}

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    image: &'a [u8],
    buckets: ExactBuckets,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        if header.labels != 1 {
            return Err(header.corrupt("header", "label count"));
        }
        Ok(View { image, buckets: ExactBuckets::open(header, image)? })
    }

    /// Checks the members in the overflow. Buckets contain no index.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        self.buckets.overflow.check(header, self.image)
    }

    /// 1 if `addr` is in the set, 0 if not.
    pub fn find(&self, addr: u32) -> u32 {
        let (hits, overflow) = self.buckets.find(self.image, addr);
        u32::from(hits != 0 || overflow != 0)
    }

    /// Records what a lookup reads.
    pub fn trace(&self, addr: u32, trace: &mut Trace) {
        self.buckets.find(&TracedLines::new(self.image, trace), addr);
    }
}
