//! From decided packets to datagrams: what is sent when. The caller says what time it is.

use crate::parts::export::collector::Collector;
use crate::parts::export::key::{self, Fate};
use crate::parts::export::packets::DecidedPacket;
use crate::parts::export::ports::Ports;
use std::net::IpAddr;
use weir_abi::{Action, Link, Reason};
use weir_control::{ExportStatus, FlowExportStatus, SampleExportStatus};
use weir_engine::live::Side;
use weir_export::flows::{Bounds, Flows};
use weir_export::ipfix::{Ipfix, Now, status};
use weir_export::pace::Pace;
use weir_export::sflow::Sflow;
use weir_export::sflow::reason::DropReason;
use weir_export::sflow::sample::{
    AclDirection, DroppedBy, Encoding, HeaderProtocol, InterfaceCounters, Output, Packet,
};

/// Interval of counters of interfaces.
pub const COUNTERS_MS: u64 = 20_000;
/// The longest time that a sample waits for others. The specification of sFlow allows one second.
pub const WAIT_MS: u64 = 500;

/// What is exported, and to whom.
pub struct Exporter {
    started_ms: u64,
    /// Packets are sampled as one of so many.
    one_in: u32,
    ports: Ports,
    samples: u64,
    lost: u64,
    sent_ms: u64,
    sflow: Option<ToSflow>,
    ipfix: Option<ToIpfix>,
}

/// The way to a collector of sFlow.
struct ToSflow {
    encoder: Sflow,
    collector: Collector,
    notifications: Pace,
    /// Dropped packets that were not copied.
    missed: u64,
    notified: u64,
    counted_ms: Option<u64>,
}

/// The way to a collector of IPFIX.
struct ToIpfix {
    encoder: Ipfix,
    collector: Collector,
    flows: Flows,
    records: u64,
    without_flow: u64,
}

impl Exporter {
    /// Exports nothing yet. `now_ms` is the start of the uptime.
    pub fn new(one_in: u32, ports: Ports, now_ms: u64) -> Self {
        Exporter { started_ms: now_ms, one_in, ports, samples: 0, lost: 0, sent_ms: now_ms, sflow: None, ipfix: None }
    }

    /// Also sends samples, counters and at most `per_second` notifications to a collector of sFlow.
    #[must_use]
    pub fn with_sflow(self, collector: Collector, agent: IpAddr, per_second: u32) -> Self {
        let encoder = Sflow::new(agent, Encoding::of(self.ports.numbers()));
        let notifications = Pace::new(per_second);
        let sflow = ToSflow { encoder, collector, notifications, missed: 0, notified: 0, counted_ms: None };
        Exporter { sflow: Some(sflow), ..self }
    }

    /// Also sends flows to a collector of IPFIX.
    #[must_use]
    pub fn with_ipfix(self, collector: Collector, domain: u32, bounds: Bounds) -> Self {
        let encoder = Ipfix::new(domain, self.one_in);
        let ipfix = ToIpfix { encoder, collector, flows: Flows::new(bounds), records: 0, without_flow: 0 };
        Exporter { ipfix: Some(ipfix), ..self }
    }

    /// Sends what waits, because another program goes on. Returns the number of records of IPFIX so far.
    pub fn hand_over(&mut self, now: Now) -> u32 {
        self.finish(now);
        self.ipfix.as_ref().map_or(0, |ipfix| ipfix.encoder.sequence())
    }

    /// Goes on from the number of records of IPFIX that the program before this one has sent.
    #[must_use]
    pub fn starting_at(mut self, sequence: u32) -> Self {
        self.ipfix = self.ipfix.map(|ipfix| ToIpfix { encoder: ipfix.encoder.starting_at(sequence), ..ipfix });
        self
    }

    /// Adds a packet that was chosen as one of so many, whatever became of it.
    pub fn sample(&mut self, decided: &DecidedPacket<'_>, now: Now) {
        let Some(action) = exported(decided) else { return };
        self.samples += 1;
        let reason = decided.verdict.reason();
        let input = self.ports.input(decided.from);
        let output = match action {
            Action::Accept => self.ports.output(decided.from),
            Action::Divert => self.ports.divert(),
            Action::Reply if input == 0 => Output::Unknown,
            Action::Reply => Output::Interface(input),
            Action::Drop => Output::Dropped(DropReason::of(reason)),
        };
        if let Some(ToSflow { encoder, collector, .. }) = &mut self.sflow {
            let uptime_ms = now.clock_ms.saturating_sub(self.started_ms);
            encoder.sample(packet(decided, input), output, self.one_in, uptime_ms, &mut |sent| collector.send(sent));
        }
        if let Some(ipfix) = &mut self.ipfix {
            let output = if let Output::Interface(number) = output { number } else { 0 };
            ipfix.add(decided, Fate { input, output, status: status::of(action, reason) }, now);
        }
    }

    /// Adds packets that were chosen and not copied.
    pub fn lose(&mut self, packets: u64) {
        self.lost += packets;
        if let Some(sflow) = &mut self.sflow {
            sflow.encoder.lose(packets);
        }
    }

    /// Adds a dropped packet, which gets a notification if the second has room.
    pub fn drop_packet(&mut self, decided: &DecidedPacket<'_>, now: Now) {
        let Some(sflow) = &mut self.sflow else { return };
        if exported(decided) != Some(Action::Drop) || !sflow.notifications.allows(now.clock_ms) {
            return;
        }
        sflow.notified += 1;
        let reason = decided.verdict.reason();
        let suppressed = sflow.suppressed();
        let (uptime_ms, ToSflow { encoder, collector, .. }) = (now.clock_ms.saturating_sub(self.started_ms), sflow);
        let packet = packet(decided, self.ports.input(decided.from));
        let by = dropped_by(decided, reason);
        encoder.notify(packet, DropReason::of(reason), by, suppressed, uptime_ms, &mut |sent| collector.send(sent));
    }

