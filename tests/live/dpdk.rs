//! Tests that only DPDK needs. Weir and a generator run in two processes with shared memory (memif) between them. All
//! packets are counted, and passed ones are unchanged. Other tests cover unusable ports.

use crate::device_under_test::{Running, Setup, TIMEOUT};
use crate::hosts::Hosts;
use crate::traffic::{flows, send};
use crate::{counted, put};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::{InterfaceStats, Request, Stats};
use weir_engine::capture::{CaptureReader, CaptureWriter};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::dpdk::Eal;
use weir_engine::live::dpdk::wire::Wire;

/// Maximum length of a frame, longer than all frames of the capture. The generator's frames are in one buffer, Weir's
/// in several of 2 KB.
const LONGEST: u16 = 8192;

const POLICY: &str = "upstream {
  udp sport { 53, 123 } divert
  tcp sample 1/7
  tcp dport 443 drop
  accept
}
downstream { accept }
";

/// The lower, the upper and the divert connection, and which end provides their memory.
struct Wires {
    name: &'static str,
    /// Role of each end: a server, or a client of a server that exists already.
    weir: [&'static str; 3],
    generator: [&'static str; 3],
    /// Maximum length of sent frames.
    longest: u16,
    /// Number of times that Weir is killed and restarted. Only a server can reconnect.
    kills: usize,
}

/// Weir copies packets from and to the generator's memory. Long packets are in several buffers.
const COPIED: Wires =
    Wires { name: "copied", weir: ["server"; 3], generator: ["client"; 3], longest: LONGEST, kills: 0 };
/// The lower connection uses the memory of Weir's packets. DPDK 22.11 supports this for one port only, and splits long
/// packets wrongly.
const SHARED: Wires = Wires {
    name: "shared",
    weir: ["client,zero-copy=yes", "client", "client"],
    generator: ["server"; 3],
    longest: 2048,
    kills: 1,
};

impl Wires {
    fn port(&self, wire: &str) -> String {
        format!("net_memif_{}_{wire}", self.name)
    }

    /// DPDK's arguments for one end of each connection.
    fn eal(&self, folder: &Path, roles: [&str; 3]) -> String {
        // An abstract socket.
        let socket = folder.join(self.name);
        // The output rings are longer than the input ring, because a full output ring drops packets.
        let port = |(id, (wire, rsize)): (usize, (&str, u32))| {
            let memif = format!("--vdev={},id={id},role={}", self.port(wire), roles[id]);
            format!("{memif},socket={},bsize={LONGEST},rsize={rsize} ", socket.display())
        };
        [("lower", 10), ("upper", 12), ("divert", 12)].into_iter().enumerate().map(port).collect()
    }

    /// Starts Weir between the connections.
    fn start_weir(&self, folder: &Path) -> Running {
        let eal = format!("--no-huge -m 256 --no-pci --single-file-segments {}", self.eal(folder, self.weir));
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["run", "policy.weir", "--engine", "dpdk", "--eal", &eal]).current_dir(folder);
        for wire in ["lower", "upper", "divert"] {
            command.args([format!("--{wire}"), self.port(wire)]);
        }
        command.arg("--control").arg(folder.join("control.sock")).stdin(Stdio::null()).env("NO_COLOR", "1");
        Running::spawn(folder, command, |mut command| command.spawn())
    }
}

/// The other ends of the connections.
struct Generator {
    lower: Wire,
    upper: Wire,
    divert: Wire,
    /// Number of packets from the upper connection.
    passed: u64,
    diverted: u64,
}

impl Generator {
    fn open(eal: &Eal, wires: &Wires) -> Self {
        let open = |wire: &str| Wire::open(eal, &wires.port(wire), LONGEST).expect("there is such a port");
        let (lower, upper, divert) = (open("lower"), open("upper"), open("divert"));
        Generator { lower, upper, divert, passed: 0, diverted: 0 }
    }

    /// Waits until packets pass on all connections, and discards them.
    fn wait_for(&mut self, weir: &Running) {
        let ways = ["sport=53 dport=9", "sport=9 dport=9"].map(|ports| {
            let packet = format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp {ports}");
            weir_test_support::packets(&packet).expect("the notation reads").remove(0)
        });
        let probes = FrameSet::new(Link::Ethernet, ways.iter().map(|packet| (packet.bytes.as_slice(), packet.wire)));
        let (start, mut upper, mut divert) = (Instant::now(), 0, 0);
        while upper == 0 || divert == 0 {
            assert!(start.elapsed() < TIMEOUT, "nothing comes through: {}", weir.log());
            // DPDK reconnects only when the state of a link is read.
            let up = [&self.lower, &self.upper, &self.divert].map(Wire::is_up);
            if up == [true; 3] {
                self.lower.send(&probes.burst(0));
            }
            std::thread::sleep(Duration::from_millis(1));
            upper += self.upper.receive(|_| ());
            divert += self.divert.receive(|_| ());
        }
        weir.settled();
        while self.upper.receive(|_| ()) + self.divert.receive(|_| ()) > 0 {}
        (self.passed, self.diverted) = (0, 0);
    }

