//! `rules=follow`: the choice of rules follows traffic, and no packet is lost or judged by a mixture meanwhile.

use super::epochs::{LOST, follow};
use super::{Served, behind_card, reasons, status};
use crate::device_under_test::{Running, Setup};
use crate::hosts::{Host, Hosts};
use crate::put;
use crate::traffic::{Listener, frames};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::{CardCost, FollowStatus};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

/// With answers to all rules no header is parsed, but the card's lookups are dearer than the software's. So the card is
/// worth it while most packets end at the first rule, and not while all need lookups.
const POLICY: &str = "
table t1 { type ipv4; elements = { 192.0.2.0/28 } }
table t2 { type ipv4; elements = { 192.0.2.16/28 } }
table t3 { type ipv4; elements = { 192.0.2.32/28 } }
table t4 { type ipv4; elements = { 192.0.2.48/28 } }
table t5 { type ipv4; elements = { 192.0.2.64/28 } }
table t6 { type ipv4; elements = { 192.0.2.80/28 } }
upstream {
  udp dport 80 accept
  ip saddr @t1 counter
  ip saddr @t2 counter
  ip saddr @t3 counter
  ip saddr @t4 counter
  ip saddr @t5 counter
  ip saddr @t6 counter
  udp dport 81 counter accept
  drop
}
downstream { accept }
";

/// Four kinds of packets: to the first rule; a source of t3 to the last but one; one of no table; one that is dropped.
const KINDS: [&str; 4] = [
    "eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1 dport=80 / payload 18",
    "eth / ip saddr=192.0.2.33 daddr=10.9.0.2 / udp sport=1 dport=81 / payload 18",
    "eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1 dport=81 / payload 18",
    "eth / ip saddr=192.0.2.81 daddr=10.9.0.2 / udp sport=1 dport=82 / payload 18",
];
/// How many packets of a burst are of each kind: first nearly all end at the first rule, then all need lookups.
const FIRST: [usize; 4] = [45, 1, 1, 1];
const LOOKUPS: [usize; 4] = [0, 16, 16, 16];
const BURST: u64 = 48;
/// Pause between bursts of the flood, in which the machine has other things to do.
const PAUSE: Duration = Duration::from_millis(2);
/// Accepted packets that may be on their way. Queues have room for them on a machine that does something else.
const ON_THEIR_WAY: u64 = 192;
/// How long a choice may take to follow on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn burst_of(mixture: [usize; 4]) -> FrameSet {
    let text: String = KINDS.iter().zip(mixture).map(|(kind, times)| format!("{kind}\n").repeat(times)).collect();
    let frames = frames(&text);
    FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)))
}

/// Sends a mixture over and over until told to stop, but never more than fit into the queues. Returns how often.
fn flood(
    host: &Host,
    lookups: Arc<AtomicBool>,
    arrived: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> std::thread::JoinHandle<[u64; 2]> {
    host.start(move || {
        let mut wire = Wire::open_to_send("c").expect("the host has the wire");
        let mixtures = [FIRST, LOOKUPS].map(burst_of);
        let accepted = [FIRST, LOOKUPS].map(|of| of[..3].iter().sum::<usize>() as u64);
        let (mut sent, mut lost, mut last) = ([0; 2], 0, (0, Instant::now()));
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            let arrived = arrived.load(Ordering::Relaxed);
            if arrived != last.0 {
                last = (arrived, Instant::now());
            }
            let leaving = sent[0] * accepted[0] + sent[1] * accepted[1];
            if leaving + BURST > arrived + lost + ON_THEIR_WAY {
                if last.1.elapsed() > LOST {
                    lost = leaving - arrived;
                }
                continue;
            }
            let which = usize::from(lookups.load(Ordering::Relaxed));
            let before = wire.counters().tx_packets;
            wire.send(&mixtures[which].burst(0)).expect("the wire takes frames");
            assert_eq!(wire.counters().tx_packets - before, BURST, "a full interface");
            sent[which] += 1;
        }
        sent
    })
}

