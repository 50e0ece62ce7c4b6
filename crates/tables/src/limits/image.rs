//! The image of a program's limiters. It holds all their rates and defines the meaning of a lookup's answer.
//!
//! The lookup of a packet returns a *ticket*, which names a bucket and its rate. Buckets are words of one array that
//! outlives policies. When a list changes, its remaining prefixes keep their buckets and get tickets with the new
//! rates.
//!
//! ```text
//! limiters   32 bytes each, at byte 64       struct limiter in datapath/limits/limit.h
//! profiles   32 bytes each, a limiter's together, the first of them "no limit"
//! entries    64 bits a bucket from the first of a limit on: profile, and the bucket of the enclosing prefix; only of limiters
//!            whose tickets cannot say it
//! tickets    32 bits a label, for limiters that police by the labels of a table
//!
//! ticket   30         place_bits           0
//!         +----------------+---------------+
//!         |    profile     |     bucket    |       0: no limit; limiters with entries: the bucket alone
//!         +----------------+---------------+
//! ```
//! The labels of a list's own image *are* its tickets, so that between the lookup and the bucket there is nothing to
//! wait for. They hold both as long as bucket and profile have 31 bits together: a million buckets and a thousand
//! rates. Lists with more rates, and nested ones, keep 8 bytes a bucket in `entries`.
//!
//! Several limiters may police by one list, for example upstream and downstream. They share its image and its tickets.
//! A ticket then names the first of several neighbouring buckets, one for each limiter (`offset`).
//!
//! Example: 300,000 prefixes at two rates have buckets below 2^19, and tickets of 19 + 2 bits: label `2 << 19 | 77` is
//! bucket 77 at the second rate.

use std::ops::Range;
use std::ptr;

use weir_abi::{LimitEntries, LimitEntry, LimitProfile};

use crate::image::{BuildError, HEADER_BYTES};
use crate::image_memory::ImageMemory;

/// Bits of a ticket; layouts of tables need the highest one.
pub(super) const TICKET_BITS: u32 = 31;
/// Bytes of a limiter.
const LIMITER_BYTES: usize = 32;
/// Bytes that lookups may read behind the last word.
const PADDING: usize = 64;
/// Maximum number of prefixes of a nested list that enclose each other.
pub const NESTING_MAX: usize = 8;

/// Maximum size of the image in bytes. The kernel allocates a power of two, and offsets have 32 bits.
const BYTES_MAX: usize = 1 << 31;

/// Which packets of a limiter are counted for each bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Logged {
    /// Nothing.
    #[default]
    Nothing = 0,
    /// Packets for which the bucket had no room.
    Exceeded = 1,
    /// All packets.
    All = 2,
}

/// How a limiter finds the bucket of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// By the list's own image, whose labels are replaced by tickets. A limiter with one bucket needs no lookup.
    ByTicket,
    /// By the labels of a table, which rules look up too.
    ByLabel,
    /// By the hash of an address, in a table of 2^`set_bits` sets ([`weir_abi::each`]). The table starts at the
    /// limiter's only slot.
    ByHash {
        /// log2 of the number of sets.
        set_bits: u32,
        /// Seed of the hash.
        seed: u32,
        /// Seats of each address ([`weir_abi::seats`]); 0 for buckets.
        seats: u32,
    },
}

/// A limiter to lay out.
#[derive(Clone, Copy, Debug)]
pub struct Limiter<'a> {
    /// The rates, and the rate of each entry.
    pub limits: &'a LimitEntries,
    /// The bucket of each entry, never 0. It is used only for entries with a limit. Limiters of the same list share the
    /// array.
    pub slots: &'a [u32],
    /// Offset of this limiter's buckets from `slots`. Limiters of the same list have neighbouring buckets.
    pub offset: u32,
    /// How an entry is found.
    pub found: Found,
    /// Which packets are counted.
    pub logged: Logged,
}

