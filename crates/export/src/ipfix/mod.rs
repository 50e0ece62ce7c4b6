//! IPFIX (RFC 7011) with one fixed template for each family, over UDP.
//!
//! A message is a header and sets. A set is an identifier, a length and records of one template:
//!
//! ```text
//! version 10 | length | export time, s | sequence | observation domain     16 bytes
//! identifier | length | records, padded to four bytes                      a set
//! ```
//! Templates are sent before the first record, and again at an interval, because UDP may lose them (RFC 7011, 8.1). The
//! sequence number counts data records, also those that say how packets are sampled.

pub mod status;

use crate::DATAGRAM_BYTES_MAX;
use crate::flows::{Addresses, End, Flow, Key};
use crate::octets::Octets;

/// The default port of collectors.
pub const PORT: u16 = 4739;
/// Interval of templates, in milliseconds.
pub const TEMPLATES_MS: u64 = 60_000;
/// Template of flows of IPv4.
pub const TEMPLATE_V4: u16 = 256;
/// Template of flows of IPv6.
pub const TEMPLATE_V6: u16 = 257;
/// Template of how packets are sampled.
pub const TEMPLATE_SAMPLING: u16 = 258;

const HEADER_BYTES: usize = 16;
const SET_HEADER_BYTES: usize = 4;
/// Set of templates.
const TEMPLATES: u16 = 2;
/// Set of templates of options.
const OPTIONS_TEMPLATES: u16 = 3;

/// An information element: its number and length in bytes.
type Element = (u16, u16);

/// Elements of flows behind the addresses, in order.
const ELEMENTS: [Element; 13] = [
    (7, 2),   // sourceTransportPort
    (11, 2),  // destinationTransportPort
    (4, 1),   // protocolIdentifier
    (89, 1),  // forwardingStatus
    (136, 1), // flowEndReason
    (6, 1),   // tcpControlBits
    (10, 4),  // ingressInterface
    (14, 4),  // egressInterface
    (2, 8),   // packetDeltaCount
    (1, 8),   // octetDeltaCount
    (152, 8), // flowStartMilliseconds
    (153, 8), // flowEndMilliseconds
    (34, 4),  // samplingInterval
];

/// Elements in front of the others: addresses and the type of ICMP.
const ELEMENTS_V4: [Element; 3] = [(8, 4), (12, 4), (32, 2)];
const ELEMENTS_V6: [Element; 3] = [(27, 16), (28, 16), (139, 2)];

/// How packets are sampled. The scope, the first one, is the observation domain.
const ELEMENTS_SAMPLING: [Element; 3] = [
    (149, 4), // observationDomainId
    (34, 4),  // samplingInterval
    (35, 1),  // samplingAlgorithm
];

/// `samplingAlgorithm`: at random.
const RANDOM: u8 = 2;

/// Bytes of the longest record.
const RECORD_BYTES_MAX: usize = bytes(&ELEMENTS_V6) + bytes(&ELEMENTS);
/// Bytes of records in a message of two sets, which each may end with three bytes of padding.
const ROOM: usize = DATAGRAM_BYTES_MAX - HEADER_BYTES - 2 * (SET_HEADER_BYTES + 3);
const _: () = assert!(RECORD_BYTES_MAX <= ROOM);

const fn bytes(elements: &[Element]) -> usize {
    let (mut sum, mut at) = (0, 0);
    while at < elements.len() {
        sum += elements[at].1 as usize;
        at += 1;
    }
    sum
}

/// A time on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds of the clock that flows have, which does not go back.
    pub clock_ms: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
}

impl Now {
    /// A time of the flows' clock since 1970. It moves with a clock that is set meanwhile.
    fn unix_ms(self, at_ms: u64) -> u64 {
        self.unix_ms.saturating_sub(self.clock_ms.saturating_sub(at_ms))
    }
}

/// Writes flows into messages.
pub struct Ipfix {
    domain: u32,
    /// Packets are sampled as one of so many.
    one_in: u32,
    /// Number of data records in all messages before the next one, which wraps around at 2^32.
    sequence: u32,
    /// When templates were sent last.
    templates_ms: Option<u64>,
    /// Records of both families that wait for more.
    waiting: [Octets; 2],
    records: u32,
}

impl Ipfix {
    /// An exporter whose records are of packets that were sampled as one of `one_in`.
    pub fn new(domain: u32, one_in: u32) -> Self {
        Ipfix { domain, one_in, sequence: 0, templates_ms: None, waiting: Default::default(), records: 0 }
    }

