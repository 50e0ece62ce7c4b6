//! The memory that packets are in: frames of 4 KiB, all sockets of a lane share it, so that a packet goes from one interface to
//! another without being copied.

use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpDesc, XdpUmemReg, XdpUmemRegFlags};

use crate::live::checksum::Unfinished;

/// Bytes of a frame: a page, as drivers want it.
const FRAME_BYTES: usize = 4096;
/// Bytes before a packet that XDP programs may use (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// What is left of a frame for a packet, or for a piece of one that takes several frames.
pub const PACKET_BYTES: u32 = (FRAME_BYTES - HEADROOM) as u32;

/// The memory, and which frames are nobody's.
pub(super) struct Umem {
    start: *mut u8,
    bytes: usize,
    free: Vec<u64>,
}

impl Umem {
    /// Memory of so many frames, all free.
    pub fn new(frames: usize) -> Result<Self, Errno> {
        let bytes = frames * FRAME_BYTES;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags)? };
        let free = (0..frames as u64).map(|frame| frame * FRAME_BYTES as u64).collect();
        Ok(Umem { start: start.cast(), bytes, free })
    }

    /// What the kernel is told of it.
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

    /// A frame that is nobody's.
    pub fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// The frame that the address lies in is nobody's any more.
    pub fn give_back(&mut self, address: u64) {
        self.free.push(address & !(FRAME_BYTES as u64 - 1));
    }

    /// Finishes the checksum of a packet of so many bytes, which lies in these pieces, if its sender did not. They were received, and are ours.
    pub fn finish_checksum(&mut self, pieces: &[XdpDesc], length: u32) {
        let bytes = |piece: &XdpDesc| {
            let (start, length) = (self.at(piece.addr), piece.len as usize);
            assert!(piece.addr as usize + length <= self.bytes, "the kernel gives pieces of the memory");
            // SAFETY: inside, as just asserted; the kernel writes to it no more, and nobody else does meanwhile.
            unsafe { std::slice::from_raw_parts(start, length) }
        };
        let Some(found) = pieces.first().and_then(|first| Unfinished::find(bytes(first), length as usize)) else {
            return;
        };
        let checksum = found.checksum(pieces.iter().map(bytes));
        let field = self.at(pieces[0].addr + found.field as u64).cast_mut();
        // SAFETY: both bytes are of the first piece, in which they were found; no reference to it is left.
        unsafe { field.copy_from_nonoverlapping(checksum.as_ptr(), checksum.len()) };
    }

    /// Where an address lies. It was received, so that it is inside.
    pub fn at(&self, address: u64) -> *const u8 {
        assert!((address as usize) < self.bytes, "the kernel gives addresses of the memory");
        // SAFETY: inside, as just asserted.
        unsafe { self.start.add(address as usize) }
    }
}

impl Drop for Umem {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; the sockets that know it were closed before (AfXdpLane's fields are in that order).
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        unmapped.expect("what was mapped can be unmapped");
    }
}
