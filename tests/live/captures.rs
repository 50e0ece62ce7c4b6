//! `weir ctl capture`: the packets of a rule, as they were received, also across policies; readers that stall; files.

use crate::check_account;
use crate::device_under_test::{Running, wait_until};
use crate::hosts::{Host, Hosts};
use crate::put;
use crate::traffic::{Listener, flows, frames, send};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use weir_control::{CaptureFilter, Client, Request};
use weir_engine::capture::CaptureReader;
use weir_engine::capture::packet_stream::InterfaceStatistics;

const FIRST: &str = "upstream {\n  tcp dport 443 drop\n  udp dport 53 drop\n  accept\n}\ndownstream { accept }\n";
/// The rules of the first one at other places, and another rule at the place of one of them.
const SECOND: &str =
    "upstream {\n  icmp drop\n  udp dport 54 drop\n  udp dport 53 drop\n  accept\n}\ndownstream { accept }\n";

/// A running `weir ctl capture`, which is killed when this value is dropped.
pub struct Capture {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Capture {
    fn command(running: &Running, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["ctl", "--control"]).arg(running.control()).arg("capture").args(arguments);
        command
    }

    /// Begins a capture. Returns when it has begun.
    pub fn begin(running: &Running, arguments: &[&str]) -> Self {
        let mut command = Self::command(running, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built");
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut capture = Capture { child, stderr };
        let line = capture.line();
        assert!(line.starts_with("weir: capturing packets"), "{line}");
        capture
    }

    /// The next line on standard error.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stderr.read_line(&mut line).expect("it is text");
        line
    }

    /// Waits for its end. Returns its report.
    pub fn ends(mut self) -> String {
        wait_until("the capture ends", || self.child.try_wait().expect("it is our child").is_some());
        let report = self.line();
        assert_eq!(self.child.wait().expect("it is our child").code(), Some(0), "{report}");
        report
    }

    /// SIGINT is ignored where tests run in the background.
    fn interrupt(&self) {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM).expect("it runs");
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The packets of a capture.
fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = CaptureReader::open(path).expect("it is a capture");
    let mut packets = Vec::new();
    while let Some(burst) = reader.next_burst().expect("it is whole") {
        packets.extend((0..burst.frames().len()).map(|index| burst.record(index).0.to_vec()));
    }
    packets
}

fn sorted(mut packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    packets.sort();
    packets
}

/// How often a text is in a file.
fn times(path: &Path, text: &str) -> usize {
    let bytes = std::fs::read(path).expect("it is there");
    bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
}

fn to_port(port: u16, lengths: &[usize]) -> Vec<Vec<u8>> {
    let frame = |length: &usize| {
        format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=9 dport={port} / payload {length} fill=7\n")
    };
    frames(&lengths.iter().map(frame).collect::<String>())
}

fn sent_through(running: &Running, host: &Host, packets: &[Vec<u8>]) {
    let before = running.stats().upstream.total.packets;
    send(host, "c", packets);
    let all = before + packets.len() as u64;
    running.wait_for("all are decided", |stats| stats.upstream.total.packets >= all);
}

