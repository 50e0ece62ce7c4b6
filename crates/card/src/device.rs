//! A card in software: memories, control frames and the handling of frames by the words that the memories have.
//!
//! It is [`crate::eval`] behind the card's own interface. Nothing reaches it but frames, so a session with it tests the
//! encoding of a configuration too. Numbers in words that `docs/reference/card-layout.md` does not define match
//! nothing.

use crate::control::{Control, WORDS_MAX};
use crate::eval::{low, outcome, sources, understood};
use crate::field::{CardField, header_of};
use crate::memories::{Bank, Sizes};
use crate::profile::Profile;
use crate::program::{Act, CardPattern, CardRule, Compare};
use weir_abi::card::{FIRST_BITS_MAX, FLAGS_BITS_MAX, SEAL_BYTES, Seal, act, control, memory, mode, register, word};
use weir_abi::{Counter, Link};
use weir_policy::field::{Field, Guard};
use weir_policy::ir::eval::packet::Frame;

/// The control bit of a seal.
const CONTROL: u64 = Seal { token: 0, control: true, answers: false, body: 0, epoch: 0 }.word();

/// A card between the network and the software.
pub struct Device {
    profile: Profile,
    banks: [Bank; 2],
    counters: [Vec<Counter>; 2],
    active: usize,
    running: Option<Running>,
}

/// What becomes of a frame from the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromNetwork {
    /// The card drops it.
    Dropped,
    /// The frame goes to the software, with this trailer.
    Passed(Vec<u8>),
}

/// What becomes of a frame from the software.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromHost {
    /// The frame goes to the network as it is.
    ToNetwork,
    /// The frame was a control frame; this goes to the software.
    Answer(Vec<u8>),
}

/// The active configuration, read from its words.
struct Running {
    patterns: Vec<CardPattern>,
    rules: Vec<CardRule>,
    /// Bits of `first`, `counted` and `patterns`.
    shape: [usize; 3],
    select: Vec<u8>,
    lookups: Vec<(usize, Field)>,
    seal_answers: u64,
    seal_alone: u64,
    options_alone: bool,
    plain: bool,
}

impl Device {
    /// A card after power-up: it has no configuration.
    pub fn new(profile: Profile) -> Self {
        let bank = Bank::new(Sizes::of(&profile));
        let counters = vec![Counter::default(); profile.counters];
        Device {
            banks: [bank.clone(), bank],
            counters: [counters.clone(), counters],
            active: 0,
            running: None,
            profile,
        }
    }

    /// Handles a frame from the network.
    pub fn from_network(&mut self, bytes: &[u8]) -> FromNetwork {
        let Some(running) = self.running.as_ref().filter(|running| !running.plain) else {
            return FromNetwork::Passed(vec![]);
        };
        let frame = Frame { bytes, wire_len: bytes.len() as u32, link: Link::Ethernet, time_ns: 0 };
        let Some(packet) = understood(&self.profile, running.options_alone, frame) else {
            return FromNetwork::Passed(running.seal_alone.to_le_bytes().to_vec());
        };
        let outcome = outcome(&running.patterns, &running.rules, &packet);
        if let Some(counter) = outcome.drop {
            let counter = &mut self.counters[self.active][usize::from(counter)];
            counter.packets += 1;
            counter.bytes += bytes.len() as u64;
            return FromNetwork::Dropped;
        }
        let bank = &self.banks[self.active];
        let flags = running.flags(outcome.first, outcome.counted, outcome.patterns);
        let sources = sources(flags, running.lookups.iter().copied(), |lookup, key| begin(bank, lookup, key), &packet);
        let mut trailer = Vec::with_capacity(running.select.len() + SEAL_BYTES);
        trailer.extend(running.select.iter().map(|&at| sources.get(usize::from(at)).copied().unwrap_or_default()));
        trailer.extend(running.seal_answers.to_le_bytes());
        FromNetwork::Passed(trailer)
    }

