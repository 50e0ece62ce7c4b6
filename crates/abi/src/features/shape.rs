//! Which cell of a sheet counts an address, and where the parts of a sheet begin.

use super::{GROUP, HEADS, IPV4_MARK, RECENTS, RECORDS, ZERO_KEY, whole_key};

/// Protected addresses whose prefixes have cells of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureRange {
    /// The family.
    pub is_ipv6: bool,
    /// The first address.
    pub first: u128,
    /// The last one.
    pub last: u128,
    /// The cell of the first prefix.
    pub place: u32,
}

/// What `observe` counts by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureShape {
    /// Number of cells for each direction.
    pub size: u32,
    /// Lengths of prefixes of IPv4 and IPv6 that are counted together.
    pub lengths: [u8; 2],
    /// Ranges whose prefixes have cells of their own; none if a hash selects the cells.
    pub ranges: Vec<FeatureRange>,
}

impl FeatureShape {
    /// The shape for at most `size` prefixes, a power of two. `inside` has the protected addresses of each family in
    /// order, as disjoint ranges; if there are none, all addresses are protected.
    pub fn new(size: u32, lengths: [u8; 2], inside: [&[(u128, u128)]; 2]) -> Self {
        let mut shape = FeatureShape { size, lengths, ranges: vec![] };
        if let Some((ranges, cells)) = shape.own_cells(inside) {
            (shape.ranges, shape.size) = (ranges, cells);
        }
        shape
    }

    /// Ranges with a cell for each prefix, and the number of cells; `None` if there are too many.
    fn own_cells(&self, inside: [&[(u128, u128)]; 2]) -> Option<(Vec<FeatureRange>, u32)> {
        let (mut ranges, mut cells) = (Vec::new(), 0u32);
        for (is_ipv6, of_family) in [false, true].into_iter().zip(inside) {
            let mut previous = None;
            for &(first, last) in of_family {
                // The keys of reserved addresses are also those of IPv4 addresses (RFC 4291).
                if is_ipv6 && first >> 120 == 0 {
                    return None;
                }
                // C shifts by less than the bits of an address.
                let shift = self.shift(is_ipv6).filter(|_| self.lengths[usize::from(is_ipv6)] > 0)?;
                // Ranges are disjoint, but two of them may be in one prefix.
                let shares = u32::from(previous == Some(first >> shift));
                let prefixes = u32::try_from((last >> shift) - (first >> shift)).ok()?.checked_add(1)?;
                ranges.push(FeatureRange { is_ipv6, first, last, place: cells - shares });
                cells = cells.checked_add(prefixes - shares).filter(|&cells| cells <= self.size)?;
                previous = Some(last >> shift);
            }
        }
        (cells > 0).then_some((ranges, cells))
    }

