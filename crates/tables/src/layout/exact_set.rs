//! Exact set: IPv4 addresses (/32 only), without labels. One comparison of a bucket answers a key.
//!
//! An address is cut in half: the low half, mixed with a hash of the high half, is the bucket, and the high half is what the
//! bucket stores, the *remainder*. Bucket and remainder give the address back, so the answer is exact, in 16 bits an
//! address. A bucket has 4, 8, 16 or 32 slots of 16 bits; the builder takes the fewest with which hardly a bucket is full.
//!
//! ```text
//! bucket = (address mod 2^16) ^ (address div 2^16) * 0x9e3779b1 mod 2^32 >> shift       shift = 32 - log2(buckets)
//!
//! buckets    2^16 or more of  15   0 15   0       15   0      at byte 64
//!                            +------+------+ ... +------+
//!                            | rem  | rem  |     | ffff |     remainders from the left, the rest filled with ffff
//!                            +------+------+ ... +------+
//! overflow   sorted 32-bit addresses: those whose bucket was full, and all of 255.255.0.0/16, whose remainder
//!            would look like a free slot. Looked at only for a full bucket or that remainder.
//! header     section[4] = shift, section[5] = log2 of the bucket's 64-bit words (0..=3)
//! ```
//! Example: 10.1.2.3 = `0x0a01_0203` in 2^16 buckets: `0x0a01 * 0x9e3779b1 mod 2^32 = 0xc8f8_63b1`, so bucket `0xc8f8 ^ 0x0203 = 0xcafb`
//! holds the remainder `0x0a01`.

use weir_abi::Layout;

use crate::image::{BuildError, HEADER_BYTES, Header, Image, ImageError, Section, Writer};
use crate::prefix::Prefix4;

const BUCKET_BITS_MIN: u32 = 16;
/// 256 MB of buckets of 64 bytes: room for 80 million addresses.
const BUCKET_BITS_MAX: u32 = 22;
/// A bucket has `4 << order` slots.
const ORDER_MAX: u32 = 3;
const SLOTS_MIN: usize = 4;
/// What free slots hold. No address with this remainder is ever in a bucket.
const FREE: u16 = 0xffff;
const MULTIPLIER: u32 = 0x9e37_79b1;

const SHIFT: usize = 4;
const ORDER: usize = 5;

pub(crate) const SECTIONS: [&str; 2] = ["buckets", "overflow"];

/// At most one bucket in so many is full: keys that are not in the set then hardly ever look at the overflow.
const FULL_ONE_IN: usize = 128;

fn split(addr: u32) -> (u32, u16) {
    (addr & 0xffff, (addr >> 16) as u16)
}

fn bucket(addr: u32, shift: u32) -> usize {
    let (low, remainder) = split(addr);
    (low ^ (u32::from(remainder).wrapping_mul(MULTIPLIER) >> shift)) as usize
}

/// Builds the image of /32 prefixes, sorted and none twice.
pub(crate) fn build(prefixes: &[Prefix4]) -> Result<Image, BuildError> {
    let layout = Layout::ExactSet;
    if let Some(prefix) = prefixes.iter().find(|prefix| prefix.len != 32) {
        return Err(BuildError::NotAnAddress { layout, prefix: prefix.to_string() });
    }
    let (shift, order) = dimension(prefixes);
    let slots = SLOTS_MIN << order;
    let mut buckets = vec![FREE; slots << (32 - shift)];
    let mut used = vec![0u8; 1 << (32 - shift)];
    let mut overflow = Vec::new();
    for prefix in prefixes {
        let index = bucket(prefix.addr, shift);
        let (_, remainder) = split(prefix.addr);
        let count = usize::from(used[index]);
        if count == slots || remainder == FREE {
            overflow.push(prefix.addr);
        } else {
            buckets[index * slots + count] = remainder;
            used[index] += 1;
        }
    }
    let sections = [Section::U16(&buckets), Section::U32(&overflow)];
    Writer { layout, entries: prefixes.len(), labels: 1 }.write(&sections, &[(SHIFT, shift), (ORDER, order)])
}

/// Shift and order of the smallest buckets, then the fewest, of which few enough are full.
fn dimension(prefixes: &[Prefix4]) -> (u32, u32) {
    for bits in BUCKET_BITS_MIN..BUCKET_BITS_MAX {
        let shift = 32 - bits;
        let mut used = vec![0u32; 1 << bits];
        prefixes.iter().for_each(|prefix| used[bucket(prefix.addr, shift)] += 1);
        for order in 0..=ORDER_MAX {
            let full = used.iter().filter(|&&used| used as usize >= SLOTS_MIN << order).count();
            if full <= used.len() / FULL_ONE_IN {
                return (shift, order);
            }
        }
    }
    (32 - BUCKET_BITS_MAX, ORDER_MAX)
}

/// Checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    buckets: &'a [[u8; 2]],
    overflow: &'a [[u8; 4]],
    shift: u32,
    order: u32,
}

impl<'a> View<'a> {
    /// The sections, their bounds checked.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let (shift, order) = (header.section[SHIFT], header.section[ORDER]);
        if header.labels != 1 {
            return Err(header.corrupt("header", "label count"));
        }
        if !(32 - BUCKET_BITS_MAX..=32 - BUCKET_BITS_MIN).contains(&shift) || order > ORDER_MAX {
            return Err(header.corrupt("buckets", "dimension"));
        }
        let buckets: &[[u8; 2]] = header.section_at(image, 0, "buckets", HEADER_BYTES)?;
        if buckets.len() != SLOTS_MIN << order << (32 - shift) {
            return Err(header.corrupt("buckets", "section size"));
        }
        Ok(View { buckets, overflow: header.section(image, 1, "overflow")?, shift, order })
    }

    /// Checks the order of the overflow, with which every lookup in it is exact; buckets hold no index.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        match self.overflow.is_sorted_by_key(|&addr| u32::from_le_bytes(addr)) {
            true => Ok(()),
            false => Err(header.corrupt("overflow", "order")),
        }
    }

    /// 1 if `addr` is in the set, 0 if not.
    pub fn find(&self, addr: u32) -> u32 {
        let slots = SLOTS_MIN << self.order;
        let start = bucket(addr, self.shift) * slots;
        let bucket = &self.buckets[start..start + slots];
        let (_, remainder) = split(addr);
        let found = remainder != FREE && bucket.contains(&remainder.to_le_bytes());
        let overflows = remainder == FREE || bucket[slots - 1] != FREE.to_le_bytes();
        u32::from(
            found || overflows && self.overflow.binary_search_by_key(&addr, |&word| u32::from_le_bytes(word)).is_ok(),
        )
    }
}