    /// Handles a frame from the software.
    pub fn from_host(&mut self, frame: &[u8]) -> FromHost {
        let Some(request) = Control::of(frame) else { return FromHost::ToNetwork };
        let mut answer = request.answer(self.carry_out(request).as_deref());
        let seal = self.running.as_ref().map_or(0, |running| running.seal_alone) | CONTROL;
        answer.extend(seal.to_le_bytes());
        FromHost::Answer(answer)
    }

    /// Carries out a control frame. The result are the words that were read, or `None` if it is refused.
    fn carry_out(&mut self, request: Control<'_>) -> Option<Vec<u32>> {
        let count = usize::from(request.count());
        if count > WORDS_MAX {
            return None;
        }
        // No memory has words at the end of the numbers, so none are counted from 0 again.
        let words = (request.first() as usize..).take(count);
        match request.op() {
            control::WRITE if request.words().count() < count => None,
            control::WRITE => {
                let bank = &mut self.banks[1 - self.active];
                words.zip(request.words()).for_each(|(at, word)| bank.write(request.memory(), at, word));
                Some(vec![])
            }
            control::COMMIT => {
                self.active = 1 - self.active;
                self.counters[self.active].fill(Counter::default());
                self.running = Some(Running::of(&self.banks[self.active], &self.profile));
                Some(vec![])
            }
            control::READ => Some(words.map(|at| self.read(request.memory(), at)).collect()),
            _ => None,
        }
    }

    fn read(&self, number: u8, at: usize) -> u32 {
        let counters = match number {
            memory::COUNTERS => &self.counters[self.active],
            memory::COUNTERS_BEFORE => &self.counters[1 - self.active],
            _ => return self.banks[1 - self.active].word(number, at),
        };
        let Some(counter) = counters.get(at / memory::COUNTER_WORDS) else { return 0 };
        let halves = |number: u64| [number as u32, (number >> 32) as u32];
        let [packets, bytes] = [counter.packets, counter.bytes].map(halves);
        [packets, bytes].concat()[at % memory::COUNTER_WORDS]
    }
}

/// The entry that a lookup begins with.
fn begin(bank: &Bank, lookup: usize, key: u32) -> u32 {
    let number = |first: u8| first + lookup as u8;
    let index = key >> 16;
    let pair = bank.word(number(memory::DIRECT), index as usize / 2);
    let block = if index.is_multiple_of(2) { pair & 0xffff } else { pair >> 16 };
    let at = block as usize * memory::BLOCK_WORDS + (key >> 12 & 15) as usize;
    bank.word(number(memory::EXTENSION), at)
}

impl Running {
    fn of(bank: &Bank, profile: &Profile) -> Self {
        let register = |at: u8| u64::from(bank.word(memory::CONFIG, usize::from(at)));
        let seal = |at: u8| register(at) | register(at + 1) << 32;
        let field = |at: u32, bits: usize| (register(register::SHAPE) >> at & low(bits)) as usize;
        let mode = |bit: u32| register(register::MODE) >> bit & 1 != 0;
        let select = 0..field(16, 6).min(profile.metadata / 8);
        let lookup = |index: usize| {
            let used = bank.word(memory::LOOKUPS, index);
            let key = if used >> word::LOOKUP_DESTINATION & 1 != 0 { Field::IpDaddr } else { Field::IpSaddr };
            (used >> word::LOOKUP_USED & 1 != 0).then_some((index, key))
        };
        let rules: Vec<CardRule> = (0..profile.rules).filter_map(|index| rule(bank, index, profile)).collect();
        let shape = [field(0, 4).min(FIRST_BITS_MAX), field(8, 7), field(24, 7)];
        // No rule uses the result of the patterns behind these.
        let in_rules = rules.iter().flat_map(|rule| &rule.patterns).map(|pattern| pattern + 1).max().unwrap_or(0);
        let patterns = in_rules.max(shape[2]).min(profile.patterns);
        Running {
            patterns: (0..patterns).map(|index| pattern(bank, index, profile)).collect(),
            rules,
            shape,
            select: select.map(|at| bank.word(memory::SELECT, at) as u8).collect(),
            lookups: (0..profile.lookups).filter_map(lookup).collect(),
            seal_answers: seal(register::SEAL_ANSWERS),
            seal_alone: seal(register::SEAL_ALONE),
            options_alone: mode(mode::OPTIONS_ALONE),
            plain: mode(mode::PLAIN),
        }
    }

