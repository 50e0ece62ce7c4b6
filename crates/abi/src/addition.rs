//! Additions to tables by rules: the record that chains append, and the ticks in which additions take effect.
//!
//! ```text
//!  bytes 0      8      16       20       24
//!       +------+------+--------+--------+      an IPv4 address is in the low 32 bits of `low`;
//!       | high | low  | adder  | packet |      bits beyond the adder's prefix length are 0
//!       +------+------+--------+--------+
//! ```
//! Time is divided into ticks of 10 ms. What the packets of one tick add is visible to all packets of the next tick, on
//! every engine. An entry with a timeout T that is added in tick k is visible from tick k + 1 to the last tick before
//! k + 1 + T / 10 ms, rounded up.

/// Length of a tick in ns.
pub const TICK_NS: u64 = 10_000_000;

/// Maximum number of distinct additions in one tick: pairs of adder and key, in the order of packets.
pub const TICK_ADDITIONS_MAX: usize = 1 << 16;

/// A tick in ms.
const TICK_MS: u64 = TICK_NS / 1_000_000;

/// One addition: `struct weir_addition`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Addition {
    /// High half of the prefix.
    pub high: u64,
    /// Low half of the prefix.
    pub low: u64,
    /// Index of the adder in the program.
    pub adder: u32,
    /// Index of the packet in its burst; 0 in the kernel.
    pub packet: u32,
}

impl Addition {
    /// The prefix as a number.
    pub fn key(&self) -> u128 {
        u128::from(self.high) << 64 | u128::from(self.low)
    }
}

/// The tick of a time.
pub const fn tick(time_ns: u64) -> u64 {
    time_ns / TICK_NS
}

/// The first tick in which an entry is gone, if its timeout begins with the tick `from`.
pub const fn deadline(from: u64, timeout_ms: u64) -> u64 {
    from.saturating_add(timeout_ms.div_ceil(TICK_MS))
}

/// What additions did to tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdditionCounts {
    /// New entries.
    pub added: u64,
    /// Entries whose timeout began again.
    pub updated: u64,
    /// Additions that were lost, because a tick had too many or a queue was full.
    pub overflow: u64,
    /// Additions that a full table refused.
    pub table_full: u64,
    /// Additions that were refused because they overlap a protected table.
    pub protected: u64,
}

impl AdditionCounts {
    /// The sum of both.
    pub const fn plus(self, other: Self) -> Self {
        AdditionCounts {
            added: self.added + other.added,
            updated: self.updated + other.updated,
            overflow: self.overflow + other.overflow,
            table_full: self.table_full + other.table_full,
            protected: self.protected + other.protected,
        }
    }
}

const _: () = assert!(size_of::<Addition>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_visible_for_its_timeout_in_whole_ticks() {
        assert_eq!((tick(0), tick(TICK_NS - 1), tick(TICK_NS)), (0, 0, 1));
        assert_eq!((deadline(7, 1), deadline(7, 10), deadline(7, 11)), (8, 8, 9));
        assert_eq!(deadline(u64::MAX - 1, 1000), u64::MAX);
    }
}
