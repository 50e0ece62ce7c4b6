//! pcapng for packets that are written on as they come, with what is known of each: blocks in memory, little-endian.

use weir_abi::Link;

use super::interface::Resolution;
use super::link_type_of;
use super::pcapng::{BYTE_ORDER_MAGIC, COMMENT_BYTES_MAX, block, option};

/// `isb_*` options of interface statistics, in the order of their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceStatistics {
    /// `isb_ifrecv`: packets that there were.
    pub received: u64,
    /// `isb_ifdrop`: packets that are missing for want of room or time.
    pub dropped: u64,
    /// `isb_filteraccept`: packets that the filter accepted.
    pub accepted: u64,
    /// `isb_osdrop`: those of the missing ones that a slow reader has cost.
    pub lost: u64,
    /// `isb_usrdeliv`: packets that were delivered.
    pub delivered: u64,
}

impl InterfaceStatistics {
    const FIRST: u16 = 4;

    fn values(self) -> [u64; 5] {
        [self.received, self.dropped, self.accepted, self.lost, self.delivered]
    }

    /// The statistics and the comment in the body of a statistics block of a [`PacketStream`].
    pub fn read(body: &[u8]) -> Option<(Self, String)> {
        let (mut values, mut comment) = ([0; 5], String::new());
        let mut rest = body.get(12..)?;
        loop {
            let (head, after) = rest.split_first_chunk::<4>()?;
            let (code, length) =
                (u16::from_le_bytes([head[0], head[1]]), usize::from(u16::from_le_bytes([head[2], head[3]])));
            let value = after.get(..length)?;
            match usize::from(code.wrapping_sub(Self::FIRST)) {
                _ if code == option::END => break,
                _ if code == option::COMMENT => comment = String::from_utf8_lossy(value).into_owned(),
                number if number < values.len() => values[number] = u64::from_le_bytes(value.try_into().ok()?),
                _ => {}
            }
            rest = after.get(length.next_multiple_of(4)..)?;
        }
        let [received, dropped, accepted, lost, delivered] = values;
        Some((InterfaceStatistics { received, dropped, accepted, lost, delivered }, comment))
    }
}

/// What is known of a packet.
#[derive(Clone, Copy, Debug)]
pub struct StreamedPacket<'a> {
    /// Number of its interface.
    pub interface: u32,
    /// Time in ns since 1970.
    pub at_ns: u64,
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// Its length.
    pub wire_len: u32,
    /// Whether it goes in.
    pub is_inbound: bool,
    /// A comment.
    pub comment: &'a str,
}

/// Blocks that were not taken yet.
#[derive(Debug, Default)]
pub struct PacketStream {
    out: Vec<u8>,
    interfaces: u32,
}

/// The type of a block of interface statistics.
pub const STATISTICS: u32 = 5;
/// The type of a block with a packet.
pub const PACKET: u32 = block::ENHANCED_PACKET;

/// `shb_userappl`
const APPLICATION: u16 = 4;
/// `if_description`
const DESCRIPTION: u16 = 3;
/// `epb_flags`, and the two directions in it.
const FLAGS: u16 = 2;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

impl PacketStream {
    /// A stream that begins with the name of the program and a comment.
    pub fn new(application: &str, comment: &str) -> Self {
        let mut stream = PacketStream::default();
        stream.block(block::SECTION, |out| {
            [BYTE_ORDER_MAGIC, 1, u32::MAX, u32::MAX].iter().for_each(|word| put_word(out, *word));
            put_text(out, option::COMMENT, comment);
            put_text(out, APPLICATION, application);
            put_option(out, option::END, &[]);
        });
        stream
    }

