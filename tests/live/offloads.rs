//! veth pairs with default settings: senders leave checksums incomplete, and far ends do not poll. Connections work, or
//! Weir advises at its start what to change.

use crate::device_under_test::{Running, Setup};
use crate::hosts::{Host, Hosts, MTU, SERVER, Settings, Wires};
use crate::traffic::{Listener, flows, frames, send};
use crate::{check_account, put};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

const ALL: &str = "upstream { accept }\ndownstream { accept }\n";
const BYTES: usize = 1 << 20;
const PORT: u16 = 8000;
/// Maximum time without progress on a connection: several retransmissions, which do not help against a wrong checksum.
const STILL: Duration = Duration::from_secs(5);

/// Checks that there are no warnings. With DPDK's sockets there must be one that advises senders to segment packets
/// themselves; this is done.
fn follow_warnings(engine: &str, hosts: &Hosts, running: &Running) {
    let access = running.status().access.join("\n");
    if engine == "dpdk" {
        let warning = "warning: packets that senders leave to a card to segment are lost";
        assert!(access.matches(warning).count() == 2 && running.log().contains(warning), "{access}");
        for (host, far) in [(&hosts.server, "s"), (&hosts.client, "c")] {
            host.call("ethtool", &format!("-K {far} tso off gso off"));
        }
    } else {
        assert!(!access.contains("warning"), "{engine}: {access}");
    }
}

/// Sends `BYTES` to a server and receives them back, over IPv4, where both hosts leave checksums incomplete.
fn exchange(client: &Host, server: &Host) -> std::io::Result<usize> {
    let (ready, is_ready) = channel();
    let served = server.start(move || -> std::io::Result<()> {
        let listener = TcpListener::bind((SERVER, PORT))?;
        ready.send(()).expect("somebody waits");
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(STILL))?;
        let mut received = Vec::new();
        stream.read_to_end(&mut received)?;
        stream.write_all(&received)
    });
    is_ready.recv().expect("the server listens");
    let exchanged = client.run(|| {
        let sent: Vec<u8> = (0..BYTES).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
        let mut stream = TcpStream::connect_timeout(&(SERVER, PORT).into(), STILL)?;
        stream.set_read_timeout(Some(STILL))?;
        stream.set_write_timeout(Some(STILL))?;
        stream.write_all(&sent)?;
        stream.shutdown(Shutdown::Write)?;
        let mut received = Vec::new();
        stream.read_to_end(&mut received)?;
        assert!(received == sent, "{} of {BYTES} bytes came back as they were sent", received.len());
        Ok(received.len())
    });
    // A server without a client waits forever.
    if exchanged.is_ok() {
        served.join().expect("the server ends")?;
    }
    exchanged
}

each_engine!(
    connections_pass_between_virtual_wires_as_they_come,
    Wires { settings: Settings::Polling, ..Wires::default() }
);
fn connections_pass_between_virtual_wires_as_they_come(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    follow_warnings(engine, hosts, &running);
    let exchanged = exchange(&hosts.client, &hosts.server);
    assert_eq!(exchanged.map_err(|error| error.to_string()), Ok(BYTES), "{engine}: {}", running.log());
    // Datagrams, one with an odd length.
    let received = hosts.server.run(|| UdpSocket::bind((SERVER, PORT)).expect("it has the address"));
    received.set_read_timeout(Some(STILL)).expect("sockets wait");
    for length in [1, 2, 999, 1400] {
        hosts.client.run(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("any port");
            socket.send_to(&vec![7; length], (SERVER, PORT)).expect("there is a way");
        });
        let mut datagram = [0; 2000];
        assert_eq!(received.recv(&mut datagram).ok(), Some(length), "{engine}");
    }
    let access = running.status().access.join("\n");
    assert_eq!(
        access.matches("checksums that senders leave to a card are completed").count(),
        if engine == "afpacket" { 0 } else { 2 },
        "{access}"
    );
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

// Other engines get packets that the kernel has cut before.
test_on!(
    [afpacket]
    large_packets_leave_by_interfaces_that_do_not_cut_them,
    Wires { settings: Settings::Polling, divert: 1, ..Wires::default() }
);
fn large_packets_leave_by_interfaces_that_do_not_cut_them(engine: &str, hosts: &Hosts, folder: &Path) {
    for interface in ["lower", "upper", "divert"] {
        hosts.weir.call("ethtool", &format!("-K {interface} tso off"));
    }
    put(folder, "all.weir", "upstream { sample 1/1; accept }\ndownstream { sample 1/1; accept }\n");
    let divert = Some("divert".to_owned());
    let running = Running::start_as(&hosts.weir, folder, "all.weir", &Setup { divert, ..Setup::new(engine) });
    let exchanged = exchange(&hosts.client, &hosts.server);
    assert_eq!(exchanged.map_err(|error| error.to_string()), Ok(BYTES), "{engine}: {}", running.log());
    let stats = running.settled();
    check_account(&stats);
    let [upstream, downstream] = [&stats.upstream.total, &stats.downstream.total];
    // Frames of the MTU alone would be more than these.
    assert!(upstream.packets < (BYTES / MTU as usize) as u64, "packets are large: {stats:#?}");
    let lost = stats.interfaces.iter().map(|port| port.tx_dropped.unsent()).sum::<u64>();
    assert_eq!(lost, 0, "{stats:#?}");
    let copies = stats.interfaces.iter().find(|port| port.side == "divert").expect("there is one").tx_packets;
    assert_eq!(copies, upstream.sampled + downstream.sampled, "{stats:#?}");
    assert_eq!(running.stop(), 0);
}

