//! Tables of token buckets for addresses that no list names (`limit each ip saddr 50pps`). `datapath/limits/each.h`
//! implements the same in C.
//!
//! A bucket that the clock has passed is full, and a full bucket need not be stored. So a table needs room only for the
//! addresses in debt, and nothing has to be deleted. A table consists of sets of eight words, one cache line each. The
//! hash of an address selects the set and gives a *tag*, which distinguishes the addresses of a set.
//!
//! ```text
//!   63      48 47                                  0
//!  +----------+-------------------------------------+
//!  |   tag    |   theoretical arrival time, ticks   |    one of the eight words of a set
//!  +----------+-------------------------------------+
//! ```
//! An address whose tag is not in its set takes the word with the earliest time **and inherits that time**. The
//! earliest time of a set never goes back. An address loses its word only if its time is the earliest, so when it
//! returns it gets a time that is no earlier. Therefore *no address ever passes more than its limit*, for any number of
//! addresses, as in the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, 2005). While at most eight addresses of a
//! set are in debt, each gets exactly its own limit. With more, some get less.
//!
//! Tags have 16 bits. The hash of IPv4 addresses is a permutation, so with 2^16 or more sets no two addresses share a
//! word. In smaller tables, and with IPv6 addresses, two addresses of a set share one by chance (2^-16), and then share
//! one limit.
//!
//! A time has only 48 bits, so a tick is longer than the tick of other limits. It is as long as possible while the
//! smallest packet costs 2^12 ticks or more ([`LimitProfile::coarse`]). Rounding takes less than 0.1% of a rate. Words
//! in the past are set to the present before they wrap around ([`refreshed`]). Wrapping takes nine minutes at 250 Mpps
//! and 18 hours at 1 Mpps.

use crate::Family;
use crate::limit::{LimitProfile, TICK_SHIFT, room_of_bytes};
use crate::rate::{Limit, Unit};

/// Number of words in a set.
pub const WAYS: usize = 8;
/// Number of time bits in a word.
pub const TIME_BITS: u32 = 48;
/// Maximum room in the ticks of the table: a quarter of the range of times.
pub const ROOM_MAX: u64 = 1 << 46;
/// The minimum, maximum and default number of addresses of a table. With the default, no two IPv4 addresses share a
/// bucket.
pub const SIZE_MIN: u32 = 1024;
/// See [`SIZE_MIN`].
pub const SIZE_MAX: u32 = 1 << 24;
/// See [`SIZE_MIN`].
pub const SIZE_DEFAULT: u32 = 1 << 19;

/// The hash seed for replays of captures, which makes them deterministic.
pub const REPLAY_SEED: u32 = 0;

/// The smallest packet costs at least 2^[`COST_BITS`] ticks.
const COST_BITS: u32 = 12;
/// Length of the smallest packet: an Ethernet frame without its frame check sequence.
const SMALLEST_BYTES: u32 = 60;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The profile of the buckets in a table; `None` if the burst exceeds the range of times.
pub fn profile(limit: Limit) -> Option<LimitProfile> {
    let fine = limit.profile();
    if fine == LimitProfile::CLOSED {
        return Some(fine);
    }
    let coarse = fine.cost(SMALLEST_BYTES).ilog2().saturating_sub(COST_BITS);
    // A clock with longer ticks may read up to one tick late, so each packet costs one tick more.
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

/// A time in ticks of 2^`coarse` usual ticks. It has more bits than a word stores.
pub const fn ticks(now_ns: u64, coarse: u64) -> u64 {
    let fine = TICK_SHIFT as u64;
    if coarse < fine { now_ns << (fine - coarse) } else { now_ns >> (coarse - fine) }
}

/// Number of words of the record of an address that exceeded its limit.
///
/// ```text
///  word 0: tag, 16 bits | packets, 48 bits      1: address, high half      2: address, low half      3: 0
/// ```
/// A table of addresses that logs has [`EXCEEDER_SETS`] sets of [`WAYS`] records, for the addresses that were exceeded
/// most. This is Space-Saving too: an address without record takes the one with the fewest packets, *and keeps that
/// number*. So an address that exceeds more than an eighth of its set's packets has a record, and a count is too high
/// by at most the fewest packets of its set. With up to eight addresses of a set, counts are exact. Two addresses of a
/// set with one tag (2^-16) share a record, which has the address of the later one.
pub const RECORD_WORDS: usize = 4;
/// log2 of [`EXCEEDER_SETS`].
pub const EXCEEDER_SET_BITS: u32 = 7;
/// Number of sets of records.
pub const EXCEEDER_SETS: usize = 1 << EXCEEDER_SET_BITS;
/// Number of words of a table's records.
pub const EXCEEDER_WORDS: usize = EXCEEDER_SETS * WAYS * RECORD_WORDS;
/// The part of a record's first word with the number of packets.
pub const PACKETS_MASK: u64 = (1 << TIME_BITS) - 1;

/// A record of an address.
pub type Record = [u64; RECORD_WORDS];

/// Counts a packet that exceeded the limit of an address, in the set of its hash with [`EXCEEDER_SET_BITS`].
pub fn count_exceeded(set: &mut [Record; WAYS], tag: u16, address: u128) {
    let has_tag = |record: &Record| record[0] & PACKETS_MASK != 0 && record[0] >> TIME_BITS == u64::from(tag);
    let fewest = || (0..WAYS).min_by_key(|&way| set[way][0] & PACKETS_MASK).expect("there are ways");
    let record = &mut set[set.iter().position(has_tag).unwrap_or_else(fewest)];
    let packets = (record[0] & PACKETS_MASK) + 1;
    *record = [u64::from(tag) << TIME_BITS | packets & PACKETS_MASK, (address >> 64) as u64, address as u64, 0];
}

/// The address of a record in the set `set`. `None` if the record is empty or just being written: its tag and set then
/// do not belong to its address.
pub fn exceeder(record: &Record, set: usize, family: Family, seed: u32) -> Option<u128> {
    let address = u128::from(record[1]) << 64 | u128::from(record[2]);
    let hashed = HashedAddress::of(address, family, seed, EXCEEDER_SET_BITS);
    let is_its = record[0] >> TIME_BITS == u64::from(hashed.tag) && hashed.set as usize == set;
    (is_its && record[0] & PACKETS_MASK != 0).then_some(address)
}

/// The hash of an address: the number of the set with its bucket, and its tag in the set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashedAddress {
    /// Set number, below 2^`set_bits`.
    pub set: u32,
    /// Distinguishes the address from others in the set.
    pub tag: u16,
}