    /// Describes an interface. Returns its number.
    pub fn interface(&mut self, link: Link, name: &str, description: &str) -> u32 {
        self.block(block::INTERFACE, |out| {
            put_word(out, link_type_of(link).into());
            put_word(out, 0);
            put_text(out, option::NAME, name);
            put_text(out, DESCRIPTION, description);
            put_option(out, option::RESOLUTION, &[Resolution::NANOSECONDS.to_option()]);
            put_option(out, option::END, &[]);
        });
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Number of interfaces.
    pub fn interfaces(&self) -> u32 {
        self.interfaces
    }

    /// Appends a packet.
    pub fn packet(&mut self, packet: &StreamedPacket<'_>) {
        let StreamedPacket { interface, at_ns, bytes, wire_len, is_inbound, comment } = *packet;
        self.block(block::ENHANCED_PACKET, |out| {
            let head = [interface, (at_ns >> 32) as u32, at_ns as u32, bytes.len() as u32, wire_len];
            head.iter().for_each(|word| put_word(out, *word));
            put_padded(out, bytes);
            put_text(out, option::COMMENT, comment);
            put_option(out, FLAGS, &(if is_inbound { INBOUND } else { OUTBOUND }).to_le_bytes());
            put_option(out, option::END, &[]);
        });
    }

    /// Appends statistics of an interface.
    pub fn statistics(&mut self, interface: u32, at_ns: u64, statistics: InterfaceStatistics, comment: &str) {
        self.block(STATISTICS, |out| {
            [interface, (at_ns >> 32) as u32, at_ns as u32].iter().for_each(|word| put_word(out, *word));
            put_text(out, option::COMMENT, comment);
            for (code, value) in (InterfaceStatistics::FIRST..).zip(statistics.values()) {
                put_option(out, code, &value.to_le_bytes());
            }
            put_option(out, option::END, &[]);
        });
    }

    /// Bytes of the blocks that were not taken yet.
    pub fn waiting(&self) -> usize {
        self.out.len()
    }

    /// Takes the blocks.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.out.len();
        put_word(&mut self.out, kind);
        put_word(&mut self.out, 0);
        body(&mut self.out);
        let bytes = (self.out.len() - begin + size_of::<u32>()) as u32;
        put_word(&mut self.out, bytes);
        self.out[begin + 4..begin + 8].copy_from_slice(&bytes.to_le_bytes());
    }
}

fn put_word(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

fn put_padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.extend_from_slice(&[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()]);
}

fn put_option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    put_word(out, u32::from(code) | (value.len() as u32) << 16);
    put_padded(out, value);
}

/// Appends an option with a text, cut to [`COMMENT_BYTES_MAX`]. An empty text is left out.
fn put_text(out: &mut Vec<u8>, code: u16, text: &str) {
    let text = &text[..text.floor_char_boundary(COMMENT_BYTES_MAX)];
    if !text.is_empty() {
        put_option(out, code, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::CaptureReader;

    #[test]
    fn the_reader_reads_what_is_written() {
        let mut stream = PacketStream::new("weir", "udp");
        let (lower, upper) =
            (stream.interface(Link::Ethernet, "lower", "eth0"), stream.interface(Link::Ethernet, "upper", ""));
        let bytes: Vec<u8> = (0..61).collect();
        let at_ns = 1_700_000_000_123_456_789;
        let packet = StreamedPacket {
            interface: lower,
            at_ns,
            bytes: &bytes,
            wire_len: 1500,
            is_inbound: true,
            comment: "drop",
        };
        stream.packet(&packet);
        stream.packet(&StreamedPacket { interface: upper, at_ns: at_ns + 1, is_inbound: false, comment: "", ..packet });
        let statistics = InterfaceStatistics { received: 9, dropped: 7, accepted: 3, lost: 5, delivered: 2 };
        stream.statistics(lower, at_ns, statistics, "2 packets");
        let whole = stream.take();
        let at = whole.len() - u32::from_le_bytes(*whole.last_chunk().expect("a length")) as usize;
        let body = &whole[at + 8..whole.len() - 4];
        assert_eq!(InterfaceStatistics::read(body), Some((statistics, "2 packets".to_owned())));
        assert!(InterfaceStatistics::read(&body[..body.len() - 1]).is_none());
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), &whole).expect("it can be written");
        let mut reader = CaptureReader::open(file.path()).expect("it is a capture");
        let burst = reader.next_burst().expect("it is whole").expect("it has packets");
        let read: Vec<_> = (0..burst.frames().len())
            .map(|index| (burst.record(index).0.to_vec(), burst.record(index).1, burst.stamp_ns(index)))
            .collect();
        assert_eq!(read, [(bytes.clone(), 1500, at_ns), (bytes, 1500, at_ns + 1)]);
    }
}
