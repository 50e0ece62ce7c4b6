//! Packets that a program in the kernel has seen and not yet counted: a queue for each sheet of a CPU, and direction.
//!
//! ```text
//!   head of features | queue of CPU 0, sheet 0, upstream | downstream | CPU 0, sheet 1, ... | CPU 1, sheet 0, ...
//!
//!   queue    0         8      16     24      32    64            2112
//!           +---------+------+------+-------+-----+-------------+
//!           | waiting | seen | next | taken |  0  | 64 x packet |
//!           +---------+------+------+-------+-----+-------------+
//!
//!   packet   0     16        20      24        26    28           29       30  32
//!           +-----+---------+-------+---------+-----+------------+--------+---+
//!           | key | element | bytes | packets | bit | packets_at | bit_at | 0 |
//!           +-----+---------+-------+---------+-----+------------+--------+---+
//! ```
//! Example: a TCP SYN of 60 bytes whose address has element 9, from a peer that sets bit 2 of lane 5, is
//! `0, 0, 60 << 32 | 9, 58 << 40 | 0 << 32 | 4 << 16 | 1`. If a hash selects cells, `element` is [`KEYED4`] or
//! [`KEYED6`], and the key selects the cell.

use super::ELEMENT_WORDS;

/// Packets of a queue: `FEATURE_QUEUE`.
pub const QUEUE: usize = 64;
/// Words of a waiting packet.
pub const WAITING_WORDS: usize = size_of::<WaitingPacket>() / size_of::<u64>();
/// Words of a queue.
pub const QUEUE_WORDS: usize = ELEMENT_WORDS + QUEUE * WAITING_WORDS;

/// The element of a packet whose cell has the key of an IPv4 prefix: `FEATURE_KEYED4`.
pub const KEYED4: u32 = u32::MAX;
/// The element of a packet whose cell has the key of an IPv6 prefix: `FEATURE_KEYED6`.
pub const KEYED6: u32 = u32::MAX - 1;

/// A packet that is not counted yet: `struct feature_waiting`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct WaitingPacket {
    /// The key of its address, if a hash selects cells.
    pub key: [u64; 2],
    /// The element of the sheet that counts it, [`KEYED4`] or [`KEYED6`].
    pub element: u32,
    /// Bytes on the wire.
    pub bytes: u32,
    /// Packets that a card makes of it.
    pub packets: u16,
    /// The bit of its peer; 0 if it has none.
    pub bit: u16,
    /// The byte of a cell where the packets of its class are.
    pub packets_at: u8,
    /// The byte of a cell where the lane of its peer is.
    pub bit_at: u8,
    /// Always 0.
    pub zero: u16,
}

impl WaitingPacket {
    /// From its words in memory.
    pub fn from_words([high, low, counted, of]: [u64; WAITING_WORDS]) -> Self {
        WaitingPacket {
            key: [high, low],
            element: counted as u32,
            bytes: (counted >> 32) as u32,
            packets: of as u16,
            bit: (of >> 16) as u16,
            packets_at: (of >> 32) as u8,
            bit_at: (of >> 40) as u8,
            zero: 0,
        }
    }
}

/// Number of words of a head and the queues of so many CPUs.
pub fn head_words(cpus: usize) -> usize {
    queue_at(cpus, 0, 0)
}

/// The first word of a queue behind the head: the number of packets that wait.
pub fn queue_at(cpu: usize, sheet: usize, direction: usize) -> usize {
    ELEMENT_WORDS + ((cpu * 2 + sheet) * 2 + direction) * QUEUE_WORDS
}

const _: () = assert!(WAITING_WORDS == 4 && QUEUE_WORDS == 264);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_are_written() {
        let packet = WaitingPacket::from_words([1, 2, 60 << 32 | 9, 58 << 40 | 32 << 32 | 4 << 16 | 3]);
        let WaitingPacket { key, element, bytes, packets, bit, packets_at, bit_at, .. } = packet;
        assert_eq!((key, element, bytes), ([1, 2], 9, 60));
        assert_eq!((packets, bit, packets_at, bit_at), (3, 4, 32, 58));
    }

    #[test]
    fn queues_follow_each_other() {
        assert_eq!(queue_at(0, 0, 0), ELEMENT_WORDS);
        let mut next = ELEMENT_WORDS;
        for (cpu, sheet) in (0..4).flat_map(|cpu| [0, 1].map(|sheet| (cpu, sheet))) {
            for direction in 0..2 {
                assert_eq!(queue_at(cpu, sheet, direction), next);
                next += QUEUE_WORDS;
            }
        }
        assert_eq!(head_words(4), next);
    }
}