    /// Receives packets. Packets from the upper connection must be the expected frames, in order.
    fn take(&mut self, expected: &[Vec<u8>]) {
        let next = self.passed as usize;
        self.passed += self.upper.receive(|burst| {
            for index in 0..burst.len() {
                assert!(
                    expected.get(next + index).is_some_and(|frame| frame == burst.bytes(index)),
                    "{}",
                    next + index
                );
            }
        }) as u64;
        self.diverted += self.divert.receive(|_| ()) as u64;
    }

    /// Sends a capture into the lower connection and receives the packets from the others.
    fn send(&mut self, capture: &Path, expected: &[Vec<u8>]) -> u64 {
        let mut reader = CaptureReader::open(capture).expect("a capture");
        let mut sent = 0;
        while let Some(burst) = reader.next_burst().expect("a capture") {
            let (mut left, start) = (*burst.frames(), Instant::now());
            while !left.is_empty() {
                left = left.after(self.lower.send(&left));
                self.take(expected);
                assert!(start.elapsed() < TIMEOUT, "nobody takes packets");
            }
            sent += burst.frames().len() as u64;
        }
        sent
    }
}

/// The frames of a capture.
fn frames(capture: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(capture).expect("a capture");
    let mut frames = Vec::new();
    while let Some(burst) = reader.next_burst().expect("a capture") {
        frames.extend((0..burst.frames().len()).map(|index| burst.frames().bytes(index).to_vec()));
    }
    frames
}

/// Copies the packets of a capture up to a maximum length.
fn copy_short(from: &Path, to: &Path, longest: u16) {
    let mut reader = CaptureReader::open(from).expect("a capture");
    let mut writer = CaptureWriter::create(to, reader.form()).expect("the folder can be written to");
    while let Some(burst) = reader.next_burst().expect("a capture") {
        for (index, frame) in burst.frames().frames().iter().enumerate() {
            if frame.len <= longest.into() {
                writer.write(&burst, index).expect("the folder can be written to");
            }
        }
    }
    writer.finish().expect("the folder can be written to");
}

#[test]
fn packets_over_shared_memory_are_counted_as_in_replay() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let folder = folder.path();
    put(folder, "policy.weir", POLICY);
    let wires = [COPIED, SHARED];
    let ports: String = wires.iter().map(|wires| wires.eal(folder, wires.generator)).collect();
    let eal = Eal::start(&format!("--no-huge -m 512 --no-pci {ports}")).expect("DPDK starts");
    for wires in wires {
        let attack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/edge/attack.pcap");
        let (capture, passed) = (folder.join("sendable.pcap"), folder.join("passed.pcap"));
        copy_short(&attack, &capture, wires.longest);
        let replay = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args([
                "replay",
                "policy.weir",
                "--engine",
                "eval",
                "--json",
                "--in",
                "sendable.pcap",
                "--out",
                "passed.pcap",
            ])
            .current_dir(folder)
            .output()
            .expect("the program was built");
        let replayed: Value = serde_json::from_slice(&replay.stdout).expect("a report");
        let expected = frames(&passed);
        let to_divert = replayed["diverted"].as_u64().expect("a number") + replayed["sampled"].as_u64().expect("one");

        // A server must start before its client.
        let first = (wires.generator == ["server"; 3]).then(|| Generator::open(&eal, &wires));
        let mut weir = wires.start_weir(folder);
        let mut generator = first.unwrap_or_else(|| Generator::open(&eal, &wires));
        for round in 0..=wires.kills {
            generator.wait_for(&weir);
            // The counters since the activation start at 0 here.
            let generation = weir.load(&folder.join("policy.weir"));
            weir.ask(&Request::Activate { generation, confirm_s: None }).expect("it is ready");
            let before = weir.settled();
            let sent = generator.send(&capture, &expected);
            let start = Instant::now();
            while (generator.passed, generator.diverted) != (expected.len() as u64, to_divert) {
                generator.take(&expected);
                assert!(start.elapsed() < TIMEOUT, "{}: {:#?}", wires.name, weir.stats());
            }
            check(&before, &weir.settled(), &replayed, sent);
            if round < wires.kills {
                weir.kill();
                weir = wires.start_weir(folder);
            }
        }
        assert_eq!(weir.stop(), 0);
    }
}

