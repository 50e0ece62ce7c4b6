//! Packets for tests: written as text ([`notation`]) or made up by proptest ([`strategy`]), broken on purpose
//! ([`mutation`]); and random policies to try them on ([`policy`]).
//!
//! Depends on no other crate of Weir, so that every crate can test with it, and computes lengths and checksums from the
//! RFCs and not from the code under test.
//!
//! ```
//! let packets = weir_test_support::packets(
//!     "# a knock and an answer
//!      eth / vlan id=100 / ip saddr=198.51.100.7 daddr=203.0.113.1 / tcp sport=40000 dport=22 flags=syn window=1024
//!      eth / ip6 saddr=2001:db8::1 daddr=2001:db8::2 / frag off=1480 nh=udp / payload 32",
//! )?;
//! assert_eq!((packets[0].bytes.len(), packets[1].bytes.len()), (14 + 4 + 20 + 20, 14 + 40 + 8 + 32));
//! # Ok::<(), weir_test_support::NotationError>(())
//! ```
#![forbid(unsafe_code)]

mod args;
mod checksum;
mod layer;
mod link;
pub mod mutation;
mod network;
pub mod notation;
pub mod policy;
pub mod strategy;
mod transport;

pub use notation::{NotationError, packet, packets};

/// Link layer that a packet starts with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// Ethernet.
    Ethernet,
    /// No link header: IPv4 or IPv6 by the first nibble.
    RawIp,
    /// Linux cooked capture v1.
    Cooked,
    /// Linux cooked capture v2.
    Cooked2,
}

impl Link {
    /// All of them.
    pub const ALL: [Link; 4] = [Link::Ethernet, Link::RawIp, Link::Cooked, Link::Cooked2];

    /// The LINKTYPE number that a capture file declares.
    pub const fn linktype(self) -> u16 {
        match self {
            Link::Ethernet => 1,
            Link::RawIp => 101,
            Link::Cooked => 113,
            Link::Cooked2 => 276,
        }
    }

    /// The name in `link=`.
    pub const fn name(self) -> &'static str {
        match self {
            Link::Ethernet => "eth",
            Link::RawIp => "ip",
            Link::Cooked => "sll",
            Link::Cooked2 => "sll2",
        }
    }
}

/// A captured packet.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Packet {
    /// How it starts.
    pub link: Link,
    /// What was captured.
    pub bytes: Vec<u8>,
    /// Bytes that it had on the wire, never fewer than were captured.
    pub wire: u32,
    /// When it came, ns.
    pub time_ns: u64,
}

impl Packet {
    /// A packet captured whole, at time 0.
    pub fn new(link: Link, bytes: Vec<u8>) -> Self {
        let wire = u32::try_from(bytes.len()).expect("a packet is smaller than 4 GiB");
        Packet { link, bytes, wire, time_ns: 0 }
    }
}

/// The packet in the notation, as raw bytes: what a failing test prints can be pasted into a test.
impl std::fmt::Display for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("raw ")?;
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, " / link={} wire={}", self.link.name(), self.wire)?;
        match self.time_ns {
            0 => Ok(()),
            time => write!(f, " at={}.{:09}", time / 1_000_000_000, time % 1_000_000_000),
        }
    }
}

impl std::fmt::Debug for Packet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