/// Packet kinds: the positions of the addresses, of the transport header and of its checksum, and the protocol.
const KINDS: [(&str, std::ops::Range<usize>, usize, usize, u8); 7] = [
    ("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / tcp sport=7 dport=9 / payload 33", 26..34, 34, 50, 6),
    ("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=7 dport=9 / payload 32", 26..34, 34, 40, 17),
    ("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 options=01010101 / tcp sport=7 / payload 300", 26..34, 38, 54, 6),
    ("eth / ip6 saddr=fd00::1 daddr=fd00::2 / tcp sport=7 dport=9 / payload 1001", 22..54, 54, 70, 6),
    ("eth / ip6 saddr=fd00::1 daddr=fd00::2 / udp sport=7 dport=9 / payload 18", 22..54, 54, 60, 17),
    ("eth / ip6 saddr=fd00::1 daddr=fd00::2 / dst / tcp sport=7 / payload 1", 22..54, 62, 78, 6),
    ("eth / ip6 saddr=fd00::1 daddr=fd00::2 / dst / udp sport=7", 22..54, 62, 68, 17),
];

/// The frame with the sum of its pseudo header as checksum, as senders leave it.
fn unfinished(frame: &[u8], addresses: std::ops::Range<usize>, start: usize, field: usize, protocol: u8) -> Vec<u8> {
    let words = frame[addresses].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let mut sum = words.sum::<u32>() + (frame.len() - start) as u32 + u32::from(protocol);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let mut frame = frame.to_vec();
    frame[field..field + 2].copy_from_slice(&(sum as u16).to_be_bytes());
    frame
}

// Raw sockets learn which packets have incomplete checksums. Packets from raw sockets are not marked as such.
test_on!(
    [afxdp, xdp, #[cfg(feature = "dpdk")] dpdk]
    unfinished_checksums_are_finished_and_others_left_alone,
    Wires { settings: Settings::Polling, ..Wires::default() }
);
fn unfinished_checksums_are_finished_and_others_left_alone(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let (mut sent, mut expected) = (Vec::new(), Vec::new());
    for (text, addresses, start, field, protocol) in KINDS {
        let [right] = frames(text).try_into().expect("one packet");
        let mut wrong = right.clone();
        wrong[field] ^= 0x55;
        sent.extend([right.clone(), unfinished(&right, addresses, start, field, protocol), wrong.clone()]);
        expected.extend([right.clone(), right, wrong]);
    }
    let at_server = Listener::at(&hosts.server, "s");
    send(&hosts.client, "c", &sent);
    let mut received = at_server.received(expected.len());
    // Hosts send neighbour solicitations when an interface comes up.
    received.retain(|frame| expected.contains(frame) || sent.contains(frame));
    assert_eq!(received, expected, "{engine}");
    assert_eq!(running.stop(), 0);
}

each_kernel_engine!(
    long_packets_pass_between_virtual_wires_as_they_come,
    Wires { settings: Settings::Polling, mtu: 9000, ..Wires::default() }
);
fn long_packets_pass_between_virtual_wires_as_they_come(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let exchanged = exchange(&hosts.client, &hosts.server);
    assert_eq!(exchanged.map_err(|error| error.to_string()), Ok(BYTES), "{engine}: {}", running.log());
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_engine!(
    a_far_end_that_does_not_poll_is_named_with_what_helps,
    Wires { settings: Settings::AsTheyCome, ..Wires::default() }
);
fn a_far_end_that_does_not_poll_is_named_with_what_helps(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    if engine == "xdp" {
        let warning = "warning: upper accepts no packets from XDP programs, all packets to it are dropped as tx-unsupported: switch GRO on at its other end (`ethtool -K PEER gro on`)";
        for text in [running.log(), running.status().access.join("\n")] {
            assert!(text.contains(warning) && text.contains("warning: lower accepts"), "{text}");
        }
        send(&hosts.client, "c", &flows(10, 1, 9));
        let stats = running.wait_for("they are counted", |stats| stats.upstream.total.packets >= 10);
        let upper = stats.interfaces.iter().find(|port| port.side == "upper").expect("there is one");
        assert_eq!((upper.tx_packets, upper.tx_dropped.tx_unsupported), (0, stats.upstream.total.passed), "{stats:#?}");
        check_account(&running.settled());
        // Its advice works.
        for (host, far) in [(&hosts.server, "s"), (&hosts.client, "c")] {
            host.call("ethtool", &format!("-K {far} gro on"));
        }
        let received = Listener::at(&hosts.server, "s");
        send(&hosts.client, "c", &flows(10, 1, 9));
        assert_eq!(received.received(10), flows(10, 1, 9));
    }
    follow_warnings(engine, hosts, &running);
    let exchanged = exchange(&hosts.client, &hosts.server);
    assert_eq!(exchanged.map_err(|error| error.to_string()), Ok(BYTES), "{engine}: {}", running.log());
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_kernel_engine!(a_renamed_interface_has_its_new_name);
fn a_renamed_interface_has_its_new_name(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 2);
    hosts.weir.ip("link set dev upper name uplink");
    send(&hosts.client, "c", &flows(10, 1, 9));
    let stats = running.wait_for("they are counted", |stats| stats.upstream.total.packets >= 10);
    let names = |ports: &[weir_control::InterfaceStats]| -> Vec<String> {
        ports.iter().map(|port| port.interface.clone()).collect()
    };
    assert_eq!(names(&stats.interfaces), ["lower", "uplink"], "{engine}");
    assert!(stats.workers.iter().all(|worker| names(&worker.interfaces) == ["lower", "uplink"]), "{engine}");
    let access = running.status().access.join("\n");
    assert!(!access.contains("upper"), "{engine}: {access}");
    let log = running.log();
    assert_eq!(running.stop(), 0, "{engine}: {log}");
}
