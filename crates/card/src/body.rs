//! The body of a trailer: which bits it has, and how software reads them (`docs/card-layout.md`).

use crate::Lookups;
use crate::field::{CardField, Carried, header_of};
use weir_abi::card::{FLAGS_BITS_MAX, LOOKUP_BYTES, LOOKUP_LOW, LOOKUP_VALID, source};
use weir_policy::field::{Answer, Field};
use weir_policy::ir::eval::Answers;

/// What the body of one policy has.
///
/// ```text
/// | flags: first, counted, patterns | carried values | lookups |
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyLayout {
    /// Rules that end the chain: `first` has as many bits as their number.
    pub ends: usize,
    /// Bits of `counted`.
    pub counted: usize,
    /// Bits of `patterns`.
    pub patterns: usize,
    /// Values, in the order of [`Carried`].
    pub carried: Vec<Carried>,
    /// Number of lookups.
    pub lookups: usize,
}

impl BodyLayout {
    /// w: bits of `first`.
    pub fn first_bits(&self) -> usize {
        (usize::BITS - self.ends.leading_zeros()) as usize
    }

    /// Bits of the flags.
    pub fn flags_bits(&self) -> usize {
        self.first_bits() + self.counted + self.patterns
    }

    /// Bytes of the body.
    pub fn bytes(&self) -> usize {
        let carried: usize = self.carried.iter().map(|value| value.source().1).sum();
        self.flags_bits().div_ceil(8) + carried + self.lookups * LOOKUP_BYTES
    }

    /// The source of each byte of the body.
    pub fn sources(&self) -> Vec<u8> {
        let span = |(first, count): (u8, usize)| first..first + count as u8;
        let flags = span((source::FLAGS, self.flags_bits().div_ceil(8)));
        let lookups = span((source::LOOKUPS, self.lookups * LOOKUP_BYTES));
        flags.chain(self.carried.iter().flat_map(|value| span(value.source()))).chain(lookups).collect()
    }

    /// Offset of a carried value.
    fn offset_of(&self, wanted: Carried) -> Option<usize> {
        let index = self.carried.iter().position(|value| *value == wanted)?;
        let before: usize = self.carried[..index].iter().map(|value| value.source().1).sum();
        Some(self.flags_bits().div_ceil(8) + before)
    }

    fn offset_of_lookup(&self, lookup: usize) -> usize {
        self.bytes() - (self.lookups - lookup) * LOOKUP_BYTES
    }

    /// The flags of a packet as one word.
    ///
    /// # Panics
    /// A number does not fit its bits.
    pub fn flags(&self, first: u8, counted: u64, patterns: u64) -> u64 {
        let fits = |value: u64, bits: usize| bits == 64 || value >> bits == 0;
        let bits = self.first_bits();
        assert!(
            self.flags_bits() <= FLAGS_BITS_MAX
                && fits(first.into(), bits)
                && fits(counted, self.counted)
                && fits(patterns, self.patterns),
            "compiler bug: flags that do not fit their layout"
        );
        let at = |value: u64, shift: usize| value.checked_shl(shift as u32).unwrap_or(0);
        u64::from(first) | at(counted, bits) | at(patterns, bits + self.counted)
    }
}

/// The body of one packet, with the tables that finish its lookups.
pub struct Body<'a> {
    layout: &'a BodyLayout,
    bytes: &'a [u8],
    lookups: &'a dyn Lookups,
}

impl<'a> Body<'a> {
    /// The body with these bytes.
    ///
    /// # Panics
    /// It has another length than its layout. A seal says the length, so whoever compares seals knows it.
    pub fn new(layout: &'a BodyLayout, bytes: &'a [u8], lookups: &'a dyn Lookups) -> Self {
        assert_eq!(bytes.len(), layout.bytes(), "compiler bug: a body of another layout");
        Body { layout, bytes, lookups }
    }

