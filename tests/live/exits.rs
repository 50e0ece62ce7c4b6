//! The state of the link after Weir ends, and that nothing else remains.

use crate::device_under_test::{Running, Setup, TIMEOUT, wait_until};
use crate::hosts::{Hosts, SERVER};
use crate::{attach_other, put};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_control::Request;

const PORT: u16 = 7;
/// The link counts as blocked if no answer comes for this time.
pub const SILENCE: Duration = Duration::from_millis(250);

/// A server that returns the packets that it receives.
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub fn start(hosts: &Hosts) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let own = stop.clone();
        let socket = hosts.server.run(|| UdpSocket::bind((SERVER, PORT)).expect("the server has the address"));
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("sockets have timeouts");
        let thread = hosts.server.start(move || {
            let mut packet = [0; 64];
            while !own.load(Ordering::Relaxed) {
                if let Ok((bytes, from)) = socket.recv_from(&mut packet) {
                    // The way back may be blocked.
                    let _unsent = socket.send_to(&packet[..bytes], from);
                }
            }
        });
        Echo { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Whether the client gets an answer within the time. It repeats its packet.
pub fn passes(hosts: &Hosts, within: Duration) -> bool {
    hosts.client.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("there are ports");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("sockets have timeouts");
        let (start, mut asked) = (Instant::now(), 0u64);
        while start.elapsed() < within {
            asked += 1;
            let _unsent = socket.send_to(&asked.to_be_bytes(), (SERVER, PORT));
            if socket.recv(&mut [0; 64]).is_ok() {
                return true;
            }
        }
        false
    })
}

/// The state that must be restored: flags, promiscuous mode, and XDP programs.
#[derive(Debug, PartialEq, Eq)]
struct Wires(Vec<Wire>);

#[derive(Debug, PartialEq, Eq)]
struct Wire {
    up: bool,
    carrier: bool,
    promiscuity: u64,
    /// Name and mode of the XDP program.
    program: Option<(String, u64)>,
}

impl Wires {
    fn of(hosts: &Hosts) -> Self {
        Wires(["lower", "upper"].map(|name| Wire::of(hosts, name)).into())
    }

    fn programs(&self) -> Vec<&str> {
        self.0.iter().filter_map(|wire| wire.program.as_ref()).map(|(name, _)| name.as_str()).collect()
    }
}

impl Wire {
    fn of(hosts: &Hosts, name: &str) -> Self {
        let printed = hosts.weir.call("ip", &format!("-d -j link show {name}"));
        let links: serde_json::Value = serde_json::from_str(&printed).expect("ip prints JSON");
        let has = |flag: &str| links[0]["flags"].as_array().expect("a list").iter().any(|one| one == flag);
        let program = &links[0]["xdp"];
        Wire {
            up: has("UP"),
            carrier: has("LOWER_UP"),
            promiscuity: links[0]["promiscuity"].as_u64().expect("ip -d says it"),
            program: program["prog"]["name"]
                .as_str()
                .map(|name| (name.to_owned(), program["mode"].as_u64().expect("a program has a mode"))),
        }
    }
}

/// How Weir ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    Told,
    Killed,
}

impl End {
    pub fn of(self, running: Running) {
        match self {
            End::Told => assert_eq!(running.stop(), 0),
            End::Killed => running.kill(),
        }
    }
}

const FORWARD: &str = "on-exit forward\nupstream { udp dport 7 accept; drop }\ndownstream { accept }\n";
const BLOCK: &str = "upstream { udp dport 7 accept; drop }\ndownstream { accept }\n";

fn put_both(folder: &Path) {
    put(folder, "forward.weir", FORWARD);
    put(folder, "block.weir", BLOCK);
}

