//! What a bundle's code counts of the packets that pass, as its manifest says it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_abi::FeatureShape;
use weir_abi::features::{RANGES_MAX, SIZE_MAX, SIZE_MIN, key_address, whole_key};

/// A [`FeatureShape`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BundledFeatures {
    /// Number of cells.
    size: u32,
    /// Lengths of prefixes of IPv4 and IPv6.
    lengths: [u8; 2],
    /// Ranges whose prefixes have cells of their own, of IPv4, then of IPv6: the first and the last address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<[IpAddr; 2]>,
}

impl BundledFeatures {
    pub(super) fn of(shape: &FeatureShape) -> Self {
        let address = |is_ipv6: bool, address: u128| key_address(whole_key(is_ipv6, address));
        let ranges = shape.ranges.iter();
        let ranges = ranges.map(|range| [range.first, range.last].map(|of| address(range.is_ipv6, of))).collect();
        BundledFeatures { size: shape.size, lengths: shape.lengths, ranges }
    }

    /// The shape, if compiled code can have it.
    pub(super) fn shape(&self) -> Result<FeatureShape, String> {
        let BundledFeatures { size, lengths, ranges } = self;
        let mut inside = [vec![], vec![]];
        for range in ranges {
            let [first, last] = range.map(|address| match address {
                IpAddr::V4(address) => address.to_bits().into(),
                IpAddr::V6(address) => address.to_bits(),
            });
            inside[usize::from(range[0].is_ipv6())].push((first, last));
        }
        let is_ordered = |ranges: &Vec<(u128, u128)>| {
            ranges.len() <= RANGES_MAX
                && ranges.iter().all(|(first, last)| first <= last)
                && ranges.windows(2).all(|pair| pair[0].1 < pair[1].0)
        };
        let is_possible = (1..=SIZE_MAX).contains(size)
            && lengths[0] <= 32
            && lengths[1] <= 128
            && ranges.iter().all(|[first, last]| first.is_ipv6() == last.is_ipv6())
            && inside.iter().all(is_ordered);
        let shape = is_possible.then(|| FeatureShape::new(SIZE_MAX, *lengths, inside.each_ref().map(Vec::as_slice)));
        let shape = match shape {
            Some(shape) if shape.is_direct() => (shape.size == *size).then_some(shape),
            Some(shape) if ranges.is_empty() => {
                (size.is_power_of_two() && *size >= SIZE_MIN).then_some(FeatureShape { size: *size, ..shape })
            }
            _ => None,
        };
        let [ipv4, ipv6] = lengths;
        shape.ok_or_else(|| format!("features of {size} prefixes of {ipv4} and {ipv6} bits are not possible"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_read_as_it_is_written() {
        let own = FeatureShape::new(64, [31, 64], [&[(0xc000_0200, 0xc000_020f)], &[(1 << 125, (1 << 125) + 7)]]);
        for shape in [own, FeatureShape::new(128, [32, 128], [&[], &[]])] {
            let text = serde_json::to_string(&BundledFeatures::of(&shape)).expect("it can be written");
            let read: BundledFeatures = serde_json::from_str(&text).expect("it can be read");
            assert_eq!(read.shape(), Ok(shape));
        }
    }

    #[test]
    fn what_code_cannot_have_is_refused() {
        for text in [
            r#"{"size": 63, "lengths": [32, 128]}"#,
            r#"{"size": 64, "lengths": [33, 128]}"#,
            r#"{"size": 64, "lengths": [32, 128], "ranges": [["192.0.2.1", "192.0.2.2"]]}"#,
            r#"{"size": 2, "lengths": [32, 128], "ranges": [["192.0.2.2", "192.0.2.1"]]}"#,
            r#"{"size": 2, "lengths": [32, 128], "ranges": [["192.0.2.1", "2001:db8::"]]}"#,
        ] {
            let read: BundledFeatures = serde_json::from_str(text).expect("it can be read");
            assert!(read.shape().is_err(), "{text}");
        }
    }
}
