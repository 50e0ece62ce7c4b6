//! The packets that a chain changes, as they leave.

use crate::WINDOW_BYTES;

/// Most bytes of a packet that a chain changes: a window whose last header becomes longer.
pub const REWRITE_BYTES: usize = WINDOW_BYTES + 112;

/// What leaves in place of a received packet: `struct weir_rewrite` in `datapath/core/env.h`. The first `head` bytes
/// are new. From there on the received bytes follow, up to the length of what leaves.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Rewrite {
    /// Bytes that leave. What was not captured counts.
    pub len: u32,
    /// Bytes that `bytes` has, at most `len`.
    pub head: u32,
    /// Offset of the transport checksum that was updated; 0 if it was computed anew, or has not changed. If the sender
    /// left the checksum to its card, the update is wrong: code that completes such checksums first restores
    /// `checksum`.
    pub checksum_at: u32,
    /// The updated checksum as it was received, in network byte order.
    pub checksum: [u8; 2],
    zero: [u8; 2],
    /// The new bytes.
    pub bytes: [u8; REWRITE_BYTES],
}

const _: () = assert!(size_of::<Rewrite>() == 2176);

impl Default for Rewrite {
    fn default() -> Self {
        Rewrite { len: 0, head: 0, checksum_at: 0, checksum: [0; 2], zero: [0; 2], bytes: [0; REWRITE_BYTES] }
    }
}

impl Rewrite {
    /// The new bytes.
    pub fn head(&self) -> &[u8] {
        &self.bytes[..self.head as usize]
    }

    /// The range of received bytes that follow the new ones. `captured` is the number of captured bytes of the packet.
    /// The range is empty if no bytes follow.
    pub fn tail(&self, captured: usize) -> std::ops::Range<usize> {
        let end = captured.min(self.len as usize);
        (self.head as usize).min(end)..end
    }

    /// The whole packet, as far as it was captured.
    pub fn packet(&self, received: &[u8]) -> Vec<u8> {
        [self.head(), &received[self.tail(received.len())]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::Rewrite;

    #[test]
    fn the_received_bytes_follow_the_new_ones() {
        let mut rewrite = Rewrite { len: 6, head: 2, ..Rewrite::default() };
        rewrite.bytes[..2].copy_from_slice(&[9, 8]);
        assert_eq!(rewrite.packet(&[1, 2, 3, 4, 5, 6]), [9, 8, 3, 4, 5, 6]);
        assert_eq!(rewrite.packet(&[1, 2, 3, 4]), [9, 8, 3, 4], "the capture ends early");
        assert_eq!(rewrite.packet(&[1]), [9, 8]);
        let short = Rewrite { len: 2, ..rewrite };
        assert_eq!(short.packet(&[1, 2, 3, 4]), [9, 8], "what leaves is shorter");
    }
}
