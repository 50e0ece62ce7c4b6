//! Addresses and prefixes of both families, and their text forms: address, CIDR and `a-b` range.
//!
//! Text is parsed from bytes without allocation, because lists have a million lines. The strict forms of RFC 4291 and
//! dotted decimal without leading zeros are parsed here. [`crate::padded`] has the other forms of lists.

use std::fmt;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use weir_abi::Family;

use crate::padded::{self, Octets};
use crate::problem::Problem;

/// An address as a number in host byte order: `u32` for IPv4, `u128` for IPv6.
pub trait Address: Copy + Ord + Hash + fmt::Debug + Send + Sync + 'static {
    /// The family.
    const FAMILY: Family;
    /// The lowest address.
    const ZERO: Self;
    /// The highest address.
    const MAX: Self;
    /// The sort key of prefixes. It compares faster than a tuple where it fits a register.
    type Order: Ord + Copy;

    /// A mask of the bits after a prefix of `len` bits, `len <= FAMILY.bits()`.
    fn host_mask(len: u8) -> Self;
    /// `self & !mask`.
    fn without(self, mask: Self) -> Self;
    /// `self | mask`.
    fn with(self, mask: Self) -> Self;
    /// The next address; `None` after the highest.
    fn next(self) -> Option<Self>;
    /// The previous address. `self` is not the lowest.
    fn before(self) -> Self;
    /// The address as a 128-bit number.
    fn wide(self) -> u128;
    /// Number of zero bits at the low end.
    fn trailing_zeros(self) -> u8;
    /// log2 of the largest power of two that is at most `last - self + 1`, for `self <= last`.
    fn block_bits(self, last: Self) -> u8;
    /// Sort key by address, then from the shorter to the longer prefix.
    fn order(self, len: u8) -> Self::Order;
    /// Parses an address at the start of `text`. Returns it and the number of bytes that it takes.
    fn take(text: &[u8]) -> Option<(Self, usize)>;
    /// Parses like [`Address::take`]; octets may have leading zeros.
    fn take_padded(text: &[u8], octets: Octets) -> Option<(Self, usize)>;
}

impl Address for u32 {
    const FAMILY: Family = Family::Ipv4;
    const ZERO: Self = 0;
    const MAX: Self = u32::MAX;
    type Order = u64;

    #[inline]
    fn host_mask(len: u8) -> Self {
        u32::MAX.checked_shr(u32::from(len)).unwrap_or(0)
    }
    #[inline]
    fn without(self, mask: Self) -> Self {
        self & !mask
    }
    #[inline]
    fn with(self, mask: Self) -> Self {
        self | mask
    }
    #[inline]
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn before(self) -> Self {
        self - 1
    }
    fn wide(self) -> u128 {
        self.into()
    }
    #[inline]
    fn trailing_zeros(self) -> u8 {
        u32::trailing_zeros(self) as u8
    }
    #[inline]
    fn block_bits(self, last: Self) -> u8 {
        (u64::from(last - self) + 1).ilog2() as u8
    }
    #[inline]
    fn order(self, len: u8) -> u64 {
        u64::from(self) << 8 | u64::from(len)
    }

    #[inline]
    fn take(text: &[u8]) -> Option<(Self, usize)> {
        let mut addr = 0;
        let mut at = 0;
        for octet in 0..4 {
            if octet > 0 {
                if text.get(at) != Some(&b'.') {
                    return None;
                }
                at += 1;
            }
            let mut value = digit(text, at)?;
            at += 1;
            // A zero must stand alone: a digit after it is not a dot and is refused.
            while value != 0
                && let Some(next) = digit(text, at)
            {
                value = value * 10 + next;
                if value > 255 {
                    return None;
                }
                at += 1;
            }
            addr = addr << 8 | value;
        }
        Some((addr, at))
    }

    fn take_padded(text: &[u8], octets: Octets) -> Option<(Self, usize)> {
        padded::take(text, octets)
    }
}

impl Address for u128 {
    const FAMILY: Family = Family::Ipv6;
    const ZERO: Self = 0;
    const MAX: Self = u128::MAX;
    type Order = (u128, u8);

    #[inline]
    fn host_mask(len: u8) -> Self {
        u128::MAX.checked_shr(u32::from(len)).unwrap_or(0)
    }
    #[inline]
    fn without(self, mask: Self) -> Self {
        self & !mask
    }
    #[inline]
    fn with(self, mask: Self) -> Self {
        self | mask
    }
    #[inline]
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn before(self) -> Self {
        self - 1
    }
    fn wide(self) -> u128 {
        self
    }
    #[inline]
    fn trailing_zeros(self) -> u8 {
        u128::trailing_zeros(self) as u8
    }
    #[inline]
    fn block_bits(self, last: Self) -> u8 {
        (last - self).checked_add(1).map_or(128, |size| size.ilog2() as u8)
    }
    #[inline]
    fn order(self, len: u8) -> (u128, u8) {
        (self, len)
    }

