//! Tracking on interfaces: real connections pass while policies are swapped and attackers forge segments of all kinds.
//!
//! `WEIR_TRANSFERS=1000` sets the number of connections, `WEIR_FORGED=409600` the number of forged SYNs.

use crate::device_under_test::{Running, SPLIT, Setup, TIMEOUT};
use crate::hosts::{CLIENT, Hosts, SERVER};
use crate::soak::Footprint;
use crate::{BETWEEN_BURSTS, check_account, put};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_abi::Link;
use weir_control::{FlowOperation, FlowsCounted, FlowsKilled, FlowsListed, Request, Stats, TrackedAt};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

const PORT: u16 = 8000;
/// The first port of the clients, which an attacker knows.
const CLIENT_PORT: u16 = 20_000;
/// Number of flows of the table.
const SIZE: u32 = 4096;
/// Without these, flows would expire while a busy machine runs neither Weir nor the hosts: a connection that is closed
/// then waits in `last-ack` for 30 s, and its last segments would be of no flow.
const TIMEOUTS: &str = "timeout fin-wait 1h; timeout close-wait 1h; timeout last-ack 1h; timeout time-wait 1h; \
    timeout closed 1h; timeout syn-recv 1h; timeout unacknowledged 1h; timeout udp 1h; timeout udp-replied 1h";
/// Bytes that a connection sends and gets back at a time.
const CHUNK: usize = 16 << 10;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

fn from_environment(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A policy that lets clients open connections to one port.
fn policy(number: u64) -> String {
    format!(
        "tracking {{ size {SIZE}; pickup off; {TIMEOUTS} }}
upstream {{ tcp dport {} counter drop; tcp track; ct state established,related accept; ct state new tcp dport {PORT} accept; ct state new udp dport {PORT} accept; drop }}
downstream {{ tcp track; ct state established,related accept; drop }}
",
        100 + number
    )
}

/// The policy with a SYN proxy. Without the statement, only connections that were opened before are proxied.
fn proxying(number: u64, statement: &str) -> String {
    format!(
        "tracking {{ size {SIZE}; pickup off; {TIMEOUTS}; synproxy mss 1460 wscale 7 sack-perm timestamp }}
upstream {{ tcp dport {} counter drop; tcp {statement}; ct state established,related accept; ct state new tcp dport {PORT} accept; ct state new udp dport {PORT} accept; drop }}
downstream {{ tcp track; ct state established,related accept; drop }}
",
        100 + number
    )
}

/// Maximum time that a connection waits for an answer. Weir may be away for long, because many compilers run at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(90);

/// Connections that send and receive until told to stop.
pub struct Transfers {
    enough: Arc<AtomicBool>,
    chunks: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
    listener: Arc<TcpListener>,
}

impl Transfers {
    pub fn start(hosts: &Hosts, connections: u32) -> Self {
        let (enough, chunks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let bind = || TcpListener::bind((SERVER, PORT)).expect("the server has the address");
        let listener = Arc::new(hosts.server.run(bind));
        let accepting = listener.clone();
        let serving = hosts.server.start(move || {
            let streams = (0..connections).map(|_| accepting.accept().expect("a client connects").0);
            let echoes: Vec<_> = streams.map(|stream| thread::spawn(|| echo(stream))).collect();
            echoes.into_iter().for_each(|echo| echo.join().expect("the connection stands"));
        });
        // All connections together exchange about 1000 chunks a second, which is a small part of a processor.
        let pause = Duration::from_millis(1) * connections;
        let mut threads = Vec::new();
        for number in 0..connections {
            let (enough, chunks) = (enough.clone(), chunks.clone());
            // One after the other, because the server's queue is short.
            let stream = hosts.client.run(move || connect(CLIENT_PORT + number as u16));
            threads.push(thread::spawn(move || exchange(stream, pause, &enough, &chunks)));
        }
        // Behind the clients: it would wait forever for one that gave up.
        threads.push(serving);
        Transfers { enough, chunks, threads, listener }
    }

    /// Waits until all connections together have exchanged `chunks` more.
    pub fn wait(&self, chunks: u64) {
        let wanted = self.chunks.load(Ordering::Relaxed) + chunks;
        crate::wait_until("transfers go on", || self.chunks.load(Ordering::Relaxed) >= wanted);
    }

    /// Stops all connections. Each must have stood until now. Connections that were not accepted end with the listener.
    pub fn stop(self) -> Arc<TcpListener> {
        self.enough.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("the connection stands"));
        self.listener
    }
}

/// Connects from a known port.
fn connect(port: u16) -> TcpStream {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
    use std::os::fd::AsRawFd;
    let own = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
    let address = |ip: std::net::Ipv4Addr, port: u16| SockaddrIn::from(std::net::SocketAddrV4::new(ip, port));
    bind(own.as_raw_fd(), &address(CLIENT, port)).expect("the port is free");
    connect(own.as_raw_fd(), &address(SERVER, PORT)).expect("the policy accepts");
    TcpStream::from(own)
}

fn echo(mut stream: TcpStream) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(()) = stream.read_exact(&mut chunk) {
        stream.write_all(&chunk).expect("the connection stands");
    }
}