/// Checks that the counts since `before` match the replay, and that nothing was lost.
fn check(before: &Stats, stats: &Stats, replayed: &Value, sent: u64) {
    let run = serde_json::to_value(&stats.upstream).expect("stats are JSON");
    assert_eq!(counted(&run), counted(replayed), "{stats:#?}");
    let more = |side: &str, count: fn(&InterfaceStats) -> u64| {
        let at = |stats: &Stats| count(stats.interfaces.iter().find(|port| port.side == side).expect("all are there"));
        at(stats) - at(before)
    };
    let current = &stats.upstream.current;
    let sampled = more("lower", |port| port.sampled);
    assert_eq!((more("lower", |port| port.rx_packets), Value::from(sampled)), (sent, replayed["sampled"].clone()));
    assert_eq!(more("upper", |port| port.tx_packets), current.passed);
    assert_eq!(more("divert", |port| port.tx_packets), current.diverted + sampled);
    for side in ["lower", "upper", "divert"] {
        let lost = more(side, |port| port.rx_missed.unwrap_or_default() + port.tx_dropped.unsent());
        assert_eq!(lost, 0, "{side}: {stats:#?}");
    }
}

#[test]
fn ports_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    put(folder.path(), "policy.weir", POLICY);
    let refused = |line: &str, eal: &str, words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["run", "policy.weir", "--engine", "dpdk", "--control", "weir.sock", "--eal", eal])
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .output()
            .expect("the program was built");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && words.iter().all(|word| stderr.contains(word)),
            "{words:?}: {stderr}"
        );
        // Only errors: neither DPDK's usage text nor its log.
        assert!(output.stdout.is_empty() && stderr.lines().count() < 16, "{stderr}");
    };
    let ring = "--no-huge -m 64 --no-pci --vdev=net_ring0 --vdev=net_null0";
    refused("--lower net_ring0 --upper net_ring1", ring, &["net_ring1", "it has: net_ring0 net_null0"]);
    refused("--lower net_null0 --upper net_ring0 --workers 17", ring, &["net_ring0", "16 receive", "17 queue pairs"]);
    refused(
        "--lower net_null0 --upper net_ring0",
        "--no-huge -m 8 --no-pci --vdev=net_null0 --vdev=net_ring0",
        &["-m"],
    );
    refused("--lower net_null0 --upper net_null1", "--no-such-option", &["does not start", "--no-such-option"]);
    let wire = "--no-huge -m 64 --no-pci --vdev=net_null0 --vdev=net_af_packet0,iface=nowhere";
    refused("--lower net_null0 --upper net_af_packet0", wire, &["has no such port", "has: net_null0", "SIOCGIFINDEX"]);
}

#[test]
fn an_interface_behind_a_port_is_claimed() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "policy.weir", "upstream { accept }\ndownstream { accept }\n");
    let refused = |setup: &Setup, words: &str| {
        let other = folder.join("other");
        std::fs::create_dir_all(&other).expect("the folder can be written to");
        put(&other, "policy.weir", "upstream { accept }\ndownstream { accept }\n");
        let mut command = setup.command(&other, "policy.weir");
        let output = hosts.weir.run(move || command.output().expect("the program was built"));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && stderr.contains(words), "{words}: {stderr}");
    };
    // These ports under other names, and with other engines.
    let renamed = |dpdk: &Setup| {
        let line = "--no-huge -m 512 --no-pci --vdev=net_af_packet8,iface=upper --vdev net_af_packet9,iface=lower";
        let one = |name: &str| vec![name.to_owned()];
        let more = vec!["--eal".to_owned(), line.to_owned()];
        Setup {
            engine: "dpdk-named".to_owned(),
            lower: one("net_af_packet8"),
            upper: one("net_af_packet9"),
            more,
            ..dpdk.clone()
        }
    };
    let dpdk = Setup::new("dpdk");
    let running = Running::start_as(&hosts.weir, folder, "policy.weir", &dpdk);
    refused(&dpdk, "interface lower: another weir has it");
    refused(&renamed(&dpdk), "interface lower: another weir has it");
    refused(&Setup::new("afpacket"), "interface lower: another weir has it");
    assert_eq!(running.stop(), 0);
    let running = Running::start_as(&hosts.weir, folder, "policy.weir", &Setup::new("afpacket"));
    refused(&dpdk, "interface lower: another weir has it");
    assert_eq!(running.stop(), 0);
    let twice = Setup {
        more: vec![
            "--eal".to_owned(),
            "--no-huge -m 64 --no-pci --vdev=net_af_packet8,iface=upper --vdev=net_af_packet9,iface=upper".to_owned(),
        ],
        ..renamed(&dpdk)
    };
    refused(&twice, "net_af_packet8 and net_af_packet9 both use the interface upper");
}

#[test]
fn what_a_driver_took_and_could_not_send_is_told() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "policy.weir", "upstream { accept }\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "policy.weir", "dpdk", 1);
    hosts.set_link("upper", "down");
    let sent = flows(100, 1, 9);
    send(&hosts.client, "c", &sent);
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent.len() as u64);
    let stats = running.settled();
    crate::check_account(&stats);
    let upper = stats.interfaces.iter().find(|port| port.side == "upper").expect("there is one");
    assert!(
        upper.tx_dropped.tx_error > 0 && upper.tx_dropped.unsent() + upper.tx_packets == stats.upstream.total.passed,
        "{stats:#?}"
    );
    assert_eq!(running.stop(), 0);
}
