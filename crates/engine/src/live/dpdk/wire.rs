//! The peer of a port under test, with which generators and tests send and receive in a separate process.

use weir_abi::{BURST_MAX, Frame, Link, WINDOW_BYTES};

use super::eal::Eal;
use super::port::{Found, Ports};
use super::shim::{self, Mbuf};
use crate::frame_set::FrameSet;
use crate::{EngineError, FrameBurst};

/// A queue pair of a port.
pub struct Wire {
    port: u16,
    packets: [*mut Mbuf; BURST_MAX],
    frames: [Frame; BURST_MAX],
    windows: Box<[[u8; WINDOW_BYTES]]>,
    /// Packets that are sent repeatedly.
    stock: Vec<*mut Mbuf>,
    ports: Ports,
}

// SAFETY: the queues and packets belong to this value alone.
unsafe impl Send for Wire {}

impl Wire {
    /// Opens a port by its DPDK name, to send frames of at most `longest` bytes.
    ///
    /// # Errors
    /// There is no such port, or not enough memory.
    pub fn open(eal: &Eal, name: &str, longest: u16) -> Result<Self, EngineError> {
        let ports = Ports::open(&[Found::find(eal, name, 1)?], 1, &[longest])?;
        Ok(Wire {
            port: ports.ports[0].id,
            packets: [std::ptr::null_mut(); BURST_MAX],
            frames: [Frame { data: std::ptr::null(), cap: 0, len: 0 }; BURST_MAX],
            windows: shim::windows(),
            stock: Vec::new(),
            ports,
        })
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        self.ports.ports[0].look();
        self.ports.ports[0].is_up()
    }

    /// Sends the frames of a burst. Returns how many the port took, counted from the first.
    pub fn send(&mut self, burst: &FrameBurst<'_>) -> usize {
        let (pool, frames) = (self.ports.pools[0].0, burst.frames());
        let packets = self.packets.as_mut_ptr();
        // SAFETY: there is room for a burst. The frames are readable as their burst promises. Packets that are not sent
        // are freed.
        unsafe {
            let made = shim::dpdk_make(pool, frames.as_ptr(), packets, frames.len() as u32);
            let sent = shim::dpdk_send(self.port, 0, packets, made);
            shim::dpdk_free(packets.add(sent as usize), made - sent);
            sent as usize
        }
    }

    /// Builds packets with the bytes of these frames, to be sent repeatedly. Returns the number of bursts, which may be
    /// fewer if memory is short.
    pub fn stock(&mut self, frames: &FrameSet) -> usize {
        self.empty();
        for burst in frames.bursts() {
            let (pool, frames, packets) = (self.ports.pools[0].0, burst.frames(), self.packets.as_mut_ptr());
            // SAFETY: there is room for a burst, and the frames are readable as their burst promises.
            let made = unsafe { shim::dpdk_make(pool, frames.as_ptr(), packets, frames.len() as u32) };
            self.stock.extend(&self.packets[..made as usize]);
            if (made as usize) < frames.len() {
                break;
            }
        }
        self.stock.len().div_ceil(BURST_MAX)
    }

    /// Sends a burst of the stock. Returns how many packets the port took, counted from the first.
    ///
    /// # Panics
    /// Panics if there is no burst with this number.
    pub fn send_stock(&mut self, burst: usize) -> usize {
        let end = self.stock.len().min((burst + 1) * BURST_MAX);
        let packets = &mut self.stock[burst * BURST_MAX..end];
        // SAFETY: this value owns the packets, and keeps them.
        unsafe { shim::dpdk_send_again(self.port, 0, packets.as_mut_ptr(), packets.len() as u32) as usize }
    }

    fn empty(&mut self) {
        // SAFETY: this value owns the packets, and they are not accessed again.
        unsafe { shim::dpdk_free(self.stock.as_mut_ptr(), self.stock.len() as u32) };
        self.stock.clear();
    }

