//! Random policies, cards and packets: the card's interpreter and then the software give the same verdicts, reasons,
//! counters and state as the policy alone, also if an attacker tampers with metadata.

use crate::engines::{self, Decided, SLOT_RULES, difference};
use crate::hybrid::{Handled, Hybrid, Software, TOKEN};
use crate::{flows, interpreter, packets, profiles};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use std::cell::Cell;
use std::collections::BTreeMap;
use weir_abi::card::Seal;
use weir_abi::{Action, Verdict};
use weir_card::Profile;
use weir_loading::Policy;
use weir_policy::ir::{self, Program, RuleId};
use weir_policy::pass::{Placement, optimise};
use weir_test_support::policy::{Policy as Text, Size, policies};
use weir_test_support::{Link, Packet};

/// Number of random policies.
const POLICIES: u32 = 200;
/// Number of packets of each.
const PACKETS: usize = 60;
/// The epoch of the software's policy.
pub const EPOCH: u16 = 7;

fn wanted_policies() -> u32 {
    let wanted = std::env::var("WEIR_CARD_POLICIES").ok();
    wanted.map_or(POLICIES, |text| text.parse().expect("WEIR_CARD_POLICIES is a number"))
}

/// Rules that a card may drop for, to put at the head of `upstream`.
fn heads() -> impl Strategy<Value = Vec<&'static str>> {
    let rules = [
        "udp sport 53 drop",
        "tcp dport { 22, 80 } drop",
        "ip ttl < 2 drop",
        "meta l4proto != { tcp, udp, icmp } drop",
        "tcp flags & (syn|ack) == syn drop",
        "ip saddr 192.0.2.0/28 udp drop",
        "meta length > 200 udp drop",
        "ip saddr @hosts drop",
    ];
    vec(select(rules.to_vec()), 0..4)
}

/// What an attacker does with a packet or its metadata.
#[derive(Clone, Debug)]
pub enum Tamper {
    /// Nothing.
    None,
    /// The sender puts a whole trailer behind the packet, even with the card's secret.
    Sender { body: Vec<u8>, seal: Seal },
    /// This many bytes of what the card has sent are lost.
    Cut(usize),
    /// One bit of the seal is another.
    Flip(usize),
    /// The frame comes around the card, with a trailer of an attacker who does not know the secret.
    Around { body: Vec<u8>, seal: Seal },
}

impl Tamper {
    /// What happens to a frame behind the card.
    pub fn on_the_link(&self, mut frame: Vec<u8>, is_stale: bool) -> Vec<u8> {
        match *self {
            Tamper::Cut(bytes) => frame.truncate(frame.len().saturating_sub(bytes)),
            Tamper::Flip(bit) => {
                // On the link, a change of the epoch could make a stale answer a valid one, and a seal without an
                // answer could become one with an answer. The FCS is for that.
                let (at, bit) = (frame.len() - 8, if is_stale { bit.max(16) } else { bit });
                let word = u64::from_le_bytes(frame[at..].try_into().expect("8 bytes"));
                let makes_an_answer = !Seal::of(word).answers && Seal::of(word ^ 1 << bit).answers;
                let bit = if makes_an_answer { bit + 1 } else { bit };
                frame[at + bit / 8] ^= 1 << (bit % 8);
            }
            Tamper::None | Tamper::Sender { .. } | Tamper::Around { .. } => {}
        }
        frame
    }
}

fn tampers(is_attacked: bool) -> BoxedStrategy<Tamper> {
    if !is_attacked {
        return Just(Tamper::None).boxed();
    }
    let body = || vec(any::<u8>(), 0..20);
    let seal = |token: BoxedStrategy<u64>| {
        (token, any::<bool>(), any::<bool>(), 0..40u8, select(vec![EPOCH, EPOCH - 1, 0])).prop_map(
            |(token, control, answers, body, epoch)| Seal { token, control: control && answers, answers, body, epoch },
        )
    };
    let any_token = prop_oneof![Just(TOKEN), 0..1u64 << 40].boxed();
    let wrong = (0..1u64 << 40).prop_filter("the secret", |token| *token != TOKEN).boxed();
    prop_oneof![
        3 => Just(Tamper::None),
        2 => (body(), seal(any_token)).prop_map(|(body, seal)| Tamper::Sender { body, seal }),
        1 => (1..64usize).prop_map(Tamper::Cut),
        1 => (0..64usize).prop_map(Tamper::Flip),
        1 => (body(), seal(wrong)).prop_map(|(body, seal)| Tamper::Around { body, seal }),
    ]
    .boxed()
}

#[derive(Clone, Debug)]
pub struct Case {
    pub packets: Vec<(Packet, Tamper)>,
    text: Text,
    head: Vec<&'static str>,
    pub profile: Profile,
    /// Rule n is offloaded if bit n of it is set; rules from 64 on are.
    wanted: u64,
    /// The card has another configuration up to this packet.
    pub stale: usize,
    /// Whether the software's program is optimised. Otherwise it is printed and read again.
    is_optimised: bool,
}

