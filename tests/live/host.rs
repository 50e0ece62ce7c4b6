//! Weir on the host that it protects: what the host receives and sends, as its kernel has it: segmented later, with
//! VLAN tags beside packets, over IPv6, with ICMP errors. What every engine does is tested with the others
//! (`each_engine_and_host!`).

use crate::device_under_test::{HOST, Running, Setup, TIMEOUT, wait_until};
use crate::each_engine::run;
use crate::exits::{Echo, End, SILENCE, passes};
use crate::hosts::{CLIENT, Hosts, SERVER, Settings, Wires};
use crate::traffic::{Listener, frames, send};
use crate::{attach_other, check_account, put};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use weir_control::{Request, Stats};
use weir_engine::clang::{BpfShape, Clang, DataSizes, Hook};
use weir_engine::live::os::link::LinkSwitch;
use weir_engine::xdp::plain::PlainPrograms;
use weir_tables::limit_image::Logged;

const PORT: u16 = 8000;
/// Bytes of a page of the server.
const PAGE: usize = 4 << 20;

/// Runs a test with new hosts.
fn on_host(test: fn(&Hosts, &Path)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    test(&Hosts::of_host(Wires { settings: Settings::LikeCards, ..Wires::default() }), folder.path());
}

fn start(hosts: &Hosts, folder: &Path, policy: &str) -> Running {
    put(folder, "host.weir", policy);
    Running::start(&hosts.weir, folder, "host.weir", HOST, 1)
}

/// A server of pages at an address of the host. It answers `requests` connections.
fn serve(hosts: &Hosts, at: SocketAddr, requests: usize) -> JoinHandle<()> {
    let listener = hosts.server.run(move || TcpListener::bind(at).expect("the server has the address"));
    hosts.server.start(move || {
        for _ in 0..requests {
            let (mut stream, _) = listener.accept().expect("a client connects");
            let mut request = [0; 4];
            stream.read_exact(&mut request).expect("the client asks");
            stream.write_all(&vec![b'x'; PAGE]).expect("the client reads");
        }
    })
}

/// Asks for a page. Returns the bytes that arrive.
fn request(hosts: &Hosts, at: SocketAddr) -> usize {
    hosts.client.run(move || {
        let mut stream = TcpStream::connect_timeout(&at, TIMEOUT).expect("the policy accepts");
        stream.write_all(b"page").expect("the connection stands");
        let mut page = Vec::new();
        stream.read_to_end(&mut page).expect("the server answers");
        page.len()
    })
}

fn server() -> SocketAddr {
    (SERVER, PORT).into()
}

/// Packets that a rule of a direction has counted, by a word in it.
fn counted(tally: &weir_control::Tally, word: &str) -> u64 {
    tally.rules.iter().filter(|rule| rule.rule.contains(word)).map(|rule| rule.packets).sum()
}

/// Packets and bytes that crossed the host's interface: received, sent.
fn on_wire(hosts: &Hosts) -> [(u64, u64); 2] {
    let stats = hosts.link("s")["stats64"].clone();
    ["rx", "tx"].map(|way| {
        let number = |what: &str| stats[way][what].as_u64().expect("links count");
        // A veth counts bytes without the Ethernet header.
        (number("packets"), number("bytes") + 14 * number("packets"))
    })
}

/// What the wire port of the host has counted.
fn at_wire_port(stats: &Stats) -> [(u64, u64); 2] {
    let port = stats.interfaces.iter().find(|port| port.interface == "s" && port.side == "lower").expect("it is there");
    [(port.rx_packets, port.rx_bytes), (port.tx_packets, port.tx_bytes)]
}

fn since(now: [(u64, u64); 2], then: [(u64, u64); 2]) -> [(u64, u64); 2] {
    [0, 1].map(|way| (now[way].0 - then[way].0, now[way].1 - then[way].1))
}

