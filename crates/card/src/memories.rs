//! The memories of a card, as words (`docs/reference/card-layout.md`).

use crate::profile::Profile;
use weir_abi::card::{memory, register};

/// Words of a pattern in front of its ranges.
const PATTERN_HEAD_WORDS: usize = 2;

/// The sizes of a card's memories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    patterns: usize,
    ranges: usize,
    rules: usize,
    body: usize,
    lookups: usize,
    blocks: usize,
}

impl Sizes {
    /// The sizes of a card with this profile.
    pub fn of(profile: &Profile) -> Self {
        Sizes {
            patterns: profile.patterns,
            ranges: profile.ranges,
            rules: profile.rules,
            body: profile.metadata / 8,
            lookups: profile.lookups,
            blocks: profile.blocks,
        }
    }

    /// Words of a memory in a bank; 0 if the card does not have it.
    pub fn words(&self, number: u8) -> usize {
        let is_lookup = |first: u8| (first..first + self.lookups as u8).contains(&number);
        match number {
            memory::CONFIG => register::COUNT,
            memory::PATTERNS => self.patterns * memory::PATTERN_WORDS,
            memory::RULES => self.rules * memory::RULE_WORDS,
            memory::SELECT => self.body,
            memory::LOOKUPS => self.lookups,
            _ if is_lookup(memory::DIRECT) => memory::DIRECT_WORDS,
            _ if is_lookup(memory::EXTENSION) => self.blocks * memory::BLOCK_WORDS,
            _ => 0,
        }
    }

    /// Whether a memory has a word.
    fn has(&self, number: u8, at: usize) -> bool {
        at < self.words(number)
            && match number {
                memory::PATTERNS => at % memory::PATTERN_WORDS < PATTERN_HEAD_WORDS + 2 * self.ranges,
                memory::RULES => at % memory::RULE_WORDS < memory::RULE_WORDS - 1,
                _ => true,
            }
    }
}

/// The memories of one bank. A memory that was never written takes no room.
#[derive(Clone, Debug)]
pub struct Bank {
    sizes: Sizes,
    memories: Vec<Vec<u32>>,
}

impl Bank {
    /// A bank after power-up.
    pub fn new(sizes: Sizes) -> Self {
        let count = usize::from(memory::EXTENSION) + sizes.lookups;
        Bank { sizes, memories: vec![vec![]; count] }
    }

    /// A word; 0 outside of the memory.
    pub fn word(&self, number: u8, at: usize) -> u32 {
        self.memories.get(usize::from(number)).and_then(|memory| memory.get(at)).copied().unwrap_or_default()
    }

    /// Writes a word. Outside of the memory this has no effect.
    pub fn write(&mut self, number: u8, at: usize, word: u32) {
        if !self.sizes.has(number, at) {
            return;
        }
        let memory = &mut self.memories[usize::from(number)];
        if memory.is_empty() {
            memory.resize(self.sizes.words(number), 0);
        }
        memory[at] = word;
    }
}
