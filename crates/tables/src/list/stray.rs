//! Checks the text beside an entry. Such text is ignored, but an address in it is refused: it would silently be missing
//! from the table.

use std::net::Ipv6Addr;

use crate::prefix::{Address, Element};
use crate::problem::Problem;

/// Refuses characters that other programs treat as line ends or that are invisible. The lines after them would be lost.
pub(crate) fn check_characters(text: &[u8]) -> Result<(), Problem> {
    let is_control = |byte: &u8| *byte < b' ' && *byte != b'\t';
    // NEL, LINE SEPARATOR, PARAGRAPH SEPARATOR.
    let separators = |part: &[u8]| part.starts_with(b"\xc2\x85") || matches!(part, [0xe2, 0x80, 0xa8 | 0xa9, ..]);
    let has_separator = || (0..text.len()).any(|at| text[at] >= 0x80 && separators(&text[at..]));
    match text.iter().any(is_control) || has_separator() {
        true => Err(Problem::Control),
        false => Ok(()),
    }
}

/// Whether the text contains an address.
pub(crate) fn names_address(text: &[u8]) -> bool {
    dotted(text).next().is_some() || colons(text).next().is_some()
}

/// Whether the text contains an address that the element does not hold.
pub(crate) fn names_another<A: Address>(text: &[u8], element: &Element<A>) -> bool {
    let is_other = |at: usize| !holds(element, &text[at..]);
    dotted(text).any(is_other) || colons(text).any(is_other)
}

/// Whether the element holds the address at the start of the text.
fn holds<A: Address>(element: &Element<A>, text: &[u8]) -> bool {
    let other = match (Element::<A>::take_as_written(text), A::take(text)) {
        (Ok((other, _)), _) => other,
        (Err(_), Some((addr, end))) if !matches!(text[end..], [b'/' | b'-', b'0'..=b'9', ..]) => {
            Element::Prefix { addr, len: A::FAMILY.bits() }
        }
        _ => return false,
    };
    let ((first, last), (other_first, other_last)) = (element.ends(), other.ends());
    first <= other_first && other_last <= last
}

/// Positions of what looks like an IPv4 address: four groups of up to three digits, each small enough to be a mistyped
/// octet.
///
/// A part of a longer dotted name does not count: `4.3.2.1.in-addr.arpa`.
fn dotted(text: &[u8]) -> impl Iterator<Item = usize> {
    let is_part = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    runs(text, is_part).filter_map(move |(start, end)| {
        let dots = text[start..end].iter().take_while(|byte| **byte == b'.').count();
        let run = text[start..end].trim_ascii();
        let of_name = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let name_before = dots == 1 && of_name(start.checked_sub(1).and_then(|before| text.get(before)));
        let name_after = run.ends_with(b".") && of_name(text.get(end));
        let mut groups = 0;
        let mut sized = true;
        for group in text[start + dots..end].split(|byte| *byte == b'.').filter(|group| !group.is_empty()) {
            groups += 1;
            sized &= group.len() <= 3;
        }
        (groups == 4 && sized && !name_before && !name_after).then_some(start + dots)
    })
}

/// Positions of IPv6 addresses.
fn colons(text: &[u8]) -> impl Iterator<Item = usize> {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    runs(text, is_part).filter_map(|(start, end)| {
        let run = std::str::from_utf8(&text[start..end]).ok()?;
        let is_address = |run: &str| run.parse::<Ipv6Addr>().is_ok();
        let run = run.trim_end_matches('.');
        let found = run.contains(':') && (is_address(run) || is_address(run.strip_suffix(':').unwrap_or(run)));
        found.then_some(start)
    })
}

/// The longest runs of bytes that satisfy `is_part`, as start and end.
fn runs(text: &[u8], is_part: impl Fn(u8) -> bool) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].iter().position(|byte| is_part(*byte))?;
        let length = text[start..].iter().position(|byte| !is_part(*byte)).unwrap_or(text.len() - start);
        at = start + length;
        Some((start, at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_in_text_are_found() {
        for text in [
            "1.2.3.4",
            "x 1.2.3.4",
            "[1.2.3.4]:80",
            "src:1.2.3.4",
            "see 1.2.3.4.",
            "1.2.3.256",
            "01.2.3.4",
            "v1.2.3.4",
            "...1.2.3.4",
            "::1",
            "2001:db8::1",
            "2001:db8::/32",
            "(fe80::1%eth0)",
            "::ffff:1.2.3.4",
            "2001:db8::1:",
            "at 2001:db8::1.",
        ] {
            assert!(names_address(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "12",
            "1.2.3",
            "1.2.3.4.5",
            "12:30:45",
            "00:11:22:33:44:55",
            "4.3.2.1.in-addr.arpa",
            "static.4.3.2.1.example.net",
            "10.0.19041.1",
            "120.0.6099.109",
            "a b",
            "SBL1",
            "http://example.net/x:y",
            "1...2",
        ] {
            assert!(!names_address(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_the_entry_holds_is_no_other() {
        let element = Element::<u32>::take(b"10.0.0.0/24").unwrap().0;
        for (text, other) in [
            ("10.0.0.255", false),
            ("http://10.0.0.7/x", false),
            ("10.0.0.0-10.0.0.9", false),
            ("10.0.0.128/25.", true),
            ("10.0.0.0/8", true),
            ("10.0.0.0-10.0.1.9", true),
            ("10.0.1.0", true),
            ("10.0.0.256", true),
            ("2001:db8::1", true),
        ] {
            assert_eq!(names_another(text.as_bytes(), &element), other, "{text}");
        }
    }

    #[test]
    fn characters_that_hide_lines() {
        for bad in ["\0", "\u{b}", "\u{c}", "\r", "\u{1b}[0m", "\u{85}", "\u{2028}", "x\u{2029}y"] {
            assert_eq!(check_characters(bad.as_bytes()), Err(Problem::Control), "{bad:?}");
        }
        for good in ["", "a\tb", "Šibenik", "\u{feff}", "ü“"] {
            assert_eq!(check_characters(good.as_bytes()), Ok(()), "{good:?}");
        }
    }
}
