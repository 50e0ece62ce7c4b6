//! Tests of limits in the interpreter: shared buckets, the clock, and what passes must preserve.

use std::sync::Arc;
use weir_abi::{Action, Counter, LimitEntries, Link, Reason, Verdict};
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::eval::{Evaluator, Tables};
use weir_policy::ir::parse::parse;
use weir_policy::ir::{LimiterId, Program, SlotId};
use weir_policy::pass::{Placement, optimise};

/// Tables without entries. No list is looked up.
struct Nothing;

impl Tables for Nothing {
    fn find(&self, _: SlotId, _: u128) -> u32 {
        0
    }

    fn entries(&self, _: SlotId) -> Option<Vec<(u128, u8, u32)>> {
        None
    }

    fn limits(&self, limiter: LimiterId) -> Arc<LimitEntries> {
        panic!("limiter {} polices by no list", limiter.0);
    }
}

/// A minimal IPv4 packet, received at `time_ms`.
fn decide(evaluator: &mut Evaluator<'_, Nothing>, chain: usize, time_ms: u64) -> (Action, Reason) {
    let mut bytes = [0; 20];
    (bytes[0], bytes[3], bytes[9]) = (0x45, 20, 255);
    let frame = Frame { bytes: &bytes, wire_len: 20, link: Link::RawIp, time_ns: time_ms * 1_000_000 };
    let verdict: Verdict = evaluator.decide(chain, frame, &mut ());
    (verdict.action().expect("a verdict"), verdict.reason())
}

fn program(text: &str) -> Program {
    parse(text).unwrap_or_else(|problem| panic!("{problem}\n{text}"))
}

const LIMITED: (Action, Reason) = (Action::Drop, Reason::LIMIT);

#[test]
fn postures_share_buckets_and_directions_do_not() {
    let program = program(
        "program p\nlimiter 0 rate upstream 0 rate 1pps burst 1packets log off\n\
         limiter 1 rate downstream 0 rate 1pps burst 1packets log off\n\
         rule 0 p:1 [limit 0 exceed drop, accept] a\nrule 1 p:2 [limit 1 exceed drop, accept] b\n\
         rule 2 p:3 [limit 0 exceed drop, accept] c\n\
         chain upstream\n  rule 0\nchain downstream\n  rule 1\nchain upstream of calm\n  rule 2\nchain downstream of calm\n  rule 1\n",
    );
    let mut evaluator = Evaluator::new(&program, Nothing);
    assert_eq!(decide(&mut evaluator, 0, 0), (Action::Accept, Reason::rule(0)));
    assert_eq!(decide(&mut evaluator, 2, 999), LIMITED);
    assert_eq!(decide(&mut evaluator, 2, 1000), (Action::Accept, Reason::rule(2)));
    assert_eq!(decide(&mut evaluator, 1, 1000), (Action::Accept, Reason::rule(1)));
    assert_eq!(decide(&mut evaluator, 3, 1000), LIMITED);
    let counts: Vec<u64> = evaluator.counters()[usize::from(Reason::LIMIT.0)..].iter().map(|c| c.packets).collect();
    assert_eq!(counts[0], 2, "the reason");
    // A rule counts its matches. Packets that its limit decided have a separate counter.
    let rules = usize::from(Reason::RULE_BASE - Reason::LIMIT.0);
    assert_eq!(counts[rules..], [1, 2, 2, 0, 1, 1]);
    assert_eq!(evaluator.counters()[usize::from(Reason::LIMIT.0)], Counter { packets: 2, bytes: 40 });
}

#[test]
fn the_clock_never_goes_back() {
    let program = program(
        "program p\nlimiter 0 rate upstream 0 rate 1pps burst 1packets log off\n\
         rule 0 p:1 [limit 0 exceed drop, accept] a\nchain upstream\n  rule 0\n",
    );
    // From any start, because words wrap around after 2^56 ns.
    for start in [0, (1 << 56) / 1_000_000 - 1, 1_700_000_000_000] {
        let mut evaluator = Evaluator::new(&program, Nothing);
        let passes =
            [5000, 0, 5999, 6000, 100, 7000].map(|ms| decide(&mut evaluator, 0, start + ms).0 == Action::Accept);
        assert_eq!(passes, [true, false, false, true, false, true], "{start}");
    }
}