/// Sends and receives chunks, with a pause after each.
fn exchange(mut stream: TcpStream, pause: Duration, enough: &AtomicBool, chunks: &AtomicU64) {
    stream.set_read_timeout(Some(LONGEST_PAUSE)).expect("sockets can wait");
    let sent: Vec<u8> = (0..CHUNK).map(|at| (at ^ at >> 8) as u8).collect();
    let mut received = vec![0; CHUNK];
    while !enough.load(Ordering::Relaxed) {
        stream.write_all(&sent).expect("the connection stands");
        stream.read_exact(&mut received).expect("the connection stands");
        assert!(sent == received, "the same bytes come back");
        chunks.fetch_add(1, Ordering::Relaxed);
        thread::sleep(pause);
    }
}

/// A deterministic number that looks random.
fn scattered(nth: u32) -> u32 {
    let mixed = (nth ^ nth >> 16).wrapping_mul(0x9e37_79b1);
    (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca77)
}

/// A segment without payload to the server, from a client's port or from any other.
fn segment(source: u32, sport: u16, flags: u8, nth: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0];
    frame.extend(source.to_be_bytes());
    frame.extend(SERVER.octets());
    frame.extend([sport.to_be_bytes(), PORT.to_be_bytes()].concat());
    frame.extend([scattered(nth).to_be_bytes(), scattered(!nth).to_be_bytes()].concat());
    frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame
}

/// Sends forged segments from the client's interface.
fn forge(hosts: &Hosts, count: u32, forged: impl Fn(u32) -> Vec<u8> + Send + 'static) {
    let sender = hosts.client.start(move || {
        let mut wire = Wire::open("c").expect("the host has the wire");
        let numbers: Vec<u32> = (0..count).collect();
        for burst in numbers.chunks(64) {
            let frames: Vec<Vec<u8>> = burst.iter().map(|&nth| forged(nth)).collect();
            let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)));
            wire.send(&set.burst(0)).expect("the wire takes frames");
            thread::sleep(BETWEEN_BURSTS);
        }
    });
    sender.join().expect("all are sent");
}

each_engine_and_host!(no_attack_cuts_a_connection);
fn no_attack_cuts_a_connection(engine: &str, hosts: &Hosts, folder: &Path) {
    attack(engine, hosts, folder, &policy(0));
}

each_engine_and_p4!(no_attack_cuts_a_proxied_connection);
/// SYNs of clients that do not exist take no place in the table, and do not reach the server.
fn no_attack_cuts_a_proxied_connection(engine: &str, hosts: &Hosts, folder: &Path) {
    let (stats, flows) = attack(engine, hosts, folder, &proxying(0, "synproxy"));
    let opened = stats.upstream.total.reasons.get("syn-cookie").copied().unwrap_or_default();
    let syns = u64::from(from_environment("WEIR_FORGED", 4 * SIZE));
    assert!(opened > syns / 2, "{engine}: SYNs are answered: {stats:#?}");
    assert_eq!(flows, u64::from(from_environment("WEIR_TRANSFERS", 40)), "{engine}: {stats:#?}");
}

