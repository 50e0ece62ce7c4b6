//! The structures of sFlow: flow samples, counter samples and notifications of dropped packets.
//!
//! A structure is its format (`enterprise << 12 | number`, here always of enterprise 0), its length and its fields:
//!
//! ```text
//! flow sample (compact, 1)    sequence, source, rate, pool, drops, input, output, records<>
//! counters sample (2)         sequence, source, records<>
//! discarded packet (5)        sequence, source class, source index, drops, input, output, reason, records<>
//! ```
//! Sources and interfaces of compact samples are one word: 8 bits class and 24 bits index, or 2 bits format and 30 bits
//! value. Expanded samples (3 and 4) have a word for each.

use crate::octets::Octets;
use crate::sflow::reason::DropReason;

/// Formats of samples.
mod samples {
    pub const FLOW: u32 = 1;
    pub const COUNTERS: u32 = 2;
    pub const EXPANDED_FLOW: u32 = 3;
    pub const EXPANDED_COUNTERS: u32 = 4;
    pub const DISCARDED_PACKET: u32 = 5;
}

/// Formats of records.
mod records {
    pub const RAW_HEADER: u32 = 1;
    pub const GENERIC_INTERFACE: u32 = 1;
    pub const PORT_NAME: u32 = 1005;
    pub const EXTENDED_ACL: u32 = 1037;
    pub const EXTENDED_FUNCTION: u32 = 1038;
}

/// Bytes of the check sequence of Ethernet, which `frame_length` counts and no engine of Weir receives.
const FCS_BYTES: u32 = 4;
/// Bytes of a packet that a sample contains.
pub const HEADER_BYTES_MAX: usize = 128;
/// Bytes of the name of a rule or fault in a notification.
const NAME_BYTES_MAX: usize = 128;
/// The first index that does not fit into compact samples.
pub const COMPACT_INDEXES: u32 = 1 << 24;

/// Which form samples have. An agent must not mix them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// For indexes below 2^24.
    Compact,
    /// For all indexes.
    Expanded,
}

impl Encoding {
    /// The form for interfaces with these indexes.
    pub fn of(indexes: impl IntoIterator<Item = u32>) -> Self {
        match indexes.into_iter().all(|index| index < COMPACT_INDEXES) {
            true => Encoding::Compact,
            false => Encoding::Expanded,
        }
    }
}

/// Where a packet went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// One of several interfaces.
    Unknown,
    /// The interface with this index.
    Interface(u32),
    /// The machine itself.
    Host,
    /// It was dropped.
    Dropped(DropReason),
}

impl Output {
    /// Format and value of an interface.
    fn parts(self) -> (u32, u32) {
        /// The value for the machine itself.
        const HOST: u32 = 0x3fff_ffff;
        match self {
            Output::Unknown => (0, 0),
            Output::Interface(index) => (0, index),
            Output::Host => (0, HOST),
            Output::Dropped(reason) => (1, reason as u32),
        }
    }
}

/// `header_protocol`: how a packet begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum HeaderProtocol {
    /// With an Ethernet header.
    Ethernet = 1,
    /// With an IPv4 header.
    Ipv4 = 11,
    /// With an IPv6 header.
    Ipv6 = 12,
}

/// The beginning of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// How it begins.
    pub protocol: HeaderProtocol,
    /// Its first bytes.
    pub bytes: &'a [u8],
    /// Bytes of the whole frame, without check sequence.
    pub wire_len: u32,
    /// Index of the interface that received it; 0 if it is not known.
    pub input: u32,
}

/// What dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedBy<'a> {
    /// A rule of a policy.
    Rule {
        /// Its number in the policy, from 1.
        number: u32,
        /// Its place in the policy.
        at: &'a str,
        /// Whether packets from outside or from inside pass the rule.
        direction: AclDirection,
    },
    /// A fault of the packet, or another reason with a name.
    Fault(&'a str),
}

/// `direction` of an access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AclDirection {
    /// From the network to the protected hosts.
    Ingress = 1,
    /// From the protected hosts to the network.
    Egress = 2,
}

/// The counters of an interface. What is not counted is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its speed, in Mbit/s.
    pub speed_mbps: Option<u32>,
    /// Whether it sends and receives at the same time.
    pub is_full_duplex: Option<bool>,
    /// Whether it is administratively up, and has a link.
    pub is_up: (bool, bool),
    /// Bytes of received frames.
    pub in_bytes: u64,
    /// Received packets.
    pub in_packets: u64,
    /// Packets that found no room in a receive queue.
    pub in_discards: Option<u64>,
    /// Received packets that the engine could not take.
    pub in_errors: u64,
    /// Bytes of sent frames.
    pub out_bytes: u64,
    /// Sent packets.
    pub out_packets: u64,
    /// Packets that could not be sent for lack of room or link.
    pub out_discards: u64,
    /// Packets that could not be sent for other reasons.
    pub out_errors: u64,
}

/// A flow sample.
pub(super) struct FlowSample<'a> {
    pub sequence: u32,
    pub rate: u32,
    pub pool: u32,
    pub drops: u32,
    pub packet: Packet<'a>,
    pub output: Output,
}

