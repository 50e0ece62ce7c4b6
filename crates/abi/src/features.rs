//! What `observe` counts for each protected address, behind the rules (`docs/decisions/0040-features.md`).
//!
//! A *sheet* is an array of elements of 64 bytes. Each worker or CPU has two sheets: it writes one while the other one
//! is read and cleared.
//!
//! ```text
//!   sheet   | sums: 0-5 | samplers: 6, 7 | cells upstream, downstream | (keys) | (recent prefixes) | records |
//!
//!   cell     0                                   36       40      48                64
//!           +-----------------------------------+--------+-------+-----------------+
//!           | packets of each of the 9 classes  |   0    | bytes | 8 x 16 of peers |
//!           +-----------------------------------+--------+-------+-----------------+
//!
//!   group    0                              32                              64
//!           +------------------------------+-------------------------------+
//!           | lower halves of 4 keys       | upper halves of the same keys |
//!           +------------------------------+-------------------------------+
//! ```
//! In the second place of a group, 192.0.2.1 is `0xffffc0000201` in word 1 and 0 in word 5. If its cell is element 9,
//! and it was counted lately, `0xc0000201_00000009` is the word of its recent prefix ([`RECENTS`]).
//!
//! Each packet has exactly one class, so the classes of all cells and sums together are the packets that passed.
//! Example: a TCP SYN of 60 bytes to 192.0.2.1 adds 60 to `bytes` and 1 to `packets[0]` of the cell of 192.0.2.1.
//!
//! *Which cell.* If the protected prefixes are not more than there are cells, each has a cell of its own: the place of
//! its range ([`FeatureRange`]) and its number in it. Otherwise a prefix has a cell in a group of four that a seeded
//! hash selects. The group's keys are one element of the sheet. A prefix that finds no place there is counted in a sum.
//!
//! *Peers* are the other ends: sources upstream. A cell keeps a sketch of them: probabilistic counting with stochastic
//! averaging (Flajolet and Martin, 1985). A hash selects one of eight lanes, and sets the bit of its lowest one.
//!
//! *Samples.* Of each 64 packets to protected addresses one is chosen at random. Its record enters a reservoir, so the
//! records are a uniform sample of the whole time between two exchanges.

mod class;
mod shape;
mod waiting;

use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use class::{PacketClass, QUIC_PORT, SERVICE_PORTS, SYSTEM_PORT_MAX};
pub use shape::{FeatureRange, FeatureShape};
pub use waiting::{KEYED4, KEYED6, QUEUE, QUEUE_WORDS, WAITING_WORDS, WaitingPacket, head_words, queue_at};

/// Elements of a sheet in front of its cells: `FEATURE_HEADS`.
pub const HEADS: usize = 8;
/// Elements of packets whose address has no room, by direction: `FEATURE_REST`.
pub const REST: [usize; 2] = [0, 1];
/// Elements of packets without an address (neither IPv4 nor IPv6, or malformed), by direction:
/// `FEATURE_WITHOUT_ADDRESS`.
pub const WITHOUT_ADDRESS: [usize; 2] = [2, 3];
/// Elements of packets whose address is not protected, by direction: `FEATURE_OUTSIDE`.
pub const OUTSIDE: [usize; 2] = [4, 5];
/// The elements of samplers, by direction: `FEATURE_SAMPLER`.
pub const SAMPLERS: [usize; 2] = [6, 7];

/// Keys of a group, which are one element: `FEATURE_GROUP`.
pub const GROUP: usize = 4;
/// One packet in this many is sampled, as long as records have room: `FEATURE_ONE_IN`.
pub const ONE_IN: u64 = 64;
/// Recent prefixes of an element: `FEATURE_RECENTS`. If a hash selects cells, the IPv4 prefixes that were counted
/// lately are found without a search, at the place of their number. A word has the prefix in the upper half and the
/// element of its cell in the lower one, which is 0 where there is none. Readers only clear them.
pub const RECENTS: usize = ELEMENT_WORDS;
/// The exponential distribution with mean 1, in 1/256: its means in 64 parts that are equally probable (`sample_gaps`).
pub const SAMPLE_GAPS: [u16; 64] = [
    2, 6, 10, 14, 19, 23, 27, 32, 36, 41, 46, 51, 56, 61, 66, 71, 76, 82, 87, 93, 99, 105, 111, 117, 124, 130, 137,
    144, 151, 158, 166, 173, 181, 190, 198, 207, 216, 226, 236, 246, 257, 268, 279, 291, 304, 318, 332, 347, 363, 380,
    398, 418, 440, 463, 488, 517, 549, 586, 629, 680, 745, 832, 966, 1321,
];
/// Records of a direction: `FEATURE_RECORDS`.
pub const RECORDS: usize = 1024;
/// Lanes of a sketch of peers: `FEATURE_LANES`.
pub const LANES: usize = 8;