each_engine_and_host!(packets_of_a_rule_are_written_as_received_also_across_policies);
fn packets_of_a_rule_are_written_as_received_also_across_policies(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", FIRST);
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    let wanted = to_port(53, &[1, 60, 700, 1400]);
    let others = to_port(54, &[1, 900]);
    let (by_rule, all) = (folder.join("rule.pcapng"), folder.join("drops.pcapng"));
    let name = |path: &PathBuf| path.display().to_string();
    let capture = Capture::begin(&running, &["--rule", "edge.weir:3", "--count", "8", "-o", &name(&by_rule)]);
    let drops = Capture::begin(&running, &["--action", "drop", "--side", "lower", "--snap", "40", "-o", &name(&all)]);
    sent_through(&running, &hosts.client, &[&wanted[..], &others].concat());
    put(folder, "edge.weir", SECOND);
    let second = running.load(&folder.join("edge.weir"));
    running.ask(&Request::Activate { generation: second, confirm_s: None }).expect("it is ready");
    sent_through(&running, &hosts.client, &[&others[..], &wanted].concat());

    let report = capture.ends();
    assert!(report.starts_with("weir: 8 packets written of 8 selected, 0 not copied"), "{report}");
    assert_eq!(sorted(read(&by_rule)), sorted([&wanted[..], &wanted].concat()), "{engine}: byte for byte");
    let said = |line: u32| format!("drop · edge.weir:{line} udp dport 53 drop");
    assert_eq!([3, 4].map(|line| times(&by_rule, &said(line))), [4, 4], "{engine}: where it stood then");
    drops.interrupt();
    let report = drops.ends();
    assert!(report.starts_with("weir: 10 packets written of 10 selected"), "{engine}: {report}");
    let cut = |frame: &Vec<u8>| frame[..frame.len().min(40)].to_vec();
    let dropped = [&wanted[..], &others, &wanted].concat();
    assert_eq!(sorted(read(&all)), sorted(dropped.iter().map(cut).collect()), "{engine}");
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_kind!(a_reader_that_stalls_costs_packets_of_the_capture_only);
fn a_reader_that_stalls_costs_packets_of_the_capture_only(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", "upstream { udp dport 4000 accept; drop }\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    let packets: Vec<Vec<u8>> = std::iter::repeat_n(to_port(4000, &[1400]), 6000).flatten().collect();
    let wanted = CaptureFilter {
        rule: Some("udp dport 4000 accept".to_owned()),
        budget_pps: Some(1_000_000),
        ..CaptureFilter::default()
    };
    let client = Client::connect(running.control()).expect("it listens");
    let (_, mut stream) = client.stream(&Request::Capture(wanted)).expect("there is a tap");
    let at_server = Listener::counting(&hosts.server, "s");
    sent_through(&running, &hosts.client, &packets);
    // Nothing was read until now, and yet all packets pass.
    let stats = running.settled();
    check_account(&stats);
    assert_eq!(at_server.count(packets.len()), packets.len() as u64);
    stream.get_ref().shutdown(Shutdown::Write).expect("it is connected");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the daemon ends the stream");
    let at = bytes.len() - u32::from_le_bytes(*bytes.last_chunk().expect("a length")) as usize;
    let (statistics, text) = InterfaceStatistics::read(&bytes[at + 8..bytes.len() - 4]).expect("they come last");
    let InterfaceStatistics { received, dropped, lost, delivered, .. } = statistics;
    assert_eq!((received, delivered + dropped), (6000, 6000), "{engine}: {text}");
    assert!(lost > 0 && delivered > 0, "{engine}: {text}");
    let path = folder.join("stalled.pcapng");
    std::fs::write(&path, &bytes).expect("the folder can be written to");
    assert!(read(&path).iter().all(|packet| *packet == packets[0]), "{engine}: what was written is whole");
    assert_eq!(read(&path).len() as u64, delivered);
    assert_eq!(running.stop(), 0);
}

each_kind!(captures_select_by_matches_and_rotate_files);
fn captures_select_by_matches_and_rotate_files(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", FIRST);
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    // Packets leave through the pipe while the capture runs.
    let matches = ["--where", "ip saddr 10.9.0.0/16 udp dport 4000-4001", "-o", "-"];
    let mut capture = Capture::begin(&running, &matches);
    let wanted = [to_port(4000, &[100]), to_port(4001, &[5])].concat();
    sent_through(&running, &hosts.client, &[&flows(50, 1, 4002)[..], &wanted, &to_port(53, &[9])].concat());
    let (mut piped, mut bytes) = (capture.child.stdout.take().expect("it is a pipe"), Vec::new());
    let last = &wanted[1];
    while !bytes.windows(last.len()).any(|window| window == last) {
        let mut some = [0; 4096];
        let count = piped.read(&mut some).expect("it is a pipe");
        assert!(count > 0, "it goes on");
        bytes.extend_from_slice(&some[..count]);
    }
    capture.interrupt();
    piped.read_to_end(&mut bytes).expect("it is a pipe");
    let report = capture.ends();
    assert!(report.starts_with("weir: 2 packets written of ") && report.contains("without a match"), "{report}");
    let path = folder.join("piped.pcapng");
    std::fs::write(&path, &bytes).expect("the folder can be written to");
    assert_eq!(sorted(read(&path)), sorted(wanted), "{engine}");

    // 200 packets of 1,442 bytes take five files. The newest three are kept.
    let base = folder.join("x.pcapng").display().to_string();
    let rotated =
        ["--rule", "edge.weir:3", "--count", "200", "-o", &base, "--rotate", "64kB", "--files", "3", "--json"];
    let capture = Capture::begin(&running, &rotated);
    let packets = to_port(53, &[1400; 200]);
    sent_through(&running, &hosts.client, &packets);
    let mut capture = capture;
    let mut json = String::new();
    capture.child.stdout.take().expect("it is a pipe").read_to_string(&mut json).expect("it is text");
    capture.ends();
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((json["packets"].as_u64(), json["not_copied"].as_u64()), (Some(200), Some(0)), "{json}");
    let names: Vec<PathBuf> = [3, 4, 5].map(|number| folder.join(format!("x-000{number}.pcapng"))).into();
    assert_eq!(json["files"], serde_json::json!(names), "{json}");
    assert!(!folder.join("x-0001.pcapng").exists() && !folder.join("x-0002.pcapng").exists());
    let kept: Vec<Vec<u8>> = names.iter().flat_map(|name| read(name)).collect();
    assert!(kept.len() > 90 && kept.iter().all(|packet| *packet == packets[0]), "{} packets", kept.len());
    refusals(&running, &base);
    assert_eq!(running.stop(), 0);
}

/// What is wrong is said, and opens no tap.
fn refusals(running: &Running, output: &str) {
    let refused = |arguments: &[&str], problem: &str| {
        let output = Capture::command(running, &[arguments, &["-o", output]].concat()).output().expect("it was built");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && stderr.contains(problem), "{arguments:?}: {stderr}");
    };
    refused(
        &["--rule", "edge.weir:99"],
        "the active policy has no rule `edge.weir:99`; `weir ctl stats` lists its rules",
    );
    assert!(!Path::new(output).exists(), "what is refused writes nothing");
    refused(&["--reason", "speed"], "no reason `speed`; reasons are no-match, not-ip,");
    refused(&["--where", "ip saddr @bad"], "--where:");
    let filter = |budget| CaptureFilter { budget_pps: Some(budget), ..CaptureFilter::default() };
    let client = || Client::connect(running.control()).expect("it listens");
    assert!(client().stream(&Request::Capture(filter(0))).is_err());
    let open: Vec<_> = (0..4).map(|_| client().stream(&Request::Capture(filter(9))).expect("there is a tap")).collect();
    refused(&[], "4 taps are open already");
    // A client that goes without a word makes room.
    drop(open);
    wait_until("there is room", || client().stream(&Request::Capture(filter(9))).is_ok());
}