pub fn cases(is_attacked: bool) -> impl Strategy<Value = Case> {
    let size = Size { postures: 0, rules: [0, 24] };
    let packet = prop_oneof![4 => packets::well_formed(), 1 => packets::broken(), 1 => packets::real()];
    let wanted = prop_oneof![2 => Just(u64::MAX), 1 => any::<u64>()];
    let stale = if is_attacked { (0..PACKETS / 2).boxed() } else { Just(0).boxed() };
    let tampers = vec(tampers(is_attacked), PACKETS);
    let packets = (flows::among(packet, PACKETS), tampers).prop_map(|(packets, tampers)| {
        let packets = packets.into_iter().map(|packet| match packet.link {
            // A card is on Ethernet. The other links are left to the real ones among its packets.
            Link::RawIp => on_ethernet(packet),
            _ => packet,
        });
        packets.zip(tampers).collect()
    });
    let card = (profiles::profiles(), wanted, stale, any::<bool>());
    (packets, policies(packets::pool(), size), heads(), card).prop_map(
        |(packets, text, head, (profile, wanted, stale, is_optimised))| Case {
            packets,
            text,
            head,
            profile,
            wanted,
            stale,
            is_optimised,
        },
    )
}

/// The packet with an Ethernet header.
fn on_ethernet(packet: Packet) -> Packet {
    let ether_type = match packet.bytes.first().map(|byte| byte >> 4) {
        Some(6) => [0x86, 0xdd],
        _ => [8, 0],
    };
    let bytes = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ether_type, &packet.bytes].concat();
    Packet { bytes, wire: packet.wire + 14, link: Link::Ethernet, ..packet }
}

impl Case {
    /// The policy on its card, and in another configuration: all rules, on a card that can do everything but drop.
    pub fn hybrids(&self, policy: &Policy, program: &Program) -> [Hybrid; 2] {
        let wanted = |rule: RuleId| rule.0 >= 64 || self.wanted >> rule.0 & 1 != 0;
        let able = Profile::parse(Profile::shipped("open-nic").expect("it is shipped")).expect("it reads");
        let before = Hybrid::new(policy, program, &Profile { counters: 0, ..able }, EPOCH - 1, &|_| true);
        [Hybrid::new(policy, program, &self.profile, EPOCH, &wanted), before]
    }

    pub fn policy(&self) -> Result<Policy, TestCaseError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("card.weir");
        let head: String = self.head.iter().map(|rule| format!("  {rule}\n")).collect();
        let text = self.text.to_string().replacen("upstream {\n", &format!("upstream {{\n{head}"), 1);
        std::fs::write(&path, text).expect("the policy can be written");
        std::fs::write(folder.path().join(SLOT_RULES), self.text.slot_rules()).expect("the rules can be written");
        engines::load(&path).map_err(TestCaseError::fail)
    }
}

/// How often what was seen, over all cases.
#[derive(Default)]
pub struct Seen {
    answered: Cell<usize>,
    alone: Cell<usize>,
    refused: Cell<usize>,
    dropped: Cell<usize>,
    accepted: Cell<usize>,
}

fn one_more(cell: &Cell<usize>) {
    cell.set(cell.get() + 1);
}

/// The policy alone and the hybrid, over the packets that the hybrid receives.
struct Both {
    packets: Vec<Packet>,
    alone: Decided,
    hybrid: Decided,
}

/// Runs a case with a form of the software's program.
fn run(case: &Case, policy: &Policy, program: &Program, form: fn(&Program) -> Program, seen: &Seen) -> Both {
    let [hybrid, before] = case.hybrids(policy, program);
    let software_program = form(&hybrid.split.software);
    let mut software = Software::new(&hybrid, &before, &software_program, policy);
    let mut alone = interpreter::new(program, policy);
    let (mut card, mut stale_card) = (hybrid.card(), before.card());
    let (mut kept, mut verdicts, mut leaves) = (Vec::new(), [vec![], vec![]], [BTreeMap::new(), BTreeMap::new()]);
    for (index, (packet, tamper)) in between_ticks(case.packets.clone()).enumerate() {
        let (packet, tamper) = sent(packet, tamper);
        let stale = index < case.stale;
        let passed = match &tamper {
            Tamper::Around { body, seal } => Some([&packet.bytes, &body[..], &seal.word().to_le_bytes()].concat()),
            _ if stale => stale_card.handle(interpreter::frame(&packet)),
            _ => card.handle(interpreter::frame(&packet)),
        };
        let handled = passed.map(|frame| software.handle(&packet, &tamper.on_the_link(frame, stale)));
        let at = (0, kept.len());
        let verdict = match handled {
            Some(Handled::Refused) => {
                one_more(&seen.refused);
                continue;
            }
            Some(Handled::Answered(verdict)) => {
                one_more(&seen.answered);
                assert!(!stale, "an answer of another epoch was used");
                Some(verdict)
            }
            Some(Handled::Alone(verdict)) => {
                one_more(&seen.alone);
                Some(verdict)
            }
            None => None,
        };
        let expected = alone.decide(0, interpreter::frame(&packet), &mut ());
        leaves[0].extend(alone.leaving().map(|leaving| (at, leaving.bytes.clone())));
        if verdict.is_some() {
            leaves[1].extend(software.evaluator.leaving().map(|leaving| (at, leaving.bytes.clone())));
        }
        verdicts[0].push(expected);
        verdicts[1].push(verdict.unwrap_or_else(|| by_the_card(&hybrid, expected, seen)));
        kept.push(packet);
    }
    let [of_alone, of_hybrid] = verdicts;
    let [leaves, hybrid_leaves] = leaves;
    let mut together = interpreter::decided(&mut software.evaluator, program, vec![of_hybrid], hybrid_leaves);
    hybrid.add_dropped(&mut together.counters, card.dropped());
    let accepts = |verdict: &&Verdict| verdict.action() == Some(Action::Accept);
    seen.accepted.set(seen.accepted.get() + of_alone.iter().filter(accepts).count());
    Both { packets: kept, alone: interpreter::decided(&mut alone, program, vec![of_alone], leaves), hybrid: together }
}