/// Smallest number of cells of a direction.
pub const SIZE_MIN: u32 = 64;
/// Largest one. A sheet of both directions then takes 256 MiB.
pub const SIZE_MAX: u32 = 1 << 21;
/// The number without `size`.
pub const SIZE_DEFAULT: u32 = 1 << 16;
/// Maximum number of ranges of protected addresses, of each family: `OBSERVED_RANGES`.
pub const RANGES_MAX: usize = 16;

/// The seed of replays, which must repeat to the bit.
pub const REPLAY_SEED: u64 = 0x5eed_0f0b_5e11_ed00;

/// Counts of an address or prefix, or of what has none: `struct feature_cell`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub struct FeatureCell {
    /// Packets, by [`PacketClass`].
    pub packets: [u32; PacketClass::COUNT],
    zero: u32,
    /// Bytes on the wire.
    pub bytes: u64,
    /// The sketch of the other ends of these packets.
    pub peers: [u16; LANES],
}

impl FeatureCell {
    /// From its words in memory.
    pub fn from_words(words: [u64; ELEMENT_WORDS]) -> Self {
        let packets = std::array::from_fn(|at| (words[at / 2] >> (32 * (at % 2))) as u32);
        let peers = std::array::from_fn(|at| (words[6 + at / 4] >> (16 * (at % 4))) as u16);
        FeatureCell { packets, zero: 0, bytes: words[5], peers }
    }

    /// Packets of all classes.
    pub fn total(&self) -> u64 {
        self.packets.iter().map(|&packets| u64::from(packets)).sum()
    }

    /// Adds the counts of another cell.
    pub fn add(&mut self, other: &FeatureCell) {
        self.bytes += other.bytes;
        for (packets, more) in self.packets.iter_mut().zip(other.packets) {
            *packets = packets.saturating_add(more);
        }
        self.see_peers_of(other);
    }

    /// Sees the peers of another cell.
    pub fn see_peers_of(&mut self, other: &FeatureCell) {
        for (lane, more) in self.peers.iter_mut().zip(other.peers) {
            *lane |= more;
        }
    }

    /// Counts a packet.
    pub fn count(&mut self, class: PacketClass, bytes: u32) {
        self.packets[class as usize] += 1;
        self.bytes += u64::from(bytes);
    }

    /// Sees the other end of a packet, given as a hash.
    pub fn see_peer(&mut self, hash: u32) {
        let low = (hash / LANES as u32) as u16 | 0x8000;
        self.peers[hash as usize % LANES] |= low & low.wrapping_neg();
    }

    /// Estimated number of different peers. The standard error is 28%.
    pub fn peers(&self) -> u64 {
        peers_of(&self.peers)
    }
}

/// Estimated number of different peers in a sketch.
pub fn peers_of(lanes: &[u16; LANES]) -> u64 {
    // The bias of Flajolet and Martin, and the correction for few peers of Scheuermann and Mauve (2007).
    const PHI: f64 = 0.77351;
    const KAPPA: f64 = 1.75;
    let runs: u32 = lanes.iter().map(|lane| lane.trailing_ones()).sum();
    let mean = f64::from(runs) / LANES as f64;
    let estimate = (LANES as f64 / PHI * (mean.exp2() - (-KAPPA * mean).exp2())).round() as u64;
    // Each bit was set by another peer.
    estimate.max(lanes.iter().map(|lane| u64::from(lane.count_ones())).sum())
}

/// Bytes of an element of a sheet.
pub const ELEMENT_BYTES: usize = 64;
/// Words of an element.
pub const ELEMENT_WORDS: usize = ELEMENT_BYTES / size_of::<u64>();

/// An element of a sheet: `union feature_element`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct FeatureElement(pub [u64; ELEMENT_WORDS]);

/// Which packets are sampled: `struct feature_sampler`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct FeatureSampler {
    /// Packets to protected addresses.
    pub seen: u64,
    /// The number of the next one that is sampled.
    pub next: u64,
    /// Number of samples until now.
    pub taken: u64,
    zero: [u64; 5],
}