    /// Packs the flags without gaps. Bits without room are lost.
    fn flags(&self, first: u8, counted: u64, patterns: u64) -> u64 {
        let [w, c, p] = self.shape;
        let at = |value: u64, shift: usize| value.checked_shl(shift as u32).unwrap_or(0);
        u64::from(first) & low(w) | at(counted & low(c), w) | at(patterns & low(p), w + c)
    }
}

/// A pattern that no packet matches: no value is in none of its ranges.
fn never() -> CardPattern {
    let compare = Compare { field: CardField::Protocol, mask: 0, ranges: vec![], negated: false };
    CardPattern { header: Guard::Any, compare: Some(compare) }
}

fn pattern(bank: &Bank, index: usize, profile: &Profile) -> CardPattern {
    let at = |word: usize| bank.word(memory::PATTERNS, index * memory::PATTERN_WORDS + word);
    let bits = |from: u32, count: u32| at(0) >> from & ((1 << count) - 1);
    let header = Guard::ALL.iter().find(|(guard, _)| u32::from(header_of(*guard)) == bits(word::PATTERN_HEADER, 4));
    let field = CardField::ALL.get(bits(word::PATTERN_FIELD, 4) as usize);
    let (Some((header, _)), Some((field, _))) = (header, field) else { return never() };
    let ranges = (bits(word::PATTERN_RANGES, 4) as usize).min(profile.ranges);
    let compare = Compare {
        field: *field,
        mask: at(1),
        ranges: (0..ranges).map(|range| (at(2 + 2 * range), at(3 + 2 * range))).collect(),
        negated: bits(word::PATTERN_NEGATED, 1) != 0,
    };
    CardPattern { header: *header, compare: (bits(word::PATTERN_COMPARES, 1) != 0).then_some(compare) }
}

fn rule(bank: &Bank, index: usize, profile: &Profile) -> Option<CardRule> {
    let at = |word: usize| bank.word(memory::RULES, index * memory::RULE_WORDS + word);
    let argument = (at(0) >> word::RULE_ARGUMENT) as u8;
    let act = match (at(0) >> word::RULE_ACT & 3) as u8 {
        act::COUNT if usize::from(argument) < FLAGS_BITS_MAX => Act::Count(argument),
        act::DROP if usize::from(argument) < profile.counters => Act::Drop(argument),
        act::END => Act::End(argument),
        _ => return None,
    };
    let mask = u64::from(at(1)) | u64::from(at(2)) << 32;
    Some(CardRule { patterns: (0..profile.patterns).filter(|bit| mask >> bit & 1 != 0).collect(), act })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Request;

    /// As in the RTL, whose addresses have a bit more than a frame's.
    #[test]
    fn words_are_not_counted_from_0_again() {
        let profile = Profile::parse(Profile::shipped("open-nic").expect("it is shipped")).expect("it reads");
        let mut device = Device::new(profile);
        let answer = |device: &mut Device, request: Request| match device.from_host(&request.frame(1)) {
            FromHost::Answer(answer) => Control::of(&answer).expect("it is one").words().take(4).collect::<Vec<_>>(),
            FromHost::ToNetwork => panic!("it is a control frame"),
        };
        answer(&mut device, Request::write(memory::CONFIG, 0, &[7, 8]));
        answer(&mut device, Request::write(memory::CONFIG, u32::MAX - 1, &[1, 2, 3, 4]));
        assert_eq!(answer(&mut device, Request::read(memory::CONFIG, u32::MAX - 1, 4)), [0; 4]);
        assert_eq!(answer(&mut device, Request::read(memory::CONFIG, 0, 4))[..2], [7, 8]);
    }
}
