//! The memory that packets are in: frames of [`FRAME_BYTES`], all sockets of a lane share it, so that a packet goes from one interface to
//! another without being copied.

use std::ptr::null_mut;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};
use weir_abi::Frame;

/// Bytes of a frame: a page, as drivers want it. 256 of them are headroom, so packets of 3,840 bytes fit.
pub const FRAME_BYTES: usize = 4096;

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

    /// Copies a packet into a frame that is nobody's; the copy's address. `None` if there is no such frame.
    pub fn copy(&mut self, packet: &Frame) -> Option<u64> {
        let copy = self.take()?;
        assert!(packet.cap as usize <= FRAME_BYTES, "a packet lies in one frame");
        // SAFETY: the packet is readable and in another frame than the free one, which has room for it.
        unsafe { self.start.add(copy as usize).copy_from_nonoverlapping(packet.data, packet.cap as usize) };
        Some(copy)
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
