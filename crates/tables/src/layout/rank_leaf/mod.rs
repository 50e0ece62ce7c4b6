//! Rank leaf: prefixes of both families to labels. Blocks take some bits of the key at a time and lead to a short sorted
//! leaf inside one cache line. One vector comparison finds the key's rank in it.
//!
//! The *root* has one value for each value of the key's first 16 bits: the label, if all these keys have the same one,
//! else the name of a *block* of *entries*. A block divides its part of the address space into 2^X equal parts, by the
//! next X bits of the key. Each block has its own X. An entry is the label of the whole part, or a *leaf*: two or more
//! *lanes* of one line of *starts*, the first keys of runs that share a label, in order. A part with more runs is
//! divided once more, by a block that its entry names. The rank of the
//! key among a leaf's starts is the lane of its run, and the lane's *value* is the label.
//!
//! ```text
//! root      2^16 of  31 30                         5 4        0   at byte 64
//!                   +--+---------------------------------------+
//!           label   |0 |                 label                 |
//!                   +--+----------------------------+----------+
//!           block   |1 |            base            |    X     |   entries[base + the next X bits of the key]
//!                   +--+----------------------------+----------+
//! entries   label   |0 |           label            |    0     |
//!                   +--+----------------------------+----------+
//!           leaf    |0 |            lane            |  n - 1   |   lanes [lane..lane + n] of one line
//!                   +--+----------------------------+----------+
//!           block   |1 |            base            |    X     |   as in the root
//!                   +--+----------------------------+----------+
//! starts    a line is 64 bytes: 32 lanes of 16 bits (IPv4) or 16 lanes of 32 bits (IPv6). A start is the first key of
//!           the lane's run; 0 in a leaf's first lane, which is never compared
//! values    1 to 4 bytes a lane, as the labels need: the label, or in IPv6 a block as in the root
//! ```
//! In IPv4 the start is the lower 16 bits of the key, and a leaf is at most two blocks below the root.
//!
//! An IPv6 key has two *stretches*: bits 16 to 63, which name the network, and the lower 64. A leaf is at most six
//! blocks below the root or the value that leads to them. The 32 bits of a start are the lowest of the stretch, if the
//! leaf's part has no more of them. The leaf of a larger part takes the highest 32 bits of the stretch, and the value of
//! a lane whose keys differ in lower bits is a block for these bits. The value of a lane whose keys differ in the lower
//! stretch is a block for that stretch. So a lookup reads one leaf for most prefixes of up to /64, and at most four.
//!
//! Leaves of several parts share a line if they fit. Equal leaves and equal blocks are stored once. So a lookup reads
//! one to four cache lines: root, entry, starts, value. For a country table all but some of the last two stay in L2,
//! and most keys need neither.
//!
//! A part whose only value does not fit into an entry, a label from 2^26 on or in IPv6 a block, is a leaf of two lanes
//! with the same value.
//!
//! Example: a set of 10.1.2.3/32 alone. `root[0x0a01]` is a block with X = 0, whose one entry is a leaf of three lanes:
//! starts 0, 0x0203, 0x0204 and values 0, 1, 0. For 10.1.2.3 the lower bits are 0x0203; one start after the first is not
//! above them, so the rank is 1 and the value is 1. All other words of the root are the label 0.

pub(crate) mod build;
pub(crate) mod encode;
pub(crate) mod view;

pub(crate) use build::{build4, build6};
pub(crate) use view::{Offsets, View};

use crate::image::HEADER_BYTES;

/// Bytes of a line of starts.
const LINE_BYTES: usize = 64;
/// Lanes of a line in IPv4.
pub(crate) const LINE_LANES: usize = LINE_BYTES / size_of::<u16>();
/// Bits of the key that the root takes.
pub(crate) const ROOT_BITS: u32 = 16;
pub(crate) const ROOT_WORDS: usize = 1 << ROOT_BITS;
pub(crate) const ROOT_OFFSET: usize = HEADER_BYTES;
const ENTRIES_OFFSET: usize = ROOT_OFFSET + ROOT_WORDS * 4;
/// Header field: bytes per value.
pub(crate) const VALUE_BYTES: usize = 8;
/// Bytes after the last value, because lookups read four at once.
pub(crate) const VALUES_PADDING: usize = 3;

/// Number of bits in the numbers of blocks and leaves.
const NUMBER_BITS: u32 = 26;
pub(crate) const NUMBERS: usize = 1 << NUMBER_BITS;
pub(crate) const NUMBER_SHIFT: u32 = 5;
pub(crate) const LOW_MASK: u32 = (1 << NUMBER_SHIFT) - 1;
/// Marks a value or an entry that is a block. Other values are labels.
pub(crate) const FLAG: u32 = 1 << 31;
pub(crate) const SECTIONS: [&str; 4] = ["root", "entries", "starts", "values"];

const _: () = assert!(ENTRIES_OFFSET == 262_208);

/// What differs between the families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Ipv4,
    Ipv6,
}

