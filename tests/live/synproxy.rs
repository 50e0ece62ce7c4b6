//! The SYN proxy on interfaces: Linux is the client and the server, and leaves checksums and segmentation to cards that
//! do not exist. Every SYN is answered, every connection carries what was sent, and copies are of what was received.

use crate::device_under_test::{Running, Setup, TIMEOUT, uses_dpdk};
use crate::hosts::{CLIENT, Hosts, SERVER, Settings, Wires};
use crate::traffic::Listener;
use crate::{check_account, put};
use std::collections::HashMap;
use std::io::{Read, Result, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

const CLIENT6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// Connections for each request and each IP version.
const CONNECTIONS: usize = 50;
/// The ports, and how long the client's request is there.
const REQUESTS: [(u16, usize); 2] = [(8000, 100_000), (8001, 200)];
/// The answer to every request: more than the server's first window.
const ANSWER_BYTES: usize = 100_000;

/// A policy that answers SYNs. `copies` is a statement, or empty.
fn policy(copies: &str) -> String {
    format!(
        "tracking {{ pickup off; synproxy mss 1460 wscale 7 sack-perm timestamp }}
upstream {{
  tcp dport 8000-8001 tcp synproxy {copies} accept
  icmpv6 accept
  drop
}}
downstream {{
  tcp track
  ct state established {copies} accept
  icmpv6 accept
  drop
}}
"
    )
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|nth| (nth.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// Gives both hosts addresses of IPv6.
fn add_ipv6(hosts: &Hosts) {
    for (host, far, address) in [(&hosts.client, "c", CLIENT6), (&hosts.server, "s", SERVER6)] {
        host.run(move || std::fs::write(format!("/proc/sys/net/ipv6/conf/{far}/disable_ipv6"), "0"))
            .expect("the host's own setting");
        host.ip(&format!("addr add {address}/64 dev {far} nodad"));
    }
}

/// Accepts connections one after the other on a port, checks their requests of a length, and answers.
fn serve(hosts: &Hosts, port: u16, request: usize, connections: usize) -> JoinHandle<Result<()>> {
    let (ready, is_ready) = channel();
    let served = hosts.server.start(move || -> Result<()> {
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?;
        ready.send(()).expect("somebody waits");
        for _ in 0..connections {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            let mut received = vec![0; request];
            stream.read_exact(&mut received)?;
            assert!(received == bytes(request), "the request comes as it was sent");
            stream.write_all(&bytes(ANSWER_BYTES))?;
            assert_eq!(stream.read(&mut [0])?, 0, "the client has nothing more to say");
        }
        Ok(())
    });
    is_ready.recv().expect("the server listens");
    served
}

/// Connects, sends a request, and waits for the answer.
fn ask(address: IpAddr, port: u16, request: usize) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&(address, port).into(), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(&bytes(request))?;
    let mut received = vec![0; ANSWER_BYTES];
    stream.read_exact(&mut received)?;
    assert!(received == bytes(ANSWER_BYTES), "the answer comes as it was sent");
    Ok(())
}

/// Lets clients ask `connections` times for each request and each of the server's addresses.
fn talk(hosts: &Hosts, addresses: &[IpAddr], connections: usize, running: &Running) {
    for (port, request) in REQUESTS {
        let served = serve(hosts, port, request, connections * addresses.len());
        for &address in addresses {
            for number in 0..connections {
                let asked = hosts.client.run(move || ask(address, port, request));
                asked.unwrap_or_else(|error| {
                    panic!("{number} to {address} {port}: {error}\n{:#?}\n{}", running.stats(), running.log())
                });
            }
        }
        served.join().expect("the requests are right").expect("the server serves");
    }
}

/// Checks that SYNs were answered for so many connections.
fn check_answers(engine: &str, running: &Running, connections: usize) {
    let stats = running.settled();
    let upstream = &stats.upstream.total;
    assert!(upstream.replied >= connections as u64, "{engine}: {stats:#?}");
    assert_eq!(upstream.reasons.get("syn-cookie"), Some(&upstream.replied), "{engine}: {stats:#?}");
    assert_eq!(stats.downstream.total.replied, 0, "{engine}: {stats:#?}");
    check_account(&stats);
}

each_engine_and_p4!(
    every_syn_is_answered_and_connections_carry_what_is_sent,
    Wires { settings: Settings::Polling, ..Wires::default() }
);
fn every_syn_is_answered_and_connections_carry_what_is_sent(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "proxy.weir", &policy(""));
    add_ipv6(hosts);
    let running = Running::start(&hosts.weir, folder, "proxy.weir", engine, 1);
    if uses_dpdk(engine) {
        // As its warning advises, segmentation offload is off for its sockets.
        for (host, far) in [(&hosts.client, "c"), (&hosts.server, "s")] {
            host.call("ethtool", &format!("-K {far} tso off gso off"));
        }
    }
    talk(hosts, &[SERVER.into(), SERVER6.into()], CONNECTIONS, &running);
    check_answers(engine, &running, 2 * REQUESTS.len() * CONNECTIONS);
    assert_eq!(running.stop(), 0);
}

/// What matters in a segment over IPv4 without tags and IP options.
struct Segment {
    from_client: bool,
    /// The port of the client.
    port: u16,
    seq: u32,
    ack: u32,
    flags: u8,
}

impl Segment {
    const SYN: u8 = 2;
    const ACK: u8 = 16;

    fn read(frame: &[u8]) -> Option<Segment> {
        let (ip, tcp) = (frame.get(14..34)?, frame.get(34..54)?);
        let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let from_client = ip[12..16] == CLIENT.octets();
        let port = half(if from_client { 0 } else { 2 });
        (ip[0] == 0x45 && ip[9] == 6).then(|| Segment { from_client, port, seq: word(4), ack: word(8), flags: tcp[13] })
    }

    fn is_syn_ack(&self) -> bool {
        self.flags & (Self::SYN | Self::ACK) == Self::SYN | Self::ACK
    }

    /// The server's number in it, if it has one.
    fn number(&self) -> Option<u32> {
        if self.from_client { Some(self.ack).filter(|_| self.flags & Self::ACK != 0) } else { Some(self.seq) }
    }
}

/// The server's initial numbers, by the port of the client.
fn initial_numbers(segments: &[Segment]) -> HashMap<u16, u32> {
    segments.iter().filter(|one| one.is_syn_ack()).map(|one| (one.port, one.seq)).collect()
}

/// Checks that the server's numbers in segments follow the initial ones.
fn check_numbers(what: &str, segments: &[Segment], from_client: bool, initial: &HashMap<u16, u32>) {
    let numbers = segments.iter().filter(|one| one.from_client == from_client);
    let numbers: Vec<_> = numbers.filter_map(|one| Some((one.port, one.number()?))).collect();
    assert!(numbers.len() > 20, "{what}: {numbers:?}");
    for (port, number) in &numbers {
        let initial = initial[port];
        assert!(number.wrapping_sub(initial) <= ANSWER_BYTES as u32 + 2, "{what}: {initial}, then {number}");
    }
}

// XDP programs cannot copy: the kernel sends one packet to two interfaces, so both are as it leaves.
test_on!(
    [afpacket, afxdp, #[cfg(feature = "dpdk")] dpdk, #[cfg(feature = "dpdk")] p4]
    copies_are_of_what_was_received,
    Wires { divert: 1, ..Wires::default() }
);
fn copies_are_of_what_was_received(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "proxy.weir", &policy("sample 1/1"));
    let setup = Setup { divert: Some("divert".to_owned()), ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "proxy.weir", &setup);
    let ends = [(&hosts.client, "c"), (&hosts.server, "s"), (&hosts.analyser, "d")];
    let [client, server, analyser] = ends.map(|(host, far)| Listener::at(host, far));
    talk(hosts, &[SERVER.into()], 1, &running);
    check_answers(engine, &running, REQUESTS.len());
    let stats = running.settled();
    let sampled = stats.upstream.total.sampled + stats.downstream.total.sampled;
    assert!(sampled > 100, "{engine}: {stats:#?}");
    let [client, server, copies] = [client.received(1), server.received(1), analyser.received(sampled as usize)]
        .map(|frames| frames.iter().filter_map(|frame| Segment::read(frame)).collect::<Vec<_>>());

    // Both numbers are random, and what the client knows is a cookie.
    let (told, chosen) = (initial_numbers(&client), initial_numbers(&copies));
    assert_eq!((told.len(), chosen.len()), (REQUESTS.len(), REQUESTS.len()), "{engine}");
    assert!(chosen.iter().all(|(port, number)| told.get(port).is_some_and(|told| told != number)), "{engine}");
    check_numbers(&format!("{engine}: at the client"), &client, false, &told);
    check_numbers(&format!("{engine}: at the server"), &server, true, &chosen);
    check_numbers(&format!("{engine}: copies of the client's"), &copies, true, &told);
    check_numbers(&format!("{engine}: copies of the server's"), &copies, false, &chosen);
    assert_eq!(running.stop(), 0);
}
