//! Workers behind a card: seals are compared, trailers are cut off, and nothing else changes.

use crate::engines;
use crate::hybrid::{Hybrid, TOKEN};
use crate::interpreter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};
use weir_abi::card::Seal;
use weir_abi::{Action, Counter, Link, Reason, Rewrite, Verdict};
use weir_card::Profile;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::memory_lane::MemoryLane;
use weir_engine::live::{Datapath, Lane, Loaded, PortCounters, Side, Workers};
use weir_engine::{Answered, CardPort, Configured, EngineError, FrameBurst, NativeCode, WithoutSeal};
use weir_loading::Policy;
use weir_policy::ir::RuleId;
use weir_test_support::{Packet, notation};

/// Before the last rule come three rules in a row. The card names the first of them that matches.
const POLICY: &str = "table bad { type ipv4; elements = { 192.0.2.0/28, 198.51.100.7 } }\n\
     upstream { udp sport 53 drop; tcp dport 22 counter accept; ip saddr @bad counter drop; ip ttl < 5 counter drop; \
     tcp dport { 80, 443 } counter; udp sport 123 drop; \
     udp sport 124 counter accept; tcp dport { 25, 26 } counter drop; accept }\ndownstream { accept }\n";

pub const PACKETS: &str = "
eth / ip saddr=203.0.113.1 ttl=64 / udp sport=53 / payload 40
eth / ip saddr=203.0.113.1 ttl=64 / tcp dport=22 / payload 10
eth / ip saddr=192.0.2.3 ttl=64 / tcp dport=80
eth / ip saddr=203.0.113.1 ttl=3 / tcp dport=80 / payload 100
eth / ip saddr=203.0.113.9 ttl=64 / tcp dport=443 / payload 200
eth / ip saddr=203.0.113.9 ttl=64 mf id=7 / udp sport=9 / payload 64
eth / ip6 hlim=3 / udp sport=5 / payload 30
eth / ip saddr=203.0.113.9 / udp sport=123 / payload 468
eth / ip saddr=203.0.113.9 / udp sport=124 / payload 20
eth / ip saddr=203.0.113.9 / tcp dport=26 / payload 20
eth / arp
";

/// A lane that gives nothing until it is opened.
struct Held {
    lane: MemoryLane<()>,
    nothing: FrameSet,
    is_open: Arc<AtomicBool>,
}

impl Lane for Held {
    fn receive(&mut self, from: Side) -> Result<FrameBurst<'_>, EngineError> {
        match self.is_open.load(Ordering::Acquire) {
            true => self.lane.receive(from),
            false => Ok(self.nothing.burst(0).first(0)),
        }
    }

    fn cut(&mut self, bytes: &[u8]) {
        self.lane.cut(bytes);
    }

    fn dispatch(&mut self, verdicts: &[Verdict], rewrites: &[Rewrite]) -> Result<(), EngineError> {
        self.lane.dispatch(verdicts, rewrites)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), EngineError> {
        self.lane.wait(timeout)
    }

    fn ports(&self) -> Vec<Arc<PortCounters>> {
        self.lane.ports()
    }
}

pub fn policy() -> Policy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("card.weir");
    std::fs::write(&path, POLICY).expect("the policy can be written");
    engines::load(&path).expect("it is right")
}

/// The policy on a card, and its software.
pub fn hybrid() -> (Hybrid, Policy) {
    let alone = policy();
    let profile = Profile::parse(Profile::shipped("open-nic").expect("it is shipped")).expect("it reads");
    let hybrid = Hybrid::new(&alone, &alone.program, &profile, 7, &|_: RuleId| true);
    let split = policy().with_answers(hybrid.split.software.clone());
    (hybrid, split)
}

fn load(split: &Policy) -> Arc<NativeCode> {
    let data = split.bind(None).expect("tables can be built");
    let code = split.compile_native(weir_engine::cpu::Cpu::Native).and_then(|compiled| compiled.load(data));
    code.expect("it loads")
}

pub fn seal(epoch: u16, control: bool) -> [u8; 8] {
    Seal { token: TOKEN, control, answers: false, body: 0, epoch }.word().to_le_bytes()
}

/// What arrives: packets with answers and without, with trailers of another epoch, a control frame, and one frame
/// without a seal.
pub fn arriving(hybrid: &Hybrid, packets: &[Packet]) -> Vec<Vec<u8>> {
    let mut card = hybrid.card();
    let mut frames: Vec<Vec<u8>> =
        packets.iter().filter_map(|packet| card.handle(interpreter::frame(packet))).collect();
    frames.push([&[0x88; 60][..], &seal(7, true)].concat());
    frames.push(packets[2].bytes.clone());
    frames.extend(packets.iter().skip(1).map(|packet| [&packet.bytes[..], &seal(6, false)].concat()));
    frames
}

