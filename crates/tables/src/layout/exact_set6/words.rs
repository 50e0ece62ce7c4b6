//! The words of a bucket.

/// Where the state begins in a word. The bits below are the filter's.
const STATE_SHIFT: u32 = 4;
/// The bits of a word that belong to the bucket.
pub(crate) const FILTER: u64 = (1 << STATE_SHIFT) - 1;
/// The states of a slot. A word of a free slot has neither.
pub(crate) const FIRST: u64 = 1 << STATE_SHIFT;
pub(crate) const SECOND: u64 = 2 << STATE_SHIFT;
pub(super) const STATE: u64 = 3 << STATE_SHIFT;
/// Where the members begin in a word of fused sets.
const MEMBERS_SHIFT: u32 = 6;

/// How a word is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Of one set.
    OneSet,
    /// Of fused sets: each word says which members have the key.
    Fused,
}

impl Words {
    /// Number of bits for members.
    const fn members_bits(self) -> u32 {
        match self {
            Words::OneSet => 0,
            Words::Fused => crate::layout::exact_sets::MEMBERS_MAX as u32,
        }
    }

    /// Where the remainder begins.
    const fn remainder_shift(self) -> u32 {
        MEMBERS_SHIFT + self.members_bits()
    }

    /// A kind has this many buckets or none, so that a bucket tells the bits of the hash that the remainder lacks.
    pub const fn buckets_min(self) -> usize {
        1 << self.remainder_shift()
    }

    /// The word of a key, without filter and members.
    pub const fn of(self, hash: u64, state: u64) -> u64 {
        hash << self.remainder_shift() | state
    }

    /// The bits of a word that say its members. One set has none.
    pub const fn of_members(self, members: u32) -> u64 {
        match self {
            Words::OneSet => 0,
            Words::Fused => (members as u64) << MEMBERS_SHIFT,
        }
    }

    /// The members of a word that is not free, a bit each. The one set is member 0.
    pub const fn members(self, word: u64) -> u32 {
        match self {
            Words::OneSet => 1,
            Words::Fused => (word >> MEMBERS_SHIFT) as u32 & ((1 << self.members_bits()) - 1),
        }
    }

    /// The last word of an overflow entry: its members. One set leaves it 0.
    pub const fn entry_members(self, members: u32) -> u64 {
        match self {
            Words::OneSet => 0,
            Words::Fused => members as u64,
        }
    }

    /// The members of an overflow entry that is not free, by its last word. The one set is member 0.
    pub const fn members_of_entry(self, last: u64) -> u32 {
        match self {
            Words::OneSet => 1,
            Words::Fused => last as u32,
        }
    }

    /// The hash of a word without its leading bits, which the bucket tells.
    pub const fn hash(self, word: u64) -> u64 {
        word >> self.remainder_shift()
    }

    /// The bits of a word by which a key is found.
    pub const fn compared(self) -> u64 {
        !(FILTER | ((1 << self.members_bits()) - 1) << MEMBERS_SHIFT)
    }
}

/// Whether the slot of a word is free.
pub(crate) const fn is_free(word: u64) -> bool {
    word & STATE == 0
}
