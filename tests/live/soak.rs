//! Mixed traffic for a long time with a change of policy every second. All packets are counted; memory, descriptors and
//! threads do not grow.
//!
//! Takes six seconds per engine, one for each kind of change. `WEIR_SOAK_SECONDS=1800 cargo test -p weir --test live
//! soak:: -- --nocapture` sets the duration and reports every minute. `loses_nothing::xdp` in place of `soak::` selects
//! one engine.

use crate::device_under_test::{Running, Setup, TIMEOUT};
use crate::hosts::{Hosts, SERVER, Wires};
use crate::traffic::{flows, frames};
use crate::{BETWEEN_BURSTS, Fragments, check_account, copy_sendable, put, send_capture};
use nix::unistd::Pid;
use std::fmt;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::Request;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

const SECONDS: u64 = 6;
/// Number of loads before the first measurement: more than generations are kept.
const WARM_UP_LOADS: u64 = 10;
/// Tolerated growth of memory in KB, which the allocator may retain.
const MEMORY_SLACK_KB: u64 = 6 << 10;
const PORT: u16 = 8000;
/// Maximum number of connections that fail in a row.
const FAILURES_MAX: u32 = 3;

/// The text of a policy. There are only three, so that the number of counted rules does not grow.
fn policy(number: u64) -> String {
    let more: String = (0..200).map(|last| format!(", 203.0.{}.{last}", number % 3)).collect();
    format!(
        "table bad {{ type ipv4; elements = {{ 198.51.100.0/24{more} }} }}
upstream {{ ip saddr @bad counter drop; udp dport 10 drop; udp dport 11 sample 1/16 accept; udp dport 12 divert; accept }}
downstream {{ udp dport 10 drop; accept }}
posture high {{ upstream {{ udp drop; accept }} downstream {{ accept }} }}
"
    )
}

/// All senders, which run until told to stop.
struct Traffic {
    enough: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
    senders: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn start(hosts: &Hosts, capture: PathBuf) -> Self {
        let enough = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicU64::new(0));
        let flag = || enough.clone();
        let mut up: Vec<Vec<u8>> = (9..13).flat_map(|dport| flows(48, 1, dport)).collect();
        up.extend(frames(
            "eth / ip saddr=198.51.100.7 / tcp dport=80 flags=syn\neth / vlan id=9 / ip6 / udp\neth / arp",
        ));
        let down: Vec<Vec<u8>> = (9..11).flat_map(|dport| flows(64, 1, dport)).collect();
        let (up_flag, down_flag, replay_flag, server_flag, client_flag) = (flag(), flag(), flag(), flag(), flag());
        let counted = connections.clone();
        let senders = vec![
            hosts.client.start(move || flood("c", &up, &up_flag)),
            hosts.server.start(move || flood("s", &down, &down_flag)),
            hosts.client.start(move || {
                while !replay_flag.load(Ordering::Relaxed) {
                    send_capture(&capture, |_| thread::sleep(BETWEEN_BURSTS));
                }
            }),
            hosts.server.start(move || serve(&server_flag)),
            hosts.client.start(move || connect(&client_flag, &counted)),
        ];
        Traffic { enough, connections, senders }
    }

    /// Stops the senders. Returns the number of connections.
    fn stop(self) -> u64 {
        self.enough.store(true, Ordering::Relaxed);
        self.senders.into_iter().for_each(|sender| sender.join().expect("traffic flows as long as it should"));
        self.connections.load(Ordering::Relaxed)
    }
}

fn flood(interface: &str, frames: &[Vec<u8>], enough: &AtomicBool) {
    let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (frame.as_slice(), frame.len() as u32)));
    let mut wire = Wire::open(interface).expect("the host has the wire");
    while !enough.load(Ordering::Relaxed) {
        for burst in set.bursts() {
            wire.send(&burst).expect("the wire takes frames");
            thread::sleep(BETWEEN_BURSTS);
        }
    }
}

