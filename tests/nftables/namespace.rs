//! A network namespace with a veth pair, and nftables on one of its ends.
//!
//! The namespace belongs to one thread and has no name. The kernel removes it when the thread ends, for whatever
//! reason.

use nix::ifaddrs::getifaddrs;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendto, socket};
use serde_json::Value;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NEAR: &str = "near";
const FAR: &str = "far";
/// Jumbo frames, so that long packets pass.
const MTU: &str = "9000";
/// Maximum length of a sent frame, including tags.
pub const FRAME_BYTES_MAX: usize = 9000;
/// Maximum time until the kernel has delivered the sent packets.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The near end of the veth pair. nftables counts at the far end.
pub struct Wire {
    socket: OwnedFd,
    near: LinkAddr,
    sent: u64,
}

/// Runs `test` in a thread with its own namespace.
pub fn with_wire(test: impl FnOnce(Wire) + Send) {
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|error| panic!("this test makes a network namespace and needs root: {error}"));
            test(Wire::new());
        });
        if let Err(panic) = ran.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

impl Wire {
    fn new() -> Self {
        // Otherwise the kernel would send IPv6 packets.
        std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("a fresh namespace can be set up");
        run("ip", &["link", "add", NEAR, "mtu", MTU, "type", "veth", "peer", "name", FAR, "mtu", MTU], "");
        run("ip", &["link", "set", NEAR, "arp", "off", "up"], "");
        run("ip", &["link", "set", FAR, "arp", "off", "up"], "");
        let near = getifaddrs()
            .expect("interfaces can be listed")
            .filter(|interface| interface.interface_name == NEAR)
            .find_map(|interface| interface.address?.as_link_addr().copied())
            .expect("the wire was just made");
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None);
        Wire { socket: socket.expect("root may have raw sockets"), near, sent: 0 }
    }

    /// Replaces the ruleset of nftables. `sets` declares sets; each rule gets a counter.
    pub fn load_rules(&mut self, sets: &str, rules: &[String]) {
        let mut text = format!(
            "table netdev oracle\ndelete table netdev oracle\ntable netdev oracle {{\n{sets}\nchain seen {{\n\
             type filter hook ingress device \"{FAR}\" priority 0;\ncounter\n"
        );
        for rule in rules {
            text += &format!("{rule} counter\n");
        }
        text += "}\n}\n";
        run("nft", &["-f", "-"], &text);
        self.sent = 0;
    }

    /// Sends one Ethernet frame.
    pub fn send(&mut self, frame: &[u8]) {
        let sent = sendto(self.socket.as_raw_fd(), frame, &self.near, MsgFlags::empty());
        let sent = sent.unwrap_or_else(|error| panic!("{} bytes cannot be sent: {error}", frame.len()));
        assert_eq!(sent, frame.len());
        self.sent += 1;
    }

    /// Number of packets that matched each rule, after all sent packets have arrived.
    pub fn counters(&self) -> Vec<u64> {
        let start = Instant::now();
        loop {
            let mut counters = read_counters();
            let arrived = counters.remove(0);
            if arrived == self.sent {
                return counters;
            }
            assert!(arrived < self.sent, "{arrived} packets arrived, {} were sent: another sender exists", self.sent);
            assert!(start.elapsed() < TIMEOUT, "only {arrived} of {} packets arrived", self.sent);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The packet counter of every rule, in order. The first one counts all packets.
fn read_counters() -> Vec<u64> {
    let json = run("nft", &["-j", "list", "chain", "netdev", "oracle", "seen"], "");
    let listed: Value = serde_json::from_str(&json).expect("nft writes JSON");
    let objects = listed["nftables"].as_array().expect("a list of objects");
    let rules = objects.iter().filter_map(|object| object["rule"]["expr"].as_array());
    rules
        .map(|expressions| {
            let counter = expressions.iter().find_map(|expression| expression["counter"]["packets"].as_u64());
            counter.expect("every rule counts")
        })
        .collect()
}

/// Runs a program with `input` on standard input. Returns its standard output.
fn run(program: &str, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/install-deps.sh installs what this test needs"));
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads its input");
    let output = child.wait_with_output().expect("it ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}\n{input}");
    String::from_utf8(output.stdout).expect("it writes text")
}