impl Form {
    /// Bytes of a start.
    pub const fn start_bytes(self) -> usize {
        match self {
            Form::Ipv4 => size_of::<u16>(),
            Form::Ipv6 => size_of::<u32>(),
        }
    }

    /// Lanes of a line.
    pub const fn lanes(self) -> usize {
        LINE_BYTES / self.start_bytes()
    }

    /// The highest start.
    pub const fn start_max(self) -> u32 {
        u32::MAX >> (32 - 8 * self.start_bytes())
    }

    /// Maximum number of blocks above a leaf, up to the root or to the value that leads to them.
    pub const fn levels(self) -> u32 {
        match self {
            Form::Ipv4 => 2,
            Form::Ipv6 => 6,
        }
    }

    /// Number of bits that the blocks behind this level take at most.
    const fn reach(self, level: u32) -> u32 {
        let bits = match self {
            Form::Ipv4 => 15,
            Form::Ipv6 => 10,
        };
        bits * (self.levels() - level)
    }

    /// Number of divisions tried for a block, from the coarsest possible one.
    const fn divisions(self) -> u32 {
        match self {
            Form::Ipv4 => 4,
            Form::Ipv6 => 6,
        }
    }

    /// The number of saved bytes that justifies a further block on the way to a run.
    const fn level_bytes(self) -> usize {
        match self {
            Form::Ipv4 => 0,
            Form::Ipv6 => 8,
        }
    }
}

/// Bits of a key that are looked up from a value on: after the root, or after a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stretch {
    /// The lower 16 bits of an IPv4 address.
    Ipv4,
    /// Bits 16 to 63 of an IPv6 address, counted from the highest.
    Upper,
    /// The lower 64 bits of an IPv6 address.
    Lower,
}

impl Stretch {
    /// Number of bits.
    pub const fn bits(self) -> u32 {
        match self {
            Stretch::Ipv4 => 16,
            Stretch::Upper => 48,
            Stretch::Lower => 64,
        }
    }

    /// Number of bits behind the stretch in an address that is left-aligned in 128 bits.
    pub const fn behind(self) -> u32 {
        match self {
            Stretch::Ipv4 => 96,
            Stretch::Upper => 64,
            Stretch::Lower => 0,
        }
    }

    /// The stretch of an address that is left-aligned in 128 bits.
    pub const fn of(self, addr: u128) -> u64 {
        (addr >> self.behind()) as u64 & u64::MAX >> (64 - self.bits())
    }

    /// All of the stretch.
    pub const fn whole(self) -> Part {
        Part { stretch: self, first: 0, bits: self.bits() }
    }
}

/// The values of a stretch that differ in the lowest `bits` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub stretch: Stretch,
    /// The lowest value.
    pub first: u64,
    pub bits: u32,
}

impl Part {
    /// The highest value.
    pub const fn last(self) -> u64 {
        self.first | self.mask()
    }

    const fn mask(self) -> u64 {
        match self.bits {
            0 => 0,
            bits => u64::MAX >> (64 - bits),
        }
    }

    /// The number of the equal part that holds a value, if there are 2^`width`.
    pub const fn index(self, width: u32, value: u64) -> usize {
        match self.bits - width {
            64 => 0,
            shift => ((value & self.mask()) >> shift) as usize,
        }
    }

    /// Part `index` of 2^`width` equal ones.
    pub const fn divided(self, width: u32, index: usize) -> Part {
        let bits = self.bits - width;
        let first = if bits == 64 { 0 } else { (index as u64) << bits };
        Part { first: self.first | first, bits, ..self }
    }

    /// Number of the stretch's lowest bits that the starts of a leaf lack.
    pub const fn grain(self) -> u32 {
        if self.bits > u32::BITS { self.stretch.bits() - u32::BITS } else { 0 }
    }

    /// The part of the values with the same grain as `value`.
    pub const fn grain_of(self, value: u64) -> Part {
        Part { first: value >> self.grain() << self.grain(), bits: self.grain(), ..self }
    }
}

/// First entry and number of entries of the block that a value or an entry names.
pub(crate) fn block_of(word: u32) -> (usize, usize) {
    (((word & !FLAG) >> NUMBER_SHIFT) as usize, 1 << (word & LOW_MASK))
}

/// First lane and number of lanes of a leaf.
pub(crate) fn leaf_of(entry: u32) -> (usize, usize) {
    ((entry >> NUMBER_SHIFT) as usize, (entry & LOW_MASK) as usize + 1)
}

/// The label of an entry that is one.
pub(crate) fn label_of(entry: u32) -> Option<u32> {
    (entry & (FLAG | LOW_MASK) == 0).then_some(entry >> NUMBER_SHIFT)
}

/// The entry of a part in which all keys have this value. `None` if the value does not fit into an entry.
pub(crate) fn answer(value: u32) -> Option<u32> {
    ((value as usize) < NUMBERS).then_some(value << NUMBER_SHIFT)
}

#[cfg(test)]
mod tests;
