//! Policies change while packets pass: none is judged by a mixture, and none is lost.

use super::{Served, behind_card, reasons, status};
use crate::device_under_test::{Running, Setup};
use crate::hosts::{Host, Hosts};
use crate::put;
use crate::traffic::{Listener, frames};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::Request;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

/// Each policy accepts one of two kinds of packets and no other. The card of `a` drops packets to port 30 and answers
/// the others with a number that means the opposite to `b`.
const POLICIES: [(&str, &str); 2] = [
    (
        "a.weir",
        "upstream { udp dport 30 drop; udp dport 10 accept; udp dport 20 counter drop; drop }\ndownstream { accept }\n",
    ),
    (
        "b.weir",
        "upstream { udp dport 40 drop; udp dport 20 accept; udp dport 10 counter drop; drop }\ndownstream { accept }\n",
    ),
];
const PORTS: [u16; 4] = [10, 20, 30, 40];
/// Pause between bursts of the flood, in which the machine has other things to do.
const PAUSE: Duration = Duration::from_micros(500);

fn changes() -> usize {
    let wanted = std::env::var("WEIR_EPOCHS").ok();
    wanted.map_or(20, |text| text.parse().expect("WEIR_EPOCHS is a number"))
}

/// Packets of each kind that may be on their way. Queues have room for them on a machine that does something else.
const ON_THEIR_WAY: u64 = 64;
/// After this time without an arrival, what is on its way counts as lost, and the flood goes on: the counts will say
/// so.
pub const LOST: Duration = Duration::from_secs(2);

/// Sends the four packets over and over until told to stop, but never more than fit into the queues. Of the four, one
/// arrives. Returns how often.
fn flood(host: &Host, arrived: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> JoinHandle<u64> {
    let text: String = PORTS
        .map(|port| format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1 dport={port} / payload 18\n"))
        .concat();
    let once = frames(&text);
    host.start(move || {
        let mut wire = Wire::open_to_send("c").expect("the host has the wire");
        let all = once.iter().cycle().take(4 * once.len());
        let burst = FrameSet::new(Link::Ethernet, all.map(|frame| (frame.as_slice(), frame.len() as u32)));
        let (mut sent, mut lost) = (0, 0);
        let mut last = (0, Instant::now());
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            let arrived = arrived.load(Ordering::Relaxed);
            if arrived != last.0 {
                last = (arrived, Instant::now());
            }
            if sent + 4 > arrived + lost + ON_THEIR_WAY {
                if last.1.elapsed() > LOST {
                    lost = sent - arrived;
                }
                continue;
            }
            let before = wire.counters().tx_packets;
            wire.send(&burst.burst(0)).expect("the wire takes frames");
            assert_eq!(wire.counters().tx_packets - before, 4 * PORTS.len() as u64, "a full interface");
            sent += 4;
        }
        sent
    })
}

/// Keeps the number of packets that the host's interface received, until told to stop.
pub fn follow(host: &Host, interface: &'static str, stop: Arc<AtomicBool>) -> (Arc<AtomicU64>, JoinHandle<()>) {
    let arrived = Arc::new(AtomicU64::new(0));
    let seen = arrived.clone();
    let following = host.start(move || {
        while !stop.load(Ordering::Relaxed) {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").expect("there are interfaces");
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
            let packets = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|number| number.parse().ok());
            seen.store(packets.expect("bytes and packets"), Ordering::Relaxed);
            std::thread::sleep(PAUSE);
        }
    });
    (arrived, following)
}

/// Every packet is accepted by one policy and dropped by the other, whichever decides it. So of each kind, those that
/// are accepted and those that are dropped add up to what was sent; a packet that card and software judge by different
/// policies would be in neither, or leave although no policy accepts it.
fn no_packet_is_judged_by_a_mixture(hosts: &Hosts, card: &Host, folder: &Path, setup: &Setup) {
    POLICIES.iter().for_each(|(name, text)| put(folder, name, text));
    let served = Served::start(card, folder);
    let running = Running::start_as(&hosts.weir, folder, "a.weir", setup);
    let generations = [1, running.load(&folder.join("b.weir"))];
    let ports = Listener::noting(&hosts.server, "s", |notes: &mut Vec<u16>, burst| {
        notes.extend((0..burst.len()).map(|at| u16::from_be_bytes([burst.bytes(at)[36], burst.bytes(at)[37]])));
        notes.len()
    });
    let stop = Arc::new(AtomicBool::new(false));
    let (arrived, following) = follow(&hosts.server, "s", stop.clone());
    let flooding = flood(&hosts.client, arrived, stop.clone());
    let changes = changes();
    for change in 1..=changes {
        let request = Request::Activate { generation: generations[change % 2], confirm_s: None };
        running.ask(&request).unwrap_or_else(|failure| panic!("change {change}: {failure}\n{}", running.log()));
    }
    stop.store(true, Ordering::Relaxed);
    let sent = flooding.join().expect("it sends");
    following.join().expect("it reads");
    let all = 4 * sent;
    let stats = running.wait_for("all are counted", |stats| reasons(stats).values().sum::<u64>() >= all);
    let by_reason = reasons(&stats);
    assert_eq!(by_reason.values().sum::<u64>(), all, "none is lost, none is counted twice: {by_reason:?}");
    let at = |policy: &str, rule: usize| {
        let name = format!("{policy}.weir:1");
        let mut of: Vec<u64> =
            stats.upstream.total.rules.iter().filter(|one| one.at.starts_with(&name)).map(|one| one.packets).collect();
        assert_eq!(of.len(), 4, "{:?}", stats.upstream.total.rules);
        of.swap_remove(rule)
    };
    // Rules: what the card drops, what is accepted, what is counted and dropped, the rest.
    let [a, b] = ["a", "b"].map(|policy| [0, 1, 2, 3].map(|rule| at(policy, rule)));
    assert_eq!([a[1] + b[2], a[2] + b[1]], [sent, sent], "kinds 10 and 20: {a:?} {b:?}");
    assert_eq!([a[0] + b[3], b[0] + a[3]], [sent, sent], "kinds 30 and 40: {a:?} {b:?}");
    assert!(by_reason.keys().all(|reason| reason.contains(".weir:1")), "{by_reason:?}");
    assert!([a, b].iter().flatten().all(|packets| *packets > 0), "both decide: {a:?} {b:?}");
    let accepted = (a[1] + b[1]) as usize;
    let arrived = ports.notes(accepted);
    assert_eq!(arrived.len(), accepted);
    let arrivals = PORTS.map(|port| arrived.iter().filter(|arrived| **arrived == port).count() as u64);
    assert_eq!(arrivals, [a[1], b[1], 0, 0], "arrivals by kind: {a:?} {b:?}, sent {sent} of each");
    let after = status(&running);
    assert_eq!((after.changes, after.unsealed, after.problem), (1 + changes as u64, 0, None));
    let by_card = stats.card.expect("there is a card").upstream.total;
    // While a commit is under way, the software decides all packets.
    assert!(by_card.dropped > 0 && by_card.dropped <= a[0] + b[0], "{by_card:?}: {a:?} {b:?}");
    eprintln!("{changes} changes, {all} packets, {} dropped by the card, {accepted} accepted", by_card.dropped);
    assert_eq!(running.stop(), 0);
    let served = served.stop();
    assert_eq!((&served["missed"], &served["unsent"]), (&0.into(), &0.into()), "{served}");
}

each_engine_behind_card!(no_packet_is_judged_by_a_mixture);
