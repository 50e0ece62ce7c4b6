//! Token buckets: the arithmetic of limits, which all engines must agree on bit by bit. `limit.h` says the same in C.
//!
//! A bucket is one word, its *theoretical arrival time*: the generic cell rate algorithm as virtual scheduling (ITU-T I.371,
//! annex A). Time is in *ticks* of 2^-8 ns, modulo 2^64. What the word is ahead of the clock is the bucket's *debt*; a packet
//! costs the ticks in which the rate earns it, and passes if debt and cost fit into the *room*, the ticks in which the rate
//! earns the burst. Nothing is refilled: a bucket whose word the clock has passed is full.
//!
//! ```text
//!            now                word                    now + room
//! -----------+------------------+-----------------------+------------> ticks
//!            |<----- debt ----->|<- what still passes ->|
//! ```
//! Example: 1000 packets a second, burst 10. A packet costs 256,000,000 ticks (1 ms), the room is 2,560,000,000. Ten packets
//! pass at once, the eleventh does not; 1 ms later one more does.
//!
//! Costs are rounded up, so that no window of any length sees more than burst + rate * time. What rounding takes is
//! less than two ticks a packet, and at most 1/1024 of a packet rate: a saturated limit keeps within 0.1% wherever a packet costs
//! at least 2000 ticks (8 ns), which frames of 60 bytes do up to 61 Gbit/s.

/// Ticks of a nanosecond, as a shift.
pub const TICK_SHIFT: u32 = 8;
/// Ticks of a second.
pub const TICKS_PER_S: u64 = 1_000_000_000 << TICK_SHIFT;
/// The largest room, and with it the largest debt that a charge leaves: 2^48 ns, about 78 hours.
pub const ROOM_MAX: u64 = 1 << 56;
/// A word further ahead than this lies behind: the clock has passed it. It exceeds [`ROOM_MAX`] so that a bucket stays in debt when
/// its limit is changed for one with less room.
pub const DEBT_MAX: u64 = 1 << 57;
/// Bytes of a packet that are charged; there are no longer ones on a wire.
pub const CHARGED_BYTES_MAX: u32 = 65535;
/// Fractional bits of [`LimitProfile::per_byte`].
pub const BYTE_SHIFT: u32 = 16;

/// A time in ticks.
pub const fn ticks(now_ns: u64) -> u64 {
    now_ns << TICK_SHIFT
}

/// A rate and a burst as buckets are charged by them: `struct limit_profile`. Equal limits share one.
///
/// ```text
///   0 per_packet    8 per_byte   16 room   24 coarse   32
/// ```
/// All zero, it lets everything pass and charges nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct LimitProfile {
    /// Ticks that any packet costs.
    pub per_packet: u64,
    /// Ticks that a byte costs, with [`BYTE_SHIFT`] fractional bits.
    pub per_byte: u64,
    /// Ticks that a bucket may be in debt, at most [`ROOM_MAX`].
    pub room: u64,
    /// A tick of the buckets is 2^`coarse` usual ones; 0 but in tables of addresses ([`crate::each`]).
    pub coarse: u64,
}

impl LimitProfile {
    /// Nothing passes: a packet costs more than there is room.
    pub const CLOSED: LimitProfile = LimitProfile { per_packet: 1, per_byte: 0, room: 0, coarse: 0 };

    /// Ticks that a packet of so many bytes on the wire costs: below 2^50 for every limit within its bounds.
    pub const fn cost(&self, bytes: u32) -> u64 {
        let bytes = if bytes < CHARGED_BYTES_MAX { bytes } else { CHARGED_BYTES_MAX };
        self.per_packet + ((bytes as u64 * self.per_byte + ((1 << BYTE_SHIFT) - 1)) >> BYTE_SHIFT)
    }
}

/// Ticks that each packet costs beside its bytes, and the room of a burst of bytes, by the ticks of a byte (with [`BYTE_SHIFT`] fractional bits) and
/// those that the clock may be ahead.
///
/// If the cost of the burst is rounded up, so is its room: a packet as long as the burst has room. What the room has too much, each packet costs more,
/// so that two have no more of it than one.
pub(crate) fn room_of_bytes(burst: u64, per_byte: u128, clock: u64) -> (u64, u128) {
    let ticks = u128::from(burst) * per_byte;
    let cost = ticks.div_ceil(1 << BYTE_SHIFT);
    let more = u64::from(cost << BYTE_SHIFT != ticks) + clock;
    (more, cost + u128::from(more))
}

/// What is left of a bucket after a packet of that cost: its new word, or `None` if there is no room and the bucket stays as it is.
///
/// A new bucket's word is the time at which it is made. A bucket that nobody charges for 2^56 ns (2.28 years) less 2^49 ns is taken to be in
/// debt for up to those 2^49 ns (6.5 days), because its word has come round; whoever keeps buckets that long sets words that lie
/// behind to the present now and then.
pub const fn charge(word: u64, now: u64, cost: u64, room: u64) -> Option<u64> {
    let ahead = word.wrapping_sub(now);
    let debt = if ahead > DEBT_MAX { 0 } else { ahead };
    if debt + cost > room { None } else { Some(now.wrapping_add(debt + cost)) }
}

/// A bucket of a list: by which profile it is charged, and which bucket with it. `struct limit_entry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LimitEntry {
    /// Index into [`LimitEntries::profiles`]; 0 if there is no limit.
    pub profile: u32,
    /// The entry of the next enclosing prefix, if limits are nested; 0 if there is none.
    pub parent: u32,
}

/// What a limiter polices by: an entry and a bucket for each label that its lookup can find. Entry 0 is for addresses for which it
/// finds none; of a limiter without lookup it is the only one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitEntries {
    /// The first is [`LimitProfile::default`]: no limit.
    pub profiles: Vec<LimitProfile>,
    /// By label, at least one.
    pub entries: Vec<LimitEntry>,
}

impl LimitEntries {
    /// One bucket for everything.
    pub fn single(profile: LimitProfile) -> Self {
        LimitEntries {
            profiles: vec![LimitProfile::default(), profile],
            entries: vec![LimitEntry { profile: 1, parent: 0 }],
        }
    }
}

const _: () = assert!(size_of::<LimitProfile>() == 32);
const _: () = assert!(size_of::<LimitEntry>() == 8);
