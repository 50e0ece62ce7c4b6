//! Counters that one worker writes and others read meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_abi::Counter;

/// An array of [`Counter`]s. Clones are the same array.
///
/// ```text
/// word   0         1        2         3
///       +---------+--------+---------+--------+
///       | packets | bytes  | packets | bytes  |  ...      Counter i is words 2i and 2i + 1
///       +---------+--------+---------+--------+
/// ```
/// The one worker that counts does so with plain loads and stores of whole words; readers see each word as it was at some moment, and never
/// half of it. Packets and bytes of one counter may be of different moments.
///
/// A block begins and ends with lines of its own: two workers' counts would otherwise take a line from each other with every burst.
#[derive(Clone, Debug)]
pub struct CounterBlock {
    lines: Arc<[Line]>,
    counters: usize,
}

/// Counters of one and the next cache line: processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(C, align(128))]
struct Line([[AtomicU64; WORDS]; LINE_COUNTERS]);

const WORDS: usize = 2;
const LINE_COUNTERS: usize = 8;
const _: () = assert!(size_of::<Counter>() == WORDS * size_of::<AtomicU64>());
const _: () = assert!(size_of::<Line>() == LINE_COUNTERS * size_of::<Counter>());

impl CounterBlock {
    /// So many counters, at 0.
    pub fn new(counters: usize) -> Self {
        let lines = (0..counters.div_ceil(LINE_COUNTERS)).map(|_| Line::default()).collect();
        CounterBlock { lines, counters }
    }

    /// What compiled code is given. Only one worker at a time may count with it.
    pub(crate) fn as_ptr(&self) -> *mut Counter {
        self.lines.as_ptr().cast_mut().cast()
    }

    /// What was counted until now.
    pub fn read(&self) -> Vec<Counter> {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let counters = self.lines.iter().flat_map(|line| &line.0).take(self.counters);
        counters.map(|[packets, bytes]| Counter { packets: word(packets), bytes: word(bytes) }).collect()
    }
}
