//! Samples in the ring are the beginnings of packets, and say on which side these arrived.

use crate::engines;
use crate::every_policy::has_tcx;
use nix::sched::{CloneFlags, unshare};
use std::process::Command;
use std::sync::Arc;
use weir_abi::kernel::SAMPLE_BYTES;
use weir_engine::live::samples::SampleReader;
use weir_engine::live::xdp::{KernelCode, Ports, Received, Sent};
use weir_engine::live::{Interfaces, Side};
use weir_test_support as support;

const POLICY: &str = "upstream { sample 1/1; tcp dport 443 drop; accept }\ndownstream { sample 1/1; accept }\n";
/// Short and long, with and without a tag, accepted and dropped.
const PACKETS: &str = "
eth / ip saddr=10.9.0.1 / udp dport=53 / payload 20
eth / ip saddr=10.9.0.1 / tcp dport=443 flags=ack / payload 1200 fill=3
eth / vlan id=7 / ip / icmp type=8 / payload 500
eth / ip6 saddr=2001:db8::1 / udp dport=53 / payload 2000 fill=9
";
/// Bytes of a packet that a host sends, at most: a tag has its place.
const SENT_SAMPLE_BYTES: usize = SAMPLE_BYTES - 16;

pub fn index(interface: &str) -> u32 {
    nix::net::if_::if_nametoindex(interface).expect("it is there")
}

/// Moves this thread to a network namespace with interfaces `lower` and `upper`.
pub fn namespace() {
    unshare(CloneFlags::CLONE_NEWNET).expect("this test makes a network namespace and needs root");
    for name in ["lower", "upper"] {
        let line = format!("link add {name} mtu 3498 type veth peer name {name}-peer mtu 3498");
        let made = Command::new("ip").args(line.split_whitespace()).status().expect("see scripts/install-deps.sh");
        assert!(made.success(), "ip {line}");
    }
}

/// The programs of the policy at ports of this thread's network namespace, and the samples that they make.
fn load(ports: impl FnOnce() -> Ports) -> (Arc<KernelCode>, SampleReader) {
    namespace();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("samples.weir");
    std::fs::write(&path, POLICY).expect("the folder can be written to");
    let policy = engines::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let reader = SampleReader::create_ring().expect("root may make maps");
    let ports = Arc::new(ports().with_samples(reader.ring()));
    let data = policy.bind(None).expect("there are no tables");
    (policy.kernel(&data, &ports).unwrap_or_else(|failure| panic!("{failure}")), reader)
}

/// Checks the one sample of a packet that arrived on a side. At most `most` bytes of it are copied.
fn check(reader: &SampleReader, packet: &support::Packet, from: Side, most: usize) {
    let mut frame = [0; SAMPLE_BYTES];
    let sample = reader.read(&mut frame).unwrap_or_else(|| panic!("no sample: {packet}"));
    assert_eq!((sample.from, sample.wire_len as usize), (from, packet.bytes.len()), "{packet}");
    assert_eq!(sample.bytes, &packet.bytes[..packet.bytes.len().min(most)], "{packet}");
    assert!(reader.read(&mut frame).is_none(), "one packet, one sample: {packet}");
}

#[test]
fn between_interfaces_a_sample_says_where_its_packet_arrived() {
    let names = || Interfaces { lower: vec!["lower".to_owned()], upper: vec!["upper".to_owned()], divert: None };
    let (code, reader) = load(|| Ports::of(&names()).expect("they are there"));
    for packet in support::packets(PACKETS).expect("they are packets") {
        for (chain, interface, from) in [(0, "lower", Side::Lower), (1, "upper", Side::Upper)] {
            let (bytes, first) = (&packet.bytes[..], packet.bytes.len());
            code.receive(chain, &Received { bytes, first, index: index(interface) }).expect("the kernel runs it");
            check(&reader, &packet, from, SAMPLE_BYTES);
        }
    }
}

#[test]
fn on_a_host_a_sample_says_whether_its_packet_was_sent() {
    if !has_tcx() {
        return;
    }
    let (code, reader) = load(|| Ports::of_host(&["lower".to_owned()]).expect("it is there"));
    for packet in support::packets(PACKETS).expect("they are packets") {
        let (bytes, first, index) = (&packet.bytes[..], packet.bytes.len(), index("lower"));
        code.receive(0, &Received { bytes, first, index }).expect("the kernel runs it");
        check(&reader, &packet, Side::Lower, SAMPLE_BYTES);
        code.send(1, &Sent { bytes, index, segments: [0, 0] }).expect("the kernel runs it");
        check(&reader, &packet, Side::Upper, SENT_SAMPLE_BYTES);
    }
}
