//! The ring of blocks into which the kernel writes received packets (linux/if_packet.h, TPACKET_V3).
//!
//! ```text
//! block   +------------------+----------+----------+-- ... --+
//!         | block descriptor | packet 0 | packet 1 |         |
//!         +------------------+----------+----------+-- ... --+
//! packet  +--------------+-----+----------------+-------+
//!         | tpacket3_hdr | ... | virtio_net_hdr | frame |      tp_mac: from the header to the frame
//!         +--------------+-----+----------------+-------+      tp_next_offset: to the next packet
//! ```
//! The kernel owns a block until it sets `TP_STATUS_USER` in the descriptor. Then this process owns it until it resets
//! the flag. The kernel hands a block over when it is full or has reached the requested age.

use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{TP_STATUS_VLAN_TPID_VALID, TP_STATUS_VLAN_VALID, tpacket_block_desc, tpacket3_hdr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weir_abi::{BURST_MAX, Frame};

use crate::EngineError;
use crate::live::afpacket::socket::{RingRequest, Socket};

/// Size of a block. It exceeds the largest frame (64 KiB).
const BLOCK_BYTES: usize = 1 << 17;
/// Number of blocks. The kernel moves to the next block when one reaches its age. A worker may be off its core for this
/// many times that age.
const BLOCKS: usize = 128;
/// Size of fixed frame slots, which are not used. The kernel requires a divisor of the block size.
const FRAME_BYTES: usize = 1 << 11;
/// Maximum age in milliseconds of a packet in a partly filled block, if others wait for the packet.
pub(super) const SOON_MS: u32 = 1;
/// Maximum age in milliseconds of a packet in a partly filled block, if packets may wait but none may be missed.
pub(super) const LATE_MS: u32 = 8;

const VLAN_BYTES: u32 = 4;
const MACS: usize = 12;
const VNET_BYTES: usize = size_of::<VnetHeader>();

/// `struct virtio_net_hdr`: unfinished offloads of a packet (virtio 1.2, section 5.1.6). In native byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(in crate::live) struct VnetHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

const _: () = assert!(size_of::<VnetHeader>() == 10);

/// What is needed to send a received packet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::live) struct Offload {
    pub vnet: VnetHeader,
}

impl VnetHeader {
    const NEEDS_CSUM: u8 = 1;

    /// Whether the checksum of the packet is incomplete, so that its next sender must complete it.
    pub fn needs_checksum(&self) -> bool {
        self.flags & Self::NEEDS_CSUM != 0
    }

    /// Whether the packet is one of several segments that a card would cut it into.
    pub fn is_segmented(&self) -> bool {
        self.gso_type != 0
    }

    /// Completes the checksum in a packet's bytes: the field has the sum of the pseudo header.
    pub fn complete_checksum(&self, bytes: &mut [u8]) {
        let (start, field) =
            (usize::from(self.csum_start), usize::from(self.csum_start) + usize::from(self.csum_offset));
        if !self.needs_checksum() || field + 2 > bytes.len() {
            return;
        }
        let pairs =
            bytes[start..].chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| low.into()));
        let mut sum: u64 = pairs.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        // UDP has no checksum 0 (RFC 768), and for TCP both are the same number.
        let checksum = if sum == 0xffff { 0xffff } else { !(sum as u16) };
        bytes[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    #[cfg(test)]
    pub fn unfinished() -> Self {
        VnetHeader { flags: Self::NEEDS_CSUM, ..VnetHeader::default() }
    }

    /// Adjusts offsets after the packet's headers grew by `bytes`.
    fn shift(&mut self, bytes: u16) {
        if self.needs_checksum() {
            self.csum_start += bytes;
        }
        if self.gso_type != 0 {
            self.hdr_len += bytes;
        }
    }
}

/// The mapped ring and the read position.
pub(super) struct Ring {
    start: *mut u8,
    /// The block that is being read or awaited.
    block: usize,
    /// Offset of its next packet from the block's start, and number of packets left. `at` is 0 if the kernel owns the
    /// block.
    at: usize,
    left: u32,
}

