//! Three hosts in a row: a client, the box that Weir runs on, a server. Each is a network namespace of a thread; all of it is gone when the
//! threads are.
//!
//! ```text
//! client 10.9.0.1 (c) ---- (lower) weir (upper) ---- (s) server 10.9.0.2
//!                 (c1) --- (lower1)    (upper1) --- (s1)                      where there are two
//!                               (divert) ---- (d) analyser
//! ```

use nix::sched::{CloneFlags, unshare};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread;

pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The longest that fits AF_XDP's frames.
pub const MTU: u32 = 3498;

type Job = Box<dyn FnOnce() + Send>;

/// A namespace, and the thread that lives in it.
pub struct Host {
    jobs: Sender<Job>,
    namespace: PathBuf,
}

impl Host {
    pub fn new() -> Self {
        let (jobs, received) = channel::<Job>();
        let (tell, told) = channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|error| panic!("this test makes network namespaces and needs root: {error}"));
            // Else the kernel speaks IPv6 on the wires.
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")
                .expect("a fresh namespace can be set up");
            let own = std::fs::canonicalize("/proc/thread-self").expect("a thread has a folder");
            tell.send(own.join("ns/net")).expect("somebody waits");
            received.into_iter().for_each(|job| job());
        });
        Host { jobs, namespace: told.recv().expect("the namespace can be made") }
    }

    /// Runs something there. What it starts, threads and processes, is there too.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (give, given) = channel();
        let job = move || give.send(job()).expect("somebody waits");
        self.jobs.send(Box::new(job)).expect("the host is there");
        given.recv().expect("the job ended")
    }

    /// Starts something there.
    pub fn start<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
        self.run(move || thread::spawn(job))
    }

    /// Runs a program there with words parted by blanks; what it prints.
    pub fn call(&self, program: &'static str, line: &str) -> String {
        let line = line.to_owned();
        self.run(move || {
            let output = Command::new(program).args(line.split_whitespace()).output();
            let output = output.unwrap_or_else(|error| panic!("{program}: {error}; see scripts/install-deps.sh"));
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {line}: {said}");
            String::from_utf8(output.stdout).expect("it prints text")
        })
    }

    pub fn ip(&self, line: &str) {
        self.call("ip", line);
    }

    /// What `ip` knows of an interface.
    pub fn link(&self, name: &str) -> serde_json::Value {
        let printed = self.call("ip", &format!("-s -j link show dev {name}"));
        let links: serde_json::Value = serde_json::from_str(&printed).expect("ip prints JSON");
        links[0].clone()
    }
}

/// What lies between the hosts.
#[derive(Clone, Copy)]
pub struct Wires {
    /// From the client to the box, from the box to the server, from the box to the analyser.
    pub lower: usize,
    pub upper: usize,
    pub divert: usize,
    pub mtu: u32,
    /// Queues of each interface, both ways.
    pub queues: usize,
    pub flags: Flags,
    pub settings: Settings,
}

/// How the far ends of wires are set up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// As cards behave: checksums are finished, and the far end polls.
    LikeCards,
    /// The far end polls, but leaves checksums to a card that is not there.
    Polling,
    /// As the kernel makes them.
    AsTheyCome,
}

/// How the flags of a wire's interfaces follow its state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Flags {
    AtOnce,
    /// Up to a second later. The kernel does so where both ends have the same index, as the first wire between two namespaces has.
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

/// The names of so many interfaces.
pub fn names(first: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| if number == 0 { first.to_owned() } else { format!("{first}{number}") }).collect()
}

/// All of them.
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
                hosts.lay(wires, own, &far, host);
            }
        }
        let ends = [(&hosts.client, "c", CLIENT, wires.lower), (&hosts.server, "s", SERVER, wires.upper)];
        for (host, far, address, _) in ends.into_iter().filter(|(_, _, _, count)| *count > 0) {
            host.ip(&format!("addr add {address}/24 dev {far}"));
        }
        hosts
    }

    fn lay(&self, wires: Wires, own: &str, far: &str, host: &Host) {
        let Wires { mtu, queues, flags, settings, .. } = wires;
        let queues = format!("numrxqueues {queues} numtxqueues {queues}");
        let index = match flags {
            Flags::AtOnce => String::new(),
            Flags::Late => format!("index {}", 100 + own.bytes().map(u32::from).sum::<u32>()),
        };
        let end = |name: &str| format!("name {name} {index} mtu {mtu} {queues}");
        let netns = host.namespace.display();
        self.weir.ip(&format!("link add {} type veth peer {} netns {netns}", end(own), end(far)));
        self.weir.ip(&format!("link set dev {own} arp off up"));
        host.ip(&format!("link set dev {far} up"));
        // On a real wire checksums are finished; on a virtual one the sender leaves that to nobody.
        if settings == Settings::LikeCards {
            host.call("ethtool", &format!("-K {far} tx off"));
        }
        // Packets that a driver redirects reach a virtual wire's other end only if that polls.
        let polls = if settings == Settings::AsTheyCome { "off" } else { "on" };
        host.call("ethtool", &format!("-K {far} gro {polls}"));
    }

    /// What `ip` knows of an interface of the box.
    pub fn link(&self, name: &str) -> serde_json::Value {
        self.weir.link(name)
    }

    /// Whether an interface of the box is up, and so is its other end.
    pub fn is_up(&self, name: &str) -> bool {
        self.link(name)["operstate"] == "UP"
    }

    /// Packets that a wire of the box took and lost, because the host at its other end did not look at them in time.
    pub fn lost_on(&self, name: &str) -> u64 {
        self.link(name)["stats64"]["tx"]["dropped"].as_u64().expect("links count what they drop")
    }

    /// Takes a wire of the box down or up.
    pub fn set_link(&self, name: &str, state: &str) {
        self.weir.ip(&format!("link set {name} {state}"));
    }
}
