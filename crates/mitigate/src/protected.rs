//! Addresses that are protected: a set of prefixes, which may be a long list.

use crate::measure::Source;
use crate::prefix::Prefix;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A set of prefixes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Protected {
    prefixes: HashSet<Prefix>,
    /// Family and length of each kind of prefix that is there.
    lengths: Vec<(bool, u8)>,
}

impl Protected {
    /// The set of these prefixes.
    pub fn new(prefixes: Vec<Prefix>) -> Self {
        let mut lengths: Vec<(bool, u8)> = prefixes.iter().map(|prefix| (prefix.is_ipv6(), prefix.length())).collect();
        lengths.sort_unstable();
        lengths.dedup();
        Protected { prefixes: prefixes.into_iter().collect(), lengths }
    }

    /// Whether a protected address is in a prefix.
    pub fn is_in(&self, prefix: &Prefix) -> bool {
        self.contains((prefix.is_ipv6(), prefix.address())) || self.prefixes.iter().any(|one| prefix.covers(one))
    }

    /// Whether a prefix contains the source.
    pub fn contains(&self, (is_ipv6, address): Source) -> bool {
        let of_family = self.lengths.iter().filter(|(family, _)| *family == is_ipv6);
        of_family.into_iter().any(|&(_, length)| self.prefixes.contains(&Prefix::of(is_ipv6, address, length)))
    }
}

#[cfg(test)]
mod tests {
    use super::Protected;
    use crate::prefix::Prefix;

    #[test]
    fn a_prefix_protects_its_addresses_and_no_other() {
        let protected = Protected::new(vec![Prefix::of(false, 0x0a00_0000, 8), Prefix::of(false, 0xc000_0201, 32)]);
        let contains = |address| protected.contains((false, address));
        assert!(contains(0x0a01_0203) && contains(0xc000_0201));
        assert!(!contains(0x0b00_0000) && !contains(0xc000_0200) && !protected.contains((true, 0x0a00_0000)));
        assert!(!Protected::default().contains((false, 0)));
        let is_in = |address, length| protected.is_in(&Prefix::of(false, address, length));
        assert!(is_in(0xc000_0200, 24) && is_in(0x0a01_0200, 24) && !is_in(0xc000_0300, 24));
    }
}
