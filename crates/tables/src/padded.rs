//! The forms of IPv4 addresses that lists have and that RFC 6943 (section 3.1.1) calls ambiguous: octets with leading
//! zeros, and netmasks in place of a prefix length.
//!
//! Some programs read `010` as eight (`inet_aton`), others as ten. An octet up to `007` is the same number in both, and
//! `08` or `019` cannot be octal. Of the other octets only the whole list says what they mean ([`Padding`]). Text that
//! can mean two things is refused. `docs/decisions/0063-one-reading.md` has the reasons.

use crate::problem::{PaddedOctet, Problem};

/// How octets with leading zeros are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Octets {
    /// Only octets that mean one number in every program.
    #[default]
    OneReading,
    /// Decimal, because the list shows that it pads decimal numbers.
    Decimal,
}

/// What a list shows about its octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Padding {
    /// An octet with a leading zero and a digit of 8 or 9.
    above_octal: bool,
    /// An octet of fewer than three digits.
    narrow: bool,
    /// An octet of three digits without a leading zero. Octal notation has a leading zero in each.
    full: bool,
}

impl Padding {
    /// Whether the list pads decimal numbers: an octet is no octal number, or all octets have three digits and some
    /// need all of them.
    pub fn is_decimal(self) -> bool {
        self.above_octal || self.full && !self.narrow
    }

    /// Adds what another part of the list shows.
    pub fn add(&mut self, other: Padding) {
        self.above_octal |= other.above_octal;
        self.narrow |= other.narrow;
        self.full |= other.full;
    }

    /// Adds the addresses of an element, as written.
    pub fn note(&mut self, element: &[u8]) {
        let of_element = element.split(|byte| *byte == b'-').filter_map(octets);
        for (octet, _) in of_element.flatten() {
            self.above_octal |= is_padded(octet) && octet.iter().any(|digit| *digit > b'7');
            self.narrow |= octet.len() < 3;
            self.full |= octet.len() == 3 && !is_padded(octet);
        }
    }
}

/// The four octets of an address at the start of the text, as written, each with the position behind it.
fn octets(text: &[u8]) -> Option<[(&[u8], usize); 4]> {
    let mut at = 0;
    let mut octets = [(&text[..0], 0); 4];
    for (index, octet) in octets.iter_mut().enumerate() {
        if index > 0 {
            if text.get(at) != Some(&b'.') {
                return None;
            }
            at += 1;
        }
        let digits = text[at..].iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=3).contains(&digits) {
            return None;
        }
        *octet = (&text[at..at + digits], at + digits);
        at += digits;
    }
    Some(octets)
}

fn number(digits: &[u8], radix: u32) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, radix).ok().filter(|number| *number <= 255)
}

/// Whether an octet has leading zeros.
fn is_padded(octet: &[u8]) -> bool {
    octet.len() > 1 && octet[0] == b'0'
}

/// Parses an address whose octets may have leading zeros. Returns it and the number of bytes that it takes.
#[cold]
pub(crate) fn take(text: &[u8], reading: Octets) -> Option<(u32, usize)> {
    let octets = octets(text)?;
    let mut address = 0;
    for (octet, _) in octets {
        let decimal = number(octet, 10)?;
        let one_reading = !is_padded(octet) || number(octet, 8).is_none_or(|octal| octal == decimal);
        if reading == Octets::OneReading && !one_reading {
            return None;
        }
        address = address << 8 | decimal;
    }
    Some((address, octets[3].1))
}

/// The first octet with leading zeros of an address at the start of the text, or of the address behind its `-`. Prefers
/// an octet with two readings.
#[cold]
pub(crate) fn octet(text: &[u8]) -> Option<PaddedOctet> {
    let first = octets(text)?;
    let behind = &text[first[3].1..];
    let last = behind.strip_prefix(b"-").and_then(octets);
    let padded = first.into_iter().chain(last.into_iter().flatten()).filter_map(|(octet, _)| {
        let decimal = number(octet, 10)?;
        let octal = number(octet, 8).filter(|octal| *octal != decimal);
        is_padded(octet).then(|| PaddedOctet { text: String::from_utf8_lossy(octet).into_owned(), decimal, octal })
    });
    let padded: Vec<PaddedOctet> = padded.collect();
    padded.iter().find(|octet| octet.octal.is_some()).or(padded.first()).cloned()
}

/// Parses a netmask at `at`, behind an address and `/`. `None` if there is no dotted quad. Returns the length of the
/// prefix and the position behind the mask.
///
/// `0.0.0.0` may be a netmask, which holds for every address, or a wildcard mask, which holds for one. Both readings of
/// `0.0.0.0/255.255.255.255` exist too.
#[cold]
pub(crate) fn netmask(text: &[u8], at: usize, address: u32) -> Option<Result<(u8, usize), Problem>> {
    let quad = octets(&text[at..])?;
    let end = at + quad[3].1;
    let shown = || String::from_utf8_lossy(&text[at..end]).into_owned();
    let mut mask: u32 = 0;
    for (octet, _) in quad {
        if is_padded(octet) {
            return Some(Err(Problem::NoNetmask(shown())));
        }
        mask = mask << 8 | number(octet, 10)?;
    }
    let length = mask.leading_ones();
    Some(match mask {
        0 => Err(Problem::TwoMasks(shown())),
        u32::MAX if address == 0 => Err(Problem::TwoMasks(shown())),
        _ if mask.count_ones() == length => Ok((length as u8, end)),
        _ if (!mask).count_ones() == (!mask).leading_ones() => {
            Err(Problem::Wildcard { mask: shown(), length: (!mask).leading_ones() as u8 })
        }
        _ => Err(Problem::NoNetmask(shown())),
    })
}

/// Whether an address is a netmask that is certainly not the last address of a range that begins at `first`.
pub(crate) fn is_mask_of(first: u32, mask: u32) -> bool {
    let ones = mask.leading_ones();
    ones >= 8 && mask != u32::MAX && mask.count_ones() == ones && first & !mask == 0 && first < mask
}
