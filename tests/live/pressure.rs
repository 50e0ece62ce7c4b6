//! Packets that cannot be sent: each is counted as dropped for a named reason.

use crate::device_under_test::Running;
use crate::hosts::{Host, Hosts, MTU, Wires};
use crate::traffic::{Listener, Ready, flows, frames, put_on, send};
use crate::{check_account, put};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use weir_control::{InterfaceStats, Stats};
use weir_engine::live::os::link::LinkSwitch;
use weir_engine::live::os::tap::Tap;

const ALL: &str = "upstream { accept }\ndownstream { accept }\n";

fn port<'a>(stats: &'a Stats, side: &str) -> &'a InterfaceStats {
    stats.interfaces.iter().find(|port| port.side == side).expect("there is one")
}

/// Sends frames upstream and waits until all are counted.
fn send_up(hosts: &Hosts, running: &Running, frames: &[Vec<u8>]) -> Stats {
    send_up_after(hosts, running, frames, || ())
}

/// Sends frames like [`send_up`], immediately after `happens`.
fn send_up_after(hosts: &Hosts, running: &Running, frames: &[Vec<u8>], happens: impl FnOnce()) -> Stats {
    let before = running.stats().upstream.total.packets;
    let sender = Ready::to_send(&hosts.client, "c", frames);
    happens();
    let sent = sender.send();
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= before + sent);
    let stats = running.settled();
    check_account(&stats);
    stats
}

each_kernel_engine!(a_far_side_that_does_not_read_is_tx_full, Wires { upper: 0, ..Wires::default() });
fn a_far_side_that_does_not_read_is_tx_full(engine: &str, hosts: &Hosts, folder: &Path) {
    const SENT: u64 = 2000;
    put(folder, "all.weir", ALL);
    let mut tap = hosts.weir.run(|| Tap::create("upper").expect("the kernel has such interfaces"));
    hosts.weir.ip(&format!("link set dev upper arp off mtu {MTU} txqueuelen 64 up"));
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let sent = flows(100, SENT as usize / 100, 9);
    let stats = send_up(hosts, &running, &sent);
    let upper = port(&stats, "upper");
    assert_eq!(upper.tx_packets + upper.tx_dropped.tx_full, SENT, "{engine}: {stats:#?}");
    assert!(upper.tx_packets >= 64 && upper.tx_dropped.tx_full > SENT / 2, "{engine}: {stats:#?}");
    let mut held = Vec::new();
    while let Some(frame) = tap.read().expect("it is there") {
        held.push(frame);
    }
    assert_eq!(held.len() as u64, upper.tx_packets, "{engine}: what is counted as sent was sent");
    assert_eq!(held[..64], sent[..64], "{engine}");
    // For lost packets, the kernel engine knows only their number (docs/decisions/0009-in-the-kernel.md).
    let bytes: usize = held.iter().map(Vec::len).sum();
    assert!(engine == "xdp" || upper.tx_bytes == bytes as u64, "{engine}: {bytes}, {stats:#?}");

    // With room again, packets pass. The other direction was not affected.
    send_up(hosts, &running, &sent[..20]);
    assert_eq!((0..20).filter_map(|_| tap.read().expect("it is there")).count(), 20, "{engine}");
    let at_client = Listener::at(&hosts.client, "c");
    sent[..10].iter().for_each(|frame| tap.write(frame).expect("it has room"));
    running.wait_for("all are counted", |stats| stats.downstream.total.packets == 10);
    check_account(&running.settled());
    assert_eq!(at_client.received(10), sent[..10], "{engine}");
    assert_eq!(running.stop(), 0);
}

each_kernel_engine!(an_interface_that_is_down_or_alone_is_link_down);
fn an_interface_that_is_down_or_alone_is_link_down(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let sent = flows(100, 10, 9);
    send_up(hosts, &running, &sent);
    // First the interface itself is down, then its far end.
    for (host, interface) in [(&hosts.weir, "upper"), (&hosts.server, "s")] {
        let before = port(&running.settled(), "upper").clone();
        let switch = LinkSwitch::new(interface);
        let take_down = || host.run(move || switch.take_down().expect("it is ours"));
        let stats = send_up_after(hosts, &running, &sent, take_down);
        let after = port(&stats, "upper");
        assert_eq!(after.tx_packets, before.tx_packets, "{engine}, {interface}: {stats:#?}");
        let dropped = after.tx_dropped.link_down - before.tx_dropped.link_down;
        assert_eq!(dropped, sent.len() as u64, "{engine}, {interface}: {stats:#?}");
        host.ip(&format!("link set dev {interface} up"));
        // Packets after that arrive, and no older ones.
        while !hosts.is_up("upper") {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let at_server = Listener::at(&hosts.server, "s");
        let fresh = flows(10, 10, 4000);
        running.wait_for("packets pass again", |_| {
            let probe = frames("eth / ip / udp dport=5000");
            let passed = running.stats().upstream.total.packets;
            send(&hosts.client, "c", &probe);
            let stats = running.wait_for("it is counted", |stats| stats.upstream.total.packets > passed);
            port(&stats, "upper").tx_packets > after.tx_packets
        });
        let stats = send_up(hosts, &running, &fresh);
        let mut received = at_server.received((port(&stats, "upper").tx_packets - after.tx_packets) as usize);
        received.retain(|frame| frame[36..38] != 5000_u16.to_be_bytes());
        assert_eq!(received, fresh, "{engine}, {interface}");
    }
    assert_eq!(running.stop(), 0);
}

/// Processes that constantly change interfaces. Others therefore wait for the kernel's lock on interfaces, and flags
/// follow the link late.
struct Churn {
    enough: Arc<AtomicBool>,
    others: Vec<JoinHandle<()>>,
}

impl Churn {
    fn start() -> Self {
        const OTHERS: usize = 4;
        let enough = Arc::new(AtomicBool::new(false));
        let other = |stop: Arc<AtomicBool>| {
            let host = Host::new();
            move || {
                while !stop.load(Ordering::Relaxed) {
                    host.ip("link add one type veth peer name other");
                    host.ip("link del one");
                }
            }
        };
        let others = (0..OTHERS).map(|_| thread::spawn(other(enough.clone())));
        Churn { others: others.collect(), enough }
    }

    fn stop(mut self) {
        self.enough.store(true, Ordering::Relaxed);
        std::mem::take(&mut self.others).into_iter().for_each(|other| other.join().expect("it ends"));
    }
}

impl Drop for Churn {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::Relaxed);
    }
}