    /// An exporter that has sent so many records.
    #[must_use]
    pub fn starting_at(self, sequence: u32) -> Self {
        Ipfix { sequence, ..self }
    }

    /// Number of records in all messages so far.
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Adds a flow that has ended.
    pub fn add(&mut self, key: &Key, flow: &Flow, end: End, now: Now, send: &mut impl FnMut(&[u8])) {
        let mut record = Octets::default();
        let flow = Flow { first_ms: now.unix_ms(flow.first_ms), last_ms: now.unix_ms(flow.last_ms), ..*flow };
        write(key, &flow, end, self.one_in, &mut record);
        let family = usize::from(matches!(key.addresses, Addresses::V6(..)));
        let waiting: usize = self.waiting.iter().map(|records| records.0.len()).sum();
        if waiting + record.0.len() > ROOM {
            self.flush(now, send);
        }
        self.waiting[family].bytes(&record.0);
        self.records += 1;
    }

    /// Sends what waits, and templates if they are due.
    pub fn flush(&mut self, now: Now, send: &mut impl FnMut(&[u8])) {
        if self.templates_ms.is_none_or(|sent| now.clock_ms.saturating_sub(sent) >= TEMPLATES_MS) {
            self.templates_ms = Some(now.clock_ms);
            self.send_templates(now, send);
        }
        if self.records == 0 {
            return;
        }
        let [v4, v6] = std::mem::take(&mut self.waiting);
        let sets = [(TEMPLATE_V4, v4), (TEMPLATE_V6, v6)];
        let sets: Vec<_> = sets.into_iter().filter(|(_, records)| !records.0.is_empty()).collect();
        let records = std::mem::take(&mut self.records);
        self.send(&sets, records, now, send);
    }

    fn send_templates(&mut self, now: Now, send: &mut impl FnMut(&[u8])) {
        let mut templates = Octets::default();
        for (template, first) in [(TEMPLATE_V4, ELEMENTS_V4), (TEMPLATE_V6, ELEMENTS_V6)] {
            templates.u16s(&[template, (first.len() + ELEMENTS.len()) as u16]);
            for (element, length) in first.into_iter().chain(ELEMENTS) {
                templates.u16s(&[element, length]);
            }
        }
        let mut options = Octets::default();
        options.u16s(&[TEMPLATE_SAMPLING, ELEMENTS_SAMPLING.len() as u16, 1]);
        for (element, length) in ELEMENTS_SAMPLING {
            options.u16s(&[element, length]);
        }
        let mut sampling = Octets::default();
        sampling.u32s(&[self.domain, self.one_in]);
        sampling.u8(RANDOM);
        let sets = [(TEMPLATES, templates), (OPTIONS_TEMPLATES, options), (TEMPLATE_SAMPLING, sampling)];
        self.send(&sets, 1, now, send);
    }

    /// Sends a message with sets that contain so many data records.
    fn send(&mut self, sets: &[(u16, Octets)], records: u32, now: Now, send: &mut impl FnMut(&[u8])) {
        let mut message = Octets::default();
        message.u16(10);
        message.u16(0);
        message.u32s(&[(now.unix_ms / 1000) as u32, self.sequence, self.domain]);
        for (identifier, content) in sets {
            let padded = content.0.len().next_multiple_of(4);
            message.u16s(&[*identifier, (SET_HEADER_BYTES + padded) as u16]);
            message.bytes(&content.0);
            message.pad();
        }
        let length = message.0.len() as u16;
        message.0[2..4].copy_from_slice(&length.to_be_bytes());
        self.sequence = self.sequence.wrapping_add(records);
        send(&message.0);
    }
}

/// Writes a record, in the order of the template.
fn write(key: &Key, flow: &Flow, end: End, one_in: u32, out: &mut Octets) {
    match key.addresses {
        Addresses::V4(source, destination) => [source, destination].iter().for_each(|address| out.bytes(address)),
        Addresses::V6(source, destination) => [source, destination].iter().for_each(|address| out.bytes(address)),
    }
    out.u16s(&[key.icmp, key.source_port, key.destination_port]);
    out.bytes(&[key.protocol, key.status, end as u8, flow.tcp_flags]);
    out.u32s(&[key.input, key.output]);
    out.u64s(&[flow.packets, flow.bytes, flow.first_ms, flow.last_ms]);
    out.u32(one_in);
}
