//! Exact sets: up to four sets of IPv4 addresses for the same key, in shared buckets. A lookup compares the key with
//! one cache line for all of them.
//!
//! Buckets, remainders and overflow are as in exact_set.rs. The words of a bucket are divided among the *members*. The
//! first member has the words up to its end, the next member the words from there to its own end, and so on. A lookup
//! returns one bit per member that holds the key. The labels of a fused table are such masks.
//!
//! ```text
//! bucket   word 0    word 1    word 2    word 3      of 64 bits, 4 slots each
//!         +---------+---------+---------+---------+
//!         | member 0          | member 1          |   ends 2, 4, 4, 4; of two members
//!         +---------+---------+---------+---------+
//! header  as exact_set.rs, and
//!         section[8] = ends in words, 8 bits a member, member 0 lowest; members that there are not end where the bucket ends
//!         section[9] = members
//!         labels     = 2^members - 1
//! ```
//! One mark serves the whole bucket. After any member has overflowed, the last slot holds the mark, and lookups search
//! the overflow for all members. There an address has one word, with the bits of its members.
//!
//! Example: 100,000 and 178,000 random addresses take 2^16 buckets of 32 bytes, 8 slots for each; 0.2% of the buckets
//! overflow. 10.1.2.3 in both is remainder `0x0a01` in words 0 or 1 and in words 2 or 3 of bucket `0xcafb`: mask 3.

use std::ops::Range;

use weir_abi::Layout;

use crate::image::{BuildError, Header, Image, ImageError, Section, Writer};
use crate::layout::exact_set::{
    BUCKET_BITS_MAX, BUCKET_BITS_MIN, ExactBuckets, Filler, Geometry, ORDER, ORDER_MAX, OVERFLOW_ONE_IN, SHIFT,
    WORD_SLOTS, addresses_only, overflow_spare,
};
use crate::layout::{Room, overflow};
use crate::prefix::Prefix4;
use crate::trace::{Trace, TracedLines};

/// Maximum number of sets in one table.
pub const MEMBERS_MAX: usize = 4;

/// One bucket in this many may overflow, for all members together. This is more than a single set allows. The words of
/// a member are whole groups of 4 slots: fusing 100,000 with 1,100,000 addresses takes 4 MiB instead of 8. The extra
/// memory would cost more than an occasional lookup in the overflow.
const FUSED_OVERFLOW_ONE_IN: usize = 20;

const ENDS: usize = 8;
const MEMBERS: usize = 9;

/// The division of a bucket's words among members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    ends: [u8; MEMBERS_MAX],
    pub members: u32,
}

impl Ends {
    /// The slots of a member.
    pub fn segment(&self, member: u32) -> Range<usize> {
        let member = member as usize;
        let start = if member == 0 { 0 } else { self.ends[member - 1] };
        usize::from(start) * WORD_SLOTS..usize::from(self.ends[member]) * WORD_SLOTS
    }

    /// All slots belong to the only member.
    pub fn whole(geometry: Geometry) -> Self {
        Ends { ends: [1 << geometry.order; MEMBERS_MAX], members: 1 }
    }

    /// The members (one bit each) that own the given slots (one bit each).
    pub fn members_of(&self, slots: u32) -> u32 {
        let has = |member: u32| {
            let segment = self.segment(member);
            u64::from(slots) >> segment.start & ((1 << segment.len()) - 1) != 0
        };
        (0..self.members).fold(0, |members, member| members | u32::from(has(member)) << member)
    }

