//! The umem: memory for packets in frames of 4 KiB. All sockets of a lane share it, so a packet goes from one interface
//! to another without a copy.

use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpDesc, XdpUmemReg, XdpUmemRegFlags};

use crate::live::checksum::Unfinished;

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
        let bytes = |piece: &XdpDesc| {
            let (start, length) = (self.at(piece.addr), piece.len as usize);
            assert!(piece.addr as usize + length <= self.bytes, "the kernel gives pieces of the memory");
            // SAFETY: the range is inside, as just asserted. The kernel no longer writes to it, and no other thread
            // does.
            unsafe { std::slice::from_raw_parts(start, length) }
        };
        let Some(found) = pieces.first().and_then(|first| Unfinished::find(bytes(first), length as usize)) else {
            return;
        };
        let checksum = found.checksum(pieces.iter().map(bytes));
        let field = self.at(pieces[0].addr + found.field as u64).cast_mut();
        // SAFETY: both bytes are in the first piece, where the field was found. No reference to it is left.
        unsafe { field.copy_from_nonoverlapping(checksum.as_ptr(), checksum.len()) };
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