impl Limiter<'_> {
    /// The range from the first to the last bucket with a limit.
    fn limited_slots(&self) -> Range<u32> {
        let limited = self.limits.entries.iter().zip(self.slots).filter(|(entry, _)| entry.profile != 0);
        let slots = limited.map(|(_, &slot)| slot..slot + 1);
        slots.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)).unwrap_or(0..1)
    }

    /// Number of ticket bits that name the bucket; `None` if the limiter needs entries.
    fn place_bits(&self) -> Option<u32> {
        let bits = |end: usize| end.next_power_of_two().ilog2();
        let (slots, profiles) = (bits(self.limited_slots().end as usize), bits(self.limits.profiles.len()));
        let is_nested = self.limits.entries.iter().any(|entry| entry.parent != 0);
        (!is_nested && slots + profiles <= TICKET_BITS).then_some(slots)
    }

    /// The tickets of the entries.
    fn tickets(&self) -> Vec<u32> {
        let place_bits = self.place_bits();
        let ticket = |(entry, &slot): (&LimitEntry, &u32)| match (entry.profile, place_bits) {
            (0, _) => 0,
            (profile, Some(bits)) => profile << bits | slot,
            (_, None) => slot,
        };
        self.limits.entries.iter().zip(self.slots).map(ticket).collect()
    }

    /// Number of prefixes around the entry, including itself. Counting stops above [`NESTING_MAX`].
    fn depth(&self, entry: &LimitEntry) -> usize {
        let mut depth = 1;
        let mut parent = entry.parent;
        while parent != 0 && depth <= NESTING_MAX {
            parent = self.limits.entries[parent as usize].parent;
            depth += 1;
        }
        depth
    }
}

/// The laid-out image, and the tickets of each limiter's entries. The labels of the list's image must become these
/// tickets.
#[derive(Debug)]
pub struct LimitImage {
    memory: ImageMemory,
    tickets: Vec<Vec<u32>>,
    is_address_table: Vec<bool>,
}

impl LimitImage {
    /// Lays out limiters in the order of their numbers.
    ///
    /// # Errors
    /// The image exceeds 2 GiB, or prefixes are nested deeper than [`NESTING_MAX`].
    pub fn build(limiters: &[Limiter<'_>]) -> Result<Self, BuildError> {
        let tickets: Vec<Vec<u32>> = limiters.iter().map(Limiter::tickets).collect();
        let mut image = Words::zeroed(HEADER_BYTES + limiters.len() * LIMITER_BYTES);
        let mut shared: Vec<[u32; 3]> = Vec::with_capacity(limiters.len());
        for (number, (limiter, tickets)) in limiters.iter().zip(&tickets).enumerate() {
            let same =
                |other: &Limiter<'_>| ptr::eq(other.limits, limiter.limits) && ptr::eq(other.slots, limiter.slots);
            let parts = match limiters[..number].iter().position(same) {
                Some(before) => shared[before],
                None => {
                    [image.profiles(&limiter.limits.profiles), image.entries(limiter)?, image.tickets(limiter, tickets)]
                }
            };
            shared.push(parts);
            let [profiles, entries, by_label] = parts;
            let logged = limiter.logged as u32;
            let fields = match limiter.found {
                Found::ByHash { set_bits, seed, seats } => {
                    [profiles, 0, set_bits, seats, 0, logged, limiter.slots[0], seed]
                }
                Found::ByTicket | Found::ByLabel => {
                    let place_bits = limiter.place_bits().unwrap_or(0);
                    [profiles, entries, place_bits, tickets[0], by_label, logged, limiter.offset, 0]
                }
            };
            image.write(HEADER_BYTES + number * LIMITER_BYTES, fields);
        }
        let bytes = image.0.len() * size_of::<u32>() + PADDING;
        if bytes > BYTES_MAX {
            return Err(BuildError::Limits { what: "bytes in the image of the limits", max: BYTES_MAX });
        }
        let mut memory = ImageMemory::zeroed(bytes);
        let (words, _) = memory.as_chunks_mut();
        words.iter_mut().zip(&image.0).for_each(|(to, word)| *to = word.to_le_bytes());
        let is_address_table = limiters.iter().map(|limiter| matches!(limiter.found, Found::ByHash { .. })).collect();
        Ok(LimitImage { memory, tickets, is_address_table })
    }

    /// The image, including padding; its address is a multiple of 4096.
    pub fn as_bytes(&self) -> &[u8] {
        &self.memory
    }

    /// Number of limiters.
    pub fn limiters(&self) -> usize {
        self.tickets.len()
    }

    /// The profile by which an entry of a limiter is charged, as lookups find it; `None` if it has no limit.
    pub fn profile(&self, limiter: usize, entry: usize) -> Option<LimitProfile> {
        let field = |index: usize| self.word((HEADER_BYTES + limiter * LIMITER_BYTES) / size_of::<u32>() + index);
        let (profiles, entries, place_bits) = (field(0), field(1), field(2));
        let number = match (self.is_address_table[limiter], self.tickets[limiter][entry]) {
            // Its only profile, after "no limit".
            (true, _) => 1,
            (false, 0) => return None,
            (false, ticket) if entries == 0 => ticket >> place_bits,
            (false, ticket) => self.word(2 * entries.wrapping_add(ticket) as usize),
        };
        let at = (profiles + number) as usize * size_of::<LimitProfile>() / size_of::<u32>();
        let long = |index: usize| u64::from(self.word(at + 2 * index)) | u64::from(self.word(at + 2 * index + 1)) << 32;
        Some(LimitProfile { per_packet: long(0), per_byte: long(1), room: long(2), coarse: long(3) })
    }

    fn word(&self, index: usize) -> u32 {
        let (words, _) = self.memory.as_chunks::<4>();
        u32::from_le_bytes(words[index])
    }

    /// The tickets of a limiter's entries, by label. The first is charged if the lookup finds nothing.
    pub fn tickets(&self, limiter: usize) -> &[u32] {
        &self.tickets[limiter]
    }
}

/// An image under construction, in 32-bit words.
struct Words(Vec<u32>);

impl Words {
    fn zeroed(bytes: usize) -> Self {
        Words(vec![0; bytes / size_of::<u32>()])
    }