    /// Divides `words` among members with the given minimum `needs`; `None` if they need more. Each remaining word goes
    /// to the member that overflows most: `share(member, slots)` of its buckets.
    fn divide(words: usize, needs: &[usize], mut share: impl FnMut(usize, usize) -> f64) -> Option<Self> {
        let spare = words.checked_sub(needs.iter().sum())?;
        let mut shares = needs.to_vec();
        for _ in 0..spare {
            let mut lacks = |member: usize| share(member, shares[member] * WORD_SLOTS);
            // Of equal members the last one gets the word, because the mark takes one of its slots.
            let most = (0..needs.len()).map(|member| (lacks(member), member)).max_by(|a, b| a.0.total_cmp(&b.0));
            shares[most.expect("there are members").1] += 1;
        }
        let mut ends = [words as u8; MEMBERS_MAX];
        let mut end = 0;
        for (member, words) in shares.iter().enumerate() {
            end += words;
            ends[member] = end as u8;
        }
        Some(Ends { ends, members: needs.len() as u32 })
    }
}

/// Chooses the smallest buckets, then the fewest, in which every member has room. `share(bits, member, slots)` is the
/// share of buckets that overflow.
fn choose(members: usize, mut share: impl FnMut(u32, usize, usize) -> f64) -> Option<(Geometry, Ends)> {
    let most = 1.0 / member_overflow_one_in(members) as f64;
    for bits in BUCKET_BITS_MIN..=BUCKET_BITS_MAX {
        let words = 1..=1usize << ORDER_MAX;
        let mut need = |member| words.clone().find(|words| share(bits, member, words * WORD_SLOTS) <= most);
        let needs: Option<Vec<usize>> = (0..members).map(&mut need).collect();
        let Some(needs) = needs else { continue };
        for order in 0..=ORDER_MAX {
            if let Some(ends) = Ends::divide(1 << order, &needs, |member, slots| share(bits, member, slots)) {
                return Some((Geometry { shift: 32 - bits, order }, ends));
            }
        }
    }
    None
}

/// Size of the buckets into which random sets of the given sizes are fused; for one set, its size alone. `None` if
/// there is no set, more than [`MEMBERS_MAX`] sets, or no room for so many addresses.
///
/// Fusing may cost or save memory: 100,000 and 1,100,000 addresses take 4 MiB together, but 1 and 4 MiB separately.
pub fn fused_bytes(sizes: &[usize]) -> Option<usize> {
    if sizes.is_empty() || sizes.len() > MEMBERS_MAX {
        return None;
    }
    let share = |bits, member: usize, slots| overflow_share(sizes[member] as f64 / f64::from(1u32 << bits), slots);
    let (geometry, _) = choose(sizes.len(), share)?;
    Some(geometry.buckets() * geometry.slots() * size_of::<u16>())
}

/// One bucket in this many may overflow because of one member.
fn member_overflow_one_in(members: usize) -> usize {
    if members == 1 { OVERFLOW_ONE_IN } else { FUSED_OVERFLOW_ONE_IN * members }
}

/// The share of buckets with more than `slots` addresses, if the mean is `mean` (Poisson).
fn overflow_share(mean: f64, slots: usize) -> f64 {
    let mut term = (-mean).exp();
    let mut rest = 1.0 - term;
    for count in 1..=slots {
        term *= mean / count as f64;
        rest -= term;
    }
    rest
}

/// Builds the image of one to [`MEMBERS_MAX`] sets, each sorted and without duplicates.
pub(crate) fn build(sets: &[&[Prefix4]], room: Room) -> Result<Image, BuildError> {
    sets.iter().try_for_each(|set| addresses_only(Layout::ExactSets, set))?;
    let (geometry, ends) = choose_for(sets);
    let mut filler = Filler::new(geometry);
    for (member, set) in sets.iter().enumerate() {
        filler.insert(set, member as u32, ends.segment(member as u32), ends.members - 1);
    }
    let entries = sets.iter().map(|set| set.len()).sum();
    let overflow = overflow::build(Layout::ExactSets, &filler.overflow, overflow_spare(entries, room))?;
    let sections = [Section::U16(&filler.slots), Section::U64(&overflow.words)];
    let numbers = [
        (SHIFT, geometry.shift),
        (ORDER, geometry.order),
        (ENDS, u32::from_le_bytes(ends.ends)),
        (MEMBERS, ends.members),
    ];
    let writer = Writer { layout: Layout::ExactSets, entries, labels: (1 << ends.members) - 1 };
    writer.write(&sections, &[&numbers[..], &overflow.numbers].concat())
}

