//! What `observe` counts for each protected address, behind the rules (`docs/decisions/0040-features.md`).
//!
//! A *sheet* is an array of entries. One worker or CPU writes it, and it has two of them: one is written while the other
//! one is read and cleared. A sheet begins with a group of sums. Then follow the groups of each direction.
//!
//! ```text
//!   sheet   | sums | upstream: 0  1  2 ... 2^n - 1 | downstream: 0  1  2 ... 2^n - 1 |
//!   group   | 8 entries of 64 bytes |            an address belongs to one group, at any place in it
//!
//!   entry    0         16      24                                          60            64
//!           +---------+-------+-------------------------------------------+-------------+
//!           |   key   | bytes |  packets of each of the 9 classes         | new sources |
//!           +---------+-------+-------------------------------------------+-------------+
//! ```
//! An entry without bytes is free. Each packet has exactly one class, so the classes of all entries and sums together
//! are the packets that passed. Example: a TCP SYN of 60 bytes to 192.0.2.1 adds 60 to `bytes` and 1 to `packets[0]` of
//! the entry with the key `[0, 0xffff_c000_0201]`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of a packet. A packet has exactly one: `enum packet_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PacketClass {
    /// TCP SYN without ACK.
    Syn,
    /// TCP SYN and ACK.
    SynAck,
    /// TCP RST.
    Rst,
    /// Other TCP.
    Tcp,
    /// UDP from the port of a service: an answer.
    UdpService,
    /// Other UDP.
    Udp,
    /// ICMP and ICMPv6.
    Icmp,
    /// A fragment that is not the first of its datagram.
    Fragment,
    /// Any other protocol.
    Other,
}

impl PacketClass {
    /// Number of classes.
    pub const COUNT: usize = 9;

    /// All classes, with their names in reports.
    pub const ALL: [(PacketClass, &'static str); Self::COUNT] = [
        (PacketClass::Syn, "syn"),
        (PacketClass::SynAck, "syn-ack"),
        (PacketClass::Rst, "rst"),
        (PacketClass::Tcp, "tcp"),
        (PacketClass::UdpService, "udp-service"),
        (PacketClass::Udp, "udp"),
        (PacketClass::Icmp, "icmp"),
        (PacketClass::Fragment, "fragment"),
        (PacketClass::Other, "other"),
    ];
}

/// The highest port of a service that a client does not choose by itself (RFC 6335, system ports): `SYSTEM_PORT_MAX`.
pub const SYSTEM_PORT_MAX: u16 = 1023;
/// Ports above the system ports whose services are known to amplify.
pub const SERVICE_PORTS: [u16; 12] = [1194, 1434, 1900, 3283, 3389, 3478, 3702, 4500, 5353, 10001, 11211, 37810];

/// Entries of a group: `FEATURE_GROUP`.
pub const GROUP: usize = 8;
/// Number of groups in a sheet for its sums.
pub const SUM_GROUPS: usize = 1;
/// The entries of the first group: by direction, packets whose address has no room.
pub const REST: [usize; 2] = [0, 1];
/// The same for packets without an address: neither IPv4 nor IPv6, or malformed.
pub const WITHOUT_ADDRESS: [usize; 2] = [2, 3];
/// The same for packets whose address is not protected.
pub const OUTSIDE: [usize; 2] = [4, 5];

/// Smallest number of entries of a direction.
pub const SIZE_MIN: u32 = 64;
/// Largest one. A sheet of both directions then takes 256 MiB.
pub const SIZE_MAX: u32 = 1 << 21;
/// The number without `size`.
pub const SIZE_DEFAULT: u32 = 1 << 16;

/// The seed of replays, which must repeat to the bit.
pub const REPLAY_SEED: u64 = 0x5eed_0f0b_5e11_ed00;

/// An address or prefix, with what was counted: `struct feature_entry`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C, align(64))]
pub struct FeatureEntry {
    /// The halves of an IPv6 address; an IPv4 address as in `::ffff:192.0.2.1` (RFC 4291, section 2.5.5.2).
    pub key: [u64; 2],
    /// Bytes on the wire; 0 in a free entry.
    pub bytes: u64,
    /// Packets, by [`PacketClass`].
    pub packets: [u32; PacketClass::COUNT],
    /// Packets whose source was not seen before. Always 0 downstream.
    pub new_sources: u32,
}

impl FeatureEntry {
    /// Words of an entry.
    pub const WORDS: usize = size_of::<FeatureEntry>() / size_of::<u64>();

