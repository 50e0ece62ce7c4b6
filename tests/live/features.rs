//! `observe`: what passes is counted by protected address, exactly once, while sheets are exchanged and policies
//! change.

use crate::device_under_test::{HOST, Running, wait_until};
use crate::hosts::Hosts;
use crate::put;
use crate::traffic::{frames, send};
use std::path::Path;
use weir_control::{DirectionFeatures, FeaturesShown, Request, Stats};

const POLICY: &str = "
observe { size 64; inside 10.9.0.0/24 }
upstream { udp dport 8 drop; accept }
downstream { accept }
";
/// Bytes of the test frames.
const BYTES: u64 = 60;
/// Number of protected addresses.
const ADDRESSES: usize = 16;
/// Snapshots that are taken while packets pass, and the least number of rounds of packets.
const TURNS: u64 = 3;
const ROUNDS_MIN: u64 = 20;

/// The last snapshot, if there is one.
fn shown(running: &Running) -> Option<FeaturesShown> {
    let value = running.ask(&Request::Features { top: 100 }).ok()?;
    Some(weir_control::read(value).expect("features"))
}

/// Packets and bytes of all snapshots, upstream and downstream.
fn observed(running: &Running) -> [(u64, u64); 2] {
    let of = |direction: &DirectionFeatures| (direction.all_packets, direction.all_bytes);
    shown(running).map_or([(0, 0); 2], |shown| [of(&shown.upstream), of(&shown.downstream)])
}

/// Waits until another snapshot was begun and ended.
fn next_turn(running: &Running) -> FeaturesShown {
    let turns = || shown(running).map_or(0, |shown| shown.turns);
    let before = turns();
    wait_until("another snapshot", || turns() >= before + 2);
    shown(running).expect("there are snapshots")
}

fn frame(saddr: &str, daddr: &str, dport: u16) -> Vec<u8> {
    let text = format!("eth / ip saddr={saddr} daddr={daddr} / udp sport=4000 dport={dport} / payload 18\n");
    frames(&text).remove(0)
}

each_engine_form_and_p4!(every_packet_that_passes_is_observed_once);
fn every_packet_that_passes_is_observed_once(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    // The declaration is the same, so the counts stay.
    put(folder, "q.weir", &POLICY.replace("accept }\nd", "udp dport 7 counter; accept }\nd"));
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 2);
    let mut round: Vec<Vec<u8>> =
        (0..ADDRESSES).map(|host| frame("10.20.0.1", &format!("10.9.0.{}", 10 + host), 9)).collect();
    round.push(frame("10.20.0.1", "10.9.1.1", 9));
    round.push(frame("10.20.0.1", "10.9.0.10", 8));
    // What a packet socket sends never reaches the programs for what a host sends.
    let answers = if engine == HOST { 0 } else { 3 };
    let answer = vec![frame("10.9.0.10", "10.20.0.1", 9); answers];
    let before = running.stats();
    // Packets pass while sheets are exchanged every second, and while the policy changes.
    let (mut rounds, mut changed) = (0, false);
    while rounds < ROUNDS_MIN || shown(&running).is_none_or(|shown| shown.turns < TURNS) {
        send(&hosts.client, "c", &round);
        send(&hosts.server, "s", &answer);
        rounds += 1;
        if !changed && rounds > ROUNDS_MIN / 2 {
            let generation = running.load(&folder.join("q.weir"));
            running.ask(&Request::Activate { generation, confirm_s: None }).expect("it can be activated");
            changed = true;
        }
    }
    let passed = rounds * (round.len() as u64 - 1);
    let [up, down] = [rounds * round.len() as u64, rounds * answer.len() as u64];
    let all = |stats: &Stats| {
        stats.upstream.total.packets >= before.upstream.total.packets + up
            && stats.downstream.total.packets >= before.downstream.total.packets + down
    };
    running.wait_for("all are counted", all);
    wait_until("all are observed", || {
        let [(up, _), (back, _)] = observed(&running);
        up >= passed && back >= down
    });
    let last = next_turn(&running);
    assert_eq!(observed(&running), [(passed, passed * BYTES), (down, down * BYTES)], "{engine}: {last:?}");
    assert_eq!(last.upstream.total.packets, 0, "{engine}: {last:?}");
}

each_kind!(features_are_shown_or_refused);
fn features_are_shown_or_refused(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    put(folder, "none.weir", "upstream { accept }\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "none.weir", engine, 1);
    let refused = running.ask(&Request::Features { top: 1 }).expect_err("nothing is observed").to_string();
    assert!(refused.contains("the active policy does not observe"), "{engine}: {refused}");
    let generation = running.load(&folder.join("p.weir"));
    running.ask(&Request::Activate { generation, confirm_s: None }).expect("it can be activated");
    send(&hosts.client, "c", &vec![frame("10.20.0.1", "10.9.0.77", 9); 3]);
    send(&hosts.client, "c", &[frame("10.20.0.1", "10.9.1.1", 9)]);
    let mut seen = Vec::new();
    wait_until("all were observed", || {
        // A later snapshot may have the rest. All sums of a snapshot are from one moment.
        let Some(shown) = shown(&running) else { return false };
        let all_packets = shown.upstream.all_packets;
        seen.extend(Some(shown).filter(|shown| shown.upstream.total.packets > 0));
        all_packets >= 4
    });
    assert_eq!(observed(&running)[0], (4, 4 * BYTES), "{engine}: {seen:?}");
    let addresses = seen.iter().flat_map(|shown| &shown.addresses);
    assert!(addresses.clone().all(|one| one.address == "10.9.0.77" && one.downstream.packets == 0), "{seen:?}");
    assert!(addresses.clone().any(|one| one.upstream.classes.contains_key("udp")), "{engine}: {seen:?}");
}
