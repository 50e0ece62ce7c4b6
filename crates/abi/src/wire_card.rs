//! What the wire-side card shares with the engine that loads it: datapath/card/kernel_wire_card.h.

use std::net::IpAddr;

/// The family of IPv4 in a [`CardKey`]: `CARD_IPV4`.
pub const IPV4: u32 = 4;
/// The family of IPv6: `CARD_IPV6`.
pub const IPV6: u32 = 6;
/// The key of the device to the inner interface: `CARD_TO_INNER`.
pub const TO_INNER: u32 = 0;
/// The key of the device to the outer interface: `CARD_TO_OUTER`.
pub const TO_OUTER: u32 = 1;
/// Looks at the clock in the longest delay of the card's CPU: `CARD_SPINS_MAX`.
pub const SPINS_MAX: u32 = 4096;

/// A source: `struct card_key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CardKey {
    /// [`IPV4`] or [`IPV6`].
    pub family: u32,
    /// The source as in the packet. An IPv4 source is followed by zeros.
    pub address: [u8; 16],
}

impl CardKey {
    /// The key of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(four) => {
                let mut address = [0; 16];
                address[..4].copy_from_slice(&four.octets());
                CardKey { family: IPV4, address }
            }
            IpAddr::V6(six) => CardKey { family: IPV6, address: six.octets() },
        }
    }

    /// In the order in which it lies in memory.
    pub fn bytes(self) -> [u8; size_of::<CardKey>()] {
        let mut bytes = [0; size_of::<CardKey>()];
        bytes[..4].copy_from_slice(&self.family.to_ne_bytes());
        bytes[4..].copy_from_slice(&self.address);
        bytes
    }
}

/// What an entry of the card has dropped on one CPU: `struct card_count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CardCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
    /// The time of the last one, ns of CLOCK_MONOTONIC; 0 if there was none.
    pub last_ns: u64,
    /// Fills 32 bytes.
    pub zero: u64,
}

impl CardCount {
    /// Words of it.
    pub const WORDS: usize = size_of::<CardCount>() / size_of::<u64>();

    /// From words in the order in which they lie in memory.
    pub fn from_words([packets, bytes, last_ns, zero]: [u64; Self::WORDS]) -> Self {
        CardCount { packets, bytes, last_ns, zero }
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        let (packets, bytes) = (self.packets + other.packets, self.bytes + other.bytes);
        CardCount { packets, bytes, last_ns: self.last_ns.max(other.last_ns), zero: 0 }
    }

    /// What was counted since `before`, a sum of the same counters.
    pub fn since(self, before: Self) -> Self {
        let packets = self.packets.saturating_sub(before.packets);
        let bytes = self.bytes.saturating_sub(before.bytes);
        CardCount { packets, bytes, last_ns: self.last_ns, zero: 0 }
    }
}

const _: () = assert!(size_of::<CardKey>() == 20 && size_of::<CardCount>() == 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ipv4_differs_from_the_same_one_in_ipv6() {
        let four = CardKey::of(IpAddr::from([192, 0, 2, 1]));
        let six = CardKey::of("c000:201::".parse().expect("an address"));
        assert_eq!((four.address, four.family, six.family), (six.address, IPV4, IPV6));
        assert_eq!(four.bytes()[..8], [&4u32.to_ne_bytes()[..], &[192, 0, 2, 1]].concat());
    }

    #[test]
    fn the_last_packet_of_a_sum_is_the_later_one() {
        let one = CardCount { packets: 1, bytes: 60, last_ns: 7, zero: 0 };
        let two = CardCount { packets: 2, bytes: 120, last_ns: 5, zero: 0 };
        assert_eq!(one.plus(two), CardCount { packets: 3, bytes: 180, last_ns: 7, zero: 0 });
        assert_eq!(one.plus(two).since(one), CardCount { last_ns: 7, ..two });
    }
}
