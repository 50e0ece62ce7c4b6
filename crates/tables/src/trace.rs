//! The reads of one lookup: which words of an image it reads, and in how many cache lines they are.
//!
//! Every layout has a traced form of its lookup. `reads.rs` computes a table's mean cost from such traces.

use std::cell::RefCell;

use crate::cells::Cells;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// The reads of one lookup.
#[derive(Default)]
pub(crate) struct Trace {
    words: usize,
    lines: Vec<usize>,
}

impl Trace {
    /// Number of words read.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Number of distinct cache lines.
    pub fn lines(&self) -> usize {
        self.lines.len()
    }

    /// Records the read of a word.
    pub fn word<T>(&mut self, word: &T) {
        self.words += 1;
        let line = std::ptr::from_ref(word).addr() / LINE_BYTES;
        if !self.lines.contains(&line) {
            self.lines.push(line);
        }
    }
}

/// An image whose reads are traced. Each line counts once, because user space compares whole lines.
pub(crate) struct TracedLines<'a> {
    image: &'a [u8],
    trace: RefCell<&'a mut Trace>,
}

impl<'a> TracedLines<'a> {
    /// A trace without reads yet.
    pub fn new(image: &'a [u8], trace: &'a mut Trace) -> Self {
        TracedLines { image, trace: RefCell::new(trace) }
    }

    fn line(&self, at: usize) {
        let mut trace = self.trace.borrow_mut();
        if !trace.lines.contains(&(at / LINE_BYTES)) {
            trace.words += 1;
            trace.lines.push(at / LINE_BYTES);
        }
    }
}

impl Cells for TracedLines<'_> {
    fn u8(&self, at: usize) -> u8 {
        self.line(at);
        self.image.u8(at)
    }

    fn u16(&self, at: usize) -> u16 {
        self.line(at);
        self.image.u16(at)
    }

    fn u32(&self, at: usize) -> u32 {
        self.line(at);
        self.image.u32(at)
    }

    fn u64(&self, at: usize) -> u64 {
        self.line(at);
        self.image.u64(at)
    }
}
