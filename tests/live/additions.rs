//! Rules that add to tables, on interfaces: a source that exceeds its limit is blocked at once, and free again in time.

use crate::check_account;
use crate::device_under_test::Running;
use crate::hosts::{Host, Hosts};
use crate::put;
use crate::traffic::{Listener, frames, put_through, send};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

/// How long a source is blocked.
const BLOCKED: Duration = Duration::from_millis(300);
/// From the packet that exceeds the limit until the source is blocked, and from the end of its timeout until it is
/// free.
const LATE_MAX: Duration = Duration::from_millis(30);
/// Packets of a source that show whether it is blocked: one every millisecond.
const PROBES: usize = 450;
const EVERY: Duration = Duration::from_millis(1);
/// Sources one after the other. The median counts, because other processes use the same cores.
const SOURCES: u32 = 9;

const POLICY: &str = "
table blocked { type ipv4; dynamic; timeout 300ms }
upstream {
  ip saddr @blocked counter drop
  udp dport 9 limit each ip saddr 1/hour burst 1 size 1024 exceed add @blocked accept
  accept
}
downstream { accept }
";

fn frame(source: u32, sport: usize, dport: u16) -> Vec<u8> {
    frames(&format!("eth / ip saddr=10.20.1.{source} daddr=10.9.0.2 / udp sport={sport} dport={dport}\n")).remove(0)
}

/// The UDP source port of an Ethernet frame.
fn sport(frame: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([frame[34], frame[35]]))
}

/// Exceeds the limit of a source, then sends its probes. Returns when each frame was sent, the exceeding one first.
fn exceed(host: &Host, source: u32) -> Vec<Instant> {
    let sent = host.start(move || {
        let mut wire = Wire::open("c").expect("the host has the wire");
        put_through(&mut wire, &[frame(source, 1, 9)]);
        let probes = (0..PROBES).map(|number| frame(source, 1000 + number, 7));
        let all: Vec<Vec<u8>> = std::iter::once(frame(source, 2, 9)).chain(probes).collect();
        let start = Instant::now();
        let mut times = Vec::new();
        for (frame, number) in all.iter().zip(0u32..) {
            thread::sleep((start + EVERY * number).saturating_duration_since(Instant::now()));
            let one = FrameSet::new(Link::Ethernet, [(frame.as_slice(), frame.len() as u32)]);
            let before = wire.counters().tx_packets;
            times.push(Instant::now());
            while wire.counters().tx_packets == before {
                wire.send(&one.burst(0)).expect("the wire takes frames");
            }
        }
        times
    });
    sent.join().expect("all are sent")
}

each_engine_form_and_p4!(a_source_that_exceeds_is_blocked_for_a_while);
fn a_source_that_exceeds_is_blocked_for_a_while(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    // One worker decides the probes in their order.
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    let (mut blocked_after, mut blocked_for, mut free_after, mut passed_before) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    for source in 1..=SOURCES {
        let at_server = Listener::at(&hosts.server, "s");
        let times = exceed(&hosts.client, source);
        let passed = running.settled().upstream.total.passed;
        let arrived: BTreeSet<usize> =
            at_server.received((passed - passed_before) as usize).iter().map(|frame| sport(frame)).collect();
        passed_before = passed;
        assert!(arrived.contains(&1) && !arrived.contains(&2), "{engine}: {arrived:?}");
        let probe = |number: usize| arrived.contains(&(1000 + number));
        let first = (0..PROBES).find(|&number| !probe(number)).unwrap_or_else(|| panic!("{engine}: never blocked"));
        let free = (first..PROBES).find(|&number| probe(number));
        let free = free.unwrap_or_else(|| panic!("{engine}: blocked from probe {first} on, and never free again"));
        assert!((free..PROBES).all(probe), "{engine}: blocked again: {arrived:?}");
        blocked_after.push(times[1 + first] - times[0]);
        // The probe before the first blocked one passed, so the timeout began after it was sent.
        blocked_for.push(times[1 + free] - times[first]);
        free_after.push((times[1 + free] - times[1 + first]).saturating_sub(BLOCKED));
    }
    let median = |mut all: Vec<Duration>| {
        all.sort();
        all[all.len() / 2]
    };
    // A probe may arrive long after its time was taken, so a single source may seem to be free early.
    assert!(median(blocked_for.clone()) >= BLOCKED, "{engine}: free too early: {blocked_for:?}");
    eprintln!("{engine}: blocked after {blocked_after:?}, free late by {free_after:?}");
    assert!(median(blocked_after.clone()) <= LATE_MAX, "{engine}: blocked after {blocked_after:?}");
    assert!(median(free_after.clone()) <= LATE_MAX, "{engine}: free late by {free_after:?}");
    let stats = running.settled();
    check_account(&stats);
    assert_eq!(stats.additions.added, u64::from(SOURCES), "{:?}", stats.additions);
    assert_eq!(stats.additions.additions_overflow + stats.additions.table_full, 0, "{:?}", stats.additions);
    assert_eq!(running.stop(), 0);
}

/// The entries of a table.
fn entries(running: &Running, table: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(running.control()).args(["table", table, "list", "--json"]);
    let output = command.output().expect("the program was built");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

each_engine_and_form!(a_flood_of_new_sources_fills_a_table_and_counts_the_rest);
fn a_flood_of_new_sources_fills_a_table_and_counts_the_rest(engine: &str, hosts: &Hosts, folder: &Path) {
    let policy = "table seen { type ipv4; dynamic; size 100 }\nupstream { udp add @seen { ip saddr }; accept }\n\
                  downstream { add @seen { ip saddr timeout 1h } accept }\n";
    put(folder, "p.weir", policy);
    // Another rule, and the same table.
    put(folder, "q.weir", &policy.replace("udp add", "add"));
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 2);
    let flood: String = (0..250)
        .map(|n| format!("eth / ip saddr=10.20.{}.{} daddr=10.9.0.2 / udp sport=5 dport=9\n", n / 50, n % 50))
        .collect();
    let flood = frames(&flood);
    send(&hosts.client, "c", &flood);
    let all = flood.len() as u64;
    let counted = |stats: &weir_control::Stats| stats.additions.added + stats.additions.table_full >= all;
    let stats = running.wait_for("all additions are counted", counted);
    assert_eq!((stats.additions.added, stats.additions.table_full), (100, 150), "{:?}", stats.additions);
    assert_eq!(stats.upstream.total.passed, all, "additions decide nothing");
    assert_eq!(entries(&running, "seen")["total"], 100);

    // The table continues in another generation, whose rules add to it too.
    let second = running.load(&folder.join("q.weir"));
    running.ask(&weir_control::Request::Activate { generation: second, confirm_s: None }).expect("it is ready");
    send(&hosts.client, "c", &frames("eth / ip saddr=10.30.0.1 daddr=10.9.0.2 / tcp\n"));
    let stats = running.wait_for("the new rule adds", |stats| stats.additions.table_full > 150);
    assert_eq!((stats.additions.added, stats.additions.table_full), (100, 151));
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}