/// Returns to clients what they send.
fn serve(enough: &AtomicBool) {
    let listener = TcpListener::bind((SERVER, PORT)).expect("the server has the address");
    listener.set_nonblocking(true).expect("sockets can be asked");
    while !enough.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(2));
            continue;
        };
        stream.set_nonblocking(false).expect("sockets can wait");
        stream.set_read_timeout(Some(TIMEOUT)).expect("sockets can wait");
        let mut received = Vec::new();
        // The last client may get no answer.
        let _gone = stream.read_to_end(&mut received).and_then(|_| stream.write_all(&received));
    }
}

/// Repeatedly sends to the server and compares the answer. On a busy machine packets are lost and a connection may time
/// out, but not several in a row.
fn connect(enough: &AtomicBool, connections: &AtomicU64) {
    let sent: Vec<u8> = (0..64 << 10).map(|at| (at ^ at >> 8) as u8).collect();
    let mut failures = 0;
    while !enough.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match exchange(&sent) {
            Ok(received) => {
                let (number, count) = (connections.fetch_add(1, Ordering::Relaxed), received.len());
                assert!(received == sent, "connection {number}: {count} of {} bytes came back", sent.len());
                failures = 0;
            }
            // The server has not begun to listen, or has stopped.
            Err(_) if connections.load(Ordering::Relaxed) == 0 || enough.load(Ordering::Relaxed) => {}
            Err(error) => {
                failures += 1;
                let (number, took) = (connections.load(Ordering::Relaxed), begun.elapsed());
                eprintln!("soak: connection {number}, after {took:?}: {error}");
                assert!(failures < FAILURES_MAX, "{failures} connections in a row");
            }
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The answer of the server.
fn exchange(sent: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((SERVER, PORT))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(sent)?;
    stream.shutdown(Shutdown::Write)?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    Ok(received)
}

/// The resources of a process.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    pub memory_kb: u64,
    descriptors: usize,
    threads: usize,
}

impl Footprint {
    /// The footprint once there are no more descriptors and threads than before. On a busy machine, the thread of a
    /// disconnected client ends late. Leaks remain and are found.
    fn settled(pid: Pid, before: &Footprint) -> Self {
        let start = Instant::now();
        loop {
            let now = Self::of(pid);
            let is_more = now.descriptors > before.descriptors || now.threads > before.threads;
            if !is_more || start.elapsed() > TIMEOUT {
                return now;
            }
        }
    }

    /// The minimum of a few measurements, because a disconnected client may still have a thread.
    pub fn of(pid: Pid) -> Self {
        let looks = (0..5).map(|_| {
            thread::sleep(Duration::from_millis(4));
            let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).expect("it runs").count();
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
            let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has some");
            let memory_kb = memory.trim().trim_end_matches(" kB").parse().expect("a number");
            Footprint { memory_kb, descriptors: count("fd"), threads: count("task") }
        });
        let least = looks.reduce(|a, b| Footprint {
            memory_kb: a.memory_kb.min(b.memory_kb),
            descriptors: a.descriptors.min(b.descriptors),
            threads: a.threads.min(b.threads),
        });
        least.expect("there were some")
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} kB, {} descriptors, {} threads", self.memory_kb, self.descriptors, self.threads)
    }
}

/// Loads until each load unloads an older generation, mostly from a bundle, which needs no compiler. Then makes one
/// change of each kind.
fn warm_up(running: &Running, folder: &Path) {
    let bundle = folder.join("first.weirb");
    let mut compile = Command::new(env!("CARGO_BIN_EXE_weir"));
    compile.args(["compile", "first.weir", "-o"]).arg(&bundle).current_dir(folder);
    assert!(compile.output().expect("the program was built").status.success());
    (0..WARM_UP_LOADS).for_each(|_| _ = running.load(&bundle));
    (0..=6).for_each(|number| change(running, folder, number));
}

