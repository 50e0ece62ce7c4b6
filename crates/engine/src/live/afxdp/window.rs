//! The window of packets in several pieces, made contiguous for filters.
//!
//! Most first pieces are at least as long as the window. If one is not, the window is copied, so that the packet is
//! decided as if it were in one piece. All pieces are sent from where they are.

use weir_abi::{BURST_MAX, Frame, WINDOW_BYTES};

/// Room for the windows of a burst.
pub(super) struct Windows(Box<[[u8; WINDOW_BYTES]]>);

impl Windows {
    pub fn new() -> Self {
        Windows(vec![[0; WINDOW_BYTES]; BURST_MAX].into_boxed_slice())
    }

    /// The frame for packet `place` of a burst: its first piece if that is long enough, else a copy of its window. The
    /// copy is valid until the next packet at that index.
    ///
    /// # Safety
    /// The pieces are readable while the frame is used.
    pub unsafe fn frame(&mut self, place: usize, pieces: impl Iterator<Item = Frame> + Clone) -> Frame {
        let len: u32 = pieces.clone().map(|piece| piece.len).sum();
        let first = pieces.clone().next().expect("a packet has a piece");
        if first.cap as usize >= WINDOW_BYTES.min(len as usize) {
            return Frame { len, ..first };
        }
        let (window, mut filled) = (&mut self.0[place], 0);
        for piece in pieces {
            let more = (WINDOW_BYTES - filled).min(piece.cap as usize);
            // SAFETY: the piece is readable, by the caller's promise. The rest of the window has room for `more` bytes.
            unsafe { window.as_mut_ptr().add(filled).copy_from_nonoverlapping(piece.data, more) };
            filled += more;
        }
        Frame { data: window.as_ptr(), cap: filled as u32, len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'a>(bytes: &'a [u8], ends: &'a [usize]) -> impl Iterator<Item = Frame> + Clone {
        let starts = [0].into_iter().chain(ends.iter().copied());
        let piece = |(start, end): (usize, usize)| {
            let piece = &bytes[start..end];
            Frame { data: piece.as_ptr(), cap: piece.len() as u32, len: piece.len() as u32 }
        };
        starts.zip(ends.iter().copied().chain([bytes.len()])).map(piece)
    }

    #[test]
    fn a_window_is_the_beginning_of_its_packet_wherever_pieces_end() {
        let bytes: Vec<u8> = (0..9000).map(|at| (at ^ at >> 8) as u8).collect();
        let mut windows = Windows::new();
        for length in [1, 14, 60, 2047, 2048, 2049, 9000] {
            let packet = &bytes[..length];
            for ends in [&[][..], &[1], &[14, 54], &[40, 41, 42, 2000], &[2047], &[2048], &[3840, 7680]] {
                let ends: Vec<usize> = ends.iter().copied().filter(|&end| end < length).collect();
                // SAFETY: the pieces are parts of `bytes`.
                let frame = unsafe { windows.frame(3, pieces(packet, &ends)) };
                assert_eq!(frame.len as usize, length, "{ends:?}");
                // SAFETY: as above, or it is the window, which nothing else accesses.
                let seen = unsafe { std::slice::from_raw_parts(frame.data, frame.cap as usize) };
                assert!(seen.len() >= WINDOW_BYTES.min(length), "{length}, {ends:?}");
                assert_eq!(seen, &packet[..seen.len()], "{length}, {ends:?}");
                let first = ends.first().copied().unwrap_or(length);
                assert_eq!(
                    frame.data == packet.as_ptr(),
                    first >= WINDOW_BYTES.min(length),
                    "copied only where it must be"
                );
            }
        }
    }
}
