//! Three hosts in a row: a client, the host of Weir, and a server. Each is the network namespace of a thread, which the
//! kernel removes with the thread.
//!
//! ```text
//! client 10.9.0.1 (c) ---- (lower) weir (upper) ---- (s) server 10.9.0.2
//!                 (c1) --- (lower1)    (upper1) --- (s1)                      where there are two
//!                               (divert) ---- (d) analyser
//! ```
//! Or two, where Weir protects its own host, which is the server:
//!
//! ```text
//! client 10.9.0.1 (c) ---- (s) weir 10.9.0.2
//! ```
//! In both, a card may be on the wire to the client:
//!
//! ```text
//! client (c) ---- (outer) card (inner) ---- (lower or s) weir
//! ```

use nix::sched::{CloneFlags, unshare};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The maximum for AF_XDP's frames.
pub const MTU: u32 = 3498;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and its thread.
#[derive(Clone)]
pub struct Host {
    jobs: Sender<Job>,
    namespace: PathBuf,
}

impl Host {
    pub fn new() -> Self {
        let (jobs, received) = channel::<Job>();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|error| panic!("this test makes network namespaces and needs root: {error}"));
            // Otherwise the kernel would send IPv6 packets.
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
                .expect("a fresh namespace can be set up");
            retry_each_second();
            let own = std::fs::canonicalize("/proc/thread-self").expect("a thread has a folder");
            sender.send(own.join("ns/net")).expect("somebody waits");
            received.into_iter().for_each(|job| job());
        });
        Host { jobs, namespace: receiver.recv().expect("the namespace can be made") }
    }

    /// The file of the namespace.
    pub fn namespace(&self) -> &Path {
        &self.namespace
    }

    /// Runs a job in the namespace, with the threads and processes that it starts.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (give, given) = channel();
        let job = move || give.send(job()).expect("somebody waits");
        self.jobs.send(Box::new(job)).expect("the host is there");
        given.recv().expect("the job ended")
    }

    /// Starts a job in the namespace.
    pub fn start<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
        self.run(move || thread::spawn(job))
    }

    /// Runs a program in the namespace with arguments that are separated by spaces. Returns its standard output.
    pub fn call(&self, program: &'static str, line: &str) -> String {
        let line = line.to_owned();
        self.run(move || {
            let output = Command::new(program).args(line.split_whitespace()).output();
            let output = output.unwrap_or_else(|error| panic!("{program}: {error}; see scripts/install-deps.sh"));
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {line}: {stderr}");
            String::from_utf8(output.stdout).expect("it prints text")
        })
    }

    pub fn ip(&self, line: &str) {
        self.call("ip", line);
    }

    /// The information of `ip` about an interface.
    pub fn link(&self, name: &str) -> serde_json::Value {
        let printed = self.call("ip", &format!("-s -j link show dev {name}"));
        let links: serde_json::Value = serde_json::from_str(&printed).expect("ip prints JSON");
        links[0].clone()
    }
}

/// Lets TCP of this namespace repeat each second what was not answered, for minutes. Otherwise each pause is twice as long
/// as the one before, and a test waits for the next retry long after Weir is there again. Kernels before 6.15 cannot.
fn retry_each_second() {
    let folder = Path::new("/proc/sys/net/ipv4");
    if !folder.join("tcp_rto_max_ms").exists() {
        return;
    }
    // The longest pause, and the largest numbers of retries that the kernel takes.
    for (name, value) in [
        ("tcp_rto_max_ms", "1000"),
        ("tcp_syn_retries", "127"),
        ("tcp_synack_retries", "255"),
        ("tcp_retries2", "255"),
        ("tcp_orphan_retries", "255"),
    ] {
        std::fs::write(folder.join(name), value).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// The interfaces between the hosts.
#[derive(Clone, Copy)]
pub struct Wires {
    /// Number of veth pairs between client and Weir, between Weir and server, and between Weir and analyser.
    pub lower: usize,
    pub upper: usize,
    pub divert: usize,
    pub mtu: u32,
    /// Number of receive and transmit queues of each interface.
    pub queues: usize,
    pub flags: Flags,
    pub settings: Settings,
}

/// The settings at the far ends of veth pairs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// Like network cards: checksums are complete, and the far end polls.
    LikeCards,
    /// The far end polls, but leaves checksums to the receiver.
    Polling,
    /// The kernel's defaults.
    AsTheyCome,
}

/// How the flags of a pair's interfaces follow its link state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    AtOnce,
    /// Up to a second later. The kernel behaves so if both ends have the same index, like the first pair between two
    /// namespaces.
    Late,
}

impl Default for Wires {
    fn default() -> Self {
        Wires {
            lower: 1,
            upper: 1,
            divert: 0,
            mtu: MTU,
            queues: 2,
            flags: Flags::AtOnce,
            settings: Settings::LikeCards,
        }
    }
}

/// Names for `count` interfaces.
pub fn names(first: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| if number == 0 { first.to_owned() } else { format!("{first}{number}") }).collect()
}

/// The three hosts and the analyser.
pub struct Hosts {
    pub client: Host,
    pub weir: Host,
    pub server: Host,
    pub analyser: Host,
}

