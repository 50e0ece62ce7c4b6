//! Links that go down and come up again: packets pass immediately afterwards, and lost packets are counted.

use crate::device_under_test::Running;
use crate::hosts::{Flags, Hosts, Wires};
use crate::traffic::{Listener, flows, send};
use crate::{BETWEEN_BURSTS, check_account, put};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::{InterfaceStats, Request, Stats};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

const ALL: &str = "upstream { accept }\ndownstream { accept }\n";

/// Maximum time that an interface counts as down after its link is up (docs/reference/interfaces.md). The engines need
/// a fifth of it; the rest is for busy machines.
const BOUND: Duration = Duration::from_millis(100);

fn port<'a>(stats: &'a Stats, side: &str) -> &'a InterfaceStats {
    stats.interfaces.iter().find(|port| port.side == side).expect("there is one")
}

each_kernel_engine!(a_link_that_is_up_again_carries_at_once, Wires { flags: Flags::Late, ..Wires::default() });
/// The flags of an interface follow its link up to a second late. Packets must not wait for that.
fn a_link_that_is_up_again_carries_at_once(engine: &str, hosts: &Hosts, folder: &Path) {
    const TIMES: usize = 2;
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let sent = flows(100, 2, 9);
    for (host, interface) in [(&hosts.weir, "upper"), (&hosts.server, "s")] {
        for time in 0..TIMES {
            host.ip(&format!("link set dev {interface} down"));
            let lost = port(&running.stats(), "upper").tx_dropped.link_down;
            send(&hosts.client, "c", &sent);
            running.wait_for("they are lost", |stats| port(stats, "upper").tx_dropped.link_down > lost);
            // The flags are not read here, because the kernel updates them on a read.
            host.ip(&format!("link set dev {interface} up"));
            thread::sleep(BOUND);
            let before = running.settled();
            send(&hosts.client, "c", &sent);
            let all = before.upstream.total.packets + sent.len() as u64;
            running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
            let stats = running.settled();
            let (before, after) = (port(&before, "upper"), port(&stats, "upper"));
            assert_eq!(after.tx_dropped.link_down, before.tx_dropped.link_down, "{engine}, {interface}, {time}");
            assert_eq!(after.tx_packets, before.tx_packets + sent.len() as u64, "{engine}, {interface}, {time}");
            check_account(&stats);
        }
    }
    assert_eq!(running.stop(), 0);
}

/// Random changes during traffic: links that go down and up, and activations.
struct Chaos<'a> {
    hosts: &'a Hosts,
    running: &'a Running,
    generations: [u64; 2],
    /// The state of xorshift64 (Marsaglia, 2003).
    state: u64,
}

impl Chaos<'_> {
    fn below(&mut self, end: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % end
    }

    /// Takes links down or activates another policy, and waits for a moment.
    fn step(&mut self, engine: &str) {
        const ENDS: usize = 4;
        let Hosts { weir, client, server, .. } = self.hosts;
        let ends = [(weir, "lower"), (client, "c"), (weir, "upper"), (server, "s")];
        match self.below(6) {
            5 => {
                let generation = self.generations[self.below(2) as usize];
                let request = Request::Activate { generation, confirm_s: None };
                self.running.ask(&request).unwrap_or_else(|failure| panic!("{engine}: {failure}"));
            }
            end => {
                // One link, or one of each side.
                let end = end as usize;
                let down = if end < ENDS { vec![ends[end]] } else { vec![ends[self.below(2) as usize], ends[2]] };
                let pause = Duration::from_millis(self.below(40));
                down.iter().for_each(|(host, name)| host.ip(&format!("link set dev {name} down")));
                thread::sleep(pause);
                down.iter().rev().for_each(|(host, name)| host.ip(&format!("link set dev {name} up")));
            }
        }
        let pause = Duration::from_millis(self.below(30));
        thread::sleep(pause);
    }
}

/// Destination port of the packets during link changes. Later packets have another.
const FLOOD_PORT: u16 = 7;

/// Sends upstream until told to stop, even while the link is down. Returns the number of sent packets.
fn flood_through(enough: &AtomicBool) -> u64 {
    let frames = flows(64, 1, FLOOD_PORT);
    let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (frame.as_slice(), frame.len() as u32)));
    let mut wire = Wire::open("c").expect("the client has the wire");
    while !enough.load(Ordering::Relaxed) {
        for burst in set.bursts() {
            wire.send(&burst).expect("it is there, though it may be down");
            thread::sleep(BETWEEN_BURSTS);
        }
    }
    wire.counters().tx_packets
}

each_engine!(
    links_that_flap_at_random_while_policies_change_lose_none_unnamed,
    Wires { flags: Flags::Late, ..Wires::default() }
);
/// Takes three seconds per engine, or as many as `WEIR_SOAK_SECONDS` sets.
fn links_that_flap_at_random_while_policies_change_lose_none_unnamed(engine: &str, hosts: &Hosts, folder: &Path) {
    const SECONDS: u64 = 3;
    let seconds = std::env::var("WEIR_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    put(folder, "one.weir", ALL);
    put(folder, "two.weir", "upstream { udp dport { 7, 9 } accept; drop }\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "one.weir", engine, 2);
    let generations = [1, running.load(&folder.join("two.weir"))];
    let enough = Arc::new(AtomicBool::new(false));
    let stop = enough.clone();
    let flood = hosts.client.start(move || flood_through(&stop));
    let mut chaos = Chaos { hosts, running: &running, generations, state: 0x9e37_79b9_7f4a_7c15 };
    let (start, mut steps) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        chaos.step(engine);
        steps += 1;
    }
    enough.store(true, Ordering::Relaxed);
    let sent = flood.join().expect("it ends");
    let stats = running.settled();
    check_account(&stats);
    let (lower, upper) = (port(&stats, "lower"), port(&stats, "upper"));
    assert!(lower.rx_packets <= sent && upper.tx_packets > 0, "{engine}: {sent} sent, {stats:#?}");
    assert_eq!(stats.upstream.total.dropped, 0, "{engine}: {stats:#?}");
    eprintln!(
        "flaps: {engine}: {steps} steps, {sent} sent, {} received, {} passed on",
        lower.rx_packets, upper.tx_packets
    );

    // All links are up: every packet arrives.
    thread::sleep(BOUND);
    let (before, received) = (running.settled(), Listener::at(&hosts.server, "s"));
    let last = flows(100, 2, 9);
    send(&hosts.client, "c", &last);
    let all = before.upstream.total.packets + last.len() as u64;
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
    let stats = running.settled();
    check_account(&stats);
    let (before, after) = (port(&before, "upper").tx_dropped.unsent(), port(&stats, "upper").tx_dropped.unsent());
    assert_eq!(after, before, "{engine}: {stats:#?}");
    // DPDK's driver for raw sockets keeps packets that it cannot send and sends them with the next ones. Two workers do
    // not preserve the order.
    let (mut received, mut last) = (received.received(last.len()), last);
    received.retain(|frame| last.contains(frame));
    received.sort();
    last.sort();
    assert!(received == last, "{engine}: {} of {} arrived", received.len(), last.len());
    assert_eq!(running.stop(), 0);
}
