//! The header of a table image.
//!
//! A table image is flat, position-independent bytes, little-endian and aligned to 64: this header, then the sections
//! of its layout. Native code maps the bytes, and a BPF array map has the same bytes as its value. Only `tables`
//! (builders) and `datapath/tables/lookup.h` (lookups) know what the sections contain.

use crate::Family;

/// `"WEIR"` in memory.
pub const IMAGE_MAGIC: u32 = u32::from_le_bytes(*b"WEIR");

/// The layout of a table image; `enum layout` in `datapath/tables/image.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Layout {
    /// IPv4 prefixes to labels: DXR with a 2^16 direct table, deduplicated 2^4 extension blocks, range blocks.
    Dxr16x4 = 1,
    /// IPv4 /32 addresses only, no labels: exact set of 16-bit remainders.
    ExactSet = 2,
    /// IPv6 prefixes to labels: direct table, then sorted ranges.
    Range6 = 3,
    /// Up to four sets of IPv4 /32 addresses in shared buckets; the label has one bit per set.
    ExactSets = 4,
    /// IPv4 prefixes to labels: blocks of entries below a 2^16 root, then leaves of at most 32 runs, found by one
    /// vector comparison.
    RankLeaf = 5,
    /// IPv6 prefixes to labels: as `RankLeaf`, with 16 bits of the key at a time.
    RankLeaf6 = 6,
    /// IPv6 /64 and /128 prefixes only, no labels: exact set of whole keys.
    ExactSet6 = 7,
    /// IPv4 prefixes to labels that count up from prefix to prefix: rank leaves whose labels are computed, not stored.
    CountedLeaf = 8,
    /// IPv4 prefixes, no labels: an exact set of the /32 addresses, and rank leaves of the other prefixes inside it.
    ExactLeaf = 9,
    /// IPv6 prefixes, no labels: an exact set of the /64s and /128s, and rank leaves of the other prefixes inside it.
    ExactLeaf6 = 10,
    /// Up to four sets of IPv6 /64 and /128 prefixes in shared buckets; the label has one bit per set.
    ExactSets6 = 11,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Layout; 11] = [
        Layout::Dxr16x4,
        Layout::ExactSet,
        Layout::Range6,
        Layout::ExactSets,
        Layout::RankLeaf,
        Layout::RankLeaf6,
        Layout::ExactSet6,
        Layout::CountedLeaf,
        Layout::ExactLeaf,
        Layout::ExactLeaf6,
        Layout::ExactSets6,
    ];

    /// The name in reports and benchmarks.
    pub const fn name(self) -> &'static str {
        match self {
            Layout::Dxr16x4 => "d16x4r",
            Layout::ExactSet => "exact-set",
            Layout::Range6 => "range6",
            Layout::ExactSets => "exact-sets",
            Layout::RankLeaf => "rank-leaf",
            Layout::RankLeaf6 => "rank-leaf6",
            Layout::ExactSet6 => "exact-set6",
            Layout::CountedLeaf => "counted-leaf",
            Layout::ExactLeaf => "exact-leaf",
            Layout::ExactLeaf6 => "exact-leaf6",
            Layout::ExactSets6 => "exact-sets6",
        }
    }

    /// The layout of several sets in one image.
    pub const fn fused(family: Family) -> Self {
        match family {
            Family::Ipv4 => Layout::ExactSets,
            Family::Ipv6 => Layout::ExactSets6,
        }
    }

    /// Whether images of this layout have several sets, with one bit per set in a label.
    pub const fn is_fused(self) -> bool {
        matches!(self, Layout::ExactSets | Layout::ExactSets6)
    }

    /// Whether lookups of this layout can read images of layout `image`. A builder of counted leaves makes rank leaves
    /// if labels do not count up.
    pub fn reads(self, image: Layout) -> bool {
        self == image || self == Layout::CountedLeaf && image == Layout::RankLeaf
    }

    /// The layout with the given name.
    pub fn from_name(name: &str) -> Option<Self> {
        Layout::ALL.into_iter().find(|layout| layout.name() == name)
    }
}

/// The first 64 bytes of every image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ImageHeader {
    /// [`IMAGE_MAGIC`].
    pub magic: u32,
    /// A [`Layout`].
    pub layout: u32,
    /// Number of prefixes (or addresses) in the table.
    pub entries: u32,
    /// Highest label in use; labels are `1..=labels`, 0 is "no entry". 1 for a set.
    pub labels: u32,
    /// Size of the whole image in bytes, including this header.
    pub bytes: u64,
    /// Byte offsets and sizes of the sections, in the order that the layout defines.
    pub section: [u32; 10],
}

const _: () = assert!(size_of::<ImageHeader>() == 64);
