//! The body of a trailer: which bits it has, and how software reads them (`docs/reference/card-layout.md`).

use crate::Lookups;
use crate::field::{Carried, header_of};
use weir_abi::card::{LOOKUP_LOW, LOOKUP_VALID};
use weir_policy::field::{Answer, Field};
pub use weir_policy::ir::answers::BodyLayout;
use weir_policy::ir::eval::Answers;

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
    /// The body has another length than its layout. A seal contains the length, so a caller that compares
    /// seals has checked it.
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
        let carried = Carried::of(field).expect("the split asks for what cards carry");
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

    /// The example of `docs/reference/card-layout.md`.
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