impl Hosts {
    pub fn new() -> Self {
        Self::with(Wires::default())
    }

    pub fn with(wires: Wires) -> Self {
        let hosts = Hosts { client: Host::new(), weir: Host::new(), server: Host::new(), analyser: Host::new() };
        let ends = [
            ("lower", "c", &hosts.client, wires.lower),
            ("upper", "s", &hosts.server, wires.upper),
            ("divert", "d", &hosts.analyser, wires.divert),
        ];
        for (own, far, host, count) in ends {
            for (own, far) in names(own, count).iter().zip(names(far, count)) {
                lay(wires, (&hosts.weir, own), (host, &far));
            }
        }
        let ends = [(&hosts.client, "c", CLIENT, wires.lower), (&hosts.server, "s", SERVER, wires.upper)];
        for (host, far, address, _) in ends.into_iter().filter(|(_, _, _, count)| *count > 0) {
            host.ip(&format!("addr add {address}/24 dev {far}"));
        }
        hosts
    }

    /// The client, and a server that is the host of Weir.
    pub fn of_host(wires: Wires) -> Self {
        let hosts = Self::unwired_pair();
        for (own, far) in names("s", wires.lower).iter().zip(names("c", wires.lower)) {
            lay(wires, (&hosts.weir, own), (&hosts.client, &far));
            hosts.weir.ip(&format!("link set dev {own} arp on"));
        }
        hosts.client.ip(&format!("addr add {CLIENT}/24 dev c"));
        hosts.server.ip(&format!("addr add {SERVER}/24 dev s"));
        hosts
    }

    fn unwired_pair() -> Self {
        let (client, weir) = (Host::new(), Host::new());
        let server = weir.clone();
        weir.ip("link set dev lo up");
        Hosts { client, weir, server, analyser: Host::new() }
    }

    /// The three hosts, with a host for a card between client and Weir.
    pub fn with_card(wires: Wires) -> (Self, Host) {
        let (hosts, card) = (Self::with(Wires { lower: 0, ..wires }), Host::new());
        hosts.lay_through(&card, "lower", wires);
        hosts.client.ip(&format!("addr add {CLIENT}/24 dev c"));
        (hosts, card)
    }

    /// The client, a server that is the host of Weir, and a host for a card between them.
    pub fn of_host_with_card(wires: Wires) -> (Self, Host) {
        let (hosts, card) = (Self::unwired_pair(), Host::new());
        hosts.lay_through(&card, "s", wires);
        hosts.weir.ip("link set dev s arp on");
        hosts.client.ip(&format!("addr add {CLIENT}/24 dev c"));
        hosts.server.ip(&format!("addr add {SERVER}/24 dev s"));
        (hosts, card)
    }

    /// Both wires of a card.
    fn lay_through(&self, card: &Host, own: &str, wires: Wires) {
        lay(wires, (&self.weir, own), (card, "inner"));
        lay(wires, (card, "outer"), (&self.client, "c"));
        // The neighbours of the card behave as neighbours of a real card: they poll, and complete checksums.
        self.weir.call("ethtool", &format!("-K {own} gro on tx off"));
    }

    /// The information of `ip` about an interface of Weir's host.
    pub fn link(&self, name: &str) -> serde_json::Value {
        self.weir.link(name)
    }

    /// Whether an interface of Weir's host and its far end are up.
    pub fn is_up(&self, name: &str) -> bool {
        self.link(name)["operstate"] == "UP"
    }

    /// Packets that an interface of Weir's host lost because the receiver was too slow. A host that is the server
    /// itself loses none.
    pub fn lost_on(&self, name: &str) -> u64 {
        if self.weir.namespace == self.server.namespace {
            return 0;
        }
        self.link(name)["stats64"]["tx"]["dropped"].as_u64().expect("links count what they drop")
    }

    /// Sets an interface of Weir's host up or down.
    pub fn set_link(&self, name: &str, state: &str) {
        self.weir.ip(&format!("link set {name} {state}"));
    }
}

/// Lays a wire between an interface of one host and one of another.
fn lay(wires: Wires, (near, own): (&Host, &str), (host, far): (&Host, &str)) {
    let Wires { mtu, queues, flags, settings, .. } = wires;
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    let index = match flags {
        Flags::AtOnce => String::new(),
        Flags::Late => format!("index {}", 100 + own.bytes().map(u32::from).sum::<u32>()),
    };
    let end = |name: &str| format!("name {name} {index} mtu {mtu} {queues}");
    let netns = host.namespace.display();
    near.ip(&format!("link add {} type veth peer {} netns {netns}", end(own), end(far)));
    near.ip(&format!("link set dev {own} arp off up"));
    host.ip(&format!("link set dev {far} up"));
    // A network card completes checksums. The sender on a veth pair leaves them incomplete.
    if settings == Settings::LikeCards {
        host.call("ethtool", &format!("-K {far} tx off"));
    }
    // Packets that a driver redirects reach the far end of a veth pair only if it polls.
    let polls = if settings == Settings::AsTheyCome { "off" } else { "on" };
    host.call("ethtool", &format!("-K {far} gro {polls}"));
}