/// The counters of what arrives, and the packets that leave, in order.
pub fn expected(hybrid: &Hybrid, packets: &[Packet]) -> (Vec<Counter>, Vec<Vec<u8>>) {
    let alone = policy();
    let mut eval = interpreter::new(&alone.program, &alone);
    // Twice what is neither dropped by the card nor refused: with answers, and with another epoch.
    let deciding = packets.iter().skip(1).chain(packets.iter().skip(1));
    let accepts =
        |packet: &&Packet| eval.decide(0, interpreter::frame(packet), &mut ()).action() == Some(Action::Accept);
    let accepted = deciding.filter(accepts).map(|packet| packet.bytes.clone()).collect();
    let mut counters: Vec<Counter> = eval.counters().to_vec();
    // Each packet arrives both ways, but for the first, which the card drops. The second time it has no answers.
    let bytes = |packet: &Packet| packet.bytes.len() as u64;
    let all =
        Counter { packets: 2 * (packets.len() as u64 - 1), bytes: 2 * packets[1..].iter().map(bytes).sum::<u64>() };
    let frames = arriving(hybrid, packets);
    let trailers = frames.iter().filter_map(|frame| {
        let (rest, word) = frame.split_last_chunk().expect("longer than a seal");
        let seal = Seal::of(u64::from_le_bytes(*word));
        (seal.token == TOKEN && seal.answers).then(|| rest.len() - usize::from(seal.body))
    });
    let answered = trailers
        .fold(Counter::default(), |sum, bytes| Counter { packets: sum.packets + 1, bytes: sum.bytes + bytes as u64 });
    assert!(answered.packets > 0 && 2 * answered.packets < all.packets, "a fragment and ARP have no answers");
    counters[usize::from(Reason::COUNTER_ANSWERED.0)] = answered;
    counters[usize::from(Reason::COUNTER_ALONE.0)] =
        Counter { packets: all.packets - answered.packets, bytes: all.bytes - answered.bytes };
    counters[usize::from(Reason::CARD_CONTROL.0)] = Counter { packets: 1, bytes: 60 };
    counters[usize::from(Reason::UNSEALED.0)] = Counter { packets: 1, bytes: packets[2].bytes.len() as u64 };
    (counters, accepted)
}

#[test]
fn workers_cut_trailers_off_and_decide_by_answers() {
    const ROUNDS: u64 = 64;
    let (hybrid, split) = hybrid();
    let code = load(&split);
    let packets = notation::packets(PACKETS).expect("they read");
    let frames = arriving(&hybrid, &packets);
    let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)));
    let upper = Arc::new(FrameSet::new(Link::Ethernet, [(&[0u8; 60][..], 60)]));
    let left = frames.len() as u64 * ROUNDS;
    let is_open = Arc::new(AtomicBool::new(false));
    let lane = MemoryLane::new([Arc::new(set), upper.clone()], [left, 0], ());
    let nothing = FrameSet::new(Link::Ethernet, [(&[0u8; 60][..], 60)]);
    let configured = Configured { epoch: 7, body: hybrid.split.card.body.bytes() as u8 };
    let answered = Some(Answered { chain: hybrid.split.answered, configured });
    let loaded = Loaded { answered, ..Loaded::plain(code, [0, 1]) };
    let workers = Workers::start(vec![Box::new(Held { lane, nothing, is_open: is_open.clone() })], &loaded);
    let workers = workers.expect("nothing is opened");
    let (control, controlled) = sync_channel(8);
    let known = vec![Configured { epoch: 6, body: 0 }];
    let card = CardPort { token: TOKEN, known, without_seal: WithoutSeal::Drop, control: Some(control) };
    assert!(workers.set_card("memory-upper", Some(card.clone())).is_err(), "a card is on the lower side");
    workers.set_card("memory-lower", Some(card)).expect("it is a port");
    is_open.store(true, Ordering::Release);
    let port = |role: Side| {
        let ports = workers.ports();
        ports.iter().find(|port| port.role == role.into()).expect("both sides have one").reading
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while port(Side::Lower).rx_packets < left {
        assert!(Instant::now() < deadline, "{:?}", port(Side::Lower));
        std::thread::sleep(Duration::from_millis(1));
    }
    workers.stop().expect("it stops");

    let (mut expected, accepted) = expected(&hybrid, &packets);
    let sent = accepted.len() as u64 * ROUNDS;
    let sent_bytes = accepted.iter().map(|bytes| bytes.len() as u64).sum::<u64>() * ROUNDS;
    for counter in &mut expected {
        *counter = Counter { packets: counter.packets * ROUNDS, bytes: counter.bytes * ROUNDS };
    }
    assert_eq!(workers.counts()[0][0], expected);
    let upper = port(Side::Upper);
    assert_eq!((upper.tx_packets, upper.tx_bytes), (sent, sent_bytes), "accepted packets leave without trailers");
    assert_eq!(controlled.try_iter().next(), Some([&[0x88; 60][..], &seal(7, true)].concat()));
}
