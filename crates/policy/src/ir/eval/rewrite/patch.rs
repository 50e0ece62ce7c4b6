//! Changes bytes of a transport header in place, with its checksum.

use super::Leaving;
use super::checksum::updated;
use crate::ir::eval::packet::{Frame, be16, be32};

/// A copy of a frame that changes.
pub(super) struct Patch {
    bytes: Vec<u8>,
    wire_len: u32,
    /// Where the transport header begins.
    l4: usize,
    /// Where its checksum is, from there.
    checksum_at: usize,
}

impl Patch {
    /// A copy of a frame whose transport header begins at `l4` and has its checksum at `checksum_at`.
    pub(super) fn new(frame: Frame<'_>, l4: usize, checksum_at: usize) -> Self {
        Patch { bytes: frame.bytes.to_vec(), wire_len: frame.wire_len, l4, checksum_at }
    }

    /// Replaces bytes, `at` bytes behind the beginning of the transport header. They have been captured.
    pub(super) fn put(&mut self, at: usize, new: &[u8]) {
        // The words that the bytes are in.
        let (from, to) = (self.l4 + (at & !1), self.l4 + (at + new.len()).next_multiple_of(2));
        let to = to.min(self.bytes.len());
        let old = self.bytes[from..to].to_vec();
        self.bytes[self.l4 + at..self.l4 + at + new.len()].copy_from_slice(new);
        if old == self.bytes[from..to] {
            return;
        }
        let field = self.l4 + self.checksum_at;
        let checksum = be16(&self.bytes[field..]);
        let checksum = updated(checksum, &old, &self.bytes[from..to]);
        self.bytes[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Adds to a number of 32 bits.
    pub(super) fn add(&mut self, at: usize, difference: u32) {
        let number = be32(&self.bytes[self.l4 + at..]);
        self.put(at, &number.wrapping_add(difference).to_be_bytes());
    }

    /// The frame.
    pub(super) fn done(self) -> Leaving {
        Leaving { bytes: self.bytes, wire_len: self.wire_len }
    }
}
