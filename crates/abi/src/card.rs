//! What a card leaves behind a packet, and the memories that software fills. `docs/reference/card-layout.md` has the
//! worked example, the control frames, and what the card does with all this.
//!
//! A card appends a *trailer* to every frame that it passes to software: a body of answers, and the seal. Numbers are
//! little-endian. Which answers the body has depends on the policy; the seal is always the last eight bytes of the
//! frame.
//!
//! ```text
//! frame     | received bytes ... | body, 0 to 56 bytes | seal |
//!
//! seal       63                       24  23  22  21   16 15          0
//!           +---------------------------+---+---+-------+-------------+
//!           |           token           | C | A | body  |    epoch    |
//!           +---------------------------+---+---+-------+-------------+
//!           token: a secret of this card; C: an answer to a control frame; A: the body has answers; body: its bytes
//!
//! body      | flags, 0 to 8 bytes | fields, 0 to 15 bytes | lookups, 6 bytes each |
//!
//! flags      w + c + p - 1      w + c            w              0
//!           +-------------------+----------------+--------------+
//!           | patterns (p bits) | counted (c)    | first (w)    |   metadata2, metadata3, metadata4
//!           +-------------------+----------------+--------------+
//!
//! lookup     47 46    44 43          32 31                    0
//!           +--+--------+--------------+-----------------------+
//!           |V |   0    | low 12 bits  | entry of D16+X4       |   metadata1
//!           +--+--------+--------------+-----------------------+
//!           V: the packet has the address; low: bits 11..0 of it; both fields are 0 without V
//! ```
//! Example: epoch 7 of token 0x0102030405 and a body of one byte: the seal of a frame with answers is
//! `0x0102030405_41_0007`, in the frame `07 00 41 05 04 03 02 01`.

/// Bytes of the seal, the last of a trailer.
pub const SEAL_BYTES: usize = 8;
/// Most bytes of a body.
pub const BODY_BYTES_MAX: usize = 56;
/// Most bytes that a card appends: one beat of its 512-bit bus.
pub const TRAILER_BYTES_MAX: usize = 64;
/// Most bits of the flags: one word.
pub const FLAGS_BITS_MAX: usize = 64;
/// Most bits of `first`.
pub const FIRST_BITS_MAX: usize = 8;
/// Most D16+X4 lookups.
pub const LOOKUPS_MAX: usize = 6;
/// Bytes of a lookup in a body.
pub const LOOKUP_BYTES: usize = 6;
/// Set in the upper 16 bits of a lookup if the packet has the address.
pub const LOOKUP_VALID: u16 = 1 << 15;
/// The bits of the key that D16+X4 does not use.
pub const LOOKUP_LOW: u16 = 0xfff;

/// Most patterns that a card compares, rules that it has, ranges of a pattern.
pub const PATTERNS_MAX: usize = 64;
/// Most rules of a card.
pub const RULES_MAX: usize = 255;
/// Most ranges of a pattern.
pub const RANGES_MAX: usize = 8;
/// Most counters of packets that a card drops.
pub const COUNTERS_MAX: usize = 64;
/// Bytes of the longest frame that gets answers: 255 beats of a bus of 512 bits.
pub const FRAME_BYTES_MAX: usize = 255 * 64;
/// Most VLAN tags that a card parses.
pub const VLAN_TAGS_MAX: usize = 2;

const _: () = assert!(BODY_BYTES_MAX + SEAL_BYTES == TRAILER_BYTES_MAX);
const _: () = assert!(source::COUNT <= 64);

/// The bytes that a body may have, by number. [`memory::SELECT`] has one of these for each byte of the body.
pub mod source {
    use super::{LOOKUP_BYTES, LOOKUPS_MAX};

    /// The flags, 8 bytes.
    pub const FLAGS: u8 = 0;
    /// The headers of the packet, 2 bytes: bit n is header n of [`super::header`].
    pub const HEADERS: u8 = 8;
    /// The upper-layer protocol, 1 byte.
    pub const PROTOCOL: u8 = 10;
    /// The source port, 2 bytes; 0 if there is none.
    pub const SPORT: u8 = 12;
    /// The destination port, 2 bytes.
    pub const DPORT: u8 = 14;
    /// The IPv4 source, 4 bytes; 0 if there is none.
    pub const SADDR: u8 = 16;
    /// The IPv4 destination, 4 bytes.
    pub const DADDR: u8 = 20;
    /// Lookup n is at `LOOKUPS + n * LOOKUP_BYTES`.
    pub const LOOKUPS: u8 = 24;
    /// Bytes of all fields together.
    pub const FIELD_BYTES: usize = 15;
    /// Number of bytes.
    pub const COUNT: usize = LOOKUPS as usize + LOOKUPS_MAX * LOOKUP_BYTES;
}