    /// From its words in memory.
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let half = |at: usize| (words[3 + at / 2] >> (32 * (at % 2))) as u32;
        let packets = std::array::from_fn(half);
        FeatureEntry { key: [words[0], words[1]], bytes: words[2], packets, new_sources: half(PacketClass::COUNT) }
    }

    /// The address, or the first address of the prefix.
    pub fn address(&self) -> IpAddr {
        match self.key {
            [0, low] if low >> 32 == IPV4_MARK >> 32 => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
            [high, low] => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
        }
    }

    /// Packets of all classes.
    pub fn total(&self) -> u64 {
        self.packets.iter().map(|&packets| u64::from(packets)).sum()
    }

    /// Adds the counts of another entry.
    pub fn add(&mut self, other: &FeatureEntry) {
        self.bytes += other.bytes;
        self.new_sources = self.new_sources.saturating_add(other.new_sources);
        for (packets, more) in self.packets.iter_mut().zip(other.packets) {
            *packets = packets.saturating_add(more);
        }
    }
}

/// The bits of the lower half of a key that say that it is an IPv4 address: `FEATURE_IPV4`.
pub const IPV4_MARK: u64 = 0xffff_0000_0000;

/// What `observe` counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureShape {
    /// Number of entries for each direction.
    pub size: u32,
    /// Lengths of prefixes of IPv4 and IPv6 that are counted together.
    pub lengths: [u8; 2],
}

impl FeatureShape {
    /// Number of groups of a direction, a power of two.
    pub fn groups(&self) -> usize {
        (self.size as usize).div_ceil(GROUP).next_power_of_two()
    }

    /// Number of groups of a sheet.
    pub fn sheet_groups(&self) -> usize {
        SUM_GROUPS + 2 * self.groups()
    }

    /// Size of a sheet in bytes.
    pub fn sheet_bytes(&self) -> usize {
        self.sheet_groups() * GROUP * size_of::<FeatureEntry>()
    }

    /// The key of an address: its prefix.
    pub fn key(&self, is_ipv6: bool, address: u128) -> [u64; 2] {
        let [ipv4, ipv6] = self.masks();
        match is_ipv6 {
            true => [(address >> 64) as u64 & ipv6[0], address as u64 & ipv6[1]],
            false => [0, IPV4_MARK | u64::from(address as u32 & ipv4[1] as u32)],
        }
    }

    /// The masks of keys, for IPv4 and IPv6, each in halves.
    pub fn masks(&self) -> [[u64; 2]; 2] {
        let mask = |length: u8, bits: u32| match u32::from(length) {
            0 => 0,
            length => (u128::MAX >> (128 - bits)) & !(u128::MAX.checked_shr(128 - bits + length).unwrap_or(0)),
        };
        let halves = |mask: u128| [(mask >> 64) as u64, mask as u64];
        [halves(mask(self.lengths[0], 32)), halves(mask(self.lengths[1], 128))]
    }
}