/// Requests pass while a flood of listed sources is dropped. The counters are those of the wire, although the kernel
/// hands packets of many segments to Weir and makes the segments later.
#[test]
fn requests_pass_a_flood_is_dropped_and_all_is_counted_as_on_the_wire() {
    on_host(|hosts, folder| {
        // The kernel makes the segments, behind Weir's program, so that the interface counts them.
        hosts.weir.call("ethtool", "-K s tso off gso on");
        let before = on_wire(hosts);
        let policy = "table bad { type ipv4; elements = { 10.66.0.0/16 } }
upstream { ip saddr @bad counter drop; tcp dport 8000 accept; icmp accept; drop }
downstream { meta length > 2000 counter # large
  accept }
";
        let running = start(hosts, folder, policy);
        let first = running.settled();
        let serving = serve(hosts, server(), 4);
        let flood: Vec<Vec<u8>> = frames(
            &(0..512)
                .map(|n| format!("eth / ip saddr=10.66.{}.{} daddr=10.9.0.2 / tcp dport=8000\n", n / 256, n % 256))
                .collect::<String>(),
        );
        std::thread::scope(|scope| {
            let flooding = scope.spawn(|| (0..8).for_each(|_| send(&hosts.client, "c", &flood)));
            (0..4).for_each(|_| assert_eq!(request(hosts, server()), PAGE));
            flooding.join().expect("all are sent");
        });
        serving.join().expect("it has served");
        let flooded = 8 * flood.len() as u64;
        running.wait_for("the flood is counted", |stats| counted(&stats.upstream.total, "@bad") >= flooded);
        let stats = running.settled();
        check_account(&stats);
        assert_eq!(counted(&stats.upstream.total, "@bad"), flooded, "{stats:#?}");
        assert!(
            counted(&stats.downstream.total, "meta length") > 1000,
            "there are packets of many segments: {stats:#?}"
        );
        // Packets between Weir's start and the first look at its counters would be missing.
        assert_eq!(at_wire_port(&first), [(0, 0); 2]);
        assert_eq!(at_wire_port(&stats), since(on_wire(hosts), before), "{stats:#?}");
        assert_eq!(running.stop(), 0);
    });
}

/// In both directions, from and to the host, with errors and without them.
#[test]
fn the_host_tracks_what_it_opens_and_what_is_opened_to_it() {
    on_host(|hosts, folder| {
        let policy = "tracking { size 4096; pickup off }
upstream { tcp track; ct state established,related accept; ct state new tcp dport 8000 accept
  ct state new udp dport 7 accept; drop }
downstream { tcp track; ct state established,related accept; ct state new counter accept; drop }
";
        let running = start(hosts, folder, policy);
        let serving = serve(hosts, server(), 1);
        assert_eq!(request(hosts, server()), PAGE);
        serving.join().expect("it has served");
        // The host is the client.
        let listener = hosts.client.run(|| TcpListener::bind((CLIENT, 9000)).expect("the client has the address"));
        let answering = hosts.client.start(move || {
            let (mut stream, _) = listener.accept().expect("the host connects");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the host sends");
            stream.write_all(&received).expect("the host reads");
        });
        let back = hosts.server.run(|| {
            let mut stream = TcpStream::connect((CLIENT, 9000)).expect("the policy accepts");
            stream.write_all(&vec![b'y'; PAGE]).expect("the connection stands");
            stream.shutdown(std::net::Shutdown::Write).expect("the connection stands");
            let mut received = Vec::new();
            stream.read_to_end(&mut received).expect("the client sends");
            received.len()
        });
        answering.join().expect("it has answered");
        assert_eq!(back, PAGE);
        // A port without a listener: the error belongs to the flow, towards the host and from it.
        let refused = |from: &crate::hosts::Host, own: Ipv4Addr, other: (Ipv4Addr, u16)| {
            from.run(move || {
                let socket = UdpSocket::bind((own, 0)).expect("there are ports");
                socket.connect(other).expect("there is a route");
                socket.set_read_timeout(Some(TIMEOUT)).expect("sockets have timeouts");
                socket.send(b"anybody?").expect("it can be sent");
                socket.recv(&mut [0; 8]).expect_err("nobody answers").kind()
            })
        };
        assert_eq!(refused(&hosts.server, SERVER, (CLIENT, 9)), ErrorKind::ConnectionRefused);
        assert_eq!(refused(&hosts.client, CLIENT, (SERVER, 7)), ErrorKind::ConnectionRefused);
        // No other connection can be opened.
        let shut = hosts.client.run(|| TcpStream::connect_timeout(&(SERVER, 22).into(), Duration::from_millis(300)));
        assert!(shut.is_err());
        let stats = running.settled();
        check_account(&stats);
        let down = &stats.downstream.total;
        assert!(counted(down, "ct state new") >= 2 && !down.reasons.contains_key("no-state"), "{stats:#?}");
        assert_eq!(running.stop(), 0);
    });
}

/// A foreign program in front of Weir's. It gives every packet a VLAN tag. The kernel keeps the tag beside the packet,
/// and rules see it where the wire has it.
const TAGGER: &str = r#"
#include "kernel/plain.h"