/// Headers that a packet may have, by number. A pattern requires one.
pub mod header {
    /// Every packet.
    pub const ANY: u8 = 0;
    /// A VLAN tag.
    pub const VLAN: u8 = 1;
    /// Two VLAN tags.
    pub const QINQ: u8 = 2;
    /// IPv4.
    pub const IPV4: u8 = 3;
    /// IPv6.
    pub const IPV6: u8 = 4;
    /// IPv4 or IPv6.
    pub const IP: u8 = 5;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 7;
    /// ICMP in IPv4.
    pub const ICMP: u8 = 8;
    /// ICMPv6 in IPv6.
    pub const ICMP6: u8 = 9;
    /// TCP, UDP, UDP-Lite, SCTP or DCCP.
    pub const PORTS: u8 = 10;
    /// Every protocol but ESP and "no next header".
    pub const TRANSPORT: u8 = 11;
}

/// Fields that a pattern compares, by number. Each has up to 32 bits.
pub mod field {
    /// The upper-layer protocol.
    pub const PROTOCOL: u8 = 0;
    /// The source port.
    pub const SPORT: u8 = 1;
    /// The destination port.
    pub const DPORT: u8 = 2;
    /// The TCP flags.
    pub const TCP_FLAGS: u8 = 3;
    /// The IPv4 source.
    pub const SADDR: u8 = 4;
    /// The IPv4 destination.
    pub const DADDR: u8 = 5;
    /// Time to live, hop limit.
    pub const TTL: u8 = 6;
    /// Bytes from the network header to the end of the received frame.
    pub const LENGTH: u8 = 7;
    /// ICMP or ICMPv6 type.
    pub const ICMP_TYPE: u8 = 8;
    /// ICMP or ICMPv6 code.
    pub const ICMP_CODE: u8 = 9;
    /// The VLAN id of the outermost tag.
    pub const VLAN_ID: u8 = 10;
    /// The TCP window.
    pub const TCP_WINDOW: u8 = 11;
    /// Number of fields.
    pub const COUNT: usize = 12;
}

/// The memories of a card, by number. All are words of 32 bits, and all but counters have two banks: software writes
/// the bank that is not active.
pub mod memory {
    /// The registers of the bank ([`super::register`]).
    pub const CONFIG: u8 = 0;
    /// Pattern n is [`PATTERN_WORDS`] words at `n * PATTERN_WORDS`.
    pub const PATTERNS: u8 = 1;
    /// Rule n is [`RULE_WORDS`] words at `n * RULE_WORDS`.
    pub const RULES: u8 = 2;
    /// Word n is the source of byte n of the body ([`super::source`]).
    pub const SELECT: u8 = 3;
    /// Word n says how lookup n is used.
    pub const LOOKUPS: u8 = 4;
    /// Counters of the active bank, read only: counter n is [`COUNTER_WORDS`] words.
    pub const COUNTERS: u8 = 5;
    /// Counters of the bank that was active before, read only.
    pub const COUNTERS_BEFORE: u8 = 6;
    /// The direct section of lookup n is memory `DIRECT + n`: two block numbers a word.
    pub const DIRECT: u8 = 16;
    /// The extension section of lookup n is memory `EXTENSION + n`: an entry a word, 16 a block.
    pub const EXTENSION: u8 = 24;

    /// Words of a pattern: 2, and 2 for each range; 18 are used.
    pub const PATTERN_WORDS: usize = 32;
    /// Words of a rule.
    pub const RULE_WORDS: usize = 4;
    /// Words of a counter: packets and bytes, 64 bits each.
    pub const COUNTER_WORDS: usize = 4;
    /// Words of a direct section.
    pub const DIRECT_WORDS: usize = 1 << 15;
    /// Words of an extension block.
    pub const BLOCK_WORDS: usize = 16;
}

/// The registers of [`memory::CONFIG`], by number of the word.
pub mod register {
    /// The lower half of the seal of frames with answers; the upper half follows.
    pub const SEAL_ANSWERS: u8 = 0;
    /// The lower half of the seal of frames without; the upper half follows.
    pub const SEAL_ALONE: u8 = 2;
    /// Bits 3..0 `w`, 14..8 `c`, 21..16 bytes of the body, 30..24 `p`.
    pub const SHAPE: u8 = 4;
    /// Bits of [`super::mode`].
    pub const MODE: u8 = 5;
    /// Number of registers.
    pub const COUNT: usize = 6;
}

