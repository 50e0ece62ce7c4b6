//! Prefixes with exceptions: the longest prefix that contains an address decides.

use crate::condition::Range;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The addresses that are in an entry and whose longest prefix is no exception, as ranges.
pub fn cut_out(entries: &[Range], exceptions: &[Range], is_ipv6: bool) -> Vec<String> {
    let all: Vec<(Range, bool)> =
        entries.iter().map(|range| (*range, true)).chain(exceptions.iter().map(|range| (*range, false))).collect();
    // Where another prefix may begin to decide.
    let mut bounds: Vec<u128> =
        all.iter().flat_map(|((low, high), _)| [Some(*low), high.checked_add(1)]).flatten().collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut all = all;
    // Prefixes contain each other or are apart, so the innermost open one is the last that began.
    all.sort_by_key(|((low, high), _)| (*low, u128::MAX - (high - low)));
    let mut open: Vec<(Range, bool)> = Vec::new();
    let mut next = 0;
    let mut held: Vec<Range> = Vec::new();
    for (index, &bound) in bounds.iter().enumerate() {
        open.retain(|((_, high), _)| *high >= bound);
        while let Some(prefix) = all.get(next).filter(|((low, _), _)| *low == bound) {
            open.push(*prefix);
            next += 1;
        }
        let end = bounds.get(index + 1).map_or(u128::MAX, |end| end - 1);
        if let Some((_, true)) = open.last() {
            match held.last_mut() {
                Some(last) if last.1.checked_add(1) == Some(bound) => last.1 = end,
                _ => held.push((bound, end)),
            }
        }
    }
    held.into_iter().map(|range| shown(range, is_ipv6)).collect()
}

fn shown((low, high): Range, is_ipv6: bool) -> String {
    let address = |value: u128| match is_ipv6 {
        true => Ipv6Addr::from(value).to_string(),
        false => Ipv4Addr::from(value as u32).to_string(),
    };
    if low == high { address(low) } else { format!("{}-{}", address(low), address(high)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::address;

    #[test]
    fn the_longest_prefix_decides() {
        let range = |text: &str| address(text).expect("it is an address").0;
        let entries = [range("10.0.0.0/8"), range("10.1.2.0/24")];
        let exceptions = [range("10.1.0.0/16"), range("10.1.2.3")];
        let expected = ["10.0.0.0-10.0.255.255", "10.1.2.0-10.1.2.2", "10.1.2.4-10.1.2.255", "10.2.0.0-10.255.255.255"];
        assert_eq!(cut_out(&entries, &exceptions, false), expected);
    }
}