each_kernel_engine!(the_link_forwards_or_blocks_as_the_policy_says_however_weir_ends);
fn the_link_forwards_or_blocks_as_the_policy_says_however_weir_ends(engine: &str, hosts: &Hosts, folder: &Path) {
    put_both(folder);
    let _echo = Echo::start(hosts);
    let before = Wires::of(hosts);
    assert_eq!(before.programs(), [""; 0]);
    // With receivers that accept packets from XDP programs, and with receivers for which the kernel must forward.
    for (end, receivers) in [(End::Told, "off"), (End::Killed, "on")] {
        let at = format!("{engine} {end:?}, gro {receivers}");
        let running = Running::start(&hosts.weir, folder, "forward.weir", engine, 1);
        assert!(passes(hosts, TIMEOUT), "{at}: {}", running.log());
        assert!(Wires::of(hosts).0.iter().all(|wire| wire.promiscuity > 0), "{at}: {:?}", Wires::of(hosts));
        set_receivers(hosts, receivers);
        end.of(running);
        wait_until("everything passes", || Wires::of(hosts).programs() == ["weir_bypass_all"; 2]);
        assert!(passes(hosts, TIMEOUT), "{at}: {:?}", Wires::of(hosts));
        let native = Wires::of(hosts).0.iter().all(|wire| wire.program.as_ref().is_some_and(|(_, mode)| *mode == 1));
        assert_eq!(native, receivers == "on", "{at}: {:?}", Wires::of(hosts));

        // The next process replaces the programs and removes them when it ends.
        set_receivers(hosts, "on");
        let running = Running::start(&hosts.weir, folder, "block.weir", engine, 1);
        assert!(!Wires::of(hosts).programs().contains(&"weir_bypass_all"), "{at}: {}", running.log());
        assert!(passes(hosts, TIMEOUT), "{at}: {}", running.log());
        assert!(running.stats().upstream.total.passed > 0, "{at}: packets go by it");
        end.of(running);
        wait_until("nothing is left", || Wires::of(hosts) == before);
        assert!(!passes(hosts, SILENCE), "{at}");
    }
}

/// Sets whether the hosts accept packets from XDP programs.
fn set_receivers(hosts: &Hosts, state: &str) {
    for (host, wire) in [(&hosts.client, "c"), (&hosts.server, "s")] {
        host.call("ethtool", &format!("-K {wire} gro {state}"));
    }
}

each_kernel_engine!(the_policy_that_was_active_last_has_the_say);
fn the_policy_that_was_active_last_has_the_say(engine: &str, hosts: &Hosts, folder: &Path) {
    put_both(folder);
    let _echo = Echo::start(hosts);
    let before = Wires::of(hosts);
    let running = Running::start(&hosts.weir, folder, "block.weir", engine, 1);
    let forward = running.load(&folder.join("forward.weir"));
    running.ask(&Request::Activate { generation: forward, confirm_s: None }).expect("it is ready");
    running.kill();
    assert!(passes(hosts, TIMEOUT), "{engine}");

    let running = Running::start(&hosts.weir, folder, "block.weir", engine, 1);
    let forward = running.load(&folder.join("forward.weir"));
    running.ask(&Request::Activate { generation: forward, confirm_s: None }).expect("it is ready");
    running.ask(&Request::Rollback).expect("there is something to go back to");
    running.kill();
    wait_until("nothing is left", || Wires::of(hosts) == before);
    assert!(!passes(hosts, SILENCE), "{engine}");
}

each_kernel_engine!(a_guard_that_is_killed_has_a_successor);
fn a_guard_that_is_killed_has_a_successor(engine: &str, hosts: &Hosts, folder: &Path) {
    put_both(folder);
    let _echo = Echo::start(hosts);
    let running = Running::start(&hosts.weir, folder, "forward.weir", engine, 1);
    let guard = guard_of(&running);
    let held = descriptors(guard);
    kill(guard, Signal::SIGKILL).expect("it is there");
    wait_until("another guard is started", || running.log().contains("another one is started"));
    let successor = guard_of(&running);
    assert_eq!(descriptors(successor), held, "{engine}: it holds what the first held");
    // Signals that end the programs of a terminal do not end the guard.
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        kill(successor, signal).expect("it is there");
    }
    running.kill();
    assert!(passes(hosts, TIMEOUT), "{engine}: {:?}", Wires::of(hosts));
    wait_until("the guard has gone", || kill(successor, None).is_err());
}

/// The guard of a Weir: its child process with the guard's name.
pub fn guard_of(running: &Running) -> Pid {
    let is_guard = |pid: i32| {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let parent = read("stat").rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        // The process has another name before it becomes a guard, and no memory maps after its end.
        parent == Some(running.pid().as_raw()) && read("comm") == "weir-guard\n" && !read("maps").is_empty()
    };
    let processes = fs::read_dir("/proc").expect("there are processes");
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let guards: Vec<i32> = pids.filter(|&pid| is_guard(pid)).collect();
    assert_eq!(guards.len(), 1, "{guards:?}: {}", running.log());
    Pid::from_raw(guards[0])
}

