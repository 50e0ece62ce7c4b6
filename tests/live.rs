//! Policies on real interfaces: three hosts in a row with real connections and packets. All packets are counted. Needs
//! root and clang.

#[macro_use]
#[path = "live/each_engine.rs"]
mod each_engine;

#[path = "live/additions.rs"]
mod additions;
#[path = "live/captures.rs"]
mod captures;
#[path = "live/card.rs"]
mod card;
#[path = "live/change_load.rs"]
mod change_load;
#[path = "live/connections.rs"]
mod connections;
#[path = "live/control.rs"]
mod control;
#[path = "live/detector.rs"]
mod detector;
#[path = "live/device_under_test.rs"]
mod device_under_test;
#[cfg(feature = "dpdk")]
#[path = "live/dpdk.rs"]
mod dpdk;
#[path = "live/entry_counters.rs"]
mod entry_counters;
#[path = "live/exits.rs"]
mod exits;
#[path = "live/expiry.rs"]
mod expiry;
#[path = "live/exports.rs"]
mod exports;
#[path = "live/failures.rs"]
mod failures;
#[path = "live/features.rs"]
mod features;
#[path = "live/feeds.rs"]
mod feeds;
#[path = "live/first_trial.rs"]
mod first_trial;
#[path = "live/flaps.rs"]
mod flaps;
#[path = "live/form.rs"]
mod form;
#[path = "live/frames.rs"]
mod frames;
#[path = "live/host.rs"]
mod host;
#[path = "live/hostile.rs"]
mod hostile;
#[path = "live/hosts.rs"]
mod hosts;
#[path = "live/hybrid.rs"]
mod hybrid;
#[path = "live/limits.rs"]
mod limits;
#[path = "live/links.rs"]
mod links;
#[path = "live/metrics.rs"]
mod metrics;
#[path = "live/mitigation.rs"]
mod mitigation;
#[path = "live/nothing.rs"]
mod nothing;
#[path = "live/offloads.rs"]
mod offloads;
#[path = "live/pressure.rs"]
mod pressure;
#[path = "live/saved.rs"]
mod saved;
#[path = "live/service.rs"]
mod service;
#[path = "live/several_interfaces.rs"]
mod several_interfaces;
#[path = "live/shadow.rs"]
mod shadow;
#[path = "live/slots.rs"]
mod slots;
#[path = "live/soak.rs"]
mod soak;
#[path = "live/stateful.rs"]
mod stateful;
#[path = "live/synproxy.rs"]
mod synproxy;
#[path = "live/tables.rs"]
mod tables;
#[path = "live/traffic.rs"]
mod traffic;
#[path = "live/upgrades.rs"]
mod upgrades;

use device_under_test::{Running, Setup, TIMEOUT, wait_until};
use hosts::{Host, Hosts, MTU, SERVER};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use traffic::Listener;
use weir_abi::Link;
use weir_control::{InterfaceStats, Outcome, Request, Stats};
use weir_engine::capture::{CaptureReader, CaptureWriter};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

/// Pause between bursts. The kernel queues a thousand packets for a receiver, a veth interface 256.
const BETWEEN_BURSTS: Duration = Duration::from_micros(300);

fn put(folder: &Path, name: &str, text: &str) {
    fs::write(folder.join(name), text).expect("files can be written");
}

/// Attaches a foreign XDP program to an interface.
fn attach_other(host: &Host, interface: &str, folder: &Path) {
    put(folder, "other.c", "__attribute__((section(\"xdp\"), used)) int other(void *ctx) { return 2; }\n");
    let object = folder.join("other.o");
    let mut clang = Command::new("clang-19");
    clang.args(["--target=bpf", "-O2", "-g", "-c", "-o"]).arg(&object).arg(folder.join("other.c"));
    assert!(clang.status().expect("clang is there").success());
    host.call("ip", &format!("link set dev {interface} xdp obj {} sec xdp", object.display()));
}