    fn write(&mut self, at: usize, fields: [u32; 8]) {
        self.0[at / size_of::<u32>()..][..fields.len()].copy_from_slice(&fields);
    }

    /// Index of the next object, whose size is `bytes`.
    fn begin(&mut self, bytes: usize) -> u32 {
        let words = bytes / size_of::<u32>();
        self.0.resize(self.0.len().next_multiple_of(words), 0);
        (self.0.len() / words) as u32
    }

    fn push(&mut self, word: u64) {
        self.0.extend([word as u32, (word >> 32) as u32]);
    }

    fn profiles(&mut self, profiles: &[LimitProfile]) -> u32 {
        let first = self.begin(size_of::<LimitProfile>());
        for profile in profiles {
            let words = [profile.per_packet, profile.per_byte, profile.room, profile.coarse];
            words.into_iter().for_each(|word| self.push(word));
        }
        first
    }

    /// Adds entries from the first bucket with a limit on. Returns the index that bucket 0 would have, modulo 2^32, or
    /// 0 if the limiter needs no entries.
    fn entries(&mut self, limiter: &Limiter<'_>) -> Result<u32, BuildError> {
        if limiter.place_bits().is_some() || matches!(limiter.found, Found::ByHash { .. }) {
            return Ok(0);
        }
        let Range { start, end } = limiter.limited_slots();
        let mut first = self.begin(size_of::<LimitEntry>());
        if first == start {
            self.push(0);
            first += 1;
        }
        let mut by_slot = vec![LimitEntry::default(); (end - start) as usize];
        for (entry, &slot) in limiter.limits.entries.iter().zip(limiter.slots).filter(|(entry, _)| entry.profile != 0) {
            if limiter.depth(entry) > NESTING_MAX {
                return Err(BuildError::Limits { what: "prefixes that enclose each other", max: NESTING_MAX });
            }
            let parent = if entry.parent == 0 { 0 } else { limiter.slots[entry.parent as usize] };
            by_slot[(slot - start) as usize] = LimitEntry { profile: entry.profile, parent };
        }
        by_slot.iter().for_each(|entry| self.push(u64::from(entry.profile) | u64::from(entry.parent) << 32));
        Ok(first.wrapping_sub(start))
    }