/// The bits of [`register::MODE`].
pub mod mode {
    /// Packets with IP options get no answers.
    pub const OPTIONS_ALONE: u32 = 0;
    /// Frames pass as they are: none is dropped, and none gets a trailer. Control frames are answered with the seal.
    pub const PLAIN: u32 = 1;
}

/// The bits of the first word of a pattern, of the first word of a rule, and of a word of [`memory::LOOKUPS`].
pub mod word {
    /// Pattern: the field in bits 3..0.
    pub const PATTERN_FIELD: u32 = 0;
    /// Pattern: the header in bits 7..4.
    pub const PATTERN_HEADER: u32 = 4;
    /// Pattern: the value must be outside of all ranges.
    pub const PATTERN_NEGATED: u32 = 8;
    /// Pattern: the value is compared; otherwise only the header is.
    pub const PATTERN_COMPARES: u32 = 9;
    /// Pattern: number of ranges in bits 15..12.
    pub const PATTERN_RANGES: u32 = 12;
    /// Rule: the act in bits 1..0 ([`super::act`]).
    pub const RULE_ACT: u32 = 0;
    /// Rule: the argument of the act in bits 15..8.
    pub const RULE_ARGUMENT: u32 = 8;
    /// Lookup: it is used.
    pub const LOOKUP_USED: u32 = 0;
    /// Lookup: the key is the destination; otherwise the source.
    pub const LOOKUP_DESTINATION: u32 = 1;
}

/// What a rule of the card does with a packet that all its patterns match.
pub mod act {
    /// The rule is not used.
    pub const NONE: u8 = 0;
    /// Sets bit `argument` of `counted`.
    pub const COUNT: u8 = 1;
    /// Drops the packet and adds it to counter `argument`.
    pub const DROP: u8 = 2;
    /// `first` is `argument`, unless an earlier rule of this kind matches.
    pub const END: u8 = 3;
}

/// Control frames, on the side of the software only.
pub mod control {
    /// The EtherType of control frames: "local experimental 1" of IEEE 802.
    pub const ETHER_TYPE: u16 = 0x88b5;
    /// Bytes before the words.
    pub const HEADER_BYTES: usize = 24;
    /// Most words of a frame.
    pub const WORDS_MAX: usize = 256;
    /// Writes words to a memory of the bank that is not active.
    pub const WRITE: u8 = 1;
    /// Makes the other bank active, from the next packet on.
    pub const COMMIT: u8 = 2;
    /// Reads words.
    pub const READ: u8 = 3;
    /// Set in the operation of the card's answer.
    pub const ANSWER: u8 = 0x80;
}

/// The last eight bytes of a frame from a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// A secret of 40 bits that software draws when it opens the card. Nothing that leaves Weir contains it.
    pub token: u64,
    /// Whether the frame answers a control frame.
    pub control: bool,
    /// Whether the body has answers. Otherwise software decides alone.
    pub answers: bool,
    /// Bytes of the body, at most [`BODY_BYTES_MAX`].
    pub body: u8,
    /// The policy that the answers are about.
    pub epoch: u16,
}

impl Seal {
    /// Bits of the token.
    pub const TOKEN_BITS: u32 = 40;
    const CONTROL: u32 = 23;
    const ANSWERS: u32 = 22;
    const BODY: u32 = 16;

    /// The seal as a number.
    pub const fn word(self) -> u64 {
        self.token << (64 - Self::TOKEN_BITS)
            | (self.control as u64) << Self::CONTROL
            | (self.answers as u64) << Self::ANSWERS
            | (self.body as u64) << Self::BODY
            | self.epoch as u64
    }

    /// The seal of a number.
    pub const fn of(word: u64) -> Self {
        Seal {
            token: word >> (64 - Self::TOKEN_BITS),
            control: word >> Self::CONTROL & 1 != 0,
            answers: word >> Self::ANSWERS & 1 != 0,
            body: (word >> Self::BODY & 0x3f) as u8,
            epoch: word as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_module() {
        let seal = Seal { token: 0x01_0203_0405, control: false, answers: true, body: 1, epoch: 7 };
        assert_eq!(seal.word(), 0x0102_0304_0541_0007);
        assert_eq!(seal.word().to_le_bytes(), [7, 0, 0x41, 5, 4, 3, 2, 1]);
        assert_eq!(Seal::of(seal.word()), seal);
    }

    #[test]
    fn every_bit_of_a_seal_belongs_to_one_member() {
        for bit in 0..64 {
            let word = 1u64 << bit;
            assert_eq!(Seal::of(word).word(), word, "bit {bit}");
        }
    }
}
