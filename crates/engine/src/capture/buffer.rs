//! A window over a stream that may be longer than memory.

use std::io::{self, Read};

use super::CAPTURED_BYTES_MAX;

/// Maximum size of a record without its packet: headers and pcapng options.
const OVERHEAD_BYTES_MAX: usize = 64 * 1024;

/// The longest record that must be buffered whole. Longer ones are skipped or refused.
pub(super) const RECORD_BYTES_MAX: usize = CAPTURED_BYTES_MAX as usize + OVERHEAD_BYTES_MAX;

/// Size of the window. It is so large that moving the unfinished record at its end to the front costs nothing.
pub(super) const BUFFER_BYTES: usize = 4 * RECORD_BYTES_MAX;

/// The window. `bytes[start..end]` has been read and not consumed, and starts at `offset` of the stream.
pub(super) struct Buffer {
    source: Box<dyn Read + Send>,
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
    offset: u64,
    /// Number of bytes to discard before the next record.
    skip: u64,
    ended: bool,
}

impl Buffer {
    pub(super) fn new(source: Box<dyn Read + Send>) -> Self {
        let bytes = vec![0; BUFFER_BYTES].into_boxed_slice();
        Buffer { source, bytes, start: 0, end: 0, offset: 0, skip: 0, ended: false }
    }

    /// The unconsumed bytes in the window.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// As [`Buffer::rest`], to change.
    pub(super) fn rest_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }

    /// Offset of `rest()` in the stream.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Whether the source has ended, so that nothing follows `rest()`.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// Whether the source ended inside bytes to be skipped.
    pub(super) fn skipping(&self) -> bool {
        self.skip > 0
    }

    /// Moves past `count` bytes, which may reach beyond the window.
    pub(super) fn consume(&mut self, count: u64) {
        let here = usize::try_from(count).unwrap_or(usize::MAX).min(self.end - self.start);
        self.start += here;
        self.offset += here as u64;
        self.skip += count - here as u64;
    }

    /// Moves the window forward and fills it. Earlier slices of `rest()` are invalid after that.
    pub(super) fn fill(&mut self) -> io::Result<()> {
        loop {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < self.bytes.len() && !self.ended {
                match self.source.read(&mut self.bytes[self.end..]) {
                    Ok(0) => self.ended = true,
                    Ok(count) => self.end += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            let skip = std::mem::take(&mut self.skip);
            self.consume(skip);
            if self.skip == 0 || self.ended {
                return Ok(());
            }
        }
    }
}
