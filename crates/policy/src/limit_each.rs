//! `limit each`: a limit for each address, or for each prefix, that no list names.

use crate::field::Field;
use weir_abi::{Limit, seats};

/// What each address may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EachLimit {
    /// A rate, with a burst that [`weir_abi::each::profile`] accepts.
    Rate(Limit),
    /// The number of connections that it may hold, 1 to [`weir_abi::seats::SEATS_MAX`].
    Connections(u16),
}

/// `50pps burst 10packets`, `connections 20`
impl std::fmt::Display for EachLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EachLimit::Rate(limit) => write!(f, "{limit}"),
            EachLimit::Connections(number) => write!(f, "connections {number}"),
        }
    }
}

/// A limit for each address, in a table of bounded size ([`weir_abi::each`], [`weir_abi::seats`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitEach {
    /// An address field.
    pub key: Field,
    /// Prefix length: addresses with the same prefix share a bucket.
    pub length: u8,
    /// The limit of each address.
    pub limit: EachLimit,
    /// Number of addresses, a power of two from [`weir_abi::each::SIZE_MIN`] to [`weir_abi::each::SIZE_MAX`].
    pub size: u32,
}

impl LimitEach {
    /// Reads its text.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (text, size) = text.strip_prefix("each ")?.rsplit_once(" size ")?;
        let (key, rest) = text.split_once('/')?;
        let (length, limit) = rest.split_once(' ')?;
        Some(LimitEach {
            key: Field::from_name(key)?,
            length: length.parse().ok()?,
            limit: match limit.strip_prefix("connections ") {
                Some(number) => EachLimit::Connections(number.parse().ok()?),
                None => EachLimit::Rate(limit.parse().ok()?),
            },
            size: size.parse().ok()?,
        })
    }

    /// The number of connections that each address may hold; `None` if its rate is limited.
    pub fn connections(&self) -> Option<u16> {
        match self.limit {
            EachLimit::Connections(number) => Some(number),
            EachLimit::Rate(_) => None,
        }
    }

    /// Number of words of the table.
    pub fn words(&self) -> usize {
        self.connections().map_or(self.size as usize, |number| seats::table_words(self.size, number))
    }

    /// The mask of the prefix length, right-aligned.
    pub fn mask(&self) -> u128 {
        let all = u128::MAX >> (128 - self.key.bits());
        all << (self.key.bits() - self.length) & all
    }
}

/// `each ip saddr/24 50pps burst 10packets size 524288`
impl std::fmt::Display for LimitEach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "each {}/{} {} size {}", self.key.name(), self.length, self.limit, self.size)
    }
}