each_kernel_engine!(a_wire_that_goes_dead_is_link_down_before_the_flags_say_so);
fn a_wire_that_goes_dead_is_link_down_before_the_flags_say_so(engine: &str, hosts: &Hosts, folder: &Path) {
    const TIMES: usize = 10;
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let sent = flows(100, 1, 9);
    let churn = Churn::start();
    for time in 0..TIMES {
        let before = port(&running.stats(), "upper").clone();
        let switch = LinkSwitch::new("s");
        let take_down = || hosts.server.run(move || switch.take_down().expect("it is ours"));
        let stats = send_up_after(hosts, &running, &sent, take_down);
        let after = port(&stats, "upper");
        let lost = after.tx_dropped.link_down - before.tx_dropped.link_down;
        assert_eq!((after.tx_packets, lost), (before.tx_packets, sent.len() as u64), "{engine}, {time}: {stats:#?}");
        hosts.server.ip("link set dev s up");
        running.wait_until("it is up", |_| hosts.is_up("upper"));
    }
    churn.stop();
    assert_eq!(running.stop(), 0);
}

each_kernel_engine!(a_link_that_flaps_under_a_flood_loses_none_unnamed);
fn a_link_that_flaps_under_a_flood_loses_none_unnamed(engine: &str, hosts: &Hosts, folder: &Path) {
    const FLAPS: usize = 10;
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 2);
    let enough = Arc::new(AtomicBool::new(false));
    let stop = enough.clone();
    let flood = hosts.client.start(move || {
        let sent = flows(64, 1, 9);
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            count += put_on("c", &sent);
        }
        count
    });
    for _ in 0..FLAPS {
        let passed = |stats: &Stats| port(stats, "upper").tx_packets;
        let before = passed(&running.stats());
        running.wait_for("packets pass", |stats| passed(stats) > before);
        let lost = port(&running.stats(), "upper").tx_dropped.link_down;
        hosts.set_link("upper", "down");
        running.wait_for("packets are lost", |stats| port(stats, "upper").tx_dropped.link_down > lost);
        hosts.set_link("upper", "up");
    }
    enough.store(true, Ordering::Relaxed);
    let sent: u64 = flood.join().expect("it ends");
    let stats = running.settled();
    check_account(&stats);
    let lower = port(&stats, "lower");
    assert!(
        lower.rx_packets + lower.rx_missed.unwrap_or_default() <= sent && lower.rx_packets > 0,
        "{engine}: {sent}, {stats:#?}"
    );
    assert_eq!(running.stop(), 0);
}

each_kernel_engine!(a_packet_that_the_interface_takes_no_longer_is_tx_too_long);
fn a_packet_that_the_interface_takes_no_longer_is_tx_too_long(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    hosts.weir.ip("link set dev upper mtu 1500");
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let at_server = Listener::at(&hosts.server, "s");
    let of = |payload: usize| frames(&format!("eth / ip / udp dport=9 / payload {payload}")).remove(0);
    let tagged = frames("eth / vlan id=3 / ip / udp dport=9 / payload 1472").remove(0);
    // The maximum is 1500 bytes after the link header.
    let (short, longest, long, longer) = (of(10), of(1472), of(1500), of(3000));
    let sent = vec![short.clone(), longest.clone(), long, tagged.clone(), longer, short.clone()];
    let stats = send_up(hosts, &running, &sent);
    let upper = port(&stats, "upper");
    assert_eq!((upper.tx_packets, upper.tx_dropped.tx_too_long), (4, 2), "{engine}: {stats:#?}");
    assert_eq!(at_server.received(4), [short.clone(), longest, tagged, short], "{engine}");
    assert_eq!(running.stop(), 0);
}
