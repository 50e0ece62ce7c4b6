//! Words of an image by their byte offset: of bytes that nobody changes, and of memory that a writer changes meanwhile.
//!
//! Lookups of layouts that can change in place are written over [`Cells`], so that the same lines read an image, a live table
//! and the model checker's memory. Offsets are multiples of the word; one outside the image is our own bug and panics.

/// Little-endian words, each read whole.
pub(crate) trait Cells {
    /// The 16-bit word at byte `at`.
    fn u16(&self, at: usize) -> u16;
    /// The 64-bit word at byte `at`.
    fn u64(&self, at: usize) -> u64;
}

/// Words that one writer changes while others read. A word is written whole, and after all that was written before it.
pub(crate) trait CellsMut: Cells {
    /// Writes the 16-bit word at byte `at`.
    fn set_u16(&self, at: usize, word: u16);
    /// Writes the 64-bit word at byte `at`.
    fn set_u64(&self, at: usize, word: u64);
}

impl Cells for [u8] {
    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(*self[at..].first_chunk().expect("an image's offsets were checked"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self[at..].first_chunk().expect("an image's offsets were checked"))
    }
}
