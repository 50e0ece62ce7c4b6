//! Corrupts packets step by step, so that proptest can shrink a failure to the relevant step.

use crate::Packet;
use proptest::collection::vec;
use proptest::prelude::*;

/// Maximum number of mutations per packet.
const MUTATIONS_MAX: usize = 4;
/// Maximum size of a mutated packet in bytes.
const PACKET_MAX: usize = 65_535;

/// One way to corrupt a packet. Positions are taken modulo its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Flips one bit.
    Flip {
        /// The bit, counted from the lowest of the first byte.
        bit: u32,
    },
    /// Sets one byte.
    Set {
        /// Position.
        at: u32,
        /// The new value.
        byte: u8,
    },
    /// Truncates the captured bytes; the length on the wire stays.
    Cut {
        /// Number of bytes that stay.
        at: u32,
    },
    /// Truncates the packet, on the wire too.
    Truncate {
        /// Number of bytes that stay.
        at: u32,
    },
    /// Removes bytes from the middle.
    Remove {
        /// Position.
        at: u32,
        /// Number of bytes.
        count: u8,
    },
    /// Writes a piece of another packet into this one.
    Splice {
        /// Position.
        at: u32,
        /// The piece.
        piece: Vec<u8>,
        /// Whether the bytes at the position are moved or overwritten.
        how: Splice,
    },
}

/// What a splice does with the bytes at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Splice {
    /// Moves them.
    Insert,
    /// Overwrites them.
    Overwrite,
}

impl Mutation {
    /// Corrupts `packet`. The length on the wire changes with it, except for [`Mutation::Cut`].
    pub fn apply(&self, packet: &mut Packet) {
        let missing = packet.wire - packet.bytes.len() as u32;
        let bytes = &mut packet.bytes;
        // Positions include 0 and the end, so that "everything" and "nothing" occur.
        let place = |at: u32| at as usize % (bytes.len() + 1);
        match self {
            Mutation::Cut { at } => {
                let at = place(*at);
                packet.bytes.truncate(at);
                return;
            }
            Mutation::Flip { bit } if !bytes.is_empty() => {
                let bit = *bit as usize % (bytes.len() * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            Mutation::Set { at, byte } if !bytes.is_empty() => {
                let at = *at as usize % bytes.len();
                bytes[at] = *byte;
            }
            Mutation::Flip { .. } | Mutation::Set { .. } => {}
            Mutation::Truncate { at } => {
                let at = place(*at);
                bytes.truncate(at);
            }
            Mutation::Remove { at, count } => {
                let at = place(*at);
                let end = bytes.len().min(at + usize::from(*count));
                bytes.drain(at..end);
            }
            Mutation::Splice { at, piece, how } => {
                let at = place(*at);
                let end = match how {
                    Splice::Insert => at,
                    Splice::Overwrite => bytes.len().min(at + piece.len()),
                };
                bytes.splice(at..end, piece.iter().copied());
                bytes.truncate(PACKET_MAX);
            }
        }
        packet.wire = packet.bytes.len() as u32 + missing;
    }
}

/// Any mutation. Half of the positions are in the first 64 bytes, which contain the headers.
pub fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || prop_oneof![0u32..64, any::<u32>()];
    let piece = vec(any::<u8>(), 1..24);
    let how = prop_oneof![Just(Splice::Insert), Just(Splice::Overwrite)];
    prop_oneof![
        3 => prop_oneof![0u32..512, any::<u32>()].prop_map(|bit| Mutation::Flip { bit }),
        3 => (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set { at, byte }),
        2 => at().prop_map(|at| Mutation::Cut { at }),
        2 => at().prop_map(|at| Mutation::Truncate { at }),
        1 => (at(), 1u8..40).prop_map(|(at, count)| Mutation::Remove { at, count }),
        1 => (at(), piece, how).prop_map(|(at, piece, how)| Mutation::Splice { at, piece, how }),
    ]
}

/// Packets of `base` with up to four mutations; shrinks to fewer.
pub fn mutated(base: impl Strategy<Value = Packet>) -> impl Strategy<Value = Packet> {
    (base, vec(mutation(), 0..=MUTATIONS_MAX)).prop_map(|(mut packet, mutations)| {
        mutations.iter().for_each(|mutation| mutation.apply(&mut packet));
        packet
    })
}

/// The start of one packet joined to the end of another, each cut at a random position.
pub fn spliced(
    left: impl Strategy<Value = Packet>,
    right: impl Strategy<Value = Packet>,
) -> impl Strategy<Value = Packet> {
    (left, right, any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(left, right, to, from)| {
        let (to, from) = (to.index(left.bytes.len() + 1), from.index(right.bytes.len() + 1));
        let mut bytes = [&left.bytes[..to], &right.bytes[from..]].concat();
        bytes.truncate(PACKET_MAX);
        Packet::new(left.link, bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet;

    fn apply(mutation: Mutation) -> Packet {
        let mut packet = packet("raw 00010203 / wire=10").expect("it reads");
        mutation.apply(&mut packet);
        packet
    }

    #[test]
    fn each_does_what_it_says() {
        assert_eq!(apply(Mutation::Flip { bit: 9 }).to_string(), "raw 00030203 / link=eth wire=10");
        assert_eq!(apply(Mutation::Set { at: 6, byte: 9 }).to_string(), "raw 00010903 / link=eth wire=10");
        assert_eq!(apply(Mutation::Cut { at: 2 }).to_string(), "raw 0001 / link=eth wire=10");
        assert_eq!(apply(Mutation::Truncate { at: 2 }).to_string(), "raw 0001 / link=eth wire=8");
        assert_eq!(apply(Mutation::Remove { at: 3, count: 9 }).to_string(), "raw 000102 / link=eth wire=9");
        let piece = vec![0xaa, 0xbb];
        let insert = Mutation::Splice { at: 1, piece: piece.clone(), how: Splice::Insert };
        assert_eq!(apply(insert).to_string(), "raw 00aabb010203 / link=eth wire=12");
        let overwrite = Mutation::Splice { at: 3, piece, how: Splice::Overwrite };
        assert_eq!(apply(overwrite).to_string(), "raw 000102aabb / link=eth wire=11");
    }

    proptest! {
        #[test]
        fn a_capture_is_never_longer_than_its_packet(packet in mutated(crate::strategy::packets(&Default::default()))) {
            prop_assert!(packet.bytes.len() <= packet.wire as usize);
        }

        #[test]
        fn no_mutation_minds_an_empty_packet(mutation in mutation()) {
            let mut packet = packet("raw").expect("it reads");
            mutation.apply(&mut packet);
        }
    }
}
