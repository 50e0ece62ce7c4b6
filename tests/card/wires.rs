//! Weir between interfaces behind a card: what the card appends is gone on the other side, and nothing else is changed.
//! Needs root. The only packets are the packets of this test, in a network namespace of its own.

use crate::hybrid::{Hybrid, TOKEN};
use crate::workers::{PACKETS, arriving, expected, hybrid, seal};
use nix::sched::{CloneFlags, unshare};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use weir_abi::{Counter, Link, Reason};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::AfPacketLane;
use weir_engine::live::afpacket::wire::Wire;
use weir_engine::live::xdp::{KernelPath, Ports};
use weir_engine::live::{Datapath, Interfaces, Lane, Loaded, Workers};
use weir_engine::{Answered, CardPort, Configured, WithoutSeal};
use weir_loading::Policy;
use weir_test_support::notation;

const PATIENCE: Duration = Duration::from_secs(20);

fn run(program: &str, line: &str) {
    let ran = Command::new(program).args(line.split_whitespace()).status().expect("see scripts/install-deps.sh");
    assert!(ran.success(), "{program} {line}");
}

/// Two pairs of interfaces, `lower` and `upper` with their peers, that send nothing of their own.
fn wires() {
    unshare(CloneFlags::CLONE_NEWNET).expect("this test makes a network namespace and needs root");
    // The files belong to the namespace of the thread that opens them.
    std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").expect("this test needs root");
    for name in ["lower", "upper"] {
        run("ip", &format!("link add {name} type veth peer name {name}-peer"));
        for end in [name.to_owned(), format!("{name}-peer")] {
            run("ip", &format!("link set {end} addrgenmode none"));
            run("ip", &format!("link set {end} up"));
        }
    }
    // A program cannot send to a veth whose peer is not ready for it.
    run("ethtool", "-K upper-peer gro on");
}

fn loaded<C>(code: Arc<C>, hybrid: &Hybrid) -> Loaded<C> {
    let configured = Configured { epoch: hybrid.epoch, body: hybrid.split.card.body.bytes() as u8 };
    let answered = Some(Answered { chain: hybrid.split.answered, configured });
    Loaded { answered, ..Loaded::plain(code, [0, 1]) }
}

fn card(without_seal: WithoutSeal, control: SyncSender<Vec<u8>>) -> CardPort {
    CardPort { token: TOKEN, known: vec![Configured { epoch: 6, body: 0 }], without_seal, control: Some(control) }
}

/// All frames that arrive at an interface until there are `count`.
fn received(wire: &mut Wire, count: usize) -> Vec<Vec<u8>> {
    let (mut frames, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while frames.len() < count && Instant::now() < deadline {
        let see = |burst: &weir_engine::FrameBurst<'_>| {
            frames.extend((0..burst.len()).map(|index| burst.bytes(index).to_vec()));
        };
        wire.receive(Duration::from_millis(50), see).expect("the interface is there");
    }
    frames
}

/// Sends what a card would, and compares what leaves and what is counted.
fn check<D: Datapath>(path: &D, hybrid: &Hybrid) {
    let packets = notation::packets(PACKETS).expect("they read");
    let frames = arriving(hybrid, &packets);
    let (counters, accepted) = expected(hybrid, &packets);
    let mut sender = Wire::open_to_send("lower-peer").expect("it is there");
    let mut receiver = Wire::open("upper-peer").expect("it is there");
    let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)));
    sender.send(&set.burst(0)).expect("the interface is there");
    let left = received(&mut receiver, accepted.len());
    assert_eq!(left.len(), accepted.len(), "packets that leave");
    for (index, (left, accepted)) in left.iter().zip(&accepted).enumerate() {
        assert_eq!(left, accepted, "packet {index}");
    }
    let counted = || {
        let counts = path.counts();
        let sum = |reason: usize| {
            counts.iter().fold(Counter::default(), |sum, [lower, _]| Counter {
                packets: sum.packets + lower[reason].packets,
                bytes: sum.bytes + lower[reason].bytes,
            })
        };
        (0..counters.len()).map(sum).collect::<Vec<_>>()
    };
    let deadline = Instant::now() + PATIENCE;
    while counted() != counters && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(counted(), counters);
    let refused = [Reason::UNSEALED, Reason::CARD_CONTROL].map(|reason| counters[usize::from(reason.0)].packets);
    assert_eq!(refused, [1, 1]);
}

#[test]
fn workers_behind_a_card_forward_packets_without_trailers() {
    wires();
    let (hybrid, split) = hybrid();
    let interfaces = Interfaces { lower: vec!["lower".into()], upper: vec!["upper".into()], divert: None };
    let lanes = AfPacketLane::open(&interfaces, 1).expect("this test needs root");
    let lanes = lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect();
    let data = split.bind(None).expect("tables can be built");
    let code = split.compile_native(weir_engine::cpu::Cpu::Native).and_then(|compiled| compiled.load(data));
    let workers = Workers::start(lanes, &loaded(code.expect("it loads"), &hybrid)).expect("it starts");
    let (control, controlled) = sync_channel(8);
    workers.set_card("lower", Some(card(WithoutSeal::Drop, control))).expect("it is a port");
    check(&workers, &hybrid);
    assert_eq!(controlled.try_iter().collect::<Vec<_>>(), [[&[0x88; 60][..], &seal(7, true)].concat()]);
    workers.stop().expect("it stops");
}

fn kernel(split: &Policy, hybrid: &Hybrid) -> KernelPath {
    let interfaces = Interfaces { lower: vec!["lower".into()], upper: vec!["upper".into()], divert: None };
    let ports = Arc::new(Ports::of(&interfaces).expect("they are there"));
    let data = split.bind(None).expect("tables can be built");
    let code = split.kernel(&data, &ports).unwrap_or_else(|failure| panic!("{failure}"));
    KernelPath::start(ports, &loaded(code, hybrid), None).expect("nobody else is there")
}

#[test]
fn programs_behind_a_card_forward_packets_without_trailers() {
    wires();
    let (hybrid, split) = hybrid();
    let path = kernel(&split, &hybrid);
    let (control, _) = sync_channel(8);
    path.set_card("lower", Some(card(WithoutSeal::Alone, control.clone()))).expect("it is a port");
    path.set_card("lower", Some(card(WithoutSeal::Drop, control))).expect("it is a port");
    let mut own = Wire::open("lower").expect("it is there");
    check(&path, &hybrid);
    let passed = received(&mut own, 1);
    assert_eq!(passed.len(), 1, "only what the card answered goes up");
    assert_eq!((passed[0].len(), &passed[0][..60]), (68, &[0x88; 60][..]));
    // Without a card, a trailer is payload.
    path.set_card("lower", None).expect("it is a port");
    let whole = notation::packets(PACKETS).expect("they read")[4].bytes.clone();
    let trailed = [&whole[..], &TOKEN.to_le_bytes()].concat();
    let set = FrameSet::new(Link::Ethernet, [(&trailed[..], trailed.len() as u32)]);
    let mut receiver = Wire::open("upper-peer").expect("it is there");
    Wire::open_to_send("lower-peer").and_then(|mut wire| wire.send(&set.burst(0))).expect("it is there");
    assert_eq!(received(&mut receiver, 1), [trailed]);
    assert!(path.set_card("upper", None).is_err(), "a card is on the lower side");
    path.stop().expect("it stops");
}