/// Checks that all packets are accounted for. Received ones are passed, dropped, diverted or answered. Passed, diverted
/// and sampled ones and answers are sent, or dropped for a named reason.
fn check_account(stats: &Stats) {
    let ports = |side: &'static str| stats.interfaces.iter().filter(move |port| port.side == side);
    let out = |side: &'static str| -> u64 { ports(side).map(|port| port.tx_packets + port.tx_dropped.unsent()).sum() };
    let (up, down) = (&stats.upstream.total, &stats.downstream.total);
    for (total, opposite, from, to) in [(up, down, "lower", "upper"), (down, up, "upper", "lower")] {
        assert_eq!(total.packets, ports(from).map(|port| port.rx_packets).sum::<u64>(), "{stats:#?}");
        assert_eq!(total.packets, total.passed + total.dropped + total.diverted + total.replied, "{stats:#?}");
        assert_eq!(total.packets, total.reasons.values().sum::<u64>(), "{stats:#?}");
        assert_eq!(total.passed + opposite.replied, out(to), "{stats:#?}");
    }
    let sum = |of: fn(&InterfaceStats) -> u64| stats.interfaces.iter().map(of).sum::<u64>();
    let diverted = stats.upstream.total.diverted + stats.downstream.total.diverted;
    let (nowhere, sampled) = (sum(|port| port.tx_dropped.no_divert), sum(|port| port.sampled));
    assert_eq!(diverted + sampled, nowhere + out("divert"), "{stats:#?}");
    assert_eq!(sampled, stats.upstream.total.sampled + stats.downstream.total.sampled, "{stats:#?}");
    check_workers(stats);
}

/// Checks that the counters of all workers add up to the totals.
fn check_workers(stats: &Stats) {
    // A card counts like a worker.
    let card = stats.card.as_ref().map(|card| card.upstream);
    let upstream = stats.workers.iter().map(|worker| worker.upstream).chain(card);
    let downstream = stats.workers.iter().map(|worker| worker.downstream);
    for (direction, workers) in
        [(&stats.upstream, upstream.collect::<Vec<_>>()), (&stats.downstream, downstream.collect())]
    {
        for (tally, outcome) in [
            (&direction.current, workers.iter().fold(Outcome::default(), |sum, worker| sum.plus(worker.current))),
            (&direction.total, workers.iter().fold(Outcome::default(), |sum, worker| sum.plus(worker.total))),
        ] {
            let Outcome { packets, bytes, passed, dropped, diverted, replied } = outcome;
            let all = (tally.packets, tally.bytes, tally.passed, tally.dropped, tally.diverted, tally.replied);
            assert_eq!((packets, bytes, passed, dropped, diverted, replied), all, "{stats:#?}");
        }
    }
    for port in &stats.interfaces {
        let own = stats.workers.iter().flat_map(|worker| &worker.interfaces);
        let own = own.chain(stats.card.iter().map(|card| &card.interface));
        // On a host, an interface is the wire on one side and the host on the other.
        let own = own.filter(|part| part.interface == port.interface && part.side == port.side);
        let sent_and_received = own.map(|part| (part.rx_packets, part.tx_packets));
        let sums = sent_and_received.fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        assert_eq!(sums, (port.rx_packets, port.tx_packets), "{stats:#?}");
    }
}

/// The number of packets that arrived at the server, and that its veth pair lost.
struct Arrivals {
    listener: Listener<usize>,
    lost: u64,
}

impl Arrivals {
    fn count(hosts: &Hosts) -> Self {
        Arrivals { listener: Listener::counting(&hosts.server, "s"), lost: hosts.lost_on("upper") }
    }

    /// Checks that all packets sent to the server have arrived since then, except for counted losses of the veth pair.
    fn check(self, engine: &str, hosts: &Hosts, stats: &Stats) {
        let upper = stats.interfaces.iter().find(|port| port.side == "upper").expect("there is one");
        let lost = hosts.lost_on("upper") - self.lost;
        let arrived = self.listener.count(upper.tx_packets.saturating_sub(lost) as usize);
        let missing = upper.tx_packets.checked_sub(arrived);
        assert!(
            missing.is_some_and(|missing| missing <= lost),
            "{engine}: {arrived} arrived, the wire lost {lost}: {stats:#?}"
        );
    }
}

/// The counters that a replay and a run have in common.
fn counted(report: &Value) -> [Value; 7] {
    ["packets", "bytes", "passed", "dropped", "diverted", "rules", "reasons"].map(|field| report[field].clone())
}

