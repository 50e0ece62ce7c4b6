//! Choices of the distributor for a small policy, with costs that make them clear.

use super::cost::{Costs, Idle, Link, Traffic};
use super::follow::{Follower, Judged, Patience, Step};
use super::{Advised, Distributor};
use crate::Profile;
use std::collections::BTreeSet;
use weir_policy::ir::parse::parse;
use weir_policy::ir::{Find, Program, RuleId};

/// A port to drop, a table, a TTL that no card of the test compares, and a port.
const POLICY: &str = "\
program p
defaults malformed drop, arp accept, not-ip drop, fragment rules, ip-options rules, no-match accept
on-exit block
slot 0 bad ip4 rank-leaf
rule 0 p:1 [drop] udp dport 53 drop
rule 1 p:2 [drop] ip saddr @bad drop
rule 2 p:3 [accept] tcp dport 443 accept
rule 3 p:4 [drop] ip ttl 1 drop
chain upstream
  ask 0 slot 0 ip saddr
  when udp
    when udp dport in 53
      rule 0
  when ip4
    find 0
    when found 0
      rule 1
  when tcp
    when tcp dport in 443
      rule 2
  when ip4
    when ip ttl in 1
      rule 3
chain downstream
";

struct Prices {
    byte: f64,
    lookup: f64,
    finish: f64,
}

impl Costs for Prices {
    fn receive(&self) -> f64 {
        60.0
    }
    fn parse(&self) -> f64 {
        16.0
    }
    fn seal(&self) -> f64 {
        3.0
    }
    fn byte(&self) -> f64 {
        self.byte
    }
    fn test(&self) -> f64 {
        1.0
    }
    fn lookup(&self, _: Find) -> f64 {
        self.lookup
    }
    fn finish(&self, _: &str) -> f64 {
        self.finish
    }
}

const EXPENSIVE_LOOKUP: Prices = Prices { byte: 0.05, lookup: 100.0, finish: 5.0 };

fn program() -> Program {
    parse(POLICY).expect("the program reads")
}

fn card() -> Profile {
    let text = Profile::shipped("open-nic").expect("it is shipped").replace(" ttl ", " ");
    Profile::parse(&text).expect("the profile reads")
}

fn traffic(dropped: f64) -> Traffic {
    let left = 1.0 - dropped;
    let (reached, matched) = (vec![1.0, left, left, left / 2.0], vec![dropped, 0.0, left / 2.0, 0.0]);
    Traffic { pps: 1e6, frame_bytes: 60.0, answered: 1.0, reached, matched }
}

const LINK: Link = Link { bits_per_s: 10e9, load_max: 0.95 };