impl HashedAddress {
    /// Hashes an address of a family.
    pub const fn of(address: u128, family: Family, seed: u32, set_bits: u32) -> Self {
        match family {
            Family::Ipv4 => Self::of_ipv4(address as u32, seed, set_bits),
            Family::Ipv6 => Self::of_ipv6(address, seed, set_bits),
        }
    }

    /// Hashes an IPv4 address, or its prefix, for 2^`set_bits` sets.
    pub const fn of_ipv4(address: u32, seed: u32, set_bits: u32) -> Self {
        let mut hash = (address ^ seed).wrapping_mul(0x9e37_79b1);
        hash = (hash ^ hash >> 15).wrapping_add(seed.rotate_left(13)).wrapping_mul(0x85eb_ca77);
        hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae3d);
        hash ^= hash >> 16;
        HashedAddress { set: set_of(hash, set_bits), tag: hash as u16 }
    }

    /// Hashes an IPv6 address.
    pub const fn of_ipv6(address: u128, seed: u32, set_bits: u32) -> Self {
        let seed = seed as u64 | (seed as u64) << 32;
        let mut hash = ((address >> 64) as u64 ^ seed).wrapping_mul(0x9e37_79b1_85eb_ca87);
        hash =
            (hash ^ hash >> 29).wrapping_add(address as u64 ^ seed.rotate_left(17)).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        hash = (hash ^ hash >> 32).wrapping_mul(0x1656_67b1_9e37_79f9);
        hash ^= hash >> 29;
        HashedAddress { set: set_of((hash >> 32) as u32, set_bits), tag: hash as u16 }
    }
}

const fn set_of(hash: u32, set_bits: u32) -> u32 {
    if set_bits == 0 { 0 } else { hash >> (u32::BITS - set_bits) }
}

/// log2 of the number of sets of a table for `size` addresses, from [`SIZE_MIN`] to [`SIZE_MAX`].
pub const fn set_bits(size: u32) -> u32 {
    size.next_power_of_two().ilog2() - WAYS.ilog2()
}

/// The word of a free bucket, which is full at `now`.
pub const fn empty(now: u64) -> u64 {
    now & TIME_MASK
}

/// How far a word is ahead of the clock, in 2^-16 ticks; negative if it is in the past.
const fn ahead(word: u64, now: u64) -> i64 {
    (word.wrapping_sub(now) << (u64::BITS - TIME_BITS)) as i64
}

/// The debt of a word in ticks.
fn debt(word: u64, now: u64) -> u64 {
    (ahead(word, now).max(0) >> (u64::BITS - TIME_BITS)) as u64
}

/// Charges the address with this tag and returns whether its bucket had room. Without room nothing changes.
pub fn charge(set: &mut [u64; WAYS], tag: u16, now: u64, cost: u64, room: u64) -> bool {
    let way = way_of(set, tag, now);
    let debt = debt(set[way], now) + cost;
    if debt > room {
        return false;
    }
    set[way] = u64::from(tag) << TIME_BITS | now.wrapping_add(debt) & TIME_MASK;
    true
}

/// The first word with the tag; otherwise the first of the earliest words.
fn way_of(set: &[u64; WAYS], tag: u16, now: u64) -> usize {
    let has_tag = |word: &u64| word >> TIME_BITS == u64::from(tag);
    let earliest = || (0..WAYS).min_by_key(|&way| ahead(set[way], now)).expect("there are ways");
    set.iter().position(has_tag).unwrap_or_else(earliest)
}

/// Returns the word, or the same bucket at `now` if the word is in the past. This keeps words from wrapping around.
pub const fn refreshed(word: u64, now: u64) -> u64 {
    if ahead(word, now) < 0 { word & !TIME_MASK | now & TIME_MASK } else { word }
}

/// Returns the word, or the same bucket with a debt of `room` if its debt is larger.
pub fn bounded(word: u64, now: u64, room: u64) -> u64 {
    if debt(word, now) > room { word & !TIME_MASK | now.wrapping_add(room) & TIME_MASK } else { word }
}
