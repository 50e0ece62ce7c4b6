use super::*;
use crate::parts::export::feed::Feed;
use crate::parts::export::packets::DecidedPackets;
use netflow_parser::variable_versions::ipfix::FlowSetBody;
use netflow_parser::{NetflowPacket, NetflowParser};
use sflow_parser::models::{FlowData, SampleData};
use std::collections::VecDeque;
use std::net::UdpSocket;
use weir_abi::Verdict;
use weir_abi::verdict::Sampled;
use weir_control::{InterfaceStats, TxDropped};
use weir_engine::live::os::speed::LinkSpeed;
use weir_engine::live::{PortNature, PortReading, PortStatus, Role};

/// A copy in memory.
struct Copied {
    bytes: Vec<u8>,
    from: Side,
    verdict: Verdict,
    at: Option<&'static str>,
}

impl Copied {
    fn of(notation: &str, action: Action, reason: Reason) -> Self {
        let bytes = weir_test_support::packets(notation).expect("the test's packet reads").remove(0).bytes;
        Copied { bytes, from: Side::Lower, verdict: Verdict::new(action, reason, Sampled::No), at: None }
    }
}

/// A source in memory.
#[derive(Default)]
struct Memory {
    waiting: VecDeque<Copied>,
    read: Option<Copied>,
    lost: u64,
}

impl DecidedPackets for Memory {
    fn next(&mut self) -> Option<DecidedPacket<'_>> {
        self.read = self.waiting.pop_front();
        let Copied { bytes, from, verdict, at } = self.read.as_ref()?;
        let wire_len = bytes.len() as u32;
        Some(DecidedPacket { bytes, link: Link::Ethernet, wire_len, from: *from, verdict: *verdict, at: *at, at_ms: 5 })
    }

    fn lost(&self) -> u64 {
        self.lost
    }
}

fn at(clock_ms: u64) -> Now {
    Now { clock_ms, unix_ms: 1_700_000_000_000 + clock_ms }
}

/// Ports of a bridge with two interfaces, which have the numbers 3 and 4.
fn ports() -> Ports {
    let port = |(interface, role, kernel_index): (&str, Role, u32)| PortStatus {
        worker: 0,
        interface: interface.to_owned(),
        role,
        nature: PortNature { kernel_index, longest: None },
        has_link: true,
        reading: PortReading::default(),
        knows_missed: true,
    };
    let ports = [("out", Role::Lower, 3), ("in", Role::Upper, 4), ("aside", Role::Divert, 0)].map(port);
    Ports::of(&ports, false)
}

/// The other end of a collector.
struct Listener {
    socket: UdpSocket,
    read: u64,
}

/// A collector, and what arrives there.
fn collector() -> (Collector, Listener) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("it can");
    let (collector, _) = Collector::connect(socket.local_addr().expect("it has one")).expect("a route");
    (collector, Listener { socket, read: 0 })
}

impl Listener {
    /// The datagrams since the last call: as many as the exporter counts.
    fn arrived(&mut self, exporter: &Exporter) -> Vec<Vec<u8>> {
        let ExportStatus { sflow, ipfix, .. } = exporter.status();
        let collectors = [sflow.map(|sflow| sflow.collector), ipfix.map(|ipfix| ipfix.collector)];
        let sent: u64 = collectors.into_iter().flatten().map(|collector| collector.datagrams).sum();
        let mut buffer = [0; 2000];
        let mut one = || self.socket.recv(&mut buffer).map(|length| buffer[..length].to_vec()).expect("a datagram");
        let datagrams = (self.read..sent).map(|_| one()).collect();
        self.read = sent;
        datagrams
    }
}

fn samples(datagrams: &[Vec<u8>]) -> Vec<SampleData> {
    let read = |datagram: &Vec<u8>| sflow_parser::parse_datagram(datagram).expect("it is sFlow").samples;
    datagrams.iter().flat_map(read).map(|sample| sample.sample_data).collect()
}

fn no_counters(_: &Ports) -> Vec<InterfaceCounters> {
    Vec::new()
}

const AGENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn samples_say_where_packets_went_and_dropped_ones_get_notifications() {
    let (collector, mut socket) = collector();
    let mut exporter = Exporter::new(100, ports(), 1000).with_sflow(collector, AGENT, 2);
    let udp = "eth / ip / udp dport=53 / payload 200";
    let of = |action: Action, reason: Reason| Copied::of(udp, action, reason);
    let mut answer = of(Action::Accept, Reason::rule(1));
    answer.from = Side::Upper;
    let samples_of = [
        of(Action::Accept, Reason::rule(0)),
        answer,
        of(Action::Divert, Reason::rule(2)),
        of(Action::Reply, Reason::SYN_COOKIE),
        of(Action::Drop, Reason::LIMIT),
        of(Action::Drop, Reason::CARD_CONTROL),
    ];
    let rule = Copied { at: Some("edge.weir:7"), ..of(Action::Drop, Reason::rule(4)) };
    let drops = [rule, of(Action::Drop, Reason::MALFORMED_UDP), of(Action::Drop, Reason::LIMIT)];
    let drops = Memory { waiting: drops.into(), read: None, lost: 40 };
    let mut feed = Feed::new(Memory { waiting: samples_of.into(), read: None, lost: 7 }, Some(drops));
    assert!(!feed.read(&mut exporter, at(1100)));
    exporter.step(at(1100), no_counters);
    assert!(socket.arrived(&exporter).is_empty(), "samples wait for others");
    exporter.step(at(1000 + WAIT_MS), no_counters);
    let datagrams = socket.arrived(&exporter);
    assert_eq!(datagrams.len(), 2, "notifications have datagrams of their own");
    let all = samples(&datagrams);
    let outputs: Vec<_> = all
        .iter()
        .filter_map(|sample| match sample {
            SampleData::FlowSample(sample) => {
                assert_eq!(sample.sampling_rate, 100);
                Some((sample.input.0, sample.output.format(), sample.output.value()))
            }
            _ => None,
        })
        .collect();
    // 1,000,001 is the interface for diverted packets, which the kernel does not know.
    assert_eq!(outputs, [(3, 0, 4), (4, 0, 3), (3, 0, 1_000_001), (3, 0, 3), (3, 1, 261)]);
    let notified: Vec<_> = all
        .iter()
        .filter_map(|sample| match sample {
            SampleData::DiscardedPacket(one) => Some((one.reason as u32, one.drops, one.flow_records[1].clone())),
            _ => None,
        })
        .map(|(reason, drops, record)| match record.flow_data {
            FlowData::ExtendedAcl(acl) => (reason, drops, format!("{} {} {}", acl.number, acl.name, acl.direction)),
            FlowData::ExtendedFunction(function) => (reason, drops, function.symbol),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        notified,
        [(258, 40, "5 edge.weir:7 1".to_owned()), (289, 40, "malformed-udp".to_owned())],
        "two in a second"
    );
    let status = exporter.status();
    let sflow = status.sflow.expect("there is a collector");
    assert_eq!((status.samples, status.lost, sflow.notifications, sflow.suppressed), (5, 7, 2, 41));
}

#[test]
fn lost_copies_are_in_the_next_sample() {
    let (collector, mut socket) = collector();
    let mut exporter = Exporter::new(10, ports(), 0).with_sflow(collector, AGENT, 1);
    let of = || Copied::of("eth / ip / udp", Action::Accept, Reason::rule(0));
    let mut feed = Feed::new(Memory::default(), None);
    for (lost, packets) in [(0, 1), (5, 0), (6, 2)] {
        let waiting = (0..packets).map(|_| of());
        feed.samples_mut().waiting.extend(waiting);
        feed.samples_mut().lost = lost;
        feed.read(&mut exporter, at(0));
    }
    exporter.finish(at(0));
    let found: Vec<_> = samples(&socket.arrived(&exporter))
        .iter()
        .map(|sample| match sample {
            SampleData::FlowSample(sample) => (sample.sequence_number, sample.sample_pool, sample.drops),
            other => panic!("{other:?}"),
        })
        .collect();
    // The losses of the last turn are found when its packets have been read.
    assert_eq!(found, [(1, 10, 0), (2, 70, 5), (3, 80, 5)]);
    assert_eq!((exporter.status().samples, exporter.status().lost), (3, 6));
}

#[test]
fn counters_are_sent_at_their_interval() {
    let (collector, mut socket) = collector();
    let mut exporter = Exporter::new(1, ports(), 0).with_sflow(collector, AGENT, 1);
    let stats = |interface: &str, side: &str| InterfaceStats {
        interface: interface.to_owned(),
        side: side.to_owned(),
        rx_packets: 10,
        rx_bytes: 1000,
        tx_packets: 8,
        tx_bytes: 800,
        rx_missed: Some(3),
        rx_too_long: 2,
        sampled: 0,
        tx_dropped: TxDropped {
            tx_full: 1,
            link_down: 2,
            no_divert: 4,
            tx_too_long: 8,
            tx_unsupported: 16,
            tx_error: 32,
        },
    };
    let mut counters = |clock_ms: u64| {
        let all = [stats("out", "lower"), stats("in", "upper"), stats("unknown", "lower")];
        let speed = |name: &str| match name {
            "out" => LinkSpeed { mbps: Some(25_000), is_full_duplex: Some(true) },
            _ => LinkSpeed::default(),
        };
        exporter.step(at(clock_ms), |ports| ports.counters(&all, &[], speed));
        samples(&socket.arrived(&exporter))
    };
    let found: Vec<usize> = [WAIT_MS, COUNTERS_MS, WAIT_MS + COUNTERS_MS].map(|at_ms| counters(at_ms).len()).into();
    assert_eq!(found, [2, 0, 2]);
    let all = counters(3 * COUNTERS_MS);
    let SampleData::CountersSample(sample) = &all[0] else { panic!("{all:?}") };
    let text = format!("{:?}", sample.counters);
    for wanted in ["if_speed: 25000000000", "if_direction: 1", "port_name: \"out\""] {
        assert!(text.contains(wanted), "{text}");
    }
    for wanted in ["if_index: 3", "if_in_octets: 1000", "if_in_discards: 3", "if_in_errors: 2", "if_out_discards: 7"] {
        assert!(text.contains(wanted), "{text}");
    }
    assert!(text.contains("if_out_errors: 56") && sample.sequence_number == 3, "{text}");
}

/// Packets and bytes of the records in messages, by status.
fn records(messages: &[Vec<u8>]) -> Vec<(u8, u64, u64)> {
    let mut parser = NetflowParser::default();
    let mut found = Vec::new();
    for message in messages {
        let result = parser.parse_bytes(message);
        for packet in &result.packets {
            let NetflowPacket::IPFix(packet) = packet else { panic!("{packet:?}") };
            for set in &packet.flowsets {
                let FlowSetBody::Data(data) = &set.body else { continue };
                found.extend(data.fields.iter().map(|fields| {
                    let number = |at: usize| {
                        let mut bytes = Vec::new();
                        fields[at].1.write_be_bytes(&mut bytes).expect("memory takes it");
                        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
                    };
                    (number(6) as u8, number(11), number(12))
                }));
            }
        }
    }
    found
}

#[test]
fn flows_end_by_their_timeouts_and_are_all_sent_at_the_end() {
    let (collector, mut socket) = collector();
    let bounds = Bounds { flows: 2, idle_ms: 1000, active_ms: 60_000 };
    let mut exporter = Exporter::new(10, ports(), 0).with_ipfix(collector, 1, bounds);
    let udp = |port: u16, action: Action| {
        Copied::of(&format!("eth / ip / udp sport={port} / payload 100"), action, Reason::rule(0))
    };
    let arp = Copied::of("eth / arp", Action::Drop, Reason::ARP);
    let all = [udp(1, Action::Accept), udp(1, Action::Accept), udp(1, Action::Drop), arp];
    let mut feed = Feed::new(Memory { waiting: all.into(), ..Memory::default() }, None);
    feed.read(&mut exporter, at(5));
    exporter.step(at(WAIT_MS), no_counters);
    let templates = socket.arrived(&exporter);
    assert_eq!((templates.len(), records(&templates)), (1, vec![]));
    // A third flow ends the one that is silent longest.
    feed.samples_mut().waiting.push_back(udp(2, Action::Accept));
    feed.read(&mut exporter, at(900));
    exporter.step(at(2 * WAIT_MS), no_counters);
    let messages: Vec<Vec<u8>> = templates.iter().cloned().chain(socket.arrived(&exporter)).collect();
    assert_eq!(records(&messages), [(64, 2, 2 * 128)]);
    exporter.finish(at(1001));
    let messages: Vec<Vec<u8>> = templates.into_iter().chain(socket.arrived(&exporter)).collect();
    let mut found = records(&messages);
    found.sort_unstable();
    assert_eq!(found, [(64, 1, 128), (129, 1, 128)]);
    let status = exporter.status();
    let ipfix = status.ipfix.expect("there is a collector");
    assert_eq!((status.samples, ipfix.records, ipfix.flows, ipfix.evicted, ipfix.without_flow), (5, 3, 0, 1, 1));
    assert_eq!((ipfix.collector.datagrams, ipfix.collector.errors), (3, 0));
}

#[test]
fn a_turn_reads_no_more_than_its_share() {
    let (collector, _socket) = collector();
    let mut exporter = Exporter::new(1, ports(), 0).with_ipfix(collector, 1, Bounds::default());
    let flood = (0..5000).map(|_| Copied::of("eth / ip / udp", Action::Drop, Reason::LIMIT)).collect();
    let mut feed = Feed::new(Memory { waiting: flood, ..Memory::default() }, None);
    assert!(feed.read(&mut exporter, at(0)) && !feed.read(&mut exporter, at(0)));
    assert_eq!(exporter.status().samples, 5000);
}
