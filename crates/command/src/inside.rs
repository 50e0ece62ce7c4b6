//! Prefixes of the protected network, on the command line.

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::str::FromStr;
use weir_mitigate::prefix::Prefix;
use weir_policy::ir::ValueSet;

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
            let network = Inside { is_ipv6, address: address & mask, mask };
            let one = Inside { is_ipv6, address, mask: u128::MAX >> (128 - bits) };
            return Err(format!(
                "bits behind the length of {length} are set: write `{network}` for the network, or `{one}` for the one \
                 address"
            ));
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
    /// The prefixes that cover sets of IPv4 and IPv6 addresses, and nothing else.
    pub fn of_sets([ipv4, ipv6]: &[ValueSet; 2]) -> Vec<Self> {
        let of = |is_ipv6: bool, set: &ValueSet| {
            let ranges = set.ranges().iter();
            ranges.flat_map(|&(first, last)| of_range(is_ipv6, first, last)).collect::<Vec<_>>()
        };
        [of(false, ipv4), of(true, ipv6)].concat()
    }

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

/// The prefixes that cover a range: each is the largest that begins where the one before it ends.
fn of_range(is_ipv6: bool, mut first: u128, last: u128) -> Vec<Inside> {
    let bits: u32 = if is_ipv6 { 128 } else { 32 };
    let mut prefixes = Vec::new();
    loop {
        let is_within = |host_bits: &u32| match 1u128.checked_shl(*host_bits) {
            Some(size) => first.is_multiple_of(size) && size - 1 <= last - first,
            None => first == 0 && last == u128::MAX,
        };
        let host_bits = (0..=bits).rev().find(is_within).unwrap_or(0);
        let hosts = 1u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
        prefixes.push(Inside { is_ipv6, address: first, mask: (u128::MAX >> (128 - bits)) & !hosts });
        match (first + hosts).checked_add(1).filter(|next| *next <= last) {
            Some(next) => first = next,
            None => return prefixes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Inside;
    use weir_policy::ir::ValueSet;

    #[test]
    fn sets_are_covered_exactly() {
        let of = |ipv4: &[(u128, u128)], ipv6: &[(u128, u128)]| {
            let sets = [ipv4, ipv6].map(|ranges| ValueSet::new(ranges.iter().copied()));
            Inside::of_sets(&sets).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(0xc000_0200, 0xc000_02ff)], &[]), ["192.0.2.0/24"]);
        assert_eq!(of(&[(0xc000_0201, 0xc000_0204)], &[]), ["192.0.2.1", "192.0.2.2/31", "192.0.2.4"]);
        assert_eq!(of(&[(0, 0xffff_ffff)], &[(0, u128::MAX)]), ["0.0.0.0/0", "::/0"]);
        assert_eq!(of(&[], &[(0x2001_0db8 << 96, (0x2001_0db9 << 96) - 1)]), ["2001:db8::/32"]);
        assert_eq!(of(&[(0xffff_ffff, 0xffff_ffff)], &[(u128::MAX, u128::MAX)]).len(), 2);
    }

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
        assert_eq!(
            read("192.0.2.1/24").unwrap_err(),
            "bits behind the length of 24 are set: write `192.0.2.0/24` for the network, or `192.0.2.1` for the one address"
        );
        assert!(
            read("2001:db8::1/64").unwrap_err().contains("write `2001:db8::/64` for the network, or `2001:db8::1` for")
        );
        for wrong in ["", "192.0.2.0/33", "192.0.2.0/x", "::/129", "eth0"] {
            assert_eq!(read(wrong).unwrap_err(), "a prefix such as 192.0.2.0/24 or 2001:db8::/32 is expected");
        }
    }
}