/// Activates another generation or posture. The kinds of changes take turns.
fn change(running: &Running, folder: &Path, number: u64) {
    let ask = |request: Request| {
        running.ask(&request).unwrap_or_else(|failure| panic!("{number}: {failure}: {}", running.log()));
    };
    match number % 6 {
        0 => {
            put(folder, "next.weir", &policy(number / 6));
            let generation = running.load(&folder.join("next.weir"));
            ask(Request::Activate { generation, confirm_s: None });
        }
        1 => ask(Request::Posture { name: Some("high".to_owned()) }),
        2 => ask(Request::Posture { name: None }),
        3 | 5 => ask(Request::Rollback),
        _ => {
            let generation = running.status().generation;
            ask(Request::Activate { generation, confirm_s: Some(60.0) });
            ask(Request::Confirm);
        }
    }
}

/// Packets that the far ends sent and received, and that were lost on the way to them: client, then server.
fn wires(hosts: &Hosts) -> [[u64; 3]; 2] {
    [(&hosts.client, "c", "lower"), (&hosts.server, "s", "upper")].map(|(host, far, own)| {
        let stats = host.link(far)["stats64"].clone();
        let count = |way: &str| stats[way]["packets"].as_u64().expect("links count");
        [count("tx"), count("rx"), hosts.lost_on(own)]
    })
}

/// Checks that Weir received all packets that were sent to it, and that all packets that it sent arrived.
fn check_wires(hosts: &Hosts, running: &Running, before: [[u64; 3]; 2]) {
    let stats = running.settled();
    check_account(&stats);
    let now = wires(hosts);
    for (side, (now, before)) in ["lower", "upper"].into_iter().zip(now.iter().zip(before)) {
        let port = stats.interfaces.iter().find(|port| port.side == side).expect("there is one");
        let [sent, received, lost] = [0, 1, 2].map(|at| now[at] - before[at]);
        assert_eq!(port.rx_packets + port.rx_missed.unwrap_or_default(), sent, "{side}: {stats:#?}");
        assert_eq!(port.tx_packets, received + lost, "{side}: {stats:#?}");
    }
}

each_engine!(mixed_traffic_for_long_leaks_nothing_and_loses_nothing, Wires { divert: 1, ..Wires::default() });
fn mixed_traffic_for_long_leaks_nothing_and_loses_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    let seconds = std::env::var("WEIR_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    put(folder, "first.weir", &policy(0));
    let capture = folder.join("sendable.pcap");
    let attack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/edge/attack.pcap");
    copy_sendable(&attack, &capture, Fragments::of(engine));
    let divert = Some("divert".to_owned());
    let setup = Setup { workers: 2, divert, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "first.weir", &setup);
    assert_eq!(running.settled().upstream.total.packets, 0);
    let before = wires(hosts);
    warm_up(&running, folder);
    let traffic = Traffic::start(hosts, capture);
    running.wait_for("packets flow both ways", |stats| {
        [&stats.upstream, &stats.downstream].iter().all(|direction| direction.total.packets > 10_000)
    });
    let warm = Footprint::of(running.pid());
    let start = Instant::now();
    for second in 1..=seconds {
        change(&running, folder, second);
        let now = Footprint::settled(running.pid(), &warm);
        if second % 60 == 0 || second == seconds {
            let packets = running.stats().upstream.total.packets;
            eprintln!("soak: {engine}, {second} s: {packets} packets upstream, {now}; began with {warm}");
        }
        assert!(now.memory_kb <= warm.memory_kb + MEMORY_SLACK_KB, "{engine}, {second} s: {now}; {warm}");
        assert_eq!((now.descriptors, now.threads), (warm.descriptors, warm.threads), "{engine}, {second} s");
        thread::sleep((start + Duration::from_secs(second)).saturating_duration_since(Instant::now()));
    }
    let connections = traffic.stop();
    assert!(connections > seconds, "{engine}: {connections} connections");
    check_wires(hosts, &running, before);
    assert_eq!(running.stop(), 0);
}