    /// Adds tickets. Returns the index of the ticket of label 0, or 0 if labels are tickets.
    fn tickets(&mut self, limiter: &Limiter<'_>, tickets: &[u32]) -> u32 {
        if limiter.found != Found::ByLabel {
            return 0;
        }
        let first = self.begin(size_of::<u32>());
        self.0.extend(tickets);
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(image: &LimitImage, at: usize) -> u32 {
        let (words, _) = image.as_bytes().as_chunks::<4>();
        u32::from_le_bytes(words[at])
    }

    fn limits(profiles: u64, entries: &[(u32, u32)]) -> LimitEntries {
        let profile = |number| LimitProfile { per_packet: number, per_byte: 0, room: 10 * number, coarse: 0 };
        let entries = entries.iter().map(|&(profile, parent)| LimitEntry { profile, parent }).collect();
        LimitEntries { profiles: (0..=profiles).map(profile).collect(), entries }
    }

    #[test]
    fn a_ticket_names_bucket_and_rate() {
        let (one, two) = (limits(2, &[(0, 0), (1, 0), (2, 0)]), LimitEntries::single(LimitProfile::CLOSED));
        let limiter =
            |limits, slots| Limiter { limits, slots, offset: 3, found: Found::ByTicket, logged: Logged::Exceeded };
        let image = LimitImage::build(&[limiter(&one, &[9, 5, 6]), limiter(&two, &[7])]).expect("it is small");
        assert_eq!(image.tickets(0), [0, 1 << 3 | 5, 2 << 3 | 6]);
        assert_eq!(image.tickets(1), [1 << 3 | 7]);
        let fields = |limiter: usize| (0..7).map(|field| word(&image, 16 + 8 * limiter + field)).collect::<Vec<_>>();
        assert_eq!((fields(0), fields(1)), (vec![4, 0, 3, 0, 0, 1, 3], vec![7, 0, 3, 15, 0, 1, 3]));
        assert_eq!(
            [0, 1, 2].map(|entry| image.profile(0, entry)),
            [None, Some(one.profiles[1]), Some(one.profiles[2])]
        );
        assert_eq!(image.profile(1, 0), Some(LimitProfile::CLOSED));
        // Cost per packet and capacity of the first limiter's second rate.
        assert_eq!((word(&image, 8 * 6), word(&image, 8 * 6 + 4)), (2, 20));
        assert_eq!(image.as_bytes().len(), 32 * 9 + PADDING);
    }

    #[test]
    fn labels_have_tickets_of_their_own() {
        let countries = limits(1, &[(0, 0), (1, 0), (0, 0), (1, 0)]);
        let limiter = Limiter {
            limits: &countries,
            slots: &[0, 1, 0, 2],
            offset: 0,
            found: Found::ByLabel,
            logged: Logged::Nothing,
        };
        let image = LimitImage::build(&[limiter]).expect("it is small");
        let first = word(&image, 16 + 4) as usize;
        assert_eq!((0..4).map(|label| word(&image, first + label)).collect::<Vec<_>>(), [0, 1 << 2 | 1, 0, 1 << 2 | 2]);
    }

    #[test]
    fn nested_prefixes_and_very_many_rates_have_entries() {
        let nested = limits(1, &[(0, 0), (1, 0), (1, 1), (1, 2)]);
        let limiter =
            |limits, slots| Limiter { limits, slots, offset: 0, found: Found::ByTicket, logged: Logged::Nothing };
        let image = LimitImage::build(&[limiter(&nested, &[0, 11, 12, 13])]).expect("it is small");
        assert_eq!(image.tickets(0), [0, 11, 12, 13]);
        let entry = |slot: u32| {
            let at = 2 * word(&image, 16 + 1).wrapping_add(slot) as usize;
            (word(&image, at), word(&image, at + 1))
        };
        assert_eq!([11, 12, 13].map(entry), [(1, 0), (1, 11), (1, 12)]);
        // A large distance between buckets does not make the image larger.
        let far = LimitImage::build(&[limiter(&nested, &[0, 1 << 20, 1 << 20 | 1, 1 << 20 | 2])]).expect("it is small");
        assert_eq!(far.as_bytes().len(), image.as_bytes().len());
        let first = word(&far, 16 + 1);
        assert_eq!(word(&far, 2 * first.wrapping_add(1 << 20 | 2) as usize + 1), 1 << 20 | 1);

        let count = 1 << 16;
        let varied = limits(count, &(0..=count as u32).map(|rate| (rate, 0)).collect::<Vec<_>>());
        let slots: Vec<u32> = (0..=count as u32).collect();
        let image = LimitImage::build(&[limiter(&varied, &slots)]).expect("it is small");
        assert_eq!(image.tickets(0), slots);
        let first = word(&image, 16 + 1);
        assert_eq!(word(&image, 2 * first.wrapping_add(777) as usize), 777);
        assert_eq!(
            [777, 1 << 16].map(|entry| image.profile(0, entry)),
            [777, 1 << 16].map(|at| Some(varied.profiles[at]))
        );
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        let chain = |depth: u32| {
            limits(1, &(0..=depth).map(|entry| (entry.min(1), entry.saturating_sub(1))).collect::<Vec<_>>())
        };
        let slots: Vec<u32> = (0..20).collect();
        let build = |limits: &LimitEntries| {
            let slots = &slots[..limits.entries.len()];
            LimitImage::build(&[Limiter { limits, slots, offset: 0, found: Found::ByTicket, logged: Logged::Nothing }])
        };
        assert!(build(&chain(NESTING_MAX as u32)).is_ok());
        let refused = build(&chain(NESTING_MAX as u32 + 1)).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some("there are at most 8 prefixes that enclose each other"));
    }
}
