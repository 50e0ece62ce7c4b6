//! The addresses that the entries of a table cover.

use std::net::IpAddr;

use crate::difference::outermost;
use crate::entries::{Prefixes, Table};
use crate::prefix::{Address, Prefix};

/// Addresses of one family, as disjoint ranges in order. An IPv4 address is in the low 32 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(Vec<(u128, u128)>);

impl Coverage {
    /// Whether a prefix has an address in common with these. It is of the same family.
    pub fn overlaps(&self, addr: IpAddr, len: u8) -> bool {
        let (addr, bits) = match addr {
            IpAddr::V4(addr) => (u128::from(u32::from(addr)), 32),
            IpAddr::V6(addr) => (addr.into(), 128),
        };
        let host_bits = 1u128.checked_shl(bits - u32::from(len)).map_or(u128::MAX, |end| end - 1);
        let (first, last) = (addr & !host_bits, addr | host_bits);
        let next = self.0.partition_point(|&(_, end)| end < first);
        self.0.get(next).is_some_and(|&(start, _)| start <= last)
    }
}

impl Table {
    /// The addresses that its entries cover.
    pub fn coverage(&self) -> Coverage {
        match &self.prefixes {
            Prefixes::V4(prefixes) => coverage(prefixes),
            Prefixes::V6(prefixes) => coverage(prefixes),
        }
    }
}

fn coverage<A: Address>(prefixes: &[Prefix<A>]) -> Coverage {
    Coverage(outermost(prefixes).map(|prefix| (prefix.addr.wide(), prefix.last().wide())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::{Entries, Kind};
    use weir_abi::Family;

    fn coverage_of(family: Family, entries: &[&str]) -> Coverage {
        let mut all = Entries::new(family, Kind::Set);
        entries.iter().for_each(|entry| all.insert_text(entry, None).expect("it is an entry"));
        all.settle().coverage()
    }

    #[test]
    fn prefixes_overlap_from_the_first_to_the_last_address() {
        let of4 = coverage_of(Family::Ipv4, &["192.0.2.0/28", "192.0.2.7", "198.51.100.7"]);
        let overlaps = |addr: [u8; 4], len| of4.overlaps(addr.into(), len);
        assert!(overlaps([192, 0, 2, 0], 32) && overlaps([192, 0, 2, 15], 32) && overlaps([192, 0, 2, 14], 31));
        assert!(!overlaps([192, 0, 1, 255], 32) && !overlaps([192, 0, 2, 16], 28));
        assert!(overlaps([198, 51, 100, 0], 24) && !overlaps([198, 51, 100, 8], 29) && overlaps([0; 4], 0));
        let of6 = coverage_of(Family::Ipv6, &["2001:db8::/32", "ffff::/16"]);
        let overlaps = |text: &str, len| of6.overlaps(text.parse().expect("it is an address"), len);
        assert!(overlaps("2001:db8:7::", 48) && overlaps("2001::", 16) && overlaps("::", 0));
        assert!(!overlaps("2001:db9::", 32) && overlaps("8000::", 1) && !overlaps("4000::", 2));
        assert!(!Coverage::default().overlaps([0; 4].into(), 0));
    }
}
