//! Prefixes of the protected network, and the levels at which traffic is counted.

use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A prefix. Bits behind its length are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Prefix {
    is_ipv6: bool,
    address: u128,
    length: u8,
}

/// How coarse a count is. An attack on many hosts shows only at a coarse level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// One address.
    Host,
    /// /24 or /64.
    Net,
    /// /16 or /48.
    Wide,
}

impl Level {
    /// All levels, the finest first.
    pub const ALL: [Level; 3] = [Level::Host, Level::Net, Level::Wide];

    /// The length of this level's prefixes.
    pub fn length(self, is_ipv6: bool) -> u8 {
        match (self, is_ipv6) {
            (Level::Host, false) => 32,
            (Level::Net, false) => 24,
            (Level::Wide, false) => 16,
            (Level::Host, true) => 128,
            (Level::Net, true) => 64,
            (Level::Wide, true) => 48,
        }
    }
}

impl Prefix {
    /// The prefix of a length that contains an address. A length above the length of the family's addresses means the
    /// whole address.
    pub fn of(is_ipv6: bool, address: u128, length: u8) -> Self {
        let bits: u8 = if is_ipv6 { 128 } else { 32 };
        let length = length.min(bits);
        let host_bits = u32::from(bits - length);
        Prefix {
            is_ipv6,
            address: address.checked_shr(host_bits).unwrap_or(0).checked_shl(host_bits).unwrap_or(0),
            length,
        }
    }

    /// The prefix of a level that contains an address.
    pub fn at(level: Level, is_ipv6: bool, address: u128) -> Self {
        Prefix::of(is_ipv6, address, level.length(is_ipv6))
    }

    /// Whether it contains an address.
    pub fn contains(&self, is_ipv6: bool, address: u128) -> bool {
        self.is_ipv6 == is_ipv6 && Prefix::of(is_ipv6, address, self.length).address == self.address
    }

    /// Whether it contains all addresses of another prefix.
    pub fn covers(&self, other: &Prefix) -> bool {
        self.length <= other.length && self.contains(other.is_ipv6, other.address)
    }

    /// Whether its addresses are IPv6 addresses.
    pub fn is_ipv6(&self) -> bool {
        self.is_ipv6
    }

    /// Its first address.
    pub fn address(&self) -> u128 {
        self.address
    }

    /// Its last address.
    pub fn last(&self) -> u128 {
        let host_bits = u32::from(Level::Host.length(self.is_ipv6) - self.length);
        self.address | u128::MAX.checked_shl(host_bits).map_or(u128::MAX, |mask| !mask)
    }

    /// Number of bits that its addresses share.
    pub fn length(&self) -> u8 {
        self.length
    }

    /// Whether it is one address.
    pub fn is_host(&self) -> bool {
        self.length == Level::Host.length(self.is_ipv6)
    }
}

impl Display for Prefix {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let address = match self.is_ipv6 {
            false => IpAddr::V4(Ipv4Addr::from(self.address as u32)),
            true => IpAddr::V6(Ipv6Addr::from(self.address)),
        };
        if self.is_host() { write!(f, "{address}") } else { write!(f, "{address}/{}", self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Level, Prefix};

    #[test]
    fn prefixes_contain_their_addresses() {
        let net = Prefix::at(Level::Net, false, 0xc000_02ff);
        assert_eq!(net.to_string(), "192.0.2.0/24");
        assert!(
            net.contains(false, 0xc000_0201) && !net.contains(false, 0xc000_0301) && !net.contains(true, 0xc000_0201)
        );
        assert!(
            Prefix::at(Level::Wide, false, 0xc000_02ff).covers(&net)
                && !net.covers(&Prefix::of(false, 0xc000_0200, 16))
        );
        assert_eq!(Prefix::of(false, 0xc000_02ff, 0).to_string(), "0.0.0.0/0");
        assert_eq!(Prefix::of(true, 1, 0).to_string(), "::/0");
        assert_eq!(Prefix::of(true, 1, 200).to_string(), "::1");
        assert_eq!((net.last(), Prefix::of(false, 7, 32).last()), (0xc000_02ff, 7));
        assert_eq!(Prefix::of(true, 1 << 64, 64).last(), (2 << 64) - 1);
        assert_eq!(Prefix::of(true, 1, 0).last(), u128::MAX);
    }
}