    /// Whether prefixes have cells of their own.
    pub fn is_direct(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// Bits of an address behind the prefix; `None` for all.
    fn shift(&self, is_ipv6: bool) -> Option<u32> {
        let bits = if is_ipv6 { 128 } else { 32 };
        Some(bits - u32::from(self.lengths[usize::from(is_ipv6)])).filter(|&shift| shift < 128)
    }

    /// The cell of an address, if prefixes have cells of their own.
    pub fn cell(&self, is_ipv6: bool, address: u128) -> Option<usize> {
        let inside = |range: &&FeatureRange| range.is_ipv6 == is_ipv6 && (range.first..=range.last).contains(&address);
        let range = self.ranges.iter().find(inside)?;
        let shift = self.shift(is_ipv6)?;
        Some(range.place as usize + ((address >> shift) - (range.first >> shift)) as usize)
    }

    /// The keys of the prefixes of a range, in the order of their cells.
    pub fn keys(&self, range: &FeatureRange) -> impl Iterator<Item = [u64; 2]> {
        let shift = self.shift(range.is_ipv6).expect("a range has a length");
        let [first, last] = [range.first, range.last].map(|address| address >> shift);
        let (is_ipv6, step, mut address) = (range.is_ipv6, 1 << shift, first << shift);
        // A million of them are read at a time: an addition is faster than a shift of 128 bits.
        (0..=(last - first) as u64).map(move |_| {
            let key = not_zero(whole_key(is_ipv6, address));
            address = address.wrapping_add(step);
            key
        })
    }

    /// Number of groups of a direction, a power of two; 0 if prefixes have cells of their own.
    pub fn groups(&self) -> usize {
        if self.is_direct() { 0 } else { self.size as usize / GROUP }
    }

    /// The element of the first cell of a direction.
    pub fn cells_at(&self, direction: usize) -> usize {
        HEADS + direction * self.size as usize
    }

    /// The element of the first group of keys.
    pub fn keys_at(&self, direction: usize) -> usize {
        HEADS + 2 * self.size as usize + direction * self.groups()
    }

    /// Number of elements of recent prefixes of a direction: an eighth of the number of cells, or 0 if prefixes have
    /// cells of their own.
    pub fn recents(&self) -> usize {
        if self.is_direct() { 0 } else { self.size as usize / RECENTS }
    }

    /// The first element of recent prefixes.
    pub fn recents_at(&self, direction: usize) -> usize {
        self.keys_at(2) + direction * self.recents()
    }

    /// The element of the first record.
    pub fn records_at(&self, direction: usize) -> usize {
        self.recents_at(2) + direction * RECORDS
    }

    /// Number of elements of a sheet.
    pub fn elements(&self) -> usize {
        self.records_at(2)
    }

    /// The key of an address: its prefix.
    pub fn key(&self, is_ipv6: bool, address: u128) -> [u64; 2] {
        let [ipv4, ipv6] = self.masks();
        let key = match is_ipv6 {
            true => [(address >> 64) as u64 & ipv6[0], address as u64 & ipv6[1]],
            false => [0, IPV4_MARK | u64::from(address as u32 & ipv4[1] as u32)],
        };
        not_zero(key)
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

/// A key, which is 0 only where there is none.
fn not_zero(key: [u64; 2]) -> [u64; 2] {
    if key == [0, 0] { ZERO_KEY } else { key }
}

#[cfg(test)]
mod tests {
    use super::super::{REPLAY_SEED, group_of, key_address};
    use super::*;

    fn hashed(size: u32, lengths: [u8; 2]) -> FeatureShape {
        FeatureShape::new(size, lengths, [&[], &[]])
    }

    #[test]
    fn keys_are_prefixes() {
        let shape = hashed(64, [24, 48]);
        assert_eq!(shape.key(false, 0xc000_0201), [0, 0xffff_c000_0200]);
        assert_eq!(shape.key(true, u128::MAX), [0xffff_ffff_ffff_0000, 0]);
        let all = hashed(64, [32, 128]);
        assert_eq!((all.key(false, 0xc000_0201), all.key(true, 7)), ([0, 0xffff_c000_0201], [0, 7]));
        let none = hashed(64, [0, 0]);
        assert_eq!((none.key(false, 0xc000_0201), none.key(true, u128::MAX)), ([0, IPV4_MARK], ZERO_KEY));
        assert_eq!(key_address(ZERO_KEY).to_string(), "::");
        assert_eq!(key_address([0, 0xffff_c000_0201]).to_string(), "192.0.2.1");
        assert_eq!(key_address([1, 2]).to_string(), "::1:0:0:0:2");
    }

    #[test]
    fn few_prefixes_have_cells_of_their_own() {
        let ipv4 = [(0xc000_0205u128, 0xc000_0206), (0xc000_0207, 0xc000_020a)];
        let ipv6 = [(0x20 << 120 | 1u128 << 64, 0x20 << 120 | ((3u128 << 64) - 1))];
        let shape = FeatureShape::new(64, [31, 64], [&ipv4, &ipv6]);
        // .4/31, .6/31, .8/31, .10/31, and .6/31 is in both ranges; then two prefixes of IPv6.
        assert_eq!((shape.size, shape.is_direct(), shape.groups()), (6, true, 0));
        for range in &shape.ranges {
            let keys: Vec<[u64; 2]> = shape.keys(range).collect();
            for address in [range.first, range.last] {
                let cell = shape.cell(range.is_ipv6, address).expect("it is inside");
                assert_eq!(keys[cell - range.place as usize], shape.key(range.is_ipv6, address), "{address:#x}");
            }
        }
        assert_eq!([0xc000_0206, 0xc000_0207].map(|address| shape.cell(false, address)), [Some(1); 2]);
        assert_eq!([shape.cell(false, 0xc000_0204), shape.cell(true, 0)], [None; 2]);
        assert!(!FeatureShape::new(64, [32, 128], [&[(0, 64)], &[]]).is_direct());
        assert!(!FeatureShape::new(64, [0, 128], [&[(0, 64)], &[]]).is_direct());
        assert!(!FeatureShape::new(64, [32, 64], [&[], &[(1 << 127, u128::MAX)]]).is_direct());
        assert!(!FeatureShape::new(64, [32, 64], [&[], &[(1 << 64, 1 << 65)]]).is_direct());
    }

    #[test]
    fn groups_are_used_evenly() {
        let shape = hashed(1 << 12, [32, 128]);
        for is_ipv6 in [false, true] {
            let mut used = vec![0u32; shape.groups()];
            for address in 0..1 << 10 {
                let address = if is_ipv6 { 0x2001_0db8 << 96 | address << 64 } else { 0xc0a8_0000 + address };
                used[group_of(REPLAY_SEED, shape.key(is_ipv6, address), shape.groups())] += 1;
            }
            let beyond: u32 = used.iter().map(|&used| used.saturating_sub(GROUP as u32)).sum();
            assert!(beyond < 15, "{beyond} of 1024 in groups of which a quarter is used");
        }
    }
}