/// Waits until the choice has changed so often.
fn wait_for_change(running: &Running, changes: u64) -> FollowStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let follow = *status(running).follow.expect("it follows");
        if follow.changes >= changes {
            return follow;
        }
        assert!(Instant::now() < deadline, "{follow:#?}\n{}", running.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn follows(engine: &str) {
    behind_card(engine, |hosts, card, folder, setup| {
        let more = ["--card", "hybrid:profile=open-nic,rules=follow"].map(str::to_owned).to_vec();
        the_choice_follows_traffic(hosts, card, folder, &Setup { more, ..setup.clone() });
    });
}

#[test]
fn workers_follow_traffic() {
    follows("afxdp");
}

#[test]
fn the_kernel_follows_traffic() {
    follows("xdp");
}

fn the_choice_follows_traffic(hosts: &Hosts, card: &Host, folder: &Path, setup: &Setup) {
    put(folder, "p.weir", POLICY);
    let served = Served::start(card, folder);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", setup);
    let before = status(&running);
    assert!(before.rules.iter().all(|rule| rule.offload == "software"), "without traffic nothing is won: {before:#?}");
    let listener = Listener::noting(&hosts.server, "s", |notes: &mut Vec<u16>, burst| {
        notes.extend((0..burst.len()).map(|at| u16::from_be_bytes([burst.bytes(at)[36], burst.bytes(at)[37]])));
        notes.len()
    });
    let (lookups, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (arrived, following) = follow(&hosts.server, "s", stop.clone());
    let flooding = flood(&hosts.client, lookups.clone(), arrived, stop.clone());

    let first = wait_for_change(&running, 1);
    assert_eq!((first.changes, first.failed), (1, 0), "{first:#?}");
    check_change(&first);
    assert!(first.rules.len() >= 8, "all but the last rule, which needs no answer: {first:#?}");
    let now = status(&running);
    assert_eq!((now.alone, now.lookups.len()), (None, 6));

    lookups.store(true, Ordering::Relaxed);
    let second = wait_for_change(&running, 2);
    check_change(&second);
    assert!(second.rules.len() < first.rules.len(), "{second:#?}");
    assert!(status(&running).lookups.is_empty(), "{:#?}", status(&running));

    stop.store(true, Ordering::Relaxed);
    let sent = flooding.join().expect("it sends");
    following.join().expect("it reads");
    let of_kind = |kind: usize| sent[0] * FIRST[kind] as u64 + sent[1] * LOOKUPS[kind] as u64;
    let all = BURST * sent.iter().sum::<u64>();
    let stats = running.wait_for("all are counted", |stats| reasons(stats).values().sum::<u64>() >= all);
    let expected = [("p.weir:9", of_kind(0)), ("p.weir:16", of_kind(1) + of_kind(2)), ("p.weir:17", of_kind(3))];
    let expected = expected.map(|(at, packets)| (at.to_owned(), packets)).into_iter().collect();
    assert_eq!(reasons(&stats), expected, "none is lost, counted twice or judged by a mixture");
    // The counters of rules without a verdict, which depend on answers of the right configuration.
    let counted: Vec<u64> = stats.upstream.total.rules.iter().map(|rule| rule.packets).collect();
    let lookups = [0, 0, of_kind(1), 0, 0, of_kind(3)];
    assert_eq!(counted[1..7], lookups, "{:#?}", stats.upstream.total.rules);
    let accepted = of_kind(0) + of_kind(1) + of_kind(2);
    let ports = listener.notes(accepted as usize);
    let arrivals = [80, 81, 82].map(|port| ports.iter().filter(|arrived| **arrived == port).count() as u64);
    assert_eq!(arrivals, [of_kind(0), of_kind(1) + of_kind(2), 0]);
    let after = status(&running);
    assert_eq!((after.unsealed, after.problem), (0, None));
    assert!(running.log().contains("because it saves cycles"), "{}", running.log());
    eprintln!("{all} packets, {accepted} accepted, changes took {:?}", [&first, &second].map(took));
    assert_eq!(running.stop(), 0);
    let served = served.stop();
    assert_eq!((&served["missed"], &served["unsent"]), (&0.into(), &0.into()), "{served}");
}

fn took(follow: &FollowStatus) -> f64 {
    follow.last.as_ref().map_or(0.0, |last| last.took_s)
}

/// A change saves cycles in the window before it, and says so.
fn check_change(follow: &FollowStatus) {
    let last = follow.last.as_ref().expect("there was a change");
    let CardCost { cycles_per_packet: before, .. } = last.before;
    let CardCost { cycles_per_packet: after, .. } = last.after;
    assert!(after < 0.95 * before && before - after > 1.0, "{last:#?}");
    assert_eq!((last.why.as_str(), &last.rules), ("it saves cycles", &follow.rules), "{follow:#?}");
    assert!(last.ago_s < PATIENCE.as_secs_f64() && last.generation > 1, "{last:#?}");
}