    /// Adds dropped packets that were not copied.
    pub fn miss_drops(&mut self, packets: u64) {
        if let Some(sflow) = &mut self.sflow {
            sflow.missed += packets;
        }
    }

    /// Does what is due: counters of interfaces, flows that ended, and what has waited.
    pub fn step(&mut self, now: Now, counters: impl FnOnce(&Ports) -> Vec<InterfaceCounters>) {
        let uptime_ms = now.clock_ms.saturating_sub(self.started_ms);
        let is_due = now.clock_ms.saturating_sub(self.sent_ms) >= WAIT_MS;
        if let Some(ToSflow { encoder, collector, counted_ms, .. }) = &mut self.sflow {
            collector.renew();
            if counted_ms.is_none_or(|counted| now.clock_ms.saturating_sub(counted) >= COUNTERS_MS) {
                *counted_ms = Some(now.clock_ms);
                for one in counters(&self.ports) {
                    encoder.count(one, uptime_ms, &mut |sent| collector.send(sent));
                }
            }
            if is_due {
                encoder.flush(uptime_ms, &mut |sent| collector.send(sent));
            }
        }
        if let Some(ipfix) = &mut self.ipfix {
            ipfix.collector.renew();
            let ToIpfix { encoder, collector, flows, records, .. } = ipfix;
            flows.expire(now.clock_ms, &mut |key, flow, end| {
                *records += 1;
                encoder.add(key, flow, end, now, &mut |sent| collector.send(sent));
            });
            if is_due {
                encoder.flush(now, &mut |sent| collector.send(sent));
            }
        }
        if is_due {
            self.sent_ms = now.clock_ms;
        }
    }

    /// Ends all flows and sends what waits.
    pub fn finish(&mut self, now: Now) {
        if let Some(ToSflow { encoder, collector, .. }) = &mut self.sflow {
            let uptime_ms = now.clock_ms.saturating_sub(self.started_ms);
            encoder.flush(uptime_ms, &mut |sent| collector.send(sent));
        }
        if let Some(ToIpfix { encoder, collector, flows, records, .. }) = &mut self.ipfix {
            flows.finish(&mut |key, flow, end| {
                *records += 1;
                encoder.add(key, flow, end, now, &mut |sent| collector.send(sent));
            });
            encoder.flush(now, &mut |sent| collector.send(sent));
        }
    }

    /// What was exported so far.
    pub fn status(&self) -> ExportStatus {
        ExportStatus {
            every: self.one_in,
            samples: self.samples,
            lost: self.lost,
            sflow: self.sflow.as_ref().map(|sflow| SampleExportStatus {
                collector: sflow.collector.status(),
                notifications: sflow.notified,
                suppressed: sflow.suppressed(),
            }),
            ipfix: self.ipfix.as_ref().map(|ipfix| FlowExportStatus {
                collector: ipfix.collector.status(),
                records: ipfix.records,
                flows: ipfix.flows.len() as u64,
                evicted: ipfix.flows.evicted(),
                without_flow: ipfix.without_flow,
            }),
        }
    }
}

impl ToSflow {
    /// Dropped packets that got no notification.
    fn suppressed(&self) -> u64 {
        self.notifications.suppressed() + self.missed
    }
}

impl ToIpfix {
    fn add(&mut self, decided: &DecidedPacket<'_>, fate: Fate, now: Now) {
        let Some((key, addition)) = key::of(decided, fate) else {
            self.without_flow += 1;
            return;
        };
        let ToIpfix { encoder, collector, flows, records, .. } = self;
        flows.add(key, addition, &mut |key, flow, end| {
            *records += 1;
            encoder.add(key, flow, end, now, &mut |sent| collector.send(sent));
        });
    }
}

/// What became of a packet; `None` if it is no packet, but a frame between Weir and a card.
fn exported(decided: &DecidedPacket<'_>) -> Option<Action> {
    decided.verdict.action().filter(|_| decided.verdict.reason() != Reason::CARD_CONTROL)
}

/// A packet as samples have it.
fn packet<'a>(decided: &DecidedPacket<'a>, input: u32) -> Packet<'a> {
    let DecidedPacket { bytes, wire_len, link, .. } = *decided;
    let protocol = match (link, bytes.first().map(|first| first >> 4)) {
        (Link::RawIp, Some(6)) => HeaderProtocol::Ipv6,
        (Link::RawIp, _) => HeaderProtocol::Ipv4,
        // Interfaces have no other links.
        _ => HeaderProtocol::Ethernet,
    };
    Packet { protocol, bytes, wire_len, input }
}

/// The rule or fault that dropped a packet.
fn dropped_by<'a>(decided: &DecidedPacket<'a>, reason: Reason) -> DroppedBy<'a> {
    let direction = match decided.from {
        Side::Lower => AclDirection::Ingress,
        Side::Upper => AclDirection::Egress,
    };
    match reason.rule_index() {
        Some(index) => DroppedBy::Rule { number: u32::from(index) + 1, at: decided.at.unwrap_or_default(), direction },
        None => DroppedBy::Fault(reason.builtin_name().unwrap_or("unknown")),
    }
}

#[cfg(test)]
#[path = "exporter/tests.rs"]
mod tests;