static long (*const bpf_skb_vlan_push)(struct __sk_buff *skb, uint16_t proto, uint16_t tci) = (void *)18;

WEIR_SECTION("tcx/egress") int tagger(struct __sk_buff *skb)
{
	return bpf_skb_vlan_push(skb, 0x0081, 3 << 13 | 100) ? TCX_DROP : TCX_NEXT;
}
"#;

#[test]
fn rules_see_the_tags_beside_packets_and_other_programs_stay() {
    const SEGMENT: usize = 1000;
    const SEGMENTS: u64 = 10;
    const HEADERS: u64 = 14 + 4 + 20 + 8;
    on_host(|hosts, folder| {
        let policy = "tracking { size 4096; pickup off }
upstream { drop }
downstream { @ll,96,16 0x8100 @ll,116,12 100 @ll,128,16 0x0800 vlan id 100 vlan pcp 3 udp dport 77 ct state new counter accept
  drop }
";
        let running = start(hosts, folder, policy);
        let sizes = DataSizes::Known { tables: vec![], limits: None };
        let shape = BpfShape { sizes, counters: 1, logged: Logged::Nothing, hook: Hook::Received };
        let tagger = Clang::find().expect("clang is there").bpf("tagger", TAGGER, &shape).expect("it compiles").object;
        let programs = PlainPrograms::load("tagger", &tagger).expect("it loads");
        let attached = hosts.weir.run(move || {
            let index = LinkSwitch::new("s").index().expect("it is there");
            programs.attach_egress("tagger", "s", index).expect("others may be there")
        });
        // No host answers on the VLAN.
        let address = hosts.client.link("c")["address"].as_str().expect("it has one").to_owned();
        hosts.weir.ip(&format!("neigh replace {CLIENT} lladdr {address} dev s nud permanent"));
        let at_client = Listener::at(&hosts.client, "c");
        hosts.server.run(|| {
            let socket = UdpSocket::bind((SERVER, 1000)).expect("the port is free");
            socket.send_to(b"one", (CLIENT, 77)).expect("it can be sent");
            socket.send_to(b"other", (CLIENT, 78)).expect("it can be sent");
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGsoSegment, &(SEGMENT as i32))
                .expect("the kernel can cut datagrams");
            socket.send_to(&[0; SEGMENT * SEGMENTS as usize], (CLIENT, 77)).expect("it can be sent");
        });
        let rule = |stats: &Stats| {
            let rule =
                stats.downstream.total.rules.iter().find(|rule| rule.rule.contains("@ll")).expect("there is one");
            (rule.packets, rule.bytes)
        };
        let wanted = (1 + SEGMENTS, HEADERS + 3 + SEGMENTS * (HEADERS + SEGMENT as u64));
        running.wait_for("all are counted", |stats| rule(stats) == wanted);
        let arrived = at_client.received(2);
        let tagged =
            |frame: &&Vec<u8>| frame.len() > 40 && frame[12..18] == [0x81, 0, 0x60, 100, 8, 0] && frame[41] == 77;
        assert!(arrived.iter().filter(tagged).count() >= 2, "{arrived:?}");
        assert!(!arrived.iter().any(|frame| frame.len() > 41 && frame[41] == 78), "{arrived:?}");
        check_account(&running.settled());
        assert_eq!(running.stop(), 0);
        drop(attached);
    });
}

#[test]
fn connections_over_ipv6_are_tracked() {
    on_host(|hosts, folder| {
        for (host, wire, address) in [(&hosts.client, "c", "fd09::1/64"), (&hosts.weir, "s", "fd09::2/64")] {
            host.run(move || {
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{wire}/disable_ipv6"), "0").expect("it can be set");
            });
            host.ip(&format!("addr add {address} dev {wire} nodad"));
        }
        let policy = "tracking { size 4096; pickup off }
upstream { icmpv6 accept; tcp track; ct state established accept; ct state new tcp dport 8000 accept; drop }
downstream { icmpv6 accept; tcp track; ip6 saddr fd09::2 ct state established counter accept; drop }
";
        let running = start(hosts, folder, policy);
        let at: SocketAddr = (IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2)), PORT).into();
        let serving = serve(hosts, at, 1);
        assert_eq!(request(hosts, at), PAGE, "{}", running.log());
        serving.join().expect("it has served");
        let stats = running.settled();
        check_account(&stats);
        assert!(counted(&stats.downstream.total, "ip6 saddr") > PAGE as u64 / 3500, "{stats:#?}");
        assert_eq!(running.stop(), 0);
    });
}