    /// The little-endian number in some bytes.
    fn number(&self, offset: usize, count: usize) -> u64 {
        self.bytes[offset..offset + count].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    fn bits(&self, offset: usize, count: usize) -> u64 {
        let flags = self.number(0, self.layout.flags_bits().div_ceil(8));
        (flags >> offset) & (u64::MAX >> (64 - count))
    }

    fn bit(&self, offset: usize) -> Option<u128> {
        Some(self.bits(offset, 1).into())
    }

    fn carried(&self, value: Carried) -> u64 {
        let offset = self.layout.offset_of(value).expect("the split carries what its chain reads");
        self.number(offset, value.source().1)
    }

    fn field(&self, field: Field) -> Option<u128> {
        let headers = self.carried(Carried::Headers);
        let carried = CardField::of(field).and_then(Carried::of).expect("the split asks for what cards carry");
        (headers >> header_of(field.guard()) & 1 != 0).then(|| self.carried(carried).into())
    }

    fn label(&self, lookup: usize) -> Option<u128> {
        let offset = self.layout.offset_of_lookup(lookup);
        let (entry, key) = (self.number(offset, 4) as u32, self.number(offset + 4, 2) as u16);
        (key & LOOKUP_VALID != 0).then(|| self.lookups.finish(lookup, entry, key & LOOKUP_LOW).into())
    }
}

impl Answers for Body<'_> {
    fn answer(&self, answer: Answer) -> Option<u128> {
        let first = self.layout.first_bits();
        match answer {
            Answer::First => Some(self.bits(0, first).into()),
            Answer::Counted(index) => self.bit(first + usize::from(index)),
            Answer::Pattern(index) => self.bit(first + self.layout.counted + usize::from(index)),
            Answer::Field(field) => self.field(field),
            Answer::Label(lookup) => self.label(usize::from(lookup)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneRange;

    impl Lookups for OneRange {
        fn begin(&self, _: usize, _: u32) -> u32 {
            3
        }

        fn finish(&self, _: usize, entry: u32, low: u16) -> u32 {
            u32::from(entry == 3 && low == 0x203)
        }
    }

    /// The example of `docs/card-layout.md`.
    #[test]
    fn the_example_of_the_page() {
        let layout = BodyLayout { ends: 2, counted: 1, patterns: 3, carried: vec![], lookups: 1 };
        assert_eq!((layout.first_bits(), layout.bytes()), (2, 7));
        assert_eq!(layout.sources(), [0, 24, 25, 26, 27, 28, 29]);
        assert_eq!(layout.flags(2, 0, 0b101), 0x2a);
        let bytes = [0x2a, 3, 0, 0, 0, 3, 0x82];
        let body = Body::new(&layout, &bytes, &OneRange);
        let answers = [
            Answer::First,
            Answer::Counted(0),
            Answer::Pattern(0),
            Answer::Pattern(1),
            Answer::Pattern(2),
            Answer::Label(0),
        ];
        assert_eq!(answers.map(|answer| body.answer(answer)), [2, 0, 1, 0, 1, 1].map(Some));
        let without = [0x2a, 0, 0, 0, 0, 0, 0];
        assert_eq!(Body::new(&layout, &without, &OneRange).answer(Answer::Label(0)), None);
    }

    #[test]
    fn carried_values_and_lookups_are_where_their_sources_go() {
        let carried = vec![Carried::Headers, Carried::Protocol, Carried::Dport];
        let layout = BodyLayout { ends: 255, counted: 20, patterns: 36, carried, lookups: 2 };
        assert_eq!((layout.flags_bits(), layout.bytes()), (64, 8 + 5 + 12));
        let sources = layout.sources();
        assert_eq!(sources.len(), layout.bytes());
        assert_eq!(layout.flags(255, (1 << 20) - 1, (1 << 36) - 1), u64::MAX);
        // Every source has its own number as its value, so a value says where it came from.
        let body = Body::new(&layout, &sources, &OneRange);
        assert_eq!(body.carried(Carried::Headers), 0x0908);
        assert_eq!(body.carried(Carried::Protocol), 10);
        assert_eq!(body.carried(Carried::Dport), 0x0f0e);
        assert_eq!(layout.offset_of_lookup(1), layout.bytes() - 6);
        assert_eq!(body.number(layout.offset_of_lookup(1), 1), 30);
        assert_eq!(BodyLayout::default().sources(), [0; 0]);
    }
}
