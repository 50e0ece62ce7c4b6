//! Several interfaces per side: by which one a packet leaves.

use crate::device_under_test::{Running, Setup};
use crate::hosts::{Hosts, Wires, names};
use crate::traffic::{Listener, StopOnDrop, flows, send, send_on_queue};
use crate::{check_account, put};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_abi::verdict::Sampled;
use weir_abi::{Action, BURST_MAX, Link, Reason, Verdict};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::AfPacketLane;
use weir_engine::live::afpacket::wire::Wire;
use weir_engine::live::{Interfaces, Lane, Side, facing_interface};

const POLICY: &str = "upstream { udp dport 7 drop; accept }\ndownstream { accept }\n";

fn start(engine: &str, hosts: &Hosts, folder: &Path, (lower, upper): (usize, usize), workers: usize) -> Running {
    put(folder, "bundle.weir", POLICY);
    let (lower, upper) = (names("lower", lower), names("upper", upper));
    Running::start_as(&hosts.weir, folder, "bundle.weir", &Setup { workers, lower, upper, ..Setup::new(engine) })
}

each_engine!(two_interfaces_face_two, Wires { lower: 2, upper: 2, queues: 1, ..Wires::default() });
fn two_interfaces_face_two(engine: &str, hosts: &Hosts, folder: &Path) {
    packets_leave_by_the_facing_interface((2, 2), engine, hosts, folder);
}

each_engine!(two_interfaces_face_one, Wires { lower: 2, upper: 1, queues: 1, ..Wires::default() });
fn two_interfaces_face_one(engine: &str, hosts: &Hosts, folder: &Path) {
    packets_leave_by_the_facing_interface((2, 1), engine, hosts, folder);
}

each_engine!(one_interface_faces_two, Wires { lower: 1, upper: 2, queues: 1, ..Wires::default() });
fn one_interface_faces_two(engine: &str, hosts: &Hosts, folder: &Path) {
    packets_leave_by_the_facing_interface((1, 2), engine, hosts, folder);
}

each_engine!(packets_of_the_start_are_of_their_own_side);
/// A socket that is not bound yet receives the packets of all interfaces.
fn packets_of_the_start_are_of_their_own_side(engine: &str, hosts: &Hosts, folder: &Path) {
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&enough);
        scope.spawn(|| {
            while !enough.load(Ordering::Relaxed) {
                send(&hosts.client, "c", &flows(64, 4, 9));
            }
        });
        let running = start(engine, hosts, folder, (1, 1), 2);
        let stats = running.wait_for("packets arrive", |stats| stats.upstream.total.packets > 0);
        assert_eq!(stats.downstream.total.packets, 0, "{engine}: {stats:#?}");
        assert_eq!(running.stop(), 0);
    });
}

/// With one queue per interface, the interface by which a packet leaves depends only on the one by which it came.
fn packets_leave_by_the_facing_interface((lower, upper): (usize, usize), engine: &str, hosts: &Hosts, folder: &Path) {
    let running = start(engine, hosts, folder, (lower, upper), 1);
    let (client, server) = (names("c", lower), names("s", upper));
    let sides = [(&hosts.client, &client, &hosts.server, &server), (&hosts.server, &server, &hosts.client, &client)];
    for (from, ins, to, outs) in sides {
        let listeners: Vec<Listener> = outs.iter().map(|name| Listener::at(to, name)).collect();
        let sent: Vec<_> = (0..ins.len()).map(|number| flows(40, 3, 1000 + number as u16)).collect();
        ins.iter().zip(&sent).for_each(|(name, frames)| send(from, name, frames));
        running.settled();
        for (number, listener) in listeners.into_iter().enumerate() {
            let own = (0..ins.len()).filter(|&i| facing_interface(i, ins.len(), 0, outs.len()) == number);
            let expected: Vec<Vec<u8>> = own.flat_map(|i| sent[i].clone()).collect();
            let received = listener.received(expected.len());
            assert_eq!(sorted(received), sorted(expected), "{engine}, {lower} x {upper}, out of {number}");
        }
    }
    let stats = running.settled();
    check_account(&stats);
    assert_eq!(stats.interfaces.len(), lower + upper, "{stats:#?}");
    assert_eq!(running.stop(), 0);
}

fn sorted(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.sort();
    frames
}

each_engine!(flows_spread_over_more_interfaces_and_each_keeps_its_own, Wires { upper: 2, ..Wires::default() });
fn flows_spread_over_more_interfaces_and_each_keeps_its_own(engine: &str, hosts: &Hosts, folder: &Path) {
    let running = start(engine, hosts, folder, (1, 2), 2);
    let listeners: Vec<Listener> = names("s", 2).iter().map(|name| Listener::at(&hosts.server, name)).collect();
    for queue in 0..2 {
        send_on_queue(&hosts.client, "c", queue, &flows(32, 10, 9 + queue as u16));
    }
    running.wait_for("all are counted", |stats| stats.upstream.total.packets >= 640);
    let stats = running.settled();
    check_account(&stats);
    let mut paths: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    for (number, (listener, name)) in listeners.into_iter().zip(names("upper", 2)).enumerate() {
        let own = stats.interfaces.iter().find(|port| port.interface.ends_with(&name)).expect("there is one");
        let received = listener.received(own.tx_packets as usize);
        received.into_iter().for_each(|frame| paths.entry(frame).or_default().push(number));
    }
    assert_eq!(paths.len(), 64, "{engine}");
    assert!(paths.values().all(|path| path.len() == 10 && path.windows(2).all(|pair| pair[0] == pair[1])), "{engine}");
    let used: BTreeSet<usize> = paths.values().map(|path| path[0]).collect();
    assert_eq!(used.len(), 2, "{engine}: both are used");
    assert_eq!(running.stop(), 0);
}