/// Equal tests are not merged if a limit between them may change their outcome.
#[test]
fn passes_keep_what_limits_mark() {
    let program = program(
        "program p\nlimiter 0 rate upstream 0 rate 0pps burst 1packets log off\n\
         rule 0 p:1 [limit 0 exceed mark] a\nrule 1 p:2 [accept] b\nrule 2 p:3 [drop] c\n\
         chain upstream\n  when meta exceeded in 0\n    rule 0\n  when meta exceeded in 0\n    rule 1\n  rule 2\n",
    );
    for program in [program.clone(), optimise(&program, Placement::Staged), optimise(&program, Placement::Lazy)] {
        let mut evaluator = Evaluator::new(&program, Nothing);
        assert_eq!(decide(&mut evaluator, 0, 0), (Action::Drop, Reason::rule(2)), "{program}");
    }
}

/// The find of a bucket is kept, although no test uses it.
#[test]
fn passes_keep_finds_of_limits() {
    let text = "program p\ndefaults malformed drop, arp accept, not-ip drop, fragment rules, ip-options rules, no-match accept\non-exit block\n\
                slot 0 limits customers ip4 rank-leaf\nslot 1 limits ip4 exact-set\n\
                limiter 0 customers upstream 0 prefixes ip4 nested log exceeded\n\
                rule 0 p:1 [limit 0 find 0 exceed divert] a\n\
                chain upstream\n  ask 0 slot 0 ip saddr\n  when ip4\n    find 0\n    rule 0\n";
    let program = program(text);
    assert_eq!(program.to_string(), text);
    assert!(program.slots[0].tables().is_empty() && program.slots[1].tables() == ["limits"]);
    assert_eq!(optimise(&program, Placement::Lazy).chains[0].tree.nodes, program.chains[0].tree.nodes);
    assert_eq!(optimise(&program, Placement::Staged).chains[0].tree.staged.len(), 1);
}

#[test]
fn broken_limits_are_refused() {
    let refused = |limiter: &str, effects: &str, body: &str| {
        let head =
            "program p\nslot 0 limits customers ip4 rank-leaf\nslot 1 geo ip4 rank-leaf\nslot 2 a+b ip4 exact-sets\n";
        let asks = "  ask 0 slot 0 ip saddr\n  ask 1 slot 1 ip saddr\n  ask 2 slot 2 ip saddr\n";
        let text = format!(
            "{head}limiter 0 {limiter} log off\nrule 0 p:1 [{effects}] a\nrule 1 p:2 [{effects}] b\nchain upstream\n{asks}{body}"
        );
        parse(&text).unwrap_err()
    };
    let prefixes = "customers upstream 0 prefixes ip4";
    let found = "  when ip4\n    find 0\n    find 1\n    find 2\n    rule 0\n";
    let wrong = "chain upstream: rule 0: limiter 0 has the wrong find";
    assert_eq!(refused(prefixes, "limit 0 find 0 exceed drop", "  rule 0\n"), wrong, "find 0 was not done");
    assert_eq!(refused(prefixes, "limit 0 find 1 exceed drop", found), wrong, "a table");
    assert_eq!(refused(prefixes, "limit 0 exceed drop", found), wrong);
    assert_eq!(refused("other upstream 0 prefixes ip4", "limit 0 find 0 exceed drop", found), wrong);
    assert_eq!(refused("countries upstream 0 labels", "limit 0 find 2 exceed drop", found), wrong, "several tables");
    assert_eq!(refused("rate upstream 0 rate 5", "limit 0 find 0 exceed drop", found), wrong);
    assert_eq!(refused(prefixes, "limit 1 find 0 exceed drop", found), "chain upstream: limiter 1 does not exist");
    assert_eq!(
        refused("customers downstream 0 prefixes ip4", "limit 0 find 0 exceed drop", found),
        "chain upstream: limiter 0 belongs to the other direction"
    );
    let twice = format!("{found}    rule 1\n");
    assert_eq!(refused(prefixes, "limit 0 find 0 exceed drop", &twice), "chain upstream: limiter 0 has two statements");
    let tested = "  when ip4\n    find 0\n    when found 0\n      rule 0\n";
    assert_eq!(refused(prefixes, "", tested), "chain upstream: find 0 looks up limits, which cannot be tested");
    assert_eq!(
        refused("rate upstream 0 rate 251mpps", "", found),
        "line 5: cannot read 'limiter 0 rate upstream 0 rate 251mpps log off'"
    );
}
