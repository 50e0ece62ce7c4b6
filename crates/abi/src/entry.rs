//! Counters of table entries: what each worker counts for each entry of a table with `counters`.
//!
//! ```text
//!        63              16 15             0         63              8 7           0
//!       +------------------+----------------+       +-----------------+-------------+
//!  head |     packets      | time, high 16  |  size |      bytes      | time, low 8 |
//!       +------------------+----------------+       +-----------------+-------------+
//! ```
//! The time of the last hit has 24 bits and counts units of 2^30 ns (about 1.07 s), so it is ambiguous after 208 days.
//! The number of packets wraps after 2^48, the number of bytes after 2^56. One worker or CPU writes a counter, and
//! others read it meanwhile.

/// The counter of an entry: `struct entry_counter`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EntryCounter {
    /// Packets, and the high bits of the time.
    pub head: u64,
    /// Bytes on the wire, and the low bits of the time.
    pub size: u64,
}

/// The last hit of a CPU, which waits to be counted, in the words of the counter of number 0
/// (`datapath/tables/kernel_entry_counter.h` has the bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingHit {
    /// Number of the entry.
    pub number: u32,
    /// What it will add.
    pub counts: EntryCounts,
}

/// What the counters of an entry say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// The time of the last hit in units of [`TIME_UNIT_NS`]; 0 if there was none.
    pub last: u32,
}

/// ns in a unit of time.
pub const TIME_UNIT_NS: u64 = 1 << TIME_SHIFT;
const TIME_SHIFT: u32 = 30;
/// Bits of a time.
const TIME_BITS: u32 = 24;
/// Bits of it that are in the first word.
const HIGH_BITS: u32 = 16;
/// Bits of it that are in the second word.
const LOW_BITS: u32 = TIME_BITS - HIGH_BITS;

/// The time of a hit as counters have it.
pub const fn hit_time(now_ns: u64) -> u32 {
    (now_ns >> TIME_SHIFT) as u32 & ((1 << TIME_BITS) - 1)
}

/// Units of time from `last` to `now`.
pub const fn age(last: u32, now: u32) -> u32 {
    now.wrapping_sub(last) & ((1 << TIME_BITS) - 1)
}

/// Seconds from `last` to `now`.
pub fn age_s(last: u32, now: u32) -> f64 {
    f64::from(age(last, now)) * TIME_UNIT_NS as f64 / 1e9
}

impl EntryCounter {
    /// What the counter says.
    pub const fn counts(self) -> EntryCounts {
        let high = (self.head & ((1 << HIGH_BITS) - 1)) as u32;
        let low = (self.size & ((1 << LOW_BITS) - 1)) as u32;
        EntryCounts { packets: self.head >> HIGH_BITS, bytes: self.size >> LOW_BITS, last: high << LOW_BITS | low }
    }

    /// The counter that says this.
    pub const fn of(counts: EntryCounts) -> Self {
        let (high, low) = (counts.last >> LOW_BITS, counts.last & ((1 << LOW_BITS) - 1));
        EntryCounter { head: counts.packets << HIGH_BITS | high as u64, size: counts.bytes << LOW_BITS | low as u64 }
    }
}

/// Bits of the number in the first word of a waiting hit: `WAITING_PACKETS_SHIFT`.
pub const WAITING_NUMBER_BITS: u32 = 32;
/// Bits of the time in the second word: `WAITING_TIME_BITS`.
pub const WAITING_TIME_BITS: u32 = TIME_BITS;

impl WaitingHit {
    /// The hit in these words, if one waits.
    pub const fn of(EntryCounter { head, size }: EntryCounter) -> Option<Self> {
        let number = head as u32;
        let (packets, last) = (head >> WAITING_NUMBER_BITS, size as u32 & ((1 << WAITING_TIME_BITS) - 1));
        let counts = EntryCounts { packets, bytes: size >> WAITING_TIME_BITS, last };
        if number == 0 { None } else { Some(WaitingHit { number, counts }) }
    }
}

impl EntryCounts {
    /// The sum of both at the time `now`: the last hit is the later one.
    pub const fn plus(self, other: Self, now: u32) -> Self {
        let last = match (self.packets, other.packets) {
            (_, 0) => self.last,
            (0, _) => other.last,
            _ if age(self.last, now) <= age(other.last, now) => self.last,
            _ => other.last,
        };
        EntryCounts { packets: self.packets + other.packets, bytes: self.bytes + other.bytes, last }
    }

    /// Seconds from the last hit to the time `now`; `None` if there was no hit.
    pub fn idle_s(self, now: u32) -> Option<f64> {
        (self.packets > 0).then(|| age_s(self.last, now))
    }
}

const _: () = assert!(size_of::<EntryCounter>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_says_what_it_was_made_of() {
        let counts = EntryCounts { packets: (1 << 48) - 1, bytes: (1 << 56) - 2, last: 0x00ab_cdef };
        assert_eq!(EntryCounter::of(counts).counts(), counts);
        assert_eq!(
            EntryCounter::of(EntryCounts { packets: 1, bytes: 2, last: 3 }),
            EntryCounter { head: 1 << 16, size: 2 << 8 | 3 }
        );
    }

    #[test]
    fn a_hit_waits_only_with_a_number() {
        let words = EntryCounter { head: 3 << 32 | 0x00ab_cdef, size: 1500 << 24 | 0x0012_3456 };
        let counts = EntryCounts { packets: 3, bytes: 1500, last: 0x0012_3456 };
        assert_eq!(WaitingHit::of(words), Some(WaitingHit { number: 0x00ab_cdef, counts }));
        assert_eq!(WaitingHit::of(EntryCounter { head: 3 << 32, size: 1 }), None);
    }

    #[test]
    fn the_later_hit_counts_across_a_wrap() {
        let at = |last: u32| EntryCounts { packets: 1, bytes: 60, last };
        let now = hit_time(5 << TIME_SHIFT);
        let sum = at(0x00ff_fffe).plus(at(3), now);
        assert_eq!(sum, EntryCounts { packets: 2, bytes: 120, last: 3 });
        assert_eq!(at(3).plus(EntryCounts::default(), now), at(3));
        assert_eq!(sum.idle_s(now), Some(2.0 * TIME_UNIT_NS as f64 / 1e9));
        assert_eq!(EntryCounts::default().idle_s(now), None);
    }
}