/// The hash of a key: the group in the high half, the place in the group where a search begins in the lowest bits.
/// `feature_hash()` is the same in C.
pub fn hash(seed: u64, [high, low]: [u64; 2]) -> u64 {
    let mixed = (low ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_add(high ^ seed.rotate_left(32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

/// The group of a hash among `groups`, a power of two.
pub fn group_of(hash: u64, groups: usize) -> usize {
    (hash >> 32) as usize & (groups - 1)
}

/// What the sheets of all CPUs in the kernel share: `struct feature_head`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct FeatureHead {
    /// The sheet that is written: 0 or 1.
    pub selected: u64,
    /// The seed of hashes.
    pub seed: u64,
    /// Groups of a direction, less 1.
    pub mask: u64,
    /// Groups of a sheet.
    pub stride: u64,
    /// Number of CPUs. The first sheets of all CPUs come first.
    pub cpus: u64,
    zero: [u64; 3],
}

impl FeatureHead {
    /// A head whose first sheets are written.
    pub fn new(shape: &FeatureShape, seed: u64, cpus: usize) -> Self {
        let (mask, stride) = (shape.groups() as u64 - 1, shape.sheet_groups() as u64);
        FeatureHead { seed, mask, stride, cpus: cpus as u64, ..FeatureHead::default() }
    }

    /// In the order in which they lie in memory.
    pub fn words(self) -> [u64; size_of::<FeatureHead>() / size_of::<u64>()] {
        let FeatureHead { selected, seed, mask, stride, cpus, zero: [a, b, c] } = self;
        [selected, seed, mask, stride, cpus, a, b, c]
    }
}

const _: () = assert!(size_of::<FeatureEntry>() == 64 && size_of::<FeatureHead>() == 64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_prefixes() {
        let shape = FeatureShape { size: 64, lengths: [24, 48] };
        assert_eq!(shape.key(false, 0xc000_0201), [0, 0xffff_c000_0200]);
        assert_eq!(shape.key(true, u128::MAX), [0xffff_ffff_ffff_0000, 0]);
        let all = FeatureShape { size: 64, lengths: [32, 128] };
        assert_eq!((all.key(false, 0xc000_0201), all.key(true, 7)), ([0, 0xffff_c000_0201], [0, 7]));
        let none = FeatureShape { size: 64, lengths: [0, 64] };
        assert_eq!((none.key(false, 0xc000_0201), none.key(true, u128::MAX)), ([0, 0xffff_0000_0000], [u64::MAX, 0]));
    }

    #[test]
    fn an_entry_knows_its_address_and_is_read_as_it_is_written() {
        let shape = FeatureShape { size: 64, lengths: [32, 128] };
        let of =
            |is_ipv6, address| FeatureEntry { key: shape.key(is_ipv6, address), ..FeatureEntry::default() }.address();
        assert_eq!(of(false, 0xc000_0201).to_string(), "192.0.2.1");
        assert_eq!(of(true, 1 << 64 | 2).to_string(), "::1:0:0:0:2");
        let mut words = [1u64, 2, 3, 0, 0, 0, 0, 0];
        (0..5).for_each(|at| words[3 + at] = (2 * at as u64 + 10) | (2 * at as u64 + 11) << 32);
        let entry = FeatureEntry::from_words(words);
        assert_eq!((entry.key, entry.bytes, entry.new_sources), ([1, 2], 3, 19));
        assert_eq!(entry.packets, [10, 11, 12, 13, 14, 15, 16, 17, 18]);
    }

    #[test]
    fn groups_are_used_evenly() {
        let shape = FeatureShape { size: 1 << 12, lengths: [32, 128] };
        for is_ipv6 in [false, true] {
            let mut used = vec![0u32; shape.groups()];
            for address in 0..1 << 11 {
                let address = if is_ipv6 { 0x2001_0db8 << 96 | address << 64 } else { 0xc0a8_0000 + address };
                used[group_of(hash(REPLAY_SEED, shape.key(is_ipv6, address)), shape.groups())] += 1;
            }
            let beyond: u32 = used.iter().map(|&used| used.saturating_sub(GROUP as u32)).sum();
            assert!(beyond < 60, "{beyond} of 2048 in half full groups");
        }
    }
}
