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
#[derive(Clone, Debug)]
pub struct CounterBlock(Arc<[AtomicU64]>);

const WORDS: usize = 2;
const _: () = assert!(size_of::<Counter>() == WORDS * size_of::<AtomicU64>());

impl CounterBlock {
    /// So many counters, at 0.
    pub fn new(counters: usize) -> Self {
        CounterBlock((0..counters * WORDS).map(|_| AtomicU64::new(0)).collect())
    }

    /// What compiled code is given. Only one worker at a time may count with it.
    pub(crate) fn as_ptr(&self) -> *mut Counter {
        self.0.as_ptr().cast_mut().cast()
    }

    /// What was counted until now.
    pub fn read(&self) -> Vec<Counter> {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        self.0.chunks_exact(WORDS).map(|pair| Counter { packets: word(&pair[0]), bytes: word(&pair[1]) }).collect()
    }
}
