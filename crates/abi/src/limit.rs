//! Token buckets: the arithmetic of limits. All engines must agree on it bit for bit. `datapath/limits/limit.h`
//! implements the same in C.
//!
//! A bucket is one word, its *theoretical arrival time*: the generic cell rate algorithm as virtual scheduling (ITU-T
//! I.371, annex A). Time is in *ticks* of 2^-8 ns, modulo 2^64. The distance of the word ahead of the clock is the
//! bucket's *debt*. A packet costs the ticks in which the rate earns it. It passes if debt and cost fit into the
//! *room*, the ticks in which the rate earns the burst. Nothing is refilled: a bucket is full once the clock has passed
//! its word.
//!
//! ```text
//!            now                word                    now + room
//! -----------+------------------+-----------------------+------------> ticks
//!            |<----- debt ----->|<- what still passes ->|
//! ```
//! Example: 1000 packets a second, burst 10. A packet costs 256,000,000 ticks (1 ms), the room is 2,560,000,000. Ten
//! packets pass at once, the eleventh does not; 1 ms later one more does.
//!
//! Costs are rounded up, so no time window of any length passes more than burst + rate * time. Rounding takes less than
//! two ticks per packet, and at most 1/1024 of a packet rate. A saturated limit stays within 0.1% if a packet costs at
//! least 2000 ticks (8 ns), as frames of 60 bytes do up to 61 Gbit/s.

/// log2 of the number of ticks per nanosecond.
pub const TICK_SHIFT: u32 = 8;
/// Number of ticks per second.
pub const TICKS_PER_S: u64 = 1_000_000_000 << TICK_SHIFT;
/// Maximum room, and so the maximum debt after a charge: 2^48 ns, about 78 hours.
pub const ROOM_MAX: u64 = 1 << 56;
/// A word further ahead than this counts as past. The value exceeds [`ROOM_MAX`], so that a bucket stays in debt when
/// its limit changes to one with less room.
pub const DEBT_MAX: u64 = 1 << 57;
/// Maximum number of charged bytes per packet. No packet on a wire is longer.
pub const CHARGED_BYTES_MAX: u32 = 65535;
/// Number of fractional bits of [`LimitProfile::per_byte`].
pub const BYTE_SHIFT: u32 = 16;

/// A time in ticks.
pub const fn ticks(now_ns: u64) -> u64 {
    now_ns << TICK_SHIFT
}

/// A rate and a burst in the form that charges use: `struct limit_profile`. Equal limits share one profile.
///
/// ```text
///   0 per_packet    8 per_byte   16 room   24 coarse   32
/// ```
/// The all-zero profile passes everything and charges nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LimitProfile {
    /// Ticks that each packet costs.
    pub per_packet: u64,
    /// Ticks that each byte costs, with [`BYTE_SHIFT`] fractional bits.
    pub per_byte: u64,
    /// Maximum debt of a bucket in ticks, at most [`ROOM_MAX`].
    pub room: u64,
    /// One tick of the buckets is 2^`coarse` usual ticks; 0 except in tables of addresses ([`crate::each`]).
    pub coarse: u64,
}

impl LimitProfile {
    /// The profile that passes nothing, because a packet costs more than the room.
    pub const CLOSED: LimitProfile = LimitProfile { per_packet: 1, per_byte: 0, room: 0, coarse: 0 };

    /// The cost in ticks of a packet of `bytes` bytes on the wire. It is below 2^50 for every valid limit.
    pub const fn cost(&self, bytes: u32) -> u64 {
        let bytes = if bytes < CHARGED_BYTES_MAX { bytes } else { CHARGED_BYTES_MAX };
        self.per_packet + ((bytes as u64 * self.per_byte + ((1 << BYTE_SHIFT) - 1)) >> BYTE_SHIFT)
    }
}

/// For a rate in bits: returns the ticks that each packet costs in addition to its bytes, and the room of a burst in
/// bytes. Inputs are the ticks per byte (with [`BYTE_SHIFT`] fractional bits) and the ticks by which the clock may be
/// ahead.
///
/// The room is rounded up like the cost, so that a packet as long as the burst has room. Each packet costs the surplus
/// room in addition, so that two packets gain no more from it than one.
pub(crate) fn room_of_bytes(burst: u64, per_byte: u128, clock: u64) -> (u64, u128) {
    let ticks = u128::from(burst) * per_byte;
    let cost = ticks.div_ceil(1 << BYTE_SHIFT);
    let more = u64::from(cost << BYTE_SHIFT != ticks) + clock;
    (more, cost + u128::from(more))
}

/// The debt of a bucket: the distance of its word ahead of the clock.
pub const fn debt(word: u64, now: u64) -> u64 {
    let ahead = word.wrapping_sub(now);
    if ahead > DEBT_MAX { 0 } else { ahead }
}

/// Charges a bucket with the cost of a packet. Returns its new word, or `None` without changing it if there is no room.
///
/// The word of a new bucket is the current time. Words wrap around. A bucket that is not charged for 2^56 ns (2.28
/// years) less 2^49 ns appears to be in debt for up to 2^49 ns (6.5 days). A keeper of long-lived buckets must
/// regularly set words in the past to the present.
pub const fn charge(word: u64, now: u64, cost: u64, room: u64) -> Option<u64> {
    let debt = debt(word, now) + cost;
    if debt > room { None } else { Some(now.wrapping_add(debt)) }
}

/// An entry of a list: its profile, and the entry that is charged with it. `struct limit_entry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LimitEntry {
    /// Index into [`LimitEntries::profiles`]; 0 if there is no limit.
    pub profile: u32,
    /// The entry of the next enclosing prefix, if limits are nested; 0 if there is none.
    pub parent: u32,
}

/// The profiles and entries of a limiter, with one entry for each label that its lookup can return. Entry 0 is for
/// addresses that the lookup does not find. A limiter without lookup has only entry 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitEntries {
    /// The first profile is [`LimitProfile::default`]: no limit.
    pub profiles: Vec<LimitProfile>,
    /// Entries by label, at least one.
    pub entries: Vec<LimitEntry>,
}

impl LimitEntries {
    /// Entries of a limiter with one bucket for all packets.
    pub fn single(profile: LimitProfile) -> Self {
        LimitEntries {
            profiles: vec![LimitProfile::default(), profile],
            entries: vec![LimitEntry { profile: 1, parent: 0 }],
        }
    }
}

const _: () = assert!(size_of::<LimitProfile>() == 32);
const _: () = assert!(size_of::<LimitEntry>() == 8);
