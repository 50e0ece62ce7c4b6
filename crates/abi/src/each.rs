//! Tables of token buckets for addresses that no list names (`limit each ip saddr 50pps`). `limit_each.h` says the same in C.
//!
//! A bucket that the clock has passed is full, and a full bucket is as good as none: it says nothing of its address. So a table needs room for the
//! addresses in debt alone, and nothing ever has to be cleared out. A table is sets of eight words, a cache line each; the hash of an address
//! says which set, and a *tag* that tells the addresses of a set from each other.
//!
//! ```text
//!   63      48 47                                  0
//!  +----------+-------------------------------------+
//!  |   tag    |   theoretical arrival time, ticks   |    one of the eight words of a set
//!  +----------+-------------------------------------+
//! ```
//! An address whose tag is not in its set takes the word with the earliest time **and inherits that time**. The earliest time of a set never goes
//! back, so an address that lost its word, and whose own time was the earliest then, comes back to one that is no earlier: *no address ever
//! passes more than its limit*, however many there are, as in the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, 2005). While no
//! more than eight addresses of a set are in debt, each gets exactly its own limit; beyond that some get less.
//!
//! Tags have 16 bits. The hash of IPv4 addresses is a permutation, so that from 2^16 sets on no two addresses share a word; in smaller tables, and
//! of IPv6 addresses, two of a set may by chance (2^-16), and then have one limit together.
//!
//! As a time has but 48 bits, a tick is not that of other limits: it is as many times longer as lets the smallest packet cost 2^12 ticks or more
//! ([`LimitProfile::coarse`]). Rounding takes less than 0.1% of a rate. Words that lie behind are brought to the present before they come round, which
//! takes nine minutes at 250 Mpps and 18 hours at 1 Mpps: [`refreshed`].

use crate::limit::{LimitProfile, TICK_SHIFT, room_of_bytes};
use crate::rate::{Limit, Unit};

/// Words of a set.
pub const WAYS: usize = 8;
/// Bits of the time in a word.
pub const TIME_BITS: u32 = 48;
/// Largest room, in the ticks of the table: a quarter of what a time can say.
pub const ROOM_MAX: u64 = 1 << 46;
/// Fewest and most addresses of a table, and how many it has if nothing is said: of IPv4 addresses no two share a bucket then.
pub const SIZE_MIN: u32 = 1024;
/// As above.
pub const SIZE_MAX: u32 = 1 << 24;
/// As above.
pub const SIZE_DEFAULT: u32 = 1 << 19;

/// What addresses are hashed with where recorded packets are replayed: they have the same places every time.
pub const REPLAY_SEED: u32 = 0;

/// Bits of the ticks that the smallest packet costs, at least, less one.
const COST_BITS: u32 = 12;
/// The smallest packet: an Ethernet frame without its checksum.
const SMALLEST_BYTES: u32 = 60;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// How the buckets of a table are charged; `None` if the burst is longer than a time can say.
pub fn profile(limit: Limit) -> Option<LimitProfile> {
    let fine = limit.profile();
    if fine == LimitProfile::CLOSED {
        return Some(fine);
    }
    let coarse = fine.cost(SMALLEST_BYTES).ilog2().saturating_sub(COST_BITS);
    // A clock that is read in whole ticks may say that a time is one tick longer than it was: each packet costs one more.
    let clock = u64::from(coarse > TICK_SHIFT);
    let per_byte = u128::from(fine.per_byte).div_ceil(1 << coarse);
    let (per_packet, room) = match limit.rate().unit() {
        Unit::Packets => {
            let per_packet = fine.per_packet.div_ceil(1 << coarse) + clock;
            (per_packet, u128::from(limit.burst()) * u128::from(per_packet))
        }
        Unit::Bits => room_of_bytes(limit.burst(), per_byte, clock),
    };
    let room = u64::try_from(room).ok().filter(|&room| room <= ROOM_MAX)?;
    Some(LimitProfile { per_packet, per_byte: per_byte as u64, room, coarse: coarse.into() })
}

