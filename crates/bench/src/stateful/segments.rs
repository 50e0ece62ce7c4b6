//! TCP segments of numbered connections, all with the same sequence numbers.

use weir_abi::Link;
use weir_engine::frame_set::FrameSet;
use weir_engine::traffic::SMALL_FRAME_BYTES;

/// A segment, as a host sends it.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Whether the server sends it.
    pub from_server: bool,
    /// The flags.
    pub flags: u8,
    seq: u32,
    ack: u32,
}

const SYN: u8 = 2;
const ACK: u8 = 16;

impl Segment {
    /// The SYN of a client.
    pub const SYN: Segment = Segment { from_server: false, flags: SYN, seq: 1000, ack: 0 };
    /// The answer.
    pub const SYN_ACK: Segment = Segment { from_server: true, flags: SYN | ACK, seq: 9000, ack: 1001 };
    /// An acknowledgement of the client, which also ends the handshake.
    pub const ACK: Segment = Segment { from_server: false, flags: ACK, seq: 1001, ack: 9001 };

    /// A ring of such segments, to be rewritten by [`Segment::write`].
    pub fn ring(frames: usize) -> FrameSet {
        let frame = [0; SMALL_FRAME_BYTES];
        let mut set = FrameSet::new(Link::Ethernet, vec![(&frame[..], SMALL_FRAME_BYTES as u32); frames]);
        (0..frames).for_each(|index| Segment::SYN.write(set.frame_mut(index), 0));
        set
    }

    /// Writes the segment of a connection. The server is the same host for all of them.
    pub fn write(self, packet: &mut [u8], connection: u32) {
        let client = (0x0a00_0000 + connection / PORTS, 1024 + (connection % PORTS) as u16);
        let server = (0xc633_6401_u32, 443_u16);
        let (source, destination) = if self.from_server { (server, client) } else { (client, server) };
        packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        packet[14..26].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        packet[26..30].copy_from_slice(&source.0.to_be_bytes());
        packet[30..34].copy_from_slice(&destination.0.to_be_bytes());
        packet[34..36].copy_from_slice(&source.1.to_be_bytes());
        packet[36..38].copy_from_slice(&destination.1.to_be_bytes());
        packet[38..42].copy_from_slice(&self.seq.to_be_bytes());
        packet[42..46].copy_from_slice(&self.ack.to_be_bytes());
        packet[46..54].copy_from_slice(&[0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
    }
}

/// Connections of one client.
const PORTS: u32 = 60_000;
