//! `weir run --sflow` and `--ipfix`: collectors get what the datapath has decided.

use crate::device_under_test::{Running, Setup};
use crate::hosts::{Host, Hosts};
use crate::put;
use crate::traffic::{frames, send};
use netflow_parser::variable_versions::ipfix::FlowSetBody;
use netflow_parser::{NetflowPacket, NetflowParser};
use sflow_parser::models::{FlowData, FlowRecord, SampleData};
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

const POLICY: &str = "upstream {\n  udp dport 53 drop\n  accept\n}\ndownstream { accept }\n";
/// Packets that the policy accepts.
const ACCEPTED: u64 = 60;
/// Packets that it drops.
const DROPPED: u64 = 40;

/// A collector on the machine of Weir, and its address.
fn collector(host: &Host) -> (UdpSocket, String) {
    host.ip("link set lo up");
    let socket = host.run(|| UdpSocket::bind("127.0.0.1:0")).expect("a port");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can");
    let address = socket.local_addr().expect("it has one").to_string();
    (socket, address)
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2000];
    let length = socket.recv(&mut buffer).expect("there is another datagram");
    buffer[..length].to_vec()
}

/// The destination port of the test's packets; others have none.
fn port(records: &[FlowRecord]) -> Option<u16> {
    let FlowData::SampledHeader(header) = &records[0].flow_data else { panic!("{records:?}") };
    let is_udp = header.header.get(12..14) == Some(&[8, 0]) && header.header.get(23) == Some(&17);
    let port = header.header.get(36..38).filter(|_| is_udp)?;
    Some(u16::from_be_bytes(port.try_into().expect("two bytes")))
}

/// Samples by port and format of the output, until all packets have one.
fn samples(socket: &UdpSocket) -> (BTreeMap<(u16, u8), u64>, BTreeMap<String, u64>) {
    let (mut found, mut notified) = (BTreeMap::new(), BTreeMap::new());
    while found.values().sum::<u64>() < ACCEPTED + DROPPED || notified.values().sum::<u64>() < DROPPED {
        let datagram = sflow_parser::parse_datagram(&received(socket)).expect("it is sFlow");
        for sample in datagram.samples {
            match sample.sample_data {
                SampleData::FlowSample(sample) => {
                    let Some(port) = port(&sample.flow_records) else { continue };
                    assert_eq!((sample.sampling_rate, sample.drops), (1, 0));
                    *found.entry((port, sample.output.format())).or_default() += 1;
                }
                SampleData::DiscardedPacket(sample) => {
                    let FlowData::ExtendedAcl(acl) = &sample.flow_records[1].flow_data else { panic!("{sample:?}") };
                    *notified.entry(format!("{} {} {}", sample.reason as u32, acl.name, acl.direction)).or_default() +=
                        1;
                }
                _ => {}
            }
        }
    }
    (found, notified)
}

/// Packets of flows by port and status, until all packets are in one.
fn flows(socket: &UdpSocket) -> BTreeMap<(u64, u64), u64> {
    let (mut parser, mut found) = (NetflowParser::default(), BTreeMap::new());
    while found.values().sum::<u64>() < ACCEPTED + DROPPED {
        let result = parser.parse_bytes(&received(socket));
        assert!(result.error.is_none(), "{:?}", result.error);
        for packet in result.packets {
            let NetflowPacket::IPFix(packet) = packet else { panic!("{packet:?}") };
            for set in &packet.flowsets {
                let FlowSetBody::Data(data) = &set.body else { continue };
                for fields in &data.fields {
                    let number = |at: usize| {
                        let mut bytes = Vec::new();
                        fields[at].1.write_be_bytes(&mut bytes).expect("memory takes it");
                        bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
                    };
                    // Destination port, protocol, status and packets.
                    if number(5) == 17 && [53, 54].contains(&number(4)) {
                        *found.entry((number(4), number(6))).or_default() += number(11);
                    }
                }
            }
        }
    }
    found
}

each_kind!(collectors_get_samples_dropped_packets_and_flows);
fn collectors_get_samples_dropped_packets_and_flows(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", POLICY);
    let ((sflow, sflow_address), (ipfix, ipfix_address)) = (collector(&hosts.weir), collector(&hosts.weir));
    let more = ["--sflow", &sflow_address, "--ipfix", &ipfix_address, "--export-every", "1", "--sflow-drops", "1000"];
    let setup = Setup { more: more.map(str::to_owned).to_vec(), ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &setup);
    let packet =
        |port: u16| format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=9 dport={port} / payload 100\n");
    let text = packet(54).repeat(ACCEPTED as usize) + &packet(53).repeat(DROPPED as usize);
    send(&hosts.client, "c", &frames(&text));
    let (found, notified) = samples(&sflow);
    assert_eq!(found, BTreeMap::from([((53, 1), DROPPED), ((54, 0), ACCEPTED)]), "{engine}");
    assert_eq!(notified, BTreeMap::from([("258 edge.weir:2 1".to_owned(), DROPPED)]), "{engine}");
    let export = running.status().export.expect("something is exported");
    let sent = export.sflow.expect("there is a collector");
    assert_eq!((export.lost, sent.notifications, sent.suppressed), (0, DROPPED, 0), "{engine}");
    assert_eq!((sent.collector.address, sent.collector.errors), (sflow_address, 0), "{engine}");
    // Flows that have not ended are sent at the end.
    assert_eq!(running.stop(), 0);
    assert_eq!(flows(&ipfix), BTreeMap::from([((53, 129), DROPPED), ((54, 64), ACCEPTED)]), "{engine}");
}