impl FeatureSampler {
    /// Sees a packet. Returns the place of its record if it is sampled.
    ///
    /// One packet of each [`ONE_IN`] is sampled, at a random place among them, until there are [`RECORDS`]. From then
    /// on each sample replaces a random record, and is one of fewer packets, so that at any time all groups of packets
    /// have a record with the same probability: the nth group is sampled with probability `RECORDS / n`. How many
    /// groups are left out in between is drawn at once (a reservoir with skips: J. S. Vitter, Random sampling with a
    /// reservoir, 1985), with `(n + 1) / RECORDS - 1/2` in place of the mean of the geometric distribution, and
    /// [`SAMPLE_GAPS`] in place of an exponential one. So a packet that has no record costs nothing.
    pub fn see(&mut self, seed: u64) -> Option<usize> {
        let is_sampled = self.seen == self.next;
        self.seen += 1;
        if !is_sampled {
            return None;
        }
        let (nth, next) = (self.taken, self.next / ONE_IN + 1);
        self.taken += 1;
        let random = hash(seed, [0, self.taken]);
        let left_out = match self.taken < RECORDS as u64 {
            true => 0,
            false => {
                (2 * next + 2 - RECORDS as u64) * u64::from(SAMPLE_GAPS[(random >> 58) as usize])
                    / (2 * 256 * RECORDS as u64)
            }
        };
        self.next = (next + left_out) * ONE_IN + random % ONE_IN;
        Some(if nth < RECORDS as u64 { nth } else { hash(seed, [1, nth]) >> 54 } as usize)
    }
}

/// A sampled packet: `struct feature_record`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, align(64))]
pub struct FeatureRecord {
    /// The source, as a key.
    pub source: [u64; 2],
    /// The destination, as a key.
    pub destination: [u64; 2],
    /// Bytes on the wire.
    pub len: u32,
    /// The source port, 0 if there is none.
    pub sport: u16,
    /// The destination port, 0 if there is none.
    pub dport: u16,
    /// The protocol.
    pub proto: u8,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Flags of TCP.
    pub tcp_flags: u8,
    /// The [`PacketClass`].
    pub class: u8,
    /// Always 0.
    pub zero: [u32; 5],
}

impl FeatureRecord {
    /// From its words in memory.
    pub fn from_words(words: [u64; ELEMENT_WORDS]) -> Self {
        let byte = |at: u32| (words[5] >> (8 * at)) as u8;
        FeatureRecord {
            source: [words[0], words[1]],
            destination: [words[2], words[3]],
            len: words[4] as u32,
            sport: (words[4] >> 32) as u16,
            dport: (words[4] >> 48) as u16,
            proto: byte(0),
            ttl: byte(1),
            tcp_flags: byte(2),
            class: byte(3),
            zero: [0; 5],
        }
    }
}

/// The keys of a group: `struct feature_group`. Both halves are 0 where there is no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FeatureGroup {
    /// Lower halves, in which IPv4 addresses differ.
    pub low: [u64; GROUP],
    /// Upper halves.
    pub high: [u64; GROUP],
}

impl FeatureGroup {
    /// The words of a group that have the upper and the lower half of the key at `place`.
    pub const fn words_of(place: usize) -> [usize; 2] {
        [offset_of!(FeatureGroup, high) / size_of::<u64>() + place, place]
    }
}

const _: () = assert!(size_of::<FeatureGroup>() == ELEMENT_BYTES);

/// The bits of the lower half of a key that say that it is an IPv4 address: `FEATURE_IPV4`.
pub const IPV4_MARK: u64 = 0xffff_0000_0000;
/// What stands for the key 0, because such a place is free. Both are reserved addresses (RFC 4291): `FEATURE_ZERO`.
pub const ZERO_KEY: [u64; 2] = [0, 1 << 63];

/// The halves of an IPv6 address; an IPv4 address as in `::ffff:192.0.2.1` (RFC 4291, section 2.5.5.2).
pub fn whole_key(is_ipv6: bool, address: u128) -> [u64; 2] {
    match is_ipv6 {
        true => [(address >> 64) as u64, address as u64],
        false => [0, IPV4_MARK | u64::from(address as u32)],
    }
}

/// The address of a key.
pub fn key_address(key: [u64; 2]) -> IpAddr {
    match key {
        ZERO_KEY => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        [0, low] if low >> 32 == IPV4_MARK >> 32 => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
        [high, low] => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
    }
}