/// A time in ticks that are 2^`coarse` times as long as usual; of more bits than a word has.
pub const fn ticks(now_ns: u64, coarse: u64) -> u64 {
    let fine = TICK_SHIFT as u64;
    if coarse < fine { now_ns << (fine - coarse) } else { now_ns >> (coarse - fine) }
}

/// Where the bucket of an address is: its set's number, and its tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Below 2^`set_bits`.
    pub set: u32,
    /// What tells it from others of the set.
    pub tag: u16,
}

impl Place {
    /// Of an IPv4 address, or what is left of it by its prefix, among 2^`set_bits` sets.
    pub const fn of_ipv4(address: u32, seed: u32, set_bits: u32) -> Self {
        let mut hash = (address ^ seed).wrapping_mul(0x9e37_79b1);
        hash = (hash ^ hash >> 15).wrapping_add(seed.rotate_left(13)).wrapping_mul(0x85eb_ca77);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae3d);
        hash ^= hash >> 16;
        Place { set: set_of(hash, set_bits), tag: hash as u16 }
    }

    /// Of an IPv6 address.
    pub const fn of_ipv6(address: u128, seed: u32, set_bits: u32) -> Self {
        let seed = seed as u64 | (seed as u64) << 32;
        let mut hash = ((address >> 64) as u64 ^ seed).wrapping_mul(0x9e37_79b1_85eb_ca87);
        hash =
            (hash ^ hash >> 29).wrapping_add(address as u64 ^ seed.rotate_left(17)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        hash = (hash ^ hash >> 32).wrapping_mul(0x1656_67b1_9e37_79f9);
        hash ^= hash >> 29;
        Place { set: set_of((hash >> 32) as u32, set_bits), tag: hash as u16 }
    }
}

const fn set_of(hash: u32, set_bits: u32) -> u32 {
    if set_bits == 0 { 0 } else { hash >> (u32::BITS - set_bits) }
}

/// log2 of the sets of a table for so many addresses, from [`SIZE_MIN`] to [`SIZE_MAX`].
pub const fn set_bits(size: u32) -> u32 {
    size.next_power_of_two().ilog2() - WAYS.ilog2()
}

/// The word of a bucket that is full at `now` and nobody's.
pub const fn empty(now: u64) -> u64 {
    now & TIME_MASK
}

/// How far a word is ahead of the clock, 2^16 times the ticks; negative if it lies behind.
const fn ahead(word: u64, now: u64) -> i64 {
    (word.wrapping_sub(now) << (u64::BITS - TIME_BITS)) as i64
}

/// Charges the address with the tag; whether its bucket had room. Without room nothing changes.
pub fn charge(set: &mut [u64; WAYS], tag: u16, now: u64, cost: u64, room: u64) -> bool {
    let way = way_of(set, tag, now);
    let debt = (ahead(set[way], now).max(0) >> (u64::BITS - TIME_BITS)) as u64 + cost;
    if debt > room {
        return false;
    }
    set[way] = u64::from(tag) << TIME_BITS | now.wrapping_add(debt) & TIME_MASK;
    true
}

/// The first word with the tag, or the first of the earliest.
fn way_of(set: &[u64; WAYS], tag: u16, now: u64) -> usize {
    let has_tag = |word: &u64| word >> TIME_BITS == u64::from(tag);
    let earliest = || (0..WAYS).min_by_key(|&way| ahead(set[way], now)).expect("there are ways");
    set.iter().position(has_tag).unwrap_or_else(earliest)
}

/// The word, or, if it lies behind, the same bucket at the present, so that it does not come round.
pub const fn refreshed(word: u64, now: u64) -> u64 {
    if ahead(word, now) < 0 { word & !TIME_MASK | now & TIME_MASK } else { word }
}