impl Ring {
    /// Requests the socket's ring and maps it. No packet waits in a block for longer than `retire_ms`.
    pub fn map(socket: &Socket, retire_ms: u32) -> Result<Self, EngineError> {
        let request = RingRequest {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: BLOCKS as u32,
            tp_frame_size: FRAME_BYTES as u32,
            tp_frame_nr: (BLOCKS * BLOCK_BYTES / FRAME_BYTES) as u32,
            tp_retire_blk_tov: retire_ms,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        socket.request_ring(&request)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: this creates a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), BLOCKS * BLOCK_BYTES, protection, flags, socket.as_fd(), 0) };
        let start = start.map_err(|errno| socket.device().failed(errno))?;
        Ok(Ring { start: start.cast(), block: 0, at: 0, left: 0 })
    }

    /// Returns the next packets of a block; none if the kernel owns it. They stay valid until [`Ring::release`].
    pub fn receive(&mut self, frames: &mut [Frame; BURST_MAX], offloads: &mut [Offload; BURST_MAX]) -> usize {
        if self.left == 0 && !self.take_block() {
            return 0;
        }
        let count = BURST_MAX.min(self.left as usize);
        for (frame, offload) in frames.iter_mut().zip(offloads).take(count) {
            (*frame, *offload) = self.next_packet();
        }
        self.left -= count as u32;
        count
    }

    /// Releases the packets received last.
    pub fn release(&mut self) {
        if self.left == 0 && self.at != 0 {
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.block = (self.block + 1) % BLOCKS;
            self.at = 0;
        }
    }

    /// Whether this process owns the next block. A block without packets is returned at once.
    fn take_block(&mut self) -> bool {
        while self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0 {
            // SAFETY: this process owns the block, which starts with a descriptor, aligned as blocks are.
            let header = unsafe { self.block_start().cast::<tpacket_block_desc>().read().hdr.bh1 };
            self.at = header.offset_to_first_pkt as usize;
            self.left = header.num_pkts;
            if self.left > 0 {
                return true;
            }
            self.at = self.at.max(1);
            self.release();
        }
        false
    }

    fn next_packet(&mut self) -> (Frame, Offload) {
        // SAFETY: `at` is the offset of a packet in this block, which this process owns. The offset comes from the
        // block's descriptor or from the previous packet.
        let packet = unsafe { self.block_start().add(self.at) };
        // SAFETY: as above; a packet starts with its header, aligned to 16 bytes.
        let header = unsafe { packet.cast::<tpacket3_hdr>().read() };
        // SAFETY: `tp_snaplen` bytes of the frame start `tp_mac` bytes after the header.
        let frame = unsafe { packet.add(usize::from(header.tp_mac)) };
        // SAFETY: with PACKET_VNET_HDR the kernel writes this header directly before the frame.
        let vnet = unsafe { frame.sub(VNET_BYTES).cast::<VnetHeader>().read_unaligned() };
        let mut offload = Offload { vnet };
        let mut frame = Frame { data: frame, cap: header.tp_snaplen, len: header.tp_len };
        let vlan = header.hv1;
        if header.tp_status & TP_STATUS_VLAN_VALID != 0 && header.tp_snaplen as usize >= MACS {
            let tpid = if header.tp_status & TP_STATUS_VLAN_TPID_VALID != 0 { vlan.tp_vlan_tpid } else { 0x8100 };
            frame = put_tag_back(frame, tpid, vlan.tp_vlan_tci as u16);
            offload.vnet.shift(VLAN_BYTES as u16);
        }
        self.at += header.tp_next_offset as usize;
        (frame, offload)
    }

    fn block_start(&self) -> *mut u8 {
        // SAFETY: `block` is below BLOCKS, the number of mapped blocks.
        unsafe { self.start.add(self.block * BLOCK_BYTES) }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: a block starts with a descriptor, and this word of it is shared with the kernel.
        unsafe {
            let block = self.block_start().cast::<tpacket_block_desc>();
            AtomicU32::from_ptr(&raw mut (*block).hdr.bh1.block_status)
        }
    }
}

/// Moves the addresses forward and inserts the VLAN tag after them. The data before the frame has already been read.
fn put_tag_back(frame: Frame, tpid: u16, tci: u16) -> Frame {
    let [a, b] = tpid.to_be_bytes();
    let [c, d] = tci.to_be_bytes();
    let old = frame.data.cast_mut();
    // SAFETY: this process owns the block. The packet's header and more than 4 bytes that are not read again lie before
    // the frame. The frame has at least both addresses.
    unsafe {
        let new = old.sub(VLAN_BYTES as usize);
        std::ptr::copy(old, new, MACS);
        new.add(MACS).copy_from_nonoverlapping([a, b, c, d].as_ptr(), VLAN_BYTES as usize);
        Frame { data: new, cap: frame.cap + VLAN_BYTES, len: frame.len + VLAN_BYTES }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `map` mapped this length, and no frame in it is in use any more.
        let unmapped = unsafe { munmap(self.start.cast(), BLOCKS * BLOCK_BYTES) };
        unmapped.expect("what was mapped can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_all_words_behind_its_start() {
        // Two bytes in front, then 0x0102, the field with the sum of the pseudo header, and an odd byte.
        let header =
            VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start: 2, csum_offset: 2, ..VnetHeader::default() };
        let mut bytes = [9, 9, 0x01, 0x02, 0x00, 0x10, 0x80];
        header.complete_checksum(&mut bytes);
        assert_eq!(bytes, [9, 9, 0x01, 0x02, 0x7e, 0xed, 0x80]);
        let (mut short, before) = ([1, 2, 3], [1, 2, 3]);
        header.complete_checksum(&mut short);
        VnetHeader::default().complete_checksum(&mut short);
        assert_eq!(short, before);
        let mut zero = [0, 0, 0xff, 0xef, 0x00, 0x10];
        header.complete_checksum(&mut zero);
        assert_eq!(zero[4..], [0xff, 0xff], "a sum of 0xffff");
    }
}
