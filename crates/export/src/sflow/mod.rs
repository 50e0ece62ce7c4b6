//! sFlow version 5 (sflow.org/sflow_version_5.txt) with notifications of dropped packets (sflow.org/sflow_drops.txt).
//!
//! A datagram is a header and samples:
//!
//! ```text
//! version 5 | address type 1 or 2 | agent address (4 or 16 bytes) | sub-agent | sequence | uptime, ms | count
//! samples, as many as count says
//! ```
//! Notifications are in datagrams of their own. A collector that does not know them discards whole datagrams at worst,
//! and none with flow samples.

pub mod reason;
pub mod sample;

use crate::DATAGRAM_BYTES_MAX;
use crate::octets::Octets;
use sample::{CountersSample, Discarded, DroppedBy, Encoding, FlowSample, InterfaceCounters, Output, Packet};
use std::collections::BTreeMap;
use std::net::IpAddr;

use reason::DropReason;

/// The default port of collectors.
pub const PORT: u16 = 6343;
/// The only sub-agent.
const SUB_AGENT: u32 = 0;

/// Writes samples into datagrams. Numbers wrap around at 2^32, as the specification says.
pub struct Sflow {
    agent: IpAddr,
    encoding: Encoding,
    /// Sequence number of the last datagram.
    sequence: u32,
    /// Flow samples and counters that wait for more.
    samples: Pending,
    /// Notifications that wait for more.
    notifications: Pending,
    /// Sources by index of their interface.
    sources: BTreeMap<u32, Source>,
    /// Sequence number of the last notification.
    notified: u32,
    /// Packets that could not be sampled, and that no sample has said yet.
    lost: u64,
}

/// Samples of a datagram that is not complete.
#[derive(Default)]
struct Pending {
    count: u32,
    samples: Octets,
}

/// The numbers of a source.
#[derive(Clone, Copy, Default)]
struct Source {
    flow_samples: u32,
    counter_samples: u32,
    pool: u32,
    drops: u32,
}

impl Sflow {
    /// An agent with this address. No sample has been sent.
    pub fn new(agent: IpAddr, encoding: Encoding) -> Self {
        Sflow {
            agent,
            encoding,
            sequence: 0,
            samples: Pending::default(),
            notifications: Pending::default(),
            sources: BTreeMap::new(),
            notified: 0,
            lost: 0,
        }
    }

    /// An agent whose next datagram, and next samples of each interface, have this number.
    #[must_use]
    pub fn starting_at(mut self, sequence: u32, interfaces: &[u32]) -> Self {
        let before = sequence.wrapping_sub(1);
        (self.sequence, self.notified) = (before, before);
        let source = Source { flow_samples: before, counter_samples: before, pool: before, drops: 0 };
        self.sources = interfaces.iter().map(|&index| (index, source)).collect();
        self
    }

    /// Adds packets that were chosen and could not be copied. The next sample says so in `drops`.
    pub fn lose(&mut self, packets: u64) {
        self.lost += packets;
    }

    /// Adds a packet that was chosen as one of `rate`.
    pub fn sample(
        &mut self,
        packet: Packet<'_>,
        output: Output,
        rate: u32,
        uptime_ms: u64,
        send: &mut impl FnMut(&[u8]),
    ) {
        let source = self.sources.entry(packet.input).or_default();
        let lost = std::mem::take(&mut self.lost) as u32;
        source.flow_samples = source.flow_samples.wrapping_add(1);
        source.drops = source.drops.wrapping_add(lost);
        source.pool = source.pool.wrapping_add(rate.wrapping_mul(lost.wrapping_add(1)));
        let Source { flow_samples: sequence, pool, drops, .. } = *source;
        let sample = FlowSample { sequence, rate, pool, drops, packet, output };
        let encoding = self.encoding;
        self.add(Kind::Sample, |out| sample.write(encoding, out), uptime_ms, send);
    }

    /// Adds the counters of an interface.
    pub fn count(&mut self, counters: InterfaceCounters, uptime_ms: u64, send: &mut impl FnMut(&[u8])) {
        let source = self.sources.entry(counters.index).or_default();
        source.counter_samples = source.counter_samples.wrapping_add(1);
        let sample = CountersSample { sequence: source.counter_samples, counters };
        let encoding = self.encoding;
        self.add(Kind::Sample, |out| sample.write(encoding, out), uptime_ms, send);
    }

    /// Adds a notification of a dropped packet. `suppressed` dropped packets have none since the start.
    pub fn notify(
        &mut self,
        packet: Packet<'_>,
        reason: DropReason,
        by: DroppedBy<'_>,
        suppressed: u64,
        uptime_ms: u64,
        send: &mut impl FnMut(&[u8]),
    ) {
        self.notified = self.notified.wrapping_add(1);
        let discarded = Discarded { sequence: self.notified, drops: suppressed as u32, packet, reason, by };
        self.add(Kind::Notification, |out| discarded.write(out), uptime_ms, send);
    }

    /// Sends what waits.
    pub fn flush(&mut self, uptime_ms: u64, send: &mut impl FnMut(&[u8])) {
        for kind in [Kind::Sample, Kind::Notification] {
            if self.pending(kind).count > 0 {
                self.send(kind, uptime_ms, send);
            }
        }
    }

    fn pending(&mut self, kind: Kind) -> &mut Pending {
        match kind {
            Kind::Sample => &mut self.samples,
            Kind::Notification => &mut self.notifications,
        }
    }

    /// Adds a sample, behind a full datagram in the next one.
    fn add(&mut self, kind: Kind, write: impl FnOnce(&mut Octets), uptime_ms: u64, send: &mut impl FnMut(&[u8])) {
        let mut written = Octets::default();
        write(&mut written);
        let room = DATAGRAM_BYTES_MAX - self.header_bytes();
        if self.pending(kind).samples.0.len() + written.0.len() > room {
            self.send(kind, uptime_ms, send);
        }
        let pending = self.pending(kind);
        pending.samples.bytes(&written.0);
        pending.count += 1;
    }

    fn header_bytes(&self) -> usize {
        let address = if self.agent.is_ipv4() { 4 } else { 16 };
        6 * 4 + address
    }

    fn send(&mut self, kind: Kind, uptime_ms: u64, send: &mut impl FnMut(&[u8])) {
        self.sequence = self.sequence.wrapping_add(1);
        let Pending { count, samples } = std::mem::take(self.pending(kind));
        let mut datagram = Octets::default();
        datagram.u32(5);
        match self.agent {
            IpAddr::V4(address) => {
                datagram.u32(1);
                datagram.bytes(&address.octets());
            }
            IpAddr::V6(address) => {
                datagram.u32(2);
                datagram.bytes(&address.octets());
            }
        }
        datagram.u32s(&[SUB_AGENT, self.sequence, uptime_ms as u32, count]);
        datagram.bytes(&samples.0);
        send(&datagram.0);
    }
}

/// Which datagram a sample is for.
#[derive(Clone, Copy)]
enum Kind {
    Sample,
    Notification,
}