    fn take(text: &[u8]) -> Option<(Self, usize)> {
        /// Characters of the longest text form, `ffff:` six times and a dotted quad.
        const TEXT_MAX: usize = 45;
        let taken = |byte: &&u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        let len = text.iter().take(TEXT_MAX + 1).take_while(taken).count();
        let addr: Ipv6Addr = std::str::from_utf8(&text[..len]).ok()?.parse().ok()?;
        Some((addr.into(), len))
    }

    fn take_padded(text: &[u8], _: Octets) -> Option<(Self, usize)> {
        Self::take(text)
    }
}

#[inline]
fn digit(text: &[u8], at: usize) -> Option<u32> {
    let value = text.get(at)?.wrapping_sub(b'0');
    (value < 10).then_some(u32::from(value))
}

/// A prefix and its label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix<A> {
    /// Its lowest address: no bit after `len` is set.
    pub addr: A,
    /// Number of significant bits, from 0 (the default route) to 32 or 128.
    pub len: u8,
    /// Label id in `1..=labels`; 1 in a set.
    pub label: u32,
}

/// An IPv4 prefix.
pub type Prefix4 = Prefix<u32>;
/// An IPv6 prefix.
pub type Prefix6 = Prefix<u128>;

impl<A: Address> Prefix<A> {
    /// The prefix of `len` bits around `addr`, with host bits cleared. `len` is at most the family's bits.
    #[inline]
    pub fn new(addr: A, len: u8, label: u32) -> Self {
        Prefix { addr: addr.without(A::host_mask(len)), len, label }
    }

    /// The highest address in it.
    #[inline]
    pub fn last(&self) -> A {
        self.addr.with(A::host_mask(self.len))
    }
}

impl fmt::Display for Prefix4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.addr), self.len)
    }
}

impl fmt::Display for Prefix6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from(self.addr), self.len)
    }
}

/// One element of a list: a prefix or a range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<A> {
    /// A CIDR prefix, or an address (all bits significant). `addr` may have host bits set.
    Prefix {
        /// The address as written.
        addr: A,
        /// Number of significant bits.
        len: u8,
    },
    /// First and last address, in order.
    Range(A, A),
}

impl<A: Address> Element<A> {
    /// Parses an element at the start of `text`. Returns it and the number of bytes that it takes.
    ///
    /// # Errors
    /// The text up to the next blank or comma is not an element, or is a prefix with host bits; the error says why.
    #[inline]
    pub fn take(text: &[u8]) -> Result<(Self, usize), Problem> {
        Self::take_by(text, A::take).and_then(without_host_bits)
    }

    /// Parses like [`Element::take`], and reads octets with leading zeros as `octets` says.
    ///
    /// # Errors
    /// As for [`Element::take`].
    #[inline]
    pub(crate) fn take_padded(text: &[u8], octets: Octets) -> Result<(Self, usize), Problem> {
        match Self::take(text) {
            Err(Problem::PaddedOctet(_)) => {
                Self::take_by(text, |text| A::take_padded(text, octets)).and_then(without_host_bits)
            }
            result => result,
        }
    }

    /// Parses like [`Element::take`], with host bits as they are written.
    pub(crate) fn take_as_written(text: &[u8]) -> Result<(Self, usize), Problem> {
        Self::take_by(text, A::take)
    }

    #[inline]
    fn take_by(text: &[u8], address: impl Fn(&[u8]) -> Option<(A, usize)>) -> Result<(Self, usize), Problem> {
        let Some((addr, at)) = address(text) else { return Err(diagnose::<A>(text)) };
        let (element, at) = match text.get(at) {
            Some(b'/') => {
                let (len, at) = take_length::<A>(text, at + 1, addr)?;
                (Element::Prefix { addr, len }, at)
            }
            Some(b'-') => {
                let Some((last, taken)) = address(&text[at + 1..]) else { return Err(diagnose::<A>(&text[at + 1..])) };
                (Element::range(addr, last)?, at + 1 + taken)
            }
            _ => (Element::Prefix { addr, len: A::FAMILY.bits() }, at),
        };
        match text.get(at) {
            None | Some(b' ' | b'\t' | b'\r' | b',' | b';' | b'#') => Ok((element, at)),
            Some(_) => Err(diagnose::<A>(text)),
        }
    }

