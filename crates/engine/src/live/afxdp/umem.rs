//! The umem: memory for packets in frames of 4 KiB. All sockets of a lane share it, so a packet goes from one interface
//! to another without a copy.

use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpDesc, XdpUmemReg, XdpUmemRegFlags};
use weir_abi::Rewrite;

use crate::live::checksum::{self, Unfinished};

/// Size of a frame: a page, as drivers require.
const FRAME_BYTES: usize = 4096;
/// Bytes before a packet that XDP programs may use (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Room in a frame for a packet, or for a piece of a packet in several frames.
pub const PACKET_BYTES: u32 = (FRAME_BYTES - HEADROOM) as u32;

/// The memory, and its free frames.
pub(super) struct Umem {
    start: *mut u8,
    bytes: usize,
    free: Vec<u64>,
}

impl Umem {
    /// Allocates memory for `frames` frames, all free.
    pub fn new(frames: usize) -> Result<Self, Errno> {
        let bytes = frames * FRAME_BYTES;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: this creates a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags)? };
        let free = (0..frames as u64).map(|frame| frame * FRAME_BYTES as u64).collect();
        Ok(Umem { start: start.cast(), bytes, free })
    }

    /// The registration for the kernel.
    pub fn registration(&self) -> XdpUmemReg {
        XdpUmemReg {
            addr: self.start as u64,
            len: self.bytes as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        }
    }

    /// Takes a free frame.
    pub fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// Frees the frame that contains the address.
    pub fn give_back(&mut self, address: u64) {
        self.free.push(address & !(FRAME_BYTES as u64 - 1));
    }

    /// Completes the checksum of a packet of `length` bytes in these pieces, if its sender left it to the card. The
    /// pieces were received and belong to this process.
    pub fn finish_checksum(&mut self, pieces: &[XdpDesc], length: u32) {
        let first = pieces.first().map(|first| self.piece(first));
        let Some(found) = first.and_then(|first| Unfinished::find(first, length as usize)) else {
            return;
        };
        let checksum = found.checksum(pieces.iter().map(|piece| self.piece(piece)));
        self.write(pieces[0].addr + found.field as u64, &checksum);
    }

    /// Changes a received packet into what leaves in its place, after its checksum was completed. Returns the number of
    /// pieces that are left, or none if the last frame has no room for a longer packet.
    pub fn rewrite(&mut self, pieces: &mut [XdpDesc], rewrite: &Rewrite) -> Option<usize> {
        let checksum = checksum::updated(rewrite, self.piece(pieces.first()?));
        let received: u32 = pieces.iter().map(|piece| piece.len).sum();
        let (mut head, count) = (rewrite.head(), pieces.len());
        let mut left = (head.len() + rewrite.tail(received as usize).len()) as u32;
        for (place, piece) in pieces.iter_mut().enumerate() {
            let is_last = place + 1 == count;
            let room = if is_last { FRAME_BYTES as u32 - piece.addr as u32 % FRAME_BYTES as u32 } else { piece.len };
            piece.len = left.min(room);
            let (here, rest) = head.split_at(head.len().min(piece.len as usize));
            self.write(piece.addr, here);
            (head, left) = (rest, left - piece.len);
            if left == 0 {
                if let Some(checksum) = checksum {
                    self.write(pieces[0].addr + u64::from(rewrite.checksum_at), &checksum);
                }
                return Some(place + 1);
            }
        }
        None
    }

    /// The bytes of a received piece, which belongs to this process.
    fn piece(&self, piece: &XdpDesc) -> &[u8] {
        let (start, length) = (self.at(piece.addr), piece.len as usize);
        assert!(piece.addr as usize + length <= self.bytes, "the kernel gives pieces of the memory");
        // SAFETY: the range is inside, as just asserted. The kernel no longer writes to it, and no other thread does.
        unsafe { std::slice::from_raw_parts(start, length) }
    }

    /// Writes to a received piece, which belongs to this process.
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let to = self.at(address).cast_mut();
        assert!(address as usize + bytes.len() <= self.bytes, "pieces are parts of the memory");
        // SAFETY: the range is inside, as just asserted. `self` is borrowed mutably, so `bytes` are elsewhere.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// The memory at an address, which the kernel gave and so is inside.
    pub fn at(&self, address: u64) -> *const u8 {
        assert!((address as usize) < self.bytes, "the kernel gives addresses of the memory");
        // SAFETY: the address is inside, as just asserted.
        unsafe { self.start.add(address as usize) }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it. The sockets that use it are already closed (by the order of AfXdpLane's fields).
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        unmapped.expect("what was mapped can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::xdp::XdpDescOptions;

    /// Puts bytes into frames, cut at these offsets, each piece at its own offset in its frame.
    fn put(umem: &mut Umem, bytes: &[u8], cuts: &[usize], starts: &[u64]) -> Vec<XdpDesc> {
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let pieces = [0].into_iter().chain(cuts.iter().copied()).zip(ends).zip(starts).map(|((from, end), start)| {
            let addr = umem.take().expect("frames are free") + start;
            umem.write(addr, &bytes[from..end]);
            XdpDesc { addr, len: (end - from) as u32, options: XdpDescOptions::empty() }
        });
        pieces.collect()
    }

    fn change(head: &[u8], len: usize) -> Rewrite {
        let mut rewrite = Rewrite::default();
        (rewrite.len, rewrite.head) = (len as u32, head.len() as u32);
        rewrite.bytes[..head.len()].copy_from_slice(head);
        rewrite
    }

    /// What leaves in place of a packet in these pieces, and the number of its pieces.
    fn leaves(bytes: &[u8], cuts: &[usize], starts: &[u64], rewrite: &Rewrite) -> Option<(Vec<u8>, usize)> {
        let mut umem = Umem::new(8).expect("there is memory");
        let mut pieces = put(&mut umem, bytes, cuts, starts);
        let left = umem.rewrite(&mut pieces, rewrite)?;
        Some((pieces[..left].iter().flat_map(|piece| umem.piece(piece)).copied().collect(), left))
    }

    #[test]
    fn what_leaves_is_the_same_wherever_pieces_end() {
        let bytes: Vec<u8> = (0..200).collect();
        let head: Vec<u8> = (0..80).map(|at| 255 - at).collect();
        for (rewrite, pieces) in [
            (change(&head, 200), [1, 2, 3, 2]),
            (change(&head, 81), [1, 2, 3, 2]),
            (change(&head, 80), [1, 2, 3, 1]),
            (change(&head[..40], 40), [1, 1, 1, 1]),
            (change(&head[..10], 60), [1, 1, 2, 1]),
        ] {
            let cuts: [&[usize]; 4] = [&[], &[60], &[40, 79], &[80]];
            for (cuts, pieces) in cuts.into_iter().zip(pieces) {
                let expected = rewrite.packet(&bytes);
                assert_eq!(leaves(&bytes, cuts, &[256, 300, 3000], &rewrite), Some((expected, pieces)), "{cuts:?}");
            }
        }
    }

    #[test]
    fn a_packet_grows_as_far_as_its_last_frame() {
        let (bytes, head) = ([7; 60], [9; 68]);
        let end = FRAME_BYTES as u64;
        let longer = change(&head, 68);
        assert_eq!(leaves(&bytes, &[], &[256], &longer), Some((head.to_vec(), 1)));
        assert_eq!(leaves(&bytes, &[], &[end - 68], &longer), Some((head.to_vec(), 1)));
        assert_eq!(leaves(&bytes, &[], &[end - 67], &longer), None);
        assert_eq!(leaves(&bytes, &[50], &[256, 256], &longer), Some((head.to_vec(), 2)));
        assert_eq!(leaves(&bytes, &[50], &[256, end - 17], &longer), None);
    }

    #[test]
    fn a_checksum_that_was_completed_is_updated() {
        let mut rewrite = change(&[1, 1, 0, 7, 1, 1], 8);
        (rewrite.checksum_at, rewrite.checksum) = (2, [0, 5]);
        let leaves = |field: [u8; 2]| leaves(&[2, 2, field[0], field[1], 2, 2, 2, 2], &[5], &[256; 2], &rewrite);
        assert_eq!(leaves([0, 5]), Some((vec![1, 1, 0, 7, 1, 1, 2, 2], 2)));
        assert_eq!(leaves([3, 4]), Some((vec![1, 1, 3, 6, 1, 1, 2, 2], 2)));
    }
}
