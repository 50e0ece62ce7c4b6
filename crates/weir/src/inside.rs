//! Prefixes of the protected network, on the command line.

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;
use weir_mitigate::prefix::Prefix;

/// A prefix of the protected network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inside {
    is_ipv6: bool,
    address: u128,
    /// The bits that all addresses share.
    mask: u128,
}

impl FromStr for Inside {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "a prefix such as 192.0.2.0/24 or 2001:db8::/32 is expected".to_owned();
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let (is_ipv6, address, bits) = match address.parse().map_err(|_| expected())? {
            IpAddr::V4(address) => (false, u128::from(address.to_bits()), 32),
            IpAddr::V6(address) => (true, address.to_bits(), 128),
        };
        let length: u32 = length.map_or(Ok(bits), str::parse).map_err(|_| expected())?;
        if length > bits {
            return Err(expected());
        }
        let mask = (u128::MAX >> (128 - bits)) & !(u128::MAX >> (128 - bits)).checked_shr(length).unwrap_or(0);
        if address & !mask != 0 {
            return Err(format!("bits behind the length of {length} are set"));
        }
        Ok(Inside { is_ipv6, address, mask })
    }
}

impl Display for Inside {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.prefix().fmt(f)
    }
}

impl Inside {
    /// The prefix for detection.
    pub fn prefix(&self) -> Prefix {
        let bits: u32 = if self.is_ipv6 { 128 } else { 32 };
        Prefix::of(self.is_ipv6, self.address, (bits.min(self.mask.count_ones())) as u8)
    }

    /// Whether an address is in the prefix.
    pub fn contains(&self, is_ipv6: bool, address: u128) -> bool {
        self.is_ipv6 == is_ipv6 && address & self.mask == self.address
    }
}

#[cfg(test)]
mod tests {
    use super::Inside;

    #[test]
    fn prefixes() {
        let read = |text: &str| text.parse::<Inside>();
        assert!(read("192.0.2.0/24").unwrap().contains(false, 0xc000_02ff));
        assert!(!read("192.0.2.0/24").unwrap().contains(false, 0xc000_0300));
        assert!(!read("192.0.2.0/24").unwrap().contains(true, 0xc000_02ff));
        assert!(read("0.0.0.0/0").unwrap().contains(false, 1));
        assert!(read("::/0").unwrap().contains(true, 1 << 127));
        assert!(read("2001:db8::/32").unwrap().contains(true, 0x2001_0db8 << 96 | 1));
        assert!(read("192.0.2.1").unwrap().contains(false, 0xc000_0201));
        assert!(!read("192.0.2.1").unwrap().contains(false, 0xc000_0200));
        assert_eq!(read("192.0.2.1/24").unwrap_err(), "bits behind the length of 24 are set");
        for wrong in ["", "192.0.2.0/33", "192.0.2.0/x", "::/129", "eth0"] {
            assert_eq!(read(wrong).unwrap_err(), "a prefix such as 192.0.2.0/24 or 2001:db8::/32 is expected");
        }
    }
}
