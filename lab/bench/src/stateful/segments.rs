//! TCP segments of connections, all with the same sequence numbers.

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
const RST: u8 = 4;
const ACK: u8 = 16;

impl Segment {
    /// The SYN of a client.
    pub const SYN: Segment = Segment { from_server: false, flags: SYN, seq: 1000, ack: 0 };
    /// The answer.
    pub const SYN_ACK: Segment = Segment { from_server: true, flags: SYN | ACK, seq: 9000, ack: 1001 };
    /// An acknowledgement of the client, which also ends the handshake.
    pub const ACK: Segment = Segment { from_server: false, flags: ACK, seq: 1001, ack: 9001 };

    /// A reset of the client.
    pub const RESET: Segment = Segment { from_server: false, flags: RST, seq: 1001, ack: 0 };

    /// This segment with other numbers.
    pub fn with_numbers(self, seq: u32, ack: u32) -> Segment {
        Segment { seq, ack, ..self }
    }

    /// A ring of such segments, to be rewritten by [`Segment::write`].
    pub fn ring(frames: usize) -> FrameSet {
        let frame = [0; SMALL_FRAME_BYTES];
        let mut set = FrameSet::new(Link::Ethernet, vec![(&frame[..], SMALL_FRAME_BYTES as u32); frames]);
        (0..frames).for_each(|index| Segment::SYN.write(set.frame_mut(index), 0));
        set
    }

    /// Writes the segment of a numbered connection. The server is the same host for all of them. Checksums stay 0.
    pub fn write(self, packet: &mut [u8], connection: u32) {
        let client = (0x0a00_0000 + connection / PORTS, 1024 + (connection % PORTS) as u16);
        self.write_between(packet, client, (SERVER, SERVER_PORT), HEADERS);
    }

    /// The segment of a connection from a client's address, with right checksums: a frame of `bytes` bytes, at least
    /// [`SMALL_FRAME_BYTES`]. A smallest frame is padded, a longer one has data.
    pub fn frame(self, client: u32, bytes: usize) -> Vec<u8> {
        self.frame_between((client, CLIENT_PORT), (SERVER, SERVER_PORT), bytes)
    }

    /// A frame with this segment between two addresses and ports.
    pub fn frame_between(self, client: (u32, u16), server: (u32, u16), bytes: usize) -> Vec<u8> {
        let mut frame = vec![0; bytes];
        let end = if bytes == SMALL_FRAME_BYTES { HEADERS } else { bytes };
        self.write_between(&mut frame, client, server, end);
        let header = checksum(&frame[14..34], 0);
        frame[24..26].copy_from_slice(&header.to_be_bytes());
        let pseudo = checksum(&frame[26..34], 6 + (end - 34) as u32);
        let segment = checksum(&frame[34..end], u32::from(!pseudo));
        frame[50..52].copy_from_slice(&segment.to_be_bytes());
        frame
    }

    /// Writes the headers, for a frame that ends at `end`.
    fn write_between(self, packet: &mut [u8], client: (u32, u16), server: (u32, u16), end: usize) {
        let (source, destination) = if self.from_server { (server, client) } else { (client, server) };
        let total = u16::try_from(end - 14).expect("a frame is shorter than 64 KiB").to_be_bytes();
        packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00]);
        packet[14..26].copy_from_slice(&[0x45, 0, total[0], total[1], 0, 0, 0, 0, 64, 6, 0, 0]);
        packet[26..30].copy_from_slice(&source.0.to_be_bytes());
        packet[30..34].copy_from_slice(&destination.0.to_be_bytes());
        packet[34..36].copy_from_slice(&source.1.to_be_bytes());
        packet[36..38].copy_from_slice(&destination.1.to_be_bytes());
        packet[38..42].copy_from_slice(&self.seq.to_be_bytes());
        packet[42..46].copy_from_slice(&self.ack.to_be_bytes());
        packet[46..54].copy_from_slice(&[0x50, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
    }
}

/// The checksum of the Internet (RFC 1071) over bytes, after a sum.
pub fn checksum(bytes: &[u8], sum: u32) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum = sum + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// `count` addresses of clients whose halves add up to 0xffff. So a generator can put one in place of another, and
/// checksums stay right.
///
/// # Panics
/// If there are not as many unicast addresses.
pub fn clients(count: usize) -> Vec<u32> {
    let halves = (0x0b00..0x7f00_u32).chain(0x8000..0xc000);
    let clients: Vec<u32> = halves.map(|high| high << 16 | (0xffff - high)).take(count).collect();
    assert_eq!(clients.len(), count, "there are fewer such addresses");
    clients
}

/// The server and its port, and the port of all clients of [`clients`].
pub const SERVER: u32 = 0xc633_6401;
const SERVER_PORT: u16 = 443;
const CLIENT_PORT: u16 = 1024;
/// The end of the headers in a frame.
const HEADERS: usize = 54;

/// Connections of one client.
const PORTS: u32 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_replace_each_other_and_checksums_stay_right() {
        let clients = clients(40_000);
        for bytes in [SMALL_FRAME_BYTES, 88, 1500] {
            let first = Segment::ACK.frame(clients[0], bytes);
            for &client in [&clients[1], &clients[39_999]] {
                let mut replaced = first.clone();
                weir_engine::traffic::set_source(&mut replaced, client);
                assert_eq!(replaced, Segment::ACK.frame(client, bytes));
            }
        }
        // A sum over a header with its checksum is 0.
        let frame = Segment::SYN_ACK.frame(clients[7], SMALL_FRAME_BYTES);
        assert_eq!(checksum(&frame[14..34], 0), 0);
        assert_eq!(checksum(&frame[26..54], 6 + 20), 0);
    }
}