    /// Passes received frames to `see`. Returns their number.
    pub fn receive(&mut self, see: impl FnOnce(&FrameBurst<'_>)) -> usize {
        let (packets, frames) = (self.packets.as_mut_ptr(), self.frames.as_mut_ptr());
        // SAFETY: there is room for a burst of packets, frames and windows.
        let count = unsafe { shim::dpdk_receive(self.port, 0, packets, frames, self.windows.as_mut_ptr()) };
        if count > 0 {
            // SAFETY: this value owns the packets until they are freed, after the end of the burst.
            see(&unsafe { FrameBurst::from_raw(&self.frames[..count as usize], Link::Ethernet, 0) });
            // SAFETY: this value owns the packets and does not access them again.
            unsafe { shim::dpdk_free(self.packets.as_mut_ptr(), count) };
        }
        count as usize
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.empty();
    }
}

#[cfg(test)]
mod tests {
    use super::super::owned_burst;
    use super::*;
    use crate::live::checksum::Unfinished;
    use crate::live::checksum::tests::unfinished;
    use weir_abi::verdict::Sampled;
    use weir_abi::{Action, Reason, Rewrite, Verdict};

    // DPDK starts once in a process.
    #[test]
    fn packets_come_back_from_a_ring() {
        let eal =
            Eal::start("--no-huge -m 320 --no-pci --vdev=net_ring0 --vdev=net_ring1 --vdev=net_ring2 --vdev=net_ring3")
                .expect("DPDK starts");
        the_window_of_a_packet_of_several_pieces_is_in_one(&eal);
        what_leaves_is_the_same_wherever_pieces_end(&eal);
        checksums_are_completed_wherever_pieces_end(&eal);
        threads_hand_packets_over_and_send_those_that_are_accepted(&eal);
    }

