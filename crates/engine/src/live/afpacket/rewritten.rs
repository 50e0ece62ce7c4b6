//! What leaves in place of a received packet, in pieces for one system call.

use weir_abi::{Frame, Rewrite};

use crate::live::afpacket::ring::Offload;

/// The pieces: new bytes, then received ones. If the kernel is to complete the checksum, the field is as received: the
/// sum of the pseudo header, which a translation does not change.
pub(super) fn pieces(frame: &Frame, rewrite: &Rewrite, offload: &Offload) -> impl Iterator<Item = Frame> {
    let (head, at) = (rewrite.head(), rewrite.checksum_at as usize);
    let new = match is_unfinished(rewrite, offload) {
        true => [&head[..at], &rewrite.checksum, &head[at + rewrite.checksum.len()..]],
        false => [head, &[], &[]],
    };
    let tail = rewrite.tail(frame.cap as usize);
    // SAFETY: `tail` lies inside of the frame, or is empty at its end at most.
    let tail = Frame { data: unsafe { frame.data.add(tail.start) }, cap: tail.len() as u32, len: tail.len() as u32 };
    let new = new.map(|piece| Frame { data: piece.as_ptr(), cap: piece.len() as u32, len: piece.len() as u32 });
    new.into_iter().chain([tail]).filter(|piece| piece.cap > 0)
}

/// What the kernel is to do for it. The checksum of a new segment is complete, and nothing is to be cut.
pub(super) fn offload(rewrite: &Rewrite, received: &Offload) -> Offload {
    if rewrite.checksum_at == 0 { Offload::default() } else { *received }
}

fn is_unfinished(rewrite: &Rewrite, offload: &Offload) -> bool {
    rewrite.checksum_at != 0 && offload.vnet.needs_checksum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::afpacket::ring::VnetHeader;

    fn bytes(frame: &Frame, rewrite: &Rewrite, offload: &Offload) -> Vec<u8> {
        let pieces = pieces(frame, rewrite, offload);
        // SAFETY: pieces point into the rewrite and the frame.
        pieces
            .flat_map(|piece| unsafe { std::slice::from_raw_parts(piece.data, piece.cap as usize) }.to_vec())
            .collect()
    }

    #[test]
    fn a_checksum_that_the_kernel_completes_is_as_received() {
        let received: Vec<u8> = (0..10).collect();
        let frame = Frame { data: received.as_ptr(), cap: 10, len: 10 };
        let mut rewrite = Rewrite::default();
        (rewrite.len, rewrite.head, rewrite.checksum_at, rewrite.checksum) = (10, 6, 3, [3, 4]);
        rewrite.bytes[..6].copy_from_slice(&[90, 91, 92, 93, 94, 95]);
        let unfinished = Offload { vnet: VnetHeader::unfinished() };
        assert_eq!(bytes(&frame, &rewrite, &Offload::default()), [90, 91, 92, 93, 94, 95, 6, 7, 8, 9]);
        assert_eq!(bytes(&frame, &rewrite, &unfinished), [90, 91, 92, 3, 4, 95, 6, 7, 8, 9]);
        assert_eq!(offload(&rewrite, &unfinished).vnet, unfinished.vnet);
        (rewrite.len, rewrite.checksum_at) = (6, 0);
        assert_eq!(bytes(&frame, &rewrite, &unfinished), [90, 91, 92, 93, 94, 95]);
        assert_eq!(offload(&rewrite, &unfinished).vnet, VnetHeader::default());
    }
}