each_engine_and_host!(connections_pass_as_the_policy_says);
fn connections_pass_as_the_policy_says(engine: &str, hosts: &Hosts, folder: &Path) {
    const BYTES: usize = 8 << 20;
    put(folder, "web.weir", "upstream { tcp dport 8000 accept; drop }\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "web.weir", engine, 1);
    let (ready, is_ready) = channel();
    let served = hosts.server.start(move || {
        let listeners = [8000, 8001].map(|port| TcpListener::bind((SERVER, port)).expect("the server has the address"));
        ready.send(()).expect("somebody waits");
        let (mut stream, _) = listeners[0].accept().expect("the client connects");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("the client sends");
        stream.write_all(&received).expect("the client receives");
        received.len()
    });
    is_ready.recv().expect("the server listens");
    let (same, refused) = hosts.client.run(|| {
        let sent: Vec<u8> = (0..BYTES).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
        let mut stream = TcpStream::connect((SERVER, 8000)).expect("the policy accepts");
        stream.write_all(&sent).expect("the server receives");
        stream.shutdown(std::net::Shutdown::Write).expect("the connection stands");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("the server sends");
        let other = TcpStream::connect_timeout(&(SERVER, 8001).into(), Duration::from_millis(300));
        (received == sent, other.is_err())
    });
    assert!(same && refused, "{engine}: the same bytes came back {same}, the other port was shut {refused}");
    assert_eq!(served.join().expect("the server ends"), BYTES);
    let stats = running.settled();
    check_account(&stats);
    let dropped = stats.upstream.total.rules.iter().find(|rule| rule.rule == "drop").expect("there is one");
    assert!(dropped.packets >= 1, "{stats:#?}");
    assert_eq!((running.stop(), folder.join("control.sock").exists()), (0, false), "{engine}");
}

each_engine_and_host!(a_capture_on_the_wire_is_counted_as_in_replay);
fn a_capture_on_the_wire_is_counted_as_in_replay(engine: &str, hosts: &Hosts, folder: &Path) {
    let edge = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/edge");
    let (policy, capture) = (edge.join("edge.weir"), folder.join("sendable.pcap"));
    copy_sendable(&edge.join("attack.pcap"), &capture, Fragments::of(engine));
    let replay = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["replay", "edge.weir", "--engine", "eval", "--json", "--in"])
        .arg(&capture)
        .current_dir(&edge)
        .output()
        .expect("the program was built");
    let replayed: Value = serde_json::from_slice(&replay.stdout).expect("a report");

    for workers in [1, 2] {
        let running = Running::start(&hosts.weir, folder, policy.to_str().expect("a path"), engine, workers);
        let capture = capture.clone();
        let arrivals = Arrivals::count(hosts);
        let control = running.control().to_owned();
        let sent = hosts.client.run(move || send_capture(&capture, |sent| wait_until_counted(&control, sent)));
        running.wait_for("all packets are counted", |stats| stats.upstream.current.packets >= sent);
        let stats = running.settled();
        check_account(&stats);
        let run = serde_json::to_value(&stats.upstream).expect("stats are JSON");
        assert_eq!(counted(&run), counted(&replayed), "{engine}, {workers} workers");
        assert_eq!(stats.interfaces.iter().filter_map(|port| port.rx_missed).sum::<u64>(), 0, "{stats:#?}");
        arrivals.check(engine, hosts, &stats);
        assert_eq!(running.stop(), 0);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragments {
    Sent,
    LeftOut,
}

impl Fragments {
    /// DPDK's virtual port receives fragments that the kernel has reassembled. `live/dpdk.rs` tests fragments.
    fn of(engine: &str) -> Self {
        if engine == "dpdk" { Fragments::LeftOut } else { Fragments::Sent }
    }
}

/// Whether an Ethernet frame contains a fragment of an IPv4 packet.
fn is_fragment(frame: &[u8]) -> bool {
    const ETHERNET: usize = 14;
    let more_or_offset = |ip: &[u8]| u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
    frame.len() >= ETHERNET + 20 && frame[12..14] == [8, 0] && more_or_offset(&frame[ETHERNET..])
}

/// Copies the packets of a capture that can be sent: complete ones within the MTU.
fn copy_sendable(from: &Path, to: &Path, fragments: Fragments) {
    let mut reader = CaptureReader::open(from).expect("a capture");
    let mut writer = CaptureWriter::create(to, reader.form()).expect("the folder can be written to");
    while let Some(burst) = reader.next_burst().expect("a capture") {
        for (index, frame) in burst.frames().frames().iter().enumerate() {
            let left_out = fragments == Fragments::LeftOut && is_fragment(burst.frames().bytes(index));
            if frame.cap == frame.len && frame.len <= MTU + 14 && !left_out {
                writer.write(&burst, index).expect("the folder can be written to");
            }
        }
    }
    writer.finish().expect("the folder can be written to");
}

/// Waits until Weir has counted `packets` packets from the lower side, so that a busy machine is not flooded.
fn wait_until_counted(control: &Path, packets: u64) {
    let counted = || {
        let stats = weir_control::ask(control, &Request::Stats).expect("it answers");
        let stats: Stats = serde_json::from_value(stats).expect("stats");
        stats.upstream.total.packets >= packets
    };
    wait_until(&format!("{packets} are counted"), counted);
}

/// Sends all Ethernet frames of a capture. Returns the number of sent frames. Calls `pace` after each burst with the
/// number so far.
fn send_capture(path: &Path, pace: impl Fn(u64)) -> u64 {
    let mut wire = Wire::open("c").expect("the client has the wire");
    let mut reader = CaptureReader::open(path).expect("a capture");
    while let Some(burst) = reader.next_burst().expect("a capture") {
        assert_eq!(burst.frames().link(), Link::Ethernet);
        wire.send(burst.frames()).expect("the wire takes frames");
        pace(wire.counters().tx_packets);
    }
    wire.counters().tx_packets
}

each_engine_and_host!(changes_under_a_flood_lose_nothing);
fn changes_under_a_flood_lose_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    // The kernel waits 20 ms for each program that it replaces, so a change of two interfaces takes 40 ms.
    let changes = if ["xdp", "host"].contains(&engine) { 250 } else { 1000 };
    let policy = |label: &str| format!("upstream {{ udp dport 9 accept # {label}\n drop }}\ndownstream {{ accept }}\n");
    put(folder, "one.weir", &policy("one"));
    put(folder, "two.weir", &format!("table t {{ type ipv4; elements = {{ 10.9.0.1 }} }}\n{}", policy("two")));
    let running = Running::start(&hosts.weir, folder, "one.weir", engine, 2);
    let two = running.load(&folder.join("two.weir"));
    let (done, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let arrivals = Arrivals::count(hosts);
    let flood = {
        let (done, sent, control) = (done.clone(), sent.clone(), running.control().to_owned());
        hosts.client.start(move || flood(&done, &sent, |sent| wait_until_counted(&control, sent)))
    };
    while sent.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for change in 0..changes {
        let request = match change % 4 {
            0 => Request::Activate { generation: two, confirm_s: None },
            1 => Request::Rollback,
            2 => Request::Activate { generation: two, confirm_s: Some(60.0) },
            _ => Request::Activate { generation: 1, confirm_s: None },
        };
        running.ask(&request).unwrap_or_else(|failure| panic!("{engine}: {failure}: {}", running.log()));
    }
    done.store(true, Ordering::Relaxed);
    flood.join().expect("it ends");
    let sent = sent.load(Ordering::Relaxed);
    running.wait_for("all packets are counted", |stats| stats.upstream.total.packets >= sent);
    let stats = running.settled();
    check_account(&stats);
    assert_eq!((stats.upstream.total.packets, stats.upstream.total.passed), (sent, sent), "{engine}");
    assert_eq!(running.status().activations, changes + 1);
    let by_policy: Vec<u64> = stats.upstream.total.rules.iter().map(|rule| rule.packets).filter(|&n| n > 0).collect();
    assert!(by_policy.len() == 2 && by_policy.iter().sum::<u64>() == sent, "{by_policy:?} of {sent}");
    assert_eq!(stats.interfaces.iter().filter_map(|port| port.rx_missed).sum::<u64>(), 0, "{stats:#?}");
    arrivals.check(engine, hosts, &stats);
    assert_eq!(running.stop(), 0);
}

/// Sends packets that the policies accept, in bursts that the interface can buffer, until `done`. Sometimes calls
/// `pace` with the number so far.
fn flood(done: &AtomicBool, sent: &AtomicU64, pace: impl Fn(u64)) {
    let packets: Vec<_> = (1..=256u32)
        .map(|sport| {
            weir_test_support::packets(&format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport={sport} dport=9"))
        })
        .map(|packets| packets.expect("the notation reads").remove(0))
        .collect();
    let frames = FrameSet::new(Link::Ethernet, packets.iter().map(|packet| (packet.bytes.as_slice(), packet.wire)));
    let mut wire = Wire::open("c").expect("the client has the wire");
    while !done.load(Ordering::Relaxed) {
        for burst in frames.bursts() {
            wire.send(&burst).expect("the wire takes frames");
            std::thread::sleep(BETWEEN_BURSTS);
        }
        sent.store(wire.counters().tx_packets, Ordering::Relaxed);
        pace(wire.counters().tx_packets);
    }
}

each_engine_and_host!(what_is_refused_changes_nothing);
fn what_is_refused_changes_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    put(
        folder,
        "good.weir",
        "upstream { accept }\ndownstream { accept }\nposture high { upstream { drop } downstream { accept } }\n",
    );
    put(folder, "bad.weir", "upstream {\n  tcp dport htttp accept\n}\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "good.weir", engine, 1);
    let refused = |request: &Request, words: &[&str]| {
        let before = running.status();
        let failure = running.ask(request).expect_err("it is refused").to_string();
        assert!(words.iter().all(|word| failure.contains(word)), "{words:?}: {failure}");
        let after = running.status();
        assert_eq!((after.generation, after.activations), (before.generation, before.activations));
        assert_eq!(after.generations.len(), before.generations.len());
    };
    let load = |name: &str| Request::Load { policy: folder.join(name) };
    refused(&load("bad.weir"), &["bad.weir:2", "htttp"]);
    refused(&load("none.weir"), &["none.weir"]);
    refused(&Request::Load { policy: "good.weir".into() }, &["absolute"]);
    refused(&Request::Activate { generation: 7, confirm_s: None }, &["no generation 7", "ready generations: 1"]);
    refused(&Request::Activate { generation: 1, confirm_s: Some(-1.0) }, &["confirm"]);
    refused(&Request::Posture { name: Some("low".into()) }, &["no posture low"]);
    refused(&Request::Rollback, &["no previous policy to roll back to"]);
    refused(&Request::Confirm, &["no policy is on trial"]);
    for line in ["{}\n", "[[[[\n", "\"status\"}\n", "{\"load\":{}}\n", "\n", "{\"activate\":{\"generation\":-1}}\n"] {
        let mut stream = std::os::unix::net::UnixStream::connect(running.control()).expect("it listens");
        stream.write_all(line.as_bytes()).expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("it stands");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("{\"error\":\"weir: not a request"), "{line:?}: {answer}");
    }

    // An activation that is not confirmed is rolled back.
    running.ask(&Request::Posture { name: Some("high".into()) }).expect("there is one");
    let second = running.load(&folder.join("good.weir"));
    running.ask(&Request::Activate { generation: second, confirm_s: Some(0.2) }).expect("it is ready");
    assert!(running.status().confirm_left_s.is_some());
    let start = Instant::now();
    while running.status().generation == second {
        assert!(start.elapsed() < TIMEOUT, "{engine}: it stays");
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = running.status();
    assert_eq!((status.generation, status.posture.as_deref(), status.confirm_left_s), (1, Some("high"), None));
    // A confirmed activation stays.
    running.ask(&Request::Activate { generation: second, confirm_s: Some(0.2) }).expect("it is ready");
    running.ask(&Request::Confirm).expect("it waits");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(running.status().generation, second);
}

each_engine!(after_a_kill_it_starts_again_and_after_an_outage_it_goes_on);
fn after_a_kill_it_starts_again_and_after_an_outage_it_goes_on(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", "upstream { accept }\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    // A second process between other interfaces reports that the first one uses the control socket.
    hosts.weir.ip("link add name third type veth peer name fourth");
    let [lower, upper] = ["third", "fourth"].map(|name| vec![name.to_owned()]);
    let others = Setup { lower, upper, ..Setup::new(engine) };
    let (code, stderr) = Running::refused_as(&hosts.weir, folder, "all.weir", &others);
    assert!(code == 1 && stderr.contains("another weir listens here"), "{stderr}");
    running.kill();
    assert!(folder.join("control.sock").exists(), "a killed process removes nothing");

    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    hosts.set_link("upper", "down");
    std::thread::sleep(Duration::from_millis(50));
    hosts.set_link("upper", "up");
    hosts.set_link("lower", "down");
    hosts.set_link("lower", "up");
    let arrivals = Arrivals::count(hosts);
    let (done, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let own = (done.clone(), sent.clone());
    let flood = hosts.client.start(move || flood(&own.0, &own.1, |_| ()));
    running.wait_for("packets flow again", |stats| {
        stats.interfaces.iter().any(|port| port.side == "upper" && port.tx_packets > 1000)
    });
    done.store(true, Ordering::Relaxed);
    flood.join().expect("it ends");
    assert!(arrivals.listener.count(1001) > 1000);
    assert_eq!(running.stop(), 0, "{engine}");
}