/// The hash of a key. `feature_hash()` is the same in C.
pub fn hash(seed: u64, [high, low]: [u64; 2]) -> u64 {
    let mixed = (low ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_add(high ^ seed.rotate_left(32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// The group of a key among `groups`, a power of two: the lower bits of `feature_group_hash()`. IPv4 addresses have a
/// hash of 32 bits, which vectors compute.
pub fn group_of(seed: u64, key: [u64; 2], groups: usize) -> usize {
    let hash = match key {
        [0, low] if low >> 32 == IPV4_MARK >> 32 => mix(low as u32 ^ (seed >> 32) as u32),
        _ => (hash(seed, key) >> 32) as u32,
    };
    hash as usize & (groups - 1)
}

/// The hash of a peer. An IPv4 address is mixed at once, an IPv6 address becomes 32 bits first.
pub fn peer_hash(seed: u64, is_ipv6: bool, address: u128) -> u32 {
    let word = match is_ipv6 {
        true => (hash(seed, whole_key(true, address)) >> 32) as u32,
        false => address as u32 ^ seed as u32,
    };
    mix(word)
}

/// Mixes a word: `feature_mix()`. The constants are those of lowbias32 by Wellons (2018).
fn mix(word: u32) -> u32 {
    let mixed = (word ^ word >> 16).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b);
    mixed ^ mixed >> 16
}

/// What the sheets of all CPUs in the kernel share: `struct feature_head`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct FeatureHead {
    /// The sheet that is written: 0 or 1.
    pub selected: u64,
    /// The seed of hashes.
    pub seed: u64,
    zero: [u64; 6],
}

impl FeatureHead {
    /// A head whose first sheets are written.
    pub fn new(seed: u64) -> Self {
        FeatureHead { seed, ..FeatureHead::default() }
    }

    /// In the order in which they lie in memory.
    pub fn words(self) -> [u64; ELEMENT_WORDS] {
        let FeatureHead { selected, seed, zero: [a, b, c, d, e, f] } = self;
        [selected, seed, a, b, c, d, e, f]
    }
}

const _: () = assert!(size_of::<FeatureCell>() == ELEMENT_BYTES && size_of::<FeatureRecord>() == ELEMENT_BYTES);
const _: () = assert!(size_of::<FeatureSampler>() == ELEMENT_BYTES && size_of::<FeatureHead>() == ELEMENT_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_are_written() {
        let half = |low: u64, high: u64| low | high << 32;
        let words = [half(10, 11), half(12, 13), half(14, 15), half(16, 17), half(18, 0), 99, 0x0004_0003_0002_0001, 8];
        let cell = FeatureCell::from_words(words);
        assert_eq!(cell.packets, [10, 11, 12, 13, 14, 15, 16, 17, 18]);
        assert_eq!((cell.bytes, cell.peers), (99, [1, 2, 3, 4, 8, 0, 0, 0]));
        let record = FeatureRecord::from_words([1, 2, 3, 4, 0x0035_1234_0000_0040, 0x0807_4011, 0, 0]);
        assert_eq!((record.source, record.destination, record.len), ([1, 2], [3, 4], 64));
        assert_eq!((record.sport, record.dport, record.proto, record.ttl), (0x1234, 53, 17, 64));
        assert_eq!((record.tcp_flags, record.class), (7, 8));
    }

    #[test]
    fn peers_are_estimated() {
        for is_ipv6 in [false, true] {
            for count in [1u128, 10, 100, 10_000, 300_000] {
                // The mean of many sketches, whose seeds differ.
                let estimate = |seed: u64| {
                    let mut cell = FeatureCell::default();
                    (0..count).for_each(|peer| {
                        cell.see_peer(peer_hash(seed.wrapping_mul(REPLAY_SEED), is_ipv6, peer * 7 + 3))
                    });
                    cell.peers() as f64
                };
                let mean = (1..=20).map(estimate).sum::<f64>() / 20.0;
                // A single peer that sets a low bit counts as two or three.
                let error = (mean - count as f64).abs();
                assert!(error < 1.0 + 0.25 * count as f64, "{count} peers: {mean}");
            }
        }
        assert_eq!(FeatureCell::default().peers(), 0);
    }

    #[test]
    fn samples_are_one_in_64_and_then_spread_over_all_packets() {
        const SEEDS: u64 = 16;
        let packets = ONE_IN * RECORDS as u64 * 8;
        let (mut eighths, mut taken) = ([0; 8], 0);
        for seed in (1..=SEEDS).map(|seed| seed.wrapping_mul(REPLAY_SEED)) {
            let (mut sampler, mut placed) = (FeatureSampler::default(), vec![0; RECORDS]);
            for packet in 0..packets {
                let at = sampler.taken;
                let Some(place) = sampler.see(seed) else { continue };
                assert!(at >= RECORDS as u64 || (packet / ONE_IN, place as u64) == (at, at), "the {at}th is {packet}");
                placed[place] = packet;
            }
            assert_eq!(sampler.seen, packets);
            taken += sampler.taken;
            placed.iter().for_each(|packet| eighths[(packet * 8 / packets) as usize] += 1);
        }
        // The mean and 4 standard deviations.
        let mean = SEEDS as f64 * RECORDS as f64 / 8.0;
        assert!(eighths.iter().all(|&count| (f64::from(count) - mean).abs() < 4.0 * mean.sqrt()), "{eighths:?}");
        // The harmonic sum: RECORDS / n for each group of packets.
        let expected = SEEDS as f64 * RECORDS as f64 * (1.0 + 8f64.ln());
        assert!((taken as f64 / expected - 1.0).abs() < 0.02, "{taken} of {expected}");
    }
}