impl FlowSample<'_> {
    pub fn write(&self, encoding: Encoding, out: &mut Octets) {
        let (format, value) = self.output.parts();
        match encoding {
            Encoding::Compact => out.structure(samples::FLOW, |out| {
                out.u32s(&[self.sequence, self.packet.input]);
                out.u32s(&[self.rate, self.pool, self.drops]);
                out.u32(self.packet.input);
                out.u32(format << 30 | value);
                out.u32(1);
                self.packet.write(out);
            }),
            Encoding::Expanded => out.structure(samples::EXPANDED_FLOW, |out| {
                out.u32s(&[self.sequence, 0, self.packet.input]);
                out.u32s(&[self.rate, self.pool, self.drops]);
                out.u32s(&[0, self.packet.input, format, value]);
                out.u32(1);
                self.packet.write(out);
            }),
        }
    }
}

impl Packet<'_> {
    /// Its record: `sampled_header`.
    fn write(&self, out: &mut Octets) {
        let bytes = &self.bytes[..self.bytes.len().min(HEADER_BYTES_MAX)];
        let stripped = if self.protocol == HeaderProtocol::Ethernet { FCS_BYTES } else { 0 };
        out.structure(records::RAW_HEADER, |out| {
            out.u32s(&[self.protocol as u32, self.wire_len.saturating_add(stripped), stripped]);
            out.opaque(bytes);
        });
    }
}

/// A notification of a dropped packet.
pub(super) struct Discarded<'a> {
    pub sequence: u32,
    pub drops: u32,
    pub packet: Packet<'a>,
    pub reason: DropReason,
    pub by: DroppedBy<'a>,
}

impl Discarded<'_> {
    /// Its source is the agent as a whole, because the bound on notifications is one for all interfaces.
    pub fn write(&self, out: &mut Octets) {
        /// `ds_class` of a logical entity.
        const LOGICAL_ENTITY: u32 = 3;
        /// The index of the only one.
        const AGENT: u32 = 1;
        out.structure(samples::DISCARDED_PACKET, |out| {
            out.u32s(&[self.sequence, LOGICAL_ENTITY, AGENT, self.drops]);
            out.u32s(&[self.packet.input, 0, self.reason as u32, 2]);
            self.packet.write(out);
            self.by.write(out);
        });
    }
}

impl DroppedBy<'_> {
    /// Its record: `extended_acl` or `extended_function`.
    fn write(&self, out: &mut Octets) {
        match *self {
            DroppedBy::Rule { number, at, direction } => out.structure(records::EXTENDED_ACL, |out| {
                out.u32(number);
                out.opaque(beginning(at).as_bytes());
                out.u32(direction as u32);
            }),
            DroppedBy::Fault(name) => {
                out.structure(records::EXTENDED_FUNCTION, |out| out.opaque(beginning(name).as_bytes()));
            }
        }
    }
}

/// The beginning of a name, cut between two characters.
fn beginning(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

/// Counters of an interface as a sample.
pub(super) struct CountersSample {
    pub sequence: u32,
    pub counters: InterfaceCounters,
}

impl CountersSample {
    pub fn write(&self, encoding: Encoding, out: &mut Octets) {
        let index = self.counters.index;
        match encoding {
            Encoding::Compact => out.structure(samples::COUNTERS, |out| {
                out.u32s(&[self.sequence, index, 2]);
                self.counters.write(out);
            }),
            Encoding::Expanded => out.structure(samples::EXPANDED_COUNTERS, |out| {
                out.u32s(&[self.sequence, 0, index, 2]);
                self.counters.write(out);
            }),
        }
    }
}

impl InterfaceCounters {
    /// Its records: `if_counters` and `port_name`. Counters of 32 bits wrap around; a counter that Weir does not have is all ones.
    fn write(&self, out: &mut Octets) {
        /// `ifType` of Ethernet.
        const ETHERNET: u32 = 6;
        const NOT_COUNTED: u32 = u32::MAX;
        let (is_up, has_link) = self.is_up;
        out.structure(records::GENERIC_INTERFACE, |out| {
            out.u32s(&[self.index, ETHERNET]);
            out.u64(u64::from(self.speed_mbps.unwrap_or(0)) * 1_000_000);
            out.u32(match self.is_full_duplex {
                None => 0,
                Some(true) => 1,
                Some(false) => 2,
            });
            out.u32(u32::from(is_up) | u32::from(has_link) << 1);
            out.u64(self.in_bytes);
            out.u32s(&[self.in_packets as u32, NOT_COUNTED, NOT_COUNTED]);
            out.u32(self.in_discards.map_or(NOT_COUNTED, |discards| discards as u32));
            out.u32s(&[self.in_errors as u32, NOT_COUNTED]);
            out.u64(self.out_bytes);
            out.u32s(&[self.out_packets as u32, NOT_COUNTED, NOT_COUNTED]);
            out.u32s(&[self.out_discards as u32, self.out_errors as u32]);
            // `ifPromiscuousMode` is not read.
            out.u32(0);
        });
        out.structure(records::PORT_NAME, |out| out.opaque(beginning(&self.name).as_bytes()));
    }
}
