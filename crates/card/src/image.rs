//! A card's program as words for its memories (`docs/reference/card-layout.md`). The words of tables come from their
//! images.

use crate::field::header_of;
use crate::program::{Act, CardPattern, CardProgram, CardRule};
use weir_abi::card::{Seal, act, memory, mode, register, word};
use weir_policy::field::Field;

/// The content of a memory, from its first word on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The number of the memory ([`weir_abi::card::memory`]).
    pub number: u8,
    /// Its words. Those behind them are 0.
    pub words: Vec<u32>,
}

/// The memories of a configuration but for tables, in the order of their numbers.
pub fn memories(program: &CardProgram, token: u64, epoch: u16) -> Vec<Memory> {
    let select = program.body.sources().into_iter().map(u32::from).collect();
    [
        (memory::CONFIG, registers(program, token, epoch)),
        (memory::PATTERNS, program.patterns.iter().flat_map(pattern).collect()),
        (memory::RULES, program.rules.iter().flat_map(rule).collect()),
        (memory::SELECT, select),
        (memory::LOOKUPS, lookups(program)),
    ]
    .map(|(number, words)| Memory { number, words })
    .into()
}

/// The memories of a lookup, from the sections of its table's image `d16x4r`: block numbers, and entries.
pub fn table(lookup: usize, direct: &[[u8; 2]], extension: &[[u8; 4]]) -> [Memory; 2] {
    let (pairs, _) = direct.as_chunks::<2>();
    let half = |number: [u8; 2]| u32::from(u16::from_le_bytes(number));
    let direct = pairs.iter().map(|[low, high]| half(*low) | half(*high) << 16);
    let extension = extension.iter().map(|entry| u32::from_le_bytes(*entry));
    [
        Memory { number: memory::DIRECT + lookup as u8, words: direct.collect() },
        Memory { number: memory::EXTENSION + lookup as u8, words: extension.collect() },
    ]
}

/// The registers of a configuration with which the card passes frames as they are, and seals answers to control frames.
pub fn plain(token: u64, epoch: u16) -> Memory {
    let mut words = seals(token, epoch, 0);
    words[usize::from(register::MODE)] = 1 << mode::PLAIN;
    Memory { number: memory::CONFIG, words }
}

fn registers(program: &CardProgram, token: u64, epoch: u16) -> Vec<u32> {
    let body = &program.body;
    let mut words = seals(token, epoch, body.bytes() as u8);
    let shape = body.first_bits() | body.counted << 8 | body.bytes() << 16 | body.patterns << 24;
    words[usize::from(register::SHAPE)] = shape as u32;
    words[usize::from(register::MODE)] = u32::from(program.options_alone) << mode::OPTIONS_ALONE;
    words
}

/// Registers with the seals alone.
fn seals(token: u64, epoch: u16, body: u8) -> Vec<u32> {
    let seal =
        |answers: bool| Seal { token, control: false, answers, body: if answers { body } else { 0 }, epoch }.word();
    let mut words = vec![0; register::COUNT];
    for (at, seal) in [(register::SEAL_ANSWERS, seal(true)), (register::SEAL_ALONE, seal(false))] {
        words[usize::from(at)] = seal as u32;
        words[usize::from(at) + 1] = (seal >> 32) as u32;
    }
    words
}

fn pattern(CardPattern { header, compare }: &CardPattern) -> [u32; memory::PATTERN_WORDS] {
    let mut words = [0; memory::PATTERN_WORDS];
    words[0] = u32::from(header_of(*header)) << word::PATTERN_HEADER;
    if let Some(compare) = compare {
        words[0] |= (compare.field as u32) << word::PATTERN_FIELD
            | u32::from(compare.negated) << word::PATTERN_NEGATED
            | 1 << word::PATTERN_COMPARES
            | (compare.ranges.len() as u32) << word::PATTERN_RANGES;
        words[1] = compare.mask;
        for (at, (first, last)) in (2..).step_by(2).zip(&compare.ranges) {
            (words[at], words[at + 1]) = (*first, *last);
        }
    }
    words
}

fn rule(CardRule { patterns, act: of }: &CardRule) -> [u32; memory::RULE_WORDS] {
    let (act, argument) = match *of {
        Act::Count(bit) => (act::COUNT, bit),
        Act::Drop(counter) => (act::DROP, counter),
        Act::End(number) => (act::END, number),
    };
    let head = u32::from(act) << word::RULE_ACT | u32::from(argument) << word::RULE_ARGUMENT;
    let mask: u64 = patterns.iter().map(|pattern| 1u64 << pattern).fold(0, |mask, bit| mask | bit);
    [head, mask as u32, (mask >> 32) as u32, 0]
}

fn lookups(program: &CardProgram) -> Vec<u32> {
    let word = |key: Field| 1 << word::LOOKUP_USED | u32::from(key == Field::IpDaddr) << word::LOOKUP_DESTINATION;
    program.lookups.iter().map(|lookup| word(lookup.key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::BodyLayout;
    use crate::field::CardField;
    use crate::program::Compare;
    use weir_policy::field::Guard;

    #[test]
    fn words_are_those_of_the_page() {
        let compare =
            Compare { field: CardField::Dport, mask: 0xffff_ffff, ranges: vec![(22, 22), (80, 443)], negated: true };
        let program = CardProgram {
            patterns: vec![
                CardPattern { header: Guard::Tcp, compare: Some(compare) },
                CardPattern { header: Guard::Ipv4, compare: None },
            ],
            rules: vec![
                CardRule { patterns: vec![], act: Act::Count(0) },
                CardRule { patterns: vec![0, 1], act: Act::End(1) },
            ],
            lookups: vec![],
            options_alone: true,
            dropped: vec![],
            body: BodyLayout { ends: 1, counted: 1, patterns: 2, carried: vec![], lookups: 0 },
        };
        let memories = memories(&program, 0x01_0203_0405, 7);
        assert_eq!(memories.iter().map(|memory| memory.number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(memories[0].words, [0x0541_0007, 0x0102_0304, 0x0500_0007, 0x0102_0304, 0x0201_0101, 1]);
        assert_eq!(memories[1].words[..6], [0x2362, 0xffff_ffff, 22, 22, 80, 443]);
        assert_eq!(memories[1].words[32..34], [0x30, 0]);
        assert_eq!(memories[2].words, [1, 0, 0, 0, 0x103, 3, 0, 0]);
        assert_eq!(memories[3].words, [0]);
        assert_eq!(memories[4].words, [0; 0]);
        assert_eq!(plain(0x01_0203_0405, 7).words, [0x0540_0007, 0x0102_0304, 0x0500_0007, 0x0102_0304, 0, 2]);
    }
}