/// Attacks connections through a policy. Returns what was counted, and the number of flows before the connections
/// ended.
fn attack(engine: &str, hosts: &Hosts, folder: &Path, policy: &str) -> (Stats, u64) {
    let connections = from_environment("WEIR_TRANSFERS", 40);
    let syns = from_environment("WEIR_FORGED", 4 * SIZE);
    put(folder, "edge.weir", policy);
    let setup = Setup { workers: 2, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &setup);
    let transfers = Transfers::start(hosts, connections);
    transfers.wait(u64::from(connections) * 2);
    let before = Footprint::of(running.pid());
    let client = u32::from(CLIENT);
    // SYNs from everywhere, more than the table holds.
    forge(hosts, syns, |nth| segment(0x0b00_0000 | scattered(nth) >> 8, 1024 + nth as u16 % 60_000, SYN, nth));
    transfers.wait(u64::from(connections));
    // ACKs of no connection, and blind ones into connections.
    forge(hosts, syns / 4, |nth| segment(0x0b00_0000 | scattered(nth) >> 8, nth as u16, ACK, nth));
    forge(hosts, syns / 4, move |nth| segment(client, CLIENT_PORT + (nth % connections) as u16, ACK, nth));
    // Resets and SYNs into connections.
    forge(hosts, syns / 4, move |nth| segment(client, CLIENT_PORT + (nth % connections) as u16, RST, nth));
    forge(hosts, syns / 4, move |nth| segment(client, CLIENT_PORT + (nth % connections) as u16, SYN | RST, nth));
    transfers.wait(u64::from(connections));
    let after = Footprint::of(running.pid());
    let flows = running.ask(&Request::Flows { operation: FlowOperation::Count }).expect("flows are counted");
    let flows = weir_control::read::<FlowsCounted>(flows).expect("an answer").flows;
    transfers.stop();
    let stats = running.settled();
    check_account(&stats);
    let dropped = |reason: &str| stats.upstream.total.reasons.get(reason).copied().unwrap_or_default();
    for reason in ["no-state", "bad-flags", "rst-out-of-window", "out-of-window"] {
        assert!(dropped(reason) > u64::from(syns) / 100, "{engine}: {reason}: {stats:#?}");
    }
    assert!(after.memory_kb < before.memory_kb + 4096, "{engine}: {after}; began with {before}");
    assert_eq!(running.stop(), 0);
    (stats, flows)
}

each_engine_host_and_split!(transfers_survive_swaps_of_the_policy);
fn transfers_survive_swaps_of_the_policy(engine: &str, hosts: &Hosts, folder: &Path) {
    swap(engine, hosts, folder, &policy);
}

each_engine!(proxied_transfers_survive_swaps_of_the_policy);
/// Also where the new policy answers no SYNs.
fn proxied_transfers_survive_swaps_of_the_policy(engine: &str, hosts: &Hosts, folder: &Path) {
    let stats = swap(engine, hosts, folder, &|number| proxying(number, if number == 2 { "track" } else { "synproxy" }));
    let answered = stats.upstream.total.reasons.get("syn-cookie").copied().unwrap_or_default();
    assert!(answered >= u64::from(from_environment("WEIR_TRANSFERS", 40)), "{engine}: {stats:#?}");
}

/// Swaps policies while connections transfer. Returns what was counted.
fn swap(engine: &str, hosts: &Hosts, folder: &Path, policy: &dyn Fn(u64) -> String) -> Stats {
    let connections = from_environment("WEIR_TRANSFERS", 40);
    put(folder, "edge.weir", &policy(0));
    let setup = Setup { workers: 2, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &setup);
    let transfers = Transfers::start(hosts, connections);
    transfers.wait(u64::from(connections) * 2);
    for number in 1..=3 {
        put(folder, "next.weir", &policy(number));
        let generation = running.load(&folder.join("next.weir"));
        running.ask(&Request::Activate { generation, confirm_s: None }).expect("it can be activated");
        transfers.wait(u64::from(connections));
        running.ask(&Request::Rollback).expect("there is an older one");
        transfers.wait(u64::from(connections));
    }
    transfers.stop();
    let stats = running.settled();
    check_account(&stats);
    let refused = stats.downstream.total.reasons.get("no-state").copied().unwrap_or_default();
    assert_eq!(refused, 0, "{engine}: {stats:#?}");
    check_tracked(engine, &stats, connections.into());
    assert_eq!(running.stop(), 0);
    stats
}