fn with<T>(costs: &Prices, link: Link, use_of: impl FnOnce(&Distributor<'_>) -> T) -> T {
    let (program, profile) = (program(), card());
    let distributor = Distributor {
        program: &program,
        counters: &[false; 4],
        chain: 0,
        profile: &profile,
        sizes: &|_: &str| Some(1),
        costs,
        link,
        idle: Idle::NoCard,
    };
    use_of(&distributor)
}

fn chosen(advised: &Advised) -> Vec<u16> {
    advised.choice.rules.iter().map(|rule| rule.0).collect()
}

#[test]
fn an_expensive_lookup_is_worth_its_bytes() {
    let advised = with(&EXPENSIVE_LOOKUP, LINK, |distributor| distributor.choose(&traffic(0.0)));
    assert!(chosen(&advised).contains(&1), "{advised:?}");
    assert!(advised.choice.bill.cycles < advised.alone.cycles - 80.0, "{advised:?}");
    let lookup = &advised.rules[1];
    assert!(lookup.is_offloaded && lookup.bytes == 6 && lookup.saves.is_some_and(|saves| saves > 80.0), "{lookup:?}");
    assert_eq!(advised.rules[3].saves, None, "the card cannot take it");
}

/// Our own layouts are faster than the second half of the card's lookup, and a header is read anyway: nothing is won.
#[test]
fn where_software_is_faster_nothing_is_offloaded() {
    let fast = Prices { byte: 0.05, lookup: 4.0, finish: 5.0 };
    let advised = with(&fast, LINK, |distributor| distributor.choose(&traffic(0.0)));
    assert_eq!(chosen(&advised), []);
    assert_eq!(advised.choice.bill, advised.alone);
    assert!(advised.all.cycles > advised.alone.cycles, "{advised:?}");
    assert_eq!((advised.alone.trailer_bytes, advised.all.trailer_bytes), (0, 1 + 6 + 8));
}

#[test]
fn what_a_card_drops_costs_nothing() {
    let fast = Prices { byte: 0.05, lookup: 4.0, finish: 5.0 };
    let advised = with(&fast, LINK, |distributor| distributor.choose(&traffic(0.9)));
    assert!(chosen(&advised).contains(&0), "{advised:?}");
    assert_eq!(advised.choice.bill.dropped, 0.9);
    assert!(advised.choice.bill.cycles < 0.15 * advised.alone.cycles, "{advised:?}");
    assert!(advised.choice.bill.load < 0.2 * advised.alone.load, "{advised:?}");
}

#[test]
fn metadata_have_a_price() {
    // Frames of 60 bytes take 84 on the wire, 94% of the link. 15 bytes of metadata more are 111%.
    let full = Traffic { pps: 14e6, ..traffic(0.0) };
    let advised = with(&EXPENSIVE_LOOKUP, LINK, |distributor| distributor.choose(&full));
    assert_eq!(chosen(&advised), [], "{advised:?}");
    assert!(!advised.all.fits() && advised.alone.fits());
    let dear = Prices { byte: 20.0, ..EXPENSIVE_LOOKUP };
    let advised = with(&dear, LINK, |distributor| distributor.choose(&traffic(0.0)));
    assert_eq!(chosen(&advised), [], "{advised:?}");
}

#[test]
fn a_choice_changes_when_another_stays_better() {
    with(&EXPENSIVE_LOOKUP, LINK, |distributor| {
        let patience = Patience { windows: 3, rest: 100, ..Patience::default() };
        let mut follower = Follower::new(distributor.profile, patience);
        let mut step = |traffic: &Traffic, now_ms: u64| {
            let Judged { now, advised, step } = follower.step(distributor, traffic, now_ms);
            match step {
                Step::Keep { why } => why.to_owned(),
                Step::Change { why } => {
                    let to = advised.choice.bill;
                    assert!(
                        to.cycles < now.cycles && why == "it saves cycles" || !now.fits() && why == "the link is full"
                    );
                    format!("{:?}", chosen(&advised))
                }
            }
        };
        let waits = "another choice is better, but not for long";
        assert_eq!(step(&traffic(0.0), 0), waits);
        assert_eq!(step(&traffic(0.0), 1), waits);
        // No traffic in one window: the patience begins anew.
        let idle = Traffic { reached: vec![0.0; 4], matched: vec![0.0; 4], ..traffic(0.0) };
        assert_eq!(step(&idle, 2), "no other choice is noticeably better");
        assert_eq!(step(&traffic(0.0), 3), waits);
        assert_eq!(step(&traffic(0.0), 4), waits);
        let first = step(&traffic(0.0), 5);
        assert!(first.contains('1'), "{first}");
        assert_eq!(step(&traffic(0.0), 6), "no other choice is noticeably better");
        // The link fills up: metadata do not fit any more, but the card has just been configured (2 ms, rest 200 ms).
        let full = Traffic { pps: 14e6, ..traffic(0.0) };
        assert_eq!(step(&full, 7), waits);
        assert_eq!(step(&full, 8), waits);
        assert_eq!(step(&full, 9), "the card was configured a short time ago");
        assert_eq!(step(&full, 205), "[]");
        assert_eq!(follower.rules(), &BTreeSet::<RuleId>::new());
    });
}

/// Each window is measured with an error. Where two choices cost about the same, nothing changes; where one is better
/// in most windows, changes are few.
#[test]
fn noise_changes_nothing() {
    // A lookup costs the software 20 cycles, and its second half 5. Without offloaded rules there are seals, too.
    let prices = Prices { byte: 0.05, lookup: 20.0, finish: 5.0 };
    // The share of packets that reach the lookup, plus and minus a tenth of all packets: from where offloading costs
    // about as much as it saves to where it saves 10%.
    let changes_of = |of: &Distributor<'_>, patience: Patience, share: f64, noise: f64| {
        let distributor = Distributor { idle: Idle::Seals, ..*of };
        let mut follower = Follower::new(distributor.profile, patience);
        let (mut random, mut changes) = (7u64, 0);
        for window in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let error = ((random >> 33) as f64 / f64::from(1u32 << 31) * 2.0 - 1.0) * noise;
            let share = (share + error).clamp(0.0, 1.0);
            let reached = vec![1.0, share, share, 0.0];
            let traffic = Traffic { reached, matched: vec![0.0; 4], ..traffic(0.0) };
            let Judged { step, .. } = follower.step(&distributor, &traffic, window * 500);
            changes += usize::from(matches!(step, Step::Change { .. }));
        }
        (changes, follower.rules().contains(&RuleId(1)))
    };
    let changes = |patience: Patience, share: f64, noise: f64| {
        with(&prices, LINK, |distributor| changes_of(distributor, patience, share, noise))
    };
    let (patient, hasty) =
        (Patience::default(), Patience { margin: 0.0, floor: 0.0, windows: 1, rest: 0, ..Patience::default() });
    let mut most = 0;
    for percent in (0..30).step_by(3) {
        let share = f64::from(percent) / 100.0;
        let (changes_made, _) = changes(patient, share, 0.1);
        assert!(changes_made <= 1, "{changes_made} changes where {percent}% reach the lookup");
        most = most.max(changes(hasty, share, 0.1).0);
    }
    assert!(most > 20, "without patience there are {most} changes at most: the noise is none");
    assert_eq!(changes(patient, 0.02, 0.02), (0, false));
    assert_eq!(changes(patient, 0.9, 0.1), (1, true));
}
