//! Counters that one worker writes and other threads read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::Counter;

/// An array of [`Counter`]s. Clones share the array.
///
/// ```text
/// word   0         1        2         3
///       +---------+--------+---------+--------+
///       | packets | bytes  | packets | bytes  |  ...      Counter i is words 2i and 2i + 1
///       +---------+--------+---------+--------+
/// ```
/// The worker counts with plain loads and stores of whole words. Readers get each word whole. Packets and bytes of one
/// counter may be from different moments.
///
/// No other data shares the cache lines of a block. Otherwise two workers' counts could share a line, which would move
/// between their cores with every burst.
#[derive(Clone, Debug)]
pub struct CounterBlock {
    lines: Arc<[Line]>,
    counters: usize,
}

/// Counters in two neighbouring cache lines, because processors prefetch lines in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Line([[AtomicU64; WORDS]; LINE_COUNTERS]);

const WORDS: usize = 2;
const LINE_COUNTERS: usize = 8;
const _: () = assert!(size_of::<Counter>() == WORDS * size_of::<AtomicU64>());
const _: () = assert!(size_of::<Line>() == LINE_COUNTERS * size_of::<Counter>());

impl CounterBlock {
    /// `counters` counters with the value 0.
    pub fn new(counters: usize) -> Self {
        let lines = (0..counters.div_ceil(LINE_COUNTERS)).map(|_| Line::default()).collect();
        CounterBlock { lines, counters }
    }

    /// The array for compiled code. Only one worker at a time may count with it.
    pub(crate) fn as_ptr(&self) -> *mut Counter {
        self.lines.as_ptr().cast_mut().cast()
    }

    /// Adds packets to a counter. Only the worker that counts with the array may do so.
    pub(crate) fn add(&self, index: usize, packets: u64, bytes: u64) {
        assert!(index < self.counters, "a counter of the program");
        let counter = &self.lines[index / LINE_COUNTERS].0[index % LINE_COUNTERS];
        for (word, more) in counter.iter().zip([packets, bytes]) {
            word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        }
    }

    /// The current values.
    pub fn read(&self) -> Vec<Counter> {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let counters = self.lines.iter().flat_map(|line| &line.0).take(self.counters);
        counters.map(|[packets, bytes]| Counter { packets: word(packets), bytes: word(bytes) }).collect()
    }
}