/// Checks where packets were tracked over all policies: handshakes by the controller, and most data by the pipeline.
fn check_tracked(engine: &str, stats: &Stats, connections: u64) {
    let Some(TrackedAt { pipeline, controller }) = stats.tracked else { return assert_ne!(engine, SPLIT) };
    assert_eq!(engine, SPLIT);
    assert!(controller >= 3 * connections && pipeline > controller, "{stats:#?}");
}

each_engine_and_host!(transfers_survive_restarts);
fn transfers_survive_restarts(engine: &str, hosts: &Hosts, folder: &Path) {
    restart(engine, hosts, folder, &policy(0));
}

each_engine_and_p4!(proxied_transfers_survive_restarts);
/// Without what translates them, segments would be refused, or reach hosts that know other numbers. A policy that
/// cannot translate leaves the flows out.
fn proxied_transfers_survive_restarts(engine: &str, hosts: &Hosts, folder: &Path) {
    let (setup, late, _listener) = restart(engine, hosts, folder, &proxying(0, "synproxy"));
    put(folder, "edge.weir", &policy(0));
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &setup);
    let told = "1 of 2 flows are proxied, and are left out: the policy has no `synproxy`";
    crate::wait_until("one flow is left out", || running.log().contains(told));
    (&late).write_all(b"lost").expect("it is queued");
    crate::wait_until("its segments are refused", || refused(&running) > 0);
    assert_eq!(running.stop(), 0);
}

/// A kill, and an end in order directly after a connection was opened, with another size then. Without the flows, each
/// segment would be refused. Returns an open connection, which is saved besides datagrams.
fn restart(engine: &str, hosts: &Hosts, folder: &Path, policy: &str) -> (Setup, TcpStream, Arc<TcpListener>) {
    let connections = from_environment("WEIR_TRANSFERS", 40);
    put(folder, "edge.weir", policy);
    let more = vec!["--state".to_owned(), folder.join("state").display().to_string()];
    let setup = Setup { workers: 2, more, ..Setup::new(engine) };
    let start = || Running::start_as(&hosts.weir, folder, "edge.weir", &setup);
    let running = start();
    let transfers = Transfers::start(hosts, connections);
    let bind = |address| UdpSocket::bind(address).expect("the host has the address");
    let asked = hosts.server.run(move || bind((SERVER, PORT)));
    let asks = hosts.client.run(move || bind((CLIENT, CLIENT_PORT)));
    let tell = |from: &UdpSocket, to: &UdpSocket, text: &str| {
        from.send_to(text.as_bytes(), to.local_addr().expect("it is bound")).expect("it can be sent");
        let mut received = [0; 64];
        to.set_read_timeout(Some(TIMEOUT)).expect("sockets can wait");
        let length = receive(to, &mut received).expect("the datagram passes");
        assert_eq!(&received[..length], text.as_bytes(), "{engine}");
    };
    tell(&asks, &asked, "request");
    tell(&asked, &asks, "reply");
    transfers.wait(u64::from(connections) * 2);
    running.wait_until_saved();
    running.kill();

    let running = start();
    tell(&asked, &asks, "another reply");
    transfers.wait(u64::from(connections) * 2);
    let late = hosts.client.run(move || connect(CLIENT_PORT + connections as u16));
    let matches = format!("tcp sport {}", late.local_addr().expect("it is connected").port());
    let list = |running: &Running, state: &str| -> FlowsListed {
        let (state, matches) = (Some(state.to_owned()), Some(matches.clone()));
        let listed = running.ask(&Request::Flows { operation: FlowOperation::List { top: 1, state, matches } });
        weir_control::read(listed.expect("flows can be listed")).expect("flows")
    };
    // A proxy's client is connected before the server is.
    crate::wait_until("the server has answered", || list(&running, "established").total == 1);
    assert_eq!(refused(&running), 0, "{engine}: {:#?}\n{}", running.stats(), running.log());
    assert_eq!(running.stop(), 0);

    let other_size = format!("size {}", connections.max(500) * 2);
    put(folder, "edge.weir", &policy.replace(&format!("size {SIZE}"), &other_size));
    let running = start();
    let listed = list(&running, "restored");
    assert!(listed.flows.len() == 1 && listed.flows[0].liberal, "{engine}: {listed:?}\n{}", running.log());
    transfers.wait(u64::from(connections) * 2);
    let listener = transfers.stop();
    check_account(&running.settled());
    assert_eq!(refused(&running), 0, "{engine}: {:#?}\n{}", running.stats(), running.log());
    assert_eq!(running.stop(), 0);
    (setup, late, listener)
}