const FORWARD: &str = "on-exit forward\nupstream { udp dport 7 accept; drop }\ndownstream { accept }\n";
const BLOCK: &str = "upstream { udp dport 7 accept; drop }\ndownstream { accept }\n";

/// However Weir ends: at once, in both directions, without a process that would have to act.
#[test]
fn a_host_is_open_or_shut_as_the_policy_says_however_weir_ends() {
    on_host(|hosts, folder| {
        let _echo = Echo::start(hosts);
        // Answers of the client, to see what the host can send.
        let far = hosts.client.run(|| UdpSocket::bind((CLIENT, 77)).expect("the client has the address"));
        far.set_read_timeout(Some(SILENCE)).expect("sockets have timeouts");
        let host_sends = || {
            hosts.server.run(|| {
                let socket = UdpSocket::bind((SERVER, 0)).expect("there are ports");
                let _refused = socket.send_to(b"out", (CLIENT, 77));
            });
            far.recv(&mut [0; 8]).is_ok()
        };
        for end in [End::Told, End::Killed] {
            let running = start(hosts, folder, FORWARD);
            assert!(passes(hosts, TIMEOUT), "{}", running.log());
            end.of(running);
            assert!(passes(hosts, TIMEOUT) && host_sends(), "{end:?}: forward");

            let running = start(hosts, folder, BLOCK);
            assert!(passes(hosts, TIMEOUT) && host_sends(), "{}", running.log());
            end.of(running);
            // Programs of a killed process are removed a moment after its end, and its gate is shut then.
            wait_until("nothing comes in", || !passes(hosts, SILENCE));
            assert!(!host_sends(), "{end:?}: block");

            // The next process takes over. The policy that is active last decides.
            let running = start(hosts, folder, BLOCK);
            assert!(passes(hosts, TIMEOUT) && host_sends(), "{end:?}: {}", running.log());
            put(folder, "forward.weir", FORWARD);
            let forward = running.load(&folder.join("forward.weir"));
            running.ask(&Request::Activate { generation: forward, confirm_s: None }).expect("it is ready");
            running.ask(&Request::Rollback).expect("there is something to go back to");
            running.ask(&Request::Activate { generation: forward, confirm_s: None }).expect("it is ready");
            end.of(running);
            assert!(passes(hosts, TIMEOUT) && host_sends(), "{end:?}: the last policy forwards");
        }
        assert_eq!(hosts.link("s")["xdp"], serde_json::Value::Null, "nothing is left");
    });
}

/// An operator who is locked out gets in again when the trial ends.
#[test]
fn a_trial_that_shuts_the_operator_out_ends() {
    on_host(|hosts, folder| {
        let _echo = Echo::start(hosts);
        let running = start(hosts, folder, FORWARD);
        assert!(passes(hosts, TIMEOUT));
        put(folder, "shut.weir", "on-exit block\nupstream { drop }\ndownstream { drop }\n");
        let shut = running.load(&folder.join("shut.weir"));
        running.ask(&Request::Activate { generation: shut, confirm_s: Some(3.0) }).expect("it is ready");
        assert!(!passes(hosts, SILENCE));
        assert!(passes(hosts, TIMEOUT), "{}", running.log());
        // The status is of the time after all programs were replaced.
        running.wait_until("the trial has ended", |running| running.status().generation == 1);
        // The trial's on-exit is undone with it.
        assert_eq!(running.stop(), 0);
        assert!(passes(hosts, TIMEOUT));
    });
}