/// Receives the packets that wait at a lane, and returns what `read` finds in them.
fn seen<T>(lane: &mut AfPacketLane, from: Side, read: impl Fn(&[u8]) -> T) -> Vec<T> {
    let mut seen = Vec::new();
    for _ in 0..50 {
        loop {
            let burst = lane.receive(from).expect("the interfaces are there");
            let count = burst.len();
            for index in 0..count {
                seen.push(read(burst.bytes(index)));
            }
            if count == 0 {
                break;
            }
            let drop = Verdict::new(Action::Drop, Reason::NO_MATCH, Sampled::No);
            lane.dispatch(&vec![drop; count], &[]).expect("the interfaces are there");
        }
        lane.wait(Duration::from_millis(2)).expect("the interfaces are there");
    }
    seen
}

/// The client's ports of the packets that wait at a lane.
fn ports_seen(lane: &mut AfPacketLane, from: Side) -> BTreeSet<u16> {
    let at = if from == Side::Lower { 34 } else { 36 };
    seen(lane, from, |bytes| u16::from_be_bytes([bytes[at], bytes[at + 1]])).into_iter().collect()
}

/// A socket that is not yet of the group would receive the packets of the others, too.
#[test]
fn raw_sockets_receive_packets_of_the_start_once() {
    const ROUNDS: u64 = 8;
    let hosts = Hosts::new();
    let [frame] = <[Vec<u8>; 1]>::try_from(flows(1, 1, 9)).expect("one was asked for");
    let number_at = frame.len() - 8;
    let mut received = 0;
    for round in 0..ROUNDS {
        let (enough, frame) = (Arc::new(AtomicBool::new(false)), frame.clone());
        let ended = enough.clone();
        let flood = hosts.client.start(move || {
            let mut wire = Wire::open("c").expect("the host has the wire");
            let mut numbers = (round << 32..).map(u64::to_be_bytes);
            while !ended.load(Ordering::Relaxed) {
                let numbered = |number: [u8; 8]| [&frame[..number_at], &number].concat();
                let frames: Vec<Vec<u8>> = numbers.by_ref().take(BURST_MAX).map(numbered).collect();
                let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)));
                wire.send(&set.burst(0)).expect("the wire takes frames");
            }
        });
        let mut lanes = hosts.weir.run(|| {
            let interfaces = Interfaces { lower: names("lower", 1), upper: names("upper", 1), divert: None };
            AfPacketLane::open(&interfaces, 4).expect("the interfaces are there")
        });
        enough.store(true, Ordering::Relaxed);
        flood.join().expect("all are sent");
        let number = |bytes: &[u8]| bytes[number_at..].to_vec();
        let numbers: Vec<Vec<u8>> = lanes.iter_mut().flat_map(|lane| seen(lane, Side::Lower, number)).collect();
        received += numbers.len();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len(), "none arrived twice");
    }
    assert!(received > 0, "packets were sent meanwhile");
}

#[test]
fn raw_sockets_give_both_directions_of_a_flow_to_one_worker() {
    let hosts = Hosts::new();
    let mut lanes = hosts.weir.run(|| {
        let interfaces = Interfaces { lower: names("lower", 1), upper: names("upper", 1), divert: None };
        AfPacketLane::open(&interfaces, 2).expect("the interfaces are there")
    });
    let flow = |n: u16, back: bool| {
        let (a, b) = (format!("10.9.0.1 {n}"), "10.9.0.2 80".to_owned());
        let (from, to) = if back { (b, a) } else { (a, b) };
        let ((saddr, sport), (daddr, dport)) = (from.split_once(' ').expect("two"), to.split_once(' ').expect("two"));
        format!("eth / ip saddr={saddr} daddr={daddr} / udp sport={sport} dport={dport}\n")
    };
    let all = |back: bool| crate::traffic::frames(&(2000..2100).map(|n| flow(n, back)).collect::<String>());
    send(&hosts.client, "c", &all(false));
    send(&hosts.server, "s", &all(true));
    let seen: Vec<[BTreeSet<u16>; 2]> =
        lanes.iter_mut().map(|lane| Side::BOTH.map(|side| ports_seen(lane, side))).collect();
    for [up, down] in &seen {
        assert_eq!(up, down, "both directions are the same worker's");
        assert!(!up.is_empty(), "each has some");
    }
    assert_eq!(seen.iter().map(|[up, _]| up.len()).sum::<usize>(), 100);
}