/// Receives a datagram. A process that is stopped and goes on is interrupted if its socket has a timeout.
fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match socket.recv(bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// Packets that were refused because their flow was not known.
fn refused(running: &Running) -> u64 {
    let stats = running.stats();
    let counts = [&stats.upstream, &stats.downstream].map(|stats| stats.total.reasons.get("no-state").copied());
    counts.into_iter().flatten().sum()
}

each_kind_and_host!(flows_are_listed_counted_and_ended);
fn flows_are_listed_counted_and_ended(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", &policy(0));
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    let listener = hosts.server.run(|| TcpListener::bind((SERVER, PORT)).expect("the server has the address"));
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for port in [CLIENT_PORT, CLIENT_PORT + 1, CLIENT_PORT + 2] {
        near.push(hosts.client.run(move || connect(port)));
        far.push(listener.accept().expect("the client connects").0);
    }
    let ask = |operation: FlowOperation| running.ask(&Request::Flows { operation });
    let list = |matches: &str, state: &str| -> FlowsListed {
        let (matches, state) = (Some(matches.to_owned()), Some(state.to_owned()));
        let listed = ask(FlowOperation::List { top: 10, state, matches }).expect("flows can be listed");
        weir_control::read(listed).expect("flows")
    };
    crate::wait_until("handshakes are complete", || list("tcp dport 8000", "established").total == 3);
    let listed = list("ip saddr 10.9.0.1 tcp sport 20001", "established");
    let [flow] = &listed.flows[..] else { panic!("{engine}: {listed:?}") };
    let ends = (flow.saddr, flow.sport, flow.daddr, flow.dport);
    assert_eq!(ends, (CLIENT.into(), Some(CLIENT_PORT + 1), SERVER.into(), Some(PORT)), "{engine}");
    assert!(flow.replied && flow.expires_s > 400_000.0 && flow.idle_s < 60.0, "{engine}: {flow:?}");
    assert_eq!(list("tcp dport 8000", "syn-sent").total, 0);
    let counted: FlowsCounted = weir_control::read(ask(FlowOperation::Count).expect("a count")).expect("counts");
    assert_eq!((counted.size, counted.flows, counted.embryonic), (SIZE, 3, 0), "{engine}: {counted:?}");
    assert_eq!(counted.states.into_iter().collect::<Vec<_>>(), [("established".to_owned(), 3)]);

    let killed = ask(FlowOperation::Kill { matches: "tcp sport 20001".to_owned() }).expect("flows can be ended");
    assert_eq!(weir_control::read::<FlowsKilled>(killed).expect("a number"), FlowsKilled { killed: 1 }, "{engine}");
    near[1].write_all(b"lost").expect("it is queued");
    near[2].write_all(b"pass").expect("it is queued");
    let mut received = [0; 4];
    far[2].read_exact(&mut received).expect("the other connections stand");
    assert_eq!(&received, b"pass", "{engine}");
    let refused = |stats: &weir_control::Stats| stats.upstream.total.reasons.get("no-state").is_some_and(|&n| n > 0);
    running.wait_for("segments of the ended flow are refused", refused);
    assert_eq!(list("tcp dport 8000", "established").total, 2, "{engine}");
    let problem = ask(FlowOperation::Kill { matches: "ip ttl 5".to_owned() }).expect_err("it is no match of a flow");
    assert!(problem.to_string().contains("`ip ttl` is not known of a flow"), "{engine}: {problem}");
    assert_eq!(running.stop(), 0);
}
