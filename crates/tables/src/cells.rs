//! Access to the words of an image by byte offset, both in constant bytes and in memory that a writer changes
//! meanwhile.
//!
//! Lookups of layouts that can change in place are written over [`Cells`]. The same code reads an image, a live table
//! and the model checker's memory. Offsets are multiples of the word size. An offset outside the image is a bug of this
//! crate and panics.

/// Little-endian words, each read whole. A given word of an image is always read with the same width.
pub(crate) trait Cells {
    /// The byte at `at`.
    fn u8(&self, at: usize) -> u8;
    /// The 16-bit word at byte `at`.
    fn u16(&self, at: usize) -> u16;
    /// The 32-bit word at byte `at`.
    fn u32(&self, at: usize) -> u32;
    /// The 64-bit word at byte `at`.
    fn u64(&self, at: usize) -> u64;
}

/// Words that one writer changes while others read them. A word is written whole, and after all earlier writes.
///
/// These writes are the only changes to an image. A copy of it, in a kernel map or in another process, follows by the
/// same writes in the same order.
pub(crate) trait CellsMut: Cells {
    /// Writes the byte at `at`.
    fn set_u8(&self, at: usize, word: u8);
    /// Writes the 16-bit word at byte `at`.
    fn set_u16(&self, at: usize, word: u16);
    /// Writes the 32-bit word at byte `at`.
    fn set_u32(&self, at: usize, word: u32);
    /// Writes the 64-bit word at byte `at`.
    fn set_u64(&self, at: usize, word: u64);
}

impl Cells for [u8] {
    fn u8(&self, at: usize) -> u8 {
        self[at]
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(*self[at..].first_chunk().expect("an image's offsets were checked"))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(*self[at..].first_chunk().expect("an image's offsets were checked"))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self[at..].first_chunk().expect("an image's offsets were checked"))
    }
}