/// Number of descriptors of each kind that a process has.
fn descriptors(pid: Pid) -> Vec<(String, usize)> {
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("it is there").flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let kind = target.to_string_lossy().split(":[").next().unwrap_or_default().to_owned();
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((kind, 1)),
        }
    }
    kinds.sort();
    kinds
}

each_kernel_engine!(programs_of_others_are_named_and_left_alone);
fn programs_of_others_are_named_and_left_alone(engine: &str, hosts: &Hosts, folder: &Path) {
    put_both(folder);
    attach_other(&hosts.weir, "upper", folder);
    let before = Wires::of(hosts);
    assert_eq!(before.programs(), ["other"]);
    let (code, stderr) = Running::refused(&hosts.weir, folder, "forward.weir", engine);
    let words = ["interface upper", "XDP program", "(other)", "not Weir's to remove", "`ip link set dev upper xdp"];
    assert!(code == 1 && words.iter().all(|word| stderr.contains(word)), "{engine}: {code}: {stderr}");
    assert_eq!(Wires::of(hosts), before, "{engine}");
}

each_kernel_engine!(a_dead_link_is_carried_across_and_up_again_in_the_end);
fn a_dead_link_is_carried_across_and_up_again_in_the_end(engine: &str, hosts: &Hosts, folder: &Path) {
    put_both(folder);
    let _echo = Echo::start(hosts);
    let before = Wires::of(hosts);
    let wires = |what: &str, wanted: [(bool, bool); 2]| {
        let seen = || ["lower", "upper"].map(|name| Wire::of(hosts, name)).map(|wire| (wire.up, wire.carrier));
        wait_until(&format!("{engine}: {what}: {wanted:?}"), || seen() == wanted);
    };
    let (all, left, right) = ([(true, true); 2], [(true, false), (false, false)], [(false, false), (true, false)]);
    for end in [End::Told, End::Killed] {
        let setup = Setup { more: vec!["--carry-link".to_owned()], ..Setup::new(engine) };
        let carry = || Running::start_as(&hosts.weir, folder, "block.weir", &setup);
        let running = carry();
        assert!(passes(hosts, TIMEOUT), "{engine}: {}", running.log());
        for (host, wire, dead) in [(&hosts.client, "c", left), (&hosts.server, "s", right)] {
            host.call("ip", &format!("link set {wire} down"));
            wires("its neighbour has gone", dead);
            host.call("ip", &format!("link set {wire} up"));
            wires("its neighbour is back", all);
        }
        assert!(passes(hosts, TIMEOUT), "{engine}: {}", running.log());
        assert!(!running.log().contains("carry-link"), "{}", running.log());

        // At the end it is up again, although its neighbour is down.
        hosts.client.call("ip", "link set c down");
        wires("its neighbour has gone", left);
        end.of(running);
        wires("nobody carries", [(true, false), (true, true)]);
        hosts.client.call("ip", "link set c up");
        wait_until("nothing is left", || Wires::of(hosts) == before);

        // An interface that its owner took down stays down.
        let running = carry();
        hosts.set_link("lower", "down");
        wires(&format!("its owner has taken it down: {}", running.log()), [(false, false); 2]);
        end.of(running);
        wires("nobody carries", [(false, false), (true, true)]);
        hosts.set_link("lower", "up");
        wait_until("nothing is left", || Wires::of(hosts) == before);
    }
}

/// DPDK ports are not interfaces of the kernel.
#[cfg(feature = "dpdk")]
#[test]
fn where_nothing_can_be_forwarded_in_the_end_weir_says_so() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    put_both(folder.path());
    let _echo = Echo::start(&hosts);
    let running = Running::start(&hosts.weir, folder.path(), "block.weir", "dpdk", 1);
    assert!(!running.log().contains("on-exit"), "{}", running.log());
    let forward = running.load(&folder.path().join("forward.weir"));
    running.ask(&Request::Activate { generation: forward, confirm_s: None }).expect("it is ready");
    let log = running.log();
    let words = ["on-exit forward is impossible", "the link will block", "net_af_packet_lower"];
    assert!(words.iter().all(|word| log.contains(word)), "{log}");
    assert!(passes(&hosts, TIMEOUT), "{}", running.log());
    assert_eq!(running.stop(), 0);
    assert!(Wires::of(&hosts).programs().is_empty() && !passes(&hosts, SILENCE));
}
