//! Counts the entries of a list like a person: every text that the standard library parses as an address is an entry,
//! wherever it is. This shares no code with the readers.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The meaning of two neighbouring addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Columns {
    /// Two entries.
    Single,
    /// The ends of a range, if separated by a comma.
    StartEnd,
}

/// An address or prefix in the text.
#[derive(Clone, Copy)]
struct Found {
    /// The address. IPv4 addresses are in the low bits.
    addr: u128,
    bits: u8,
    /// Prefix length.
    length: u8,
    start: usize,
    end: usize,
}

/// Number of different prefixes of a text. A range counts as the fewest prefixes that cover it.
pub fn entries(text: &str, columns: Columns) -> u64 {
    let found = find(text);
    let mut prefixes = BTreeSet::new();
    let mut at = 0;
    while let Some(one) = found.get(at) {
        let joined = |other: &&Found| {
            let between = text[one.end..other.start].trim_matches([' ', '\t']);
            let whole = one.length == one.bits && other.length == other.bits && one.bits == other.bits;
            let comma = columns == Columns::StartEnd && between.trim_matches('"').trim() == ",";
            whole && one.addr <= other.addr && (between == "-" || comma)
        };
        match found.get(at + 1).filter(joined) {
            Some(other) => {
                cover(&mut prefixes, one.addr, other.addr, one.bits);
                at += 2;
            }
            None => {
                let host = one.bits - one.length;
                let network = one.addr.checked_shr(host.into()).unwrap_or(0);
                prefixes.insert((one.bits, one.length, network));
                at += 1;
            }
        }
    }
    prefixes.len() as u64
}

/// All addresses, in order.
fn find(text: &str) -> Vec<Found> {
    let is_address = |c: char| c.is_ascii_hexdigit() || matches!(c, '.' | ':' | '/');
    let mut found = Vec::new();
    let mut start = 0;
    for part in text.split_inclusive(|c| !is_address(c)) {
        let word = part.trim_end_matches(|c| !is_address(c));
        found.extend(parse(word, start));
        start += part.len();
    }
    found
}

fn parse(word: &str, start: usize) -> Option<Found> {
    let (addr, length) = word.split_once('/').map_or((word, None), |(addr, length)| (addr, Some(length)));
    let (addr, bits) = match addr.parse().ok()? {
        IpAddr::V4(addr) => (u128::from(u32::from(addr)), 32),
        IpAddr::V6(addr) => (u128::from(addr), 128),
    };
    let length = match length {
        None => bits,
        Some(length) => length.parse().ok().filter(|length| *length <= bits)?,
    };
    Some(Found { addr, bits, length, start, end: start + word.len() })
}

/// Adds the largest block that starts at `first` and ends at or before `last`, until the range is covered.
fn cover(prefixes: &mut BTreeSet<(u8, u8, u128)>, first: u128, last: u128, bits: u8) {
    let mut next = Some(first).filter(|first| *first <= last);
    while let Some(first) = next {
        let fits = |host: &u8| {
            let mask = if *host == 128 { u128::MAX } else { (1u128 << host) - 1 };
            first & mask == 0 && first | mask <= last
        };
        let host = (0..=bits).rev().find(fits).expect("one address fits");
        prefixes.insert((bits, bits - host, first.checked_shr(host.into()).unwrap_or(0)));
        let mask = if host == 128 { u128::MAX } else { (1u128 << host) - 1 };
        next = (first | mask).checked_add(1).filter(|next| *next <= last);
    }
}

#[test]
fn entries_are_counted_by_hand() {
    assert_eq!(entries("# no\n1.2.3.4 x\n1.2.3.4\n10.0.0.0/8, 10.0.0.1;::1|::/0", Columns::Single), 5);
    assert_eq!(entries("10.0.0.1-10.0.0.4 10.0.0.9 - 10.0.0.9", Columns::Single), 4);
    assert_eq!(entries("\"10.0.0.0\",\"10.0.0.255\",HR", Columns::StartEnd), 1);
    assert_eq!(entries("10.0.0.0,10.0.0.255,HR", Columns::Single), 2);
}