    /// The range from `first` to `last`.
    pub(crate) fn range(first: A, last: A) -> Result<Self, Problem> {
        if first <= last { Ok(Element::Range(first, last)) } else { Err(Problem::RangeBackwards) }
    }

    /// The first and the last address.
    #[inline]
    pub fn ends(&self) -> (A, A) {
        match *self {
            Element::Prefix { addr, len } => (addr.without(A::host_mask(len)), addr.with(A::host_mask(len))),
            Element::Range(first, last) => (first, last),
        }
    }

    /// Calls `push` with the fewest prefixes that cover the element exactly, lowest first.
    #[inline]
    pub fn prefixes(self, label: u32, mut push: impl FnMut(Prefix<A>)) {
        match self {
            Element::Prefix { addr, len } => push(Prefix::new(addr, len, label)),
            Element::Range(first, last) => {
                let mut first = first;
                loop {
                    let bits = first.trailing_zeros().min(first.block_bits(last)).min(A::FAMILY.bits());
                    let prefix = Prefix::new(first, A::FAMILY.bits() - bits, label);
                    push(prefix);
                    match prefix.last().next() {
                        Some(next) if next <= last => first = next,
                        _ => break,
                    }
                }
            }
        }
    }

    /// Number of prefixes that cover the element exactly.
    pub fn prefix_count(&self) -> usize {
        let mut count = 0;
        self.prefixes(0, |_| count += 1);
        count
    }

    /// Whether a prefix is written with host bits set.
    #[inline]
    pub fn has_host_bits(&self) -> bool {
        matches!(*self, Element::Prefix { addr, len } if addr.without(A::host_mask(len)) != addr)
    }
}

/// Refuses a prefix with host bits: it may mean the prefix or the one address.
#[inline]
fn without_host_bits<A: Address>((element, taken): (Element<A>, usize)) -> Result<(Element<A>, usize), Problem> {
    match element {
        Element::Prefix { addr, len } if element.has_host_bits() => Err(host_bits(addr, len)),
        _ => Ok((element, taken)),
    }
}

#[cold]
fn host_bits<A: Address>(addr: A, len: u8) -> Problem {
    let network = format!("{}/{len}", shown(addr.without(A::host_mask(len))));
    Problem::HostBits { network, address: shown(addr) }
}

/// An address as text.
fn shown<A: Address>(addr: A) -> String {
    match A::FAMILY {
        Family::Ipv4 => Ipv4Addr::from(addr.wide() as u32).to_string(),
        Family::Ipv6 => Ipv6Addr::from(addr.wide()).to_string(),
    }
}

/// Parses a prefix length at `at`: decimal, without sign, at most three digits, or a netmask of IPv4.
#[inline]
fn take_length<A: Address>(text: &[u8], at: usize, addr: A) -> Result<(u8, usize), Problem> {
    let mut value = digit(text, at).ok_or(Problem::NoLength)?;
    let mut end = at + 1;
    while let Some(next) = digit(text, end) {
        value = value * 10 + next;
        end += 1;
        if value > u32::from(A::FAMILY.bits()) {
            return netmask(text, at, addr).unwrap_or(Err(Problem::LongLength(A::FAMILY)));
        }
    }
    if text.get(end) == Some(&b'.')
        && let Some(mask) = netmask(text, at, addr)
    {
        return mask;
    }
    Ok((value as u8, end))
}

/// Parses a netmask of IPv4 at `at`, behind `addr/`.
fn netmask<A: Address>(text: &[u8], at: usize, addr: A) -> Option<Result<(u8, usize), Problem>> {
    match A::FAMILY {
        Family::Ipv4 => padded::netmask(text, at, addr.wide() as u32),
        Family::Ipv6 => None,
    }
}

/// Explains why `text` does not start with an element.
#[cold]
fn diagnose<A: Address>(text: &[u8]) -> Problem {
    let other = match A::FAMILY {
        Family::Ipv4 => <u128 as Address>::take(text).map(|_| Family::Ipv6),
        Family::Ipv6 => <u32 as Address>::take(text).map(|_| Family::Ipv4),
    };
    match (other, A::FAMILY, padded::octet(text)) {
        (Some(_), ..) => Problem::OtherFamily(A::FAMILY),
        (None, Family::Ipv4, Some(octet)) => Problem::PaddedOctet(octet),
        (None, ..) => Problem::NotAnAddress(A::FAMILY),
    }
}