/// Chooses the buckets by counting the addresses per bucket.
fn choose_for(sets: &[&[Prefix4]]) -> (Geometry, Ends) {
    let mut counted: (u32, Vec<Vec<u32>>) = (0, Vec::new());
    let chosen = choose(sets.len(), |bits, member, slots| {
        if counted.0 != bits {
            let geometry = Geometry { shift: 32 - bits, order: 0 };
            counted = (bits, sets.iter().map(|set| geometry.count(set)).collect());
        }
        let used = &counted.1[member];
        let overflowing = used.iter().filter(|&&used| used as usize > slots).count();
        overflowing as f64 / used.len() as f64
    });
    chosen.unwrap_or_else(|| {
        let words = 1 << ORDER_MAX;
        let ends = Ends::divide(words, &vec![words / sets.len(); sets.len()], |_, _| 0.0).expect("equal parts fit");
        (Geometry { shift: 32 - BUCKET_BITS_MAX, order: ORDER_MAX }, ends)
    })
}

/// The checked sections of an image.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    image: &'a [u8],
    buckets: ExactBuckets,
    ends: Ends,
}

impl<'a> View<'a> {
    /// Locates the sections and checks their bounds.
    pub fn open(header: &Header, image: &'a [u8]) -> Result<Self, ImageError> {
        let buckets = ExactBuckets::open(header, image)?;
        Ok(View { image, buckets, ends: open_ends(header, buckets.geometry)? })
    }

    /// Checks the members in the overflow. Buckets contain no index.
    pub fn check(&self, header: &Header) -> Result<(), ImageError> {
        self.buckets.overflow.check(header, self.image)
    }

    /// The members (one bit each) that hold `addr`.
    pub fn find(&self, addr: u32) -> u32 {
        let (hits, overflow) = self.buckets.find(self.image, addr);
        self.ends.members_of(hits) | overflow
    }

    /// Records what a lookup reads.
    pub fn trace(&self, addr: u32, trace: &mut Trace) {
        self.buckets.find(&TracedLines::new(self.image, trace), addr);
    }
}

/// Reads the ends from the header and checks them. They must rise to the end of the bucket, and there must be one per
/// member.
pub(crate) fn open_ends(header: &Header, geometry: Geometry) -> Result<Ends, ImageError> {
    let (ends, members) = (header.section[ENDS].to_le_bytes(), header.section[MEMBERS]);
    if members == 0 || members > MEMBERS_MAX as u32 || header.labels != (1 << members) - 1 {
        return Err(header.corrupt("header", "label count"));
    }
    let words = 1 << geometry.order;
    if !ends.is_sorted() || ends[members as usize - 1..].iter().any(|&end| end != words) {
        return Err(header.corrupt("buckets", "dimension"));
    }
    Ok(Ends { ends, members })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_that_share_a_cache_line() {
        let mib = |sizes: &[usize]| fused_bytes(sizes).map(|bytes| bytes as f64 / f64::from(1 << 20));
        assert_eq!(mib(&[100_000, 178_000]), Some(2.0));
        assert_eq!(mib(&[100_000; 4]), Some(4.0));
        assert_eq!((mib(&[100_000, 1_100_000]), mib(&[100_000]), mib(&[1_100_000])), (Some(4.0), Some(1.0), Some(4.0)));
        assert_eq!((mib(&[]), mib(&[1; 5]), mib(&[1 << 40, 1])), (None, None, None));
    }

    #[test]
    fn shares_of_poisson() {
        assert!((overflow_share(2.716, 8) - 0.001_98).abs() < 1e-4);
        assert!(overflow_share(1000.0, 32) > 0.99);
    }
}