#[test]
fn what_a_host_cannot_do_is_refused_before_anything_is_attached() {
    on_host(|hosts, folder| {
        put(folder, "p.weir", FORWARD);
        put(
            folder,
            "proxy.weir",
            "tracking { size 4096; synproxy mss 1460 }\nupstream { tcp synproxy; accept }\ndownstream { accept }\n",
        );
        let refused = |policy: &str, setup: &Setup, words: &[&str]| {
            let (code, stderr) = Running::refused_as(&hosts.weir, folder, policy, setup);
            assert!([1, 2].contains(&code) && words.iter().all(|word| stderr.contains(word)), "{code}: {stderr}");
            assert_eq!(hosts.link("s")["xdp"], serde_json::Value::Null, "{words:?}");
        };
        let setup = Setup::new(HOST);
        let at = |interface: &str| Setup { host: vec![interface.to_owned()], ..setup.clone() };
        let with =
            |more: &[&str]| Setup { more: more.iter().map(|word| (*word).to_owned()).collect(), ..setup.clone() };
        refused("p.weir", &at("lo"), &["interface lo", "--host needs an interface with Ethernet"]);
        refused("p.weir", &at("none"), &["interface none"]);
        refused(
            "p.weir",
            &Setup { host: vec!["s".to_owned(); 2], ..setup.clone() },
            &["the interface s is given twice"],
        );
        refused("p.weir", &with(&["--lower", "s"]), &["--lower", "cannot be used with"]);
        refused("p.weir", &with(&["--divert", "s"]), &["--divert", "cannot be used with"]);
        refused("p.weir", &with(&["--carry-link"]), &["--carry-link", "cannot be used with"]);
        refused("proxy.weir", &setup, &["proxy.weir:2", "`synproxy` is not yet supported by this engine (xdp --host)"]);

        // The error names a foreign program.
        attach_other(&hosts.weir, "s", folder);
        let (code, stderr) = Running::refused_as(&hosts.weir, folder, "p.weir", &setup);
        let words = ["interface s", "XDP program", "(other)", "`ip link set dev s xdp"];
        assert!(code == 1 && words.iter().all(|word| stderr.contains(word)), "{code}: {stderr}");
    });
}

#[test]
fn several_interfaces_of_a_host_are_one_host() {
    run(
        |_, hosts, folder| {
            for (host, wire, address) in [(&hosts.client, "c1", "10.7.0.1/24"), (&hosts.weir, "s1", "10.7.0.2/24")] {
                host.ip(&format!("addr add {address} dev {wire}"));
            }
            put(folder, "p.weir", "upstream { tcp dport 8000 accept; drop }\ndownstream { accept }\n");
            let setup = Setup { host: vec!["s".to_owned(), "s1".to_owned()], ..Setup::new(HOST) };
            let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
            for at in [server(), (Ipv4Addr::new(10, 7, 0, 2), PORT).into()] {
                let serving = serve(hosts, at, 1);
                assert_eq!(request(hosts, at), PAGE);
                serving.join().expect("it has served");
            }
            let stats = running.settled();
            check_account(&stats);
            for interface in ["s", "s1"] {
                let own = stats.interfaces.iter().filter(|port| port.interface == interface);
                let own: Vec<_> = own.map(|port| (port.side.as_str(), port.rx_packets, port.tx_packets)).collect();
                let [("lower", rx, tx), ("upper", host_rx, host_tx)] = own[..] else { panic!("{stats:#?}") };
                assert!(host_rx == tx && host_tx <= rx && host_tx > 1 && tx > 1000, "{stats:#?}");
            }
            assert_eq!(running.stop(), 0);
        },
        HOST,
        Wires { lower: 2, ..Wires::default() },
    );
}

/// A limit in packets is one of packets on the wire, also for those that are cut later.
#[test]
fn a_limit_of_what_the_host_sends_is_charged_by_the_wire() {
    const BURST: u64 = 200;
    on_host(|hosts, folder| {
        hosts.weir.call("ethtool", "-K s tso off gso on");
        let policy = format!(
            "upstream {{ accept }}
downstream {{ tcp sport {PORT} meta length > 2000 limit rate 1pps burst {BURST}
  accept }}
"
        );
        let running = start(hosts, folder, &policy);
        let listener = hosts.server.run(|| TcpListener::bind(server()).expect("the server has the address"));
        let serving = hosts.server.start(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            stream.set_write_timeout(Some(SILENCE)).expect("sockets have timeouts");
            // Most of it stays where it is.
            let _incomplete = stream.write_all(&vec![b'x'; PAGE]);
        });
        let stalled = hosts.client.run(|| {
            let mut stream = TcpStream::connect_timeout(&server(), TIMEOUT).expect("the policy accepts");
            stream.set_read_timeout(Some(SILENCE)).expect("sockets have timeouts");
            let mut page = Vec::new();
            stream.read_to_end(&mut page).is_err() && page.len() < PAGE
        });
        serving.join().expect("it has served");
        assert!(stalled, "the limit is exceeded");
        let stats = running.settled();
        check_account(&stats);
        // One a second is added to the burst.
        let passed = stats.downstream.total.passed;
        assert!((BURST / 4..BURST + 60).contains(&passed), "{passed}: {stats:#?}");
        assert!(stats.downstream.total.reasons["limit"] > 0, "{stats:#?}");
        assert_eq!(running.stop(), 0);
    });
}