/// The packets between two empty ones that no card drops. The policy alone and the software thus have the same clock
/// from the first packet to the last. Time passes without packets too, but an interpreter learns it from packets only.
pub fn between_ticks(packets: Vec<(Packet, Tamper)>) -> impl Iterator<Item = (Packet, Tamper)> {
    let tick = |time_ns| (Packet { bytes: vec![], wire: 0, link: Link::Ethernet, time_ns }, Tamper::None);
    let begin = packets.first().map_or(0, |(packet, _)| packet.time_ns);
    let end = packets.last().map_or(0, |(packet, _)| packet.time_ns + 1);
    [tick(begin)].into_iter().chain(packets).chain([tick(end)])
}

/// The packet as it is on the wire.
pub fn sent(packet: Packet, tamper: Tamper) -> (Packet, Tamper) {
    match tamper {
        Tamper::Sender { body, seal } => {
            let bytes = [&packet.bytes, &body[..], &seal.word().to_le_bytes()].concat();
            let wire = packet.wire.max(packet.bytes.len() as u32) + body.len() as u32 + 8;
            (Packet { bytes, wire, ..packet }, Tamper::None)
        }
        tamper => (packet, tamper),
    }
}

/// The verdict of a card that has dropped a packet: by one of the rules that it drops for. The counters say by which.
pub fn by_the_card(hybrid: &Hybrid, expected: Verdict, seen: &Seen) -> Verdict {
    one_more(&seen.dropped);
    let rules = hybrid.split.card.dropped.iter().map(|rule| weir_abi::Reason::rule(rule.0));
    let mut verdicts = rules.map(|reason| Verdict::new(Action::Drop, reason, weir_abi::verdict::Sampled::No));
    verdicts.find(|verdict| *verdict == expected).unwrap_or(Verdict(u32::MAX))
}

fn holds(is_attacked: bool, policies: u32) -> Seen {
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/card.regressions");
    let mut runner = TestRunner::new(Config {
        cases: policies,
        max_shrink_time: 60_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..Config::default()
    });
    let seen = Seen::default();
    let outcome = runner.run(&cases(is_attacked), |case| {
        let policy = case.policy()?;
        let program = Program { chains: policy.program.chains[..1].to_vec(), ..policy.program.clone() };
        let form: fn(&Program) -> Program = match case.is_optimised {
            true => |program| optimise(program, Placement::Staged),
            false => |program| ir::parse::parse(&program.to_string()).expect("printed IR reads"),
        };
        let Both { packets, alone, hybrid } = run(&case, &policy, &program, form, &seen);
        match difference(&program, &packets, &alone, &hybrid) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!("{difference}\n{program}"))),
        }
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    seen
}

#[test]
fn card_and_software_decide_as_the_policy_alone() {
    let policies = wanted_policies();
    let seen = holds(false, policies);
    let packets = policies as usize * PACKETS;
    assert_eq!(seen.refused.get(), 0);
    let shares = [(&seen.answered, 3), (&seen.alone, 10), (&seen.dropped, 200), (&seen.accepted, 10)];
    for (at, (count, share)) in shares.into_iter().enumerate() {
        assert!(count.get() * share > packets, "{at}: only {} of {packets} packets", count.get());
    }
}

/// What is not refused is decided as the policy alone decides it.
#[test]
fn no_metadata_turns_a_drop_into_an_accept() {
    let policies = wanted_policies() / 2;
    let seen = holds(true, policies);
    let packets = policies as usize * PACKETS;
    for (at, (count, share)) in [(&seen.answered, 10), (&seen.alone, 10), (&seen.refused, 10)].into_iter().enumerate() {
        assert!(count.get() * share > packets, "{at}: only {} of {packets} packets", count.get());
    }
}