    fn threads_hand_packets_over_and_send_those_that_are_accepted(eal: &Eal) {
        let (mut receiver, mut sender) = owned_burst::open(eal, "net_ring1", 2048).expect("it has queues");
        let frames: Vec<Vec<u8>> = (0..8_u8).map(|at| vec![at; 60]).collect();
        let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], 60)));
        assert!(receiver.receive().is_none());
        sender.put(&set.burst(0));
        let held = receiver.receive().expect("packets wait");
        let held = std::thread::spawn(move || held).join().expect("it can be moved");
        let verdict = |at: usize| Verdict::new([Action::Accept, Action::Drop][at % 2], Reason::rule(0), Sampled::No);
        let verdicts: Vec<Verdict> = (0..8).map(verdict).collect();
        assert_eq!(sender.send(held, &verdicts), 4);
        let held = receiver.receive().expect("half of them wait");
        let first: Vec<u8> = (0..held.burst().len()).map(|at| held.burst().bytes(at)[0]).collect();
        assert_eq!(first, [0, 2, 4, 6]);
    }

    fn what_leaves_is_the_same_wherever_pieces_end(eal: &Eal) {
        const PIECE: usize = 200;
        let mut wire = Wire::open(eal, "net_ring2", PIECE as u16).expect("a ring that gives back what it takes");
        let bytes: Vec<u8> = (0..600).map(|at| (at ^ at >> 8) as u8).collect();
        let new: Vec<u8> = (0..WINDOW_BYTES).map(|at| 255 - at as u8).collect();
        for length in [60, PIECE - 8, PIECE - 7, PIECE, PIECE + 1, 599] {
            for (head, leaves) in
                [(60, 60), (58, length), (20, 60), (60, (60 + length) / 2), (length, length), (length + 8, length + 8)]
            {
                let set = FrameSet::new(Link::Ethernet, [(&bytes[..length], length as u32)]);
                assert_eq!(wire.send(&set.burst(0)), 1);
                let (packets, frames) = (wire.packets.as_mut_ptr(), wire.frames.as_mut_ptr());
                // SAFETY: there is room for a burst of packets, frames and windows.
                assert_eq!(unsafe { shim::dpdk_receive(wire.port, 0, packets, frames, wire.windows.as_mut_ptr()) }, 1);
                let mut rewrite = Rewrite::default();
                (rewrite.len, rewrite.head) = (leaves as u32, head as u32);
                rewrite.bytes[..head].copy_from_slice(&new[..head]);
                // SAFETY: the packet and its frame were just received.
                let is_done = unsafe { super::super::queue::rewrite(wire.packets[0], &wire.frames[0], &rewrite) };
                // Segments are full except for the last.
                assert_eq!(is_done, leaves <= length.next_multiple_of(PIECE), "{length}: {head}, {leaves}");
                // SAFETY: the port takes the packet, or it is freed.
                unsafe {
                    match is_done {
                        true => assert_eq!(shim::dpdk_send(wire.port, 0, wire.packets.as_mut_ptr(), 1), 1),
                        false => shim::dpdk_free(wire.packets.as_mut_ptr(), 1),
                    }
                }
                let received = wire.receive(|burst| {
                    assert_eq!(burst.wire_len(0) as usize, leaves);
                    assert_eq!(burst.bytes(0), rewrite.packet(&bytes[..length]), "{length}: {head}, {leaves}");
                });
                assert_eq!(received, usize::from(is_done));
            }
        }
    }

    fn checksums_are_completed_wherever_pieces_end(eal: &Eal) {
        const PIECE: usize = 200;
        const TCP: u8 = 6;
        let mut wire = Wire::open(eal, "net_ring3", PIECE as u16).expect("a ring that gives back what it takes");
        for payload in [6, 140, PIECE, 1400] {
            let bytes = unfinished(TCP, 0, payload);
            let found = Unfinished::find(&bytes, bytes.len()).expect("its sender has left the checksum");
            let set = FrameSet::new(Link::Ethernet, [(&bytes[..], bytes.len() as u32)]);
            assert_eq!(wire.send(&set.burst(0)), 1);
            let (packets, frames) = (wire.packets.as_mut_ptr(), wire.frames.as_mut_ptr());
            // SAFETY: there is room for a burst of packets, frames and windows. The packet that was received is sent.
            unsafe {
                assert_eq!(shim::dpdk_receive(wire.port, 0, packets, frames, wire.windows.as_mut_ptr()), 1);
                super::super::queue::finish_checksums(&wire.packets[..1], &wire.frames[..1]);
                assert_eq!(shim::dpdk_send(wire.port, 0, wire.packets.as_mut_ptr(), 1), 1);
            }
            let mut finished = bytes.clone();
            finished[found.field..found.field + 2].copy_from_slice(&found.checksum([&bytes[..]].into_iter()));
            assert_eq!(wire.receive(|burst| assert_eq!(burst.bytes(0), finished, "{payload}")), 1);
        }
    }

    fn the_window_of_a_packet_of_several_pieces_is_in_one(eal: &Eal) {
        const PIECE: usize = 200;
        let mut wire = Wire::open(eal, "net_ring0", PIECE as u16).expect("a ring that gives back what it takes");
        let bytes: Vec<u8> = (0..9000).map(|at| (at ^ at >> 8) as u8).collect();
        for length in [60, PIECE, PIECE + 1, 1500, WINDOW_BYTES - 1, WINDOW_BYTES, WINDOW_BYTES + 1, 9000] {
            let set = FrameSet::new(Link::Ethernet, [(&bytes[..length], length as u32)]);
            assert_eq!(wire.send(&set.burst(0)), 1, "{length}");
            let received = wire.receive(|burst| {
                assert_eq!(burst.wire_len(0) as usize, length);
                let window = length.min(WINDOW_BYTES);
                assert!(burst.bytes(0).len() >= window, "{length}: {} bytes", burst.bytes(0).len());
                assert_eq!(&burst.bytes(0)[..window], &bytes[..window], "{length}");
            });
            assert_eq!(received, 1, "{length}");
        }
    }
}
