//! Imported policies, compared with what they are imported from.
//!
//! Each folder of `tests/import` is a ruleset: its source, the policy and the report that `weir import` writes, as
//! snapshots (`WEIR_BLESS=1` writes them), and `options`. The kernel loads the ruleset, without the rules that the
//! report says are left out, and decides packets between two wires. The imported policy must decide the same.

/// What the generator of random packets needs of the engines' tests.
mod engines {
    pub use crate::rulesets::root;
}
#[path = "random/packets.rs"]
mod packets;
#[path = "import/random.rs"]
mod random;
#[path = "import/router.rs"]
mod router;
#[path = "import/rulesets.rs"]
mod rulesets;
#[path = "import/traffic.rs"]
mod traffic;

use router::{Router, number_of, numbered, with_router};
use rulesets::{Format, Ruleset, bless_or_compare, rulesets};
use weir_abi::Action;
use weir_loading::Policy;
use weir_policy::ir::eval::Evaluator;
use weir_policy::ir::eval::packet::Frame;

/// Most packets that a failure shows of each ruleset.
const SHOWN: usize = 5;

/// The verdicts of the imported policy.
fn weir(policy: &Policy, sent: &[(bool, Vec<u8>)]) -> Vec<(bool, String)> {
    let mut evaluator = Evaluator::new(&policy.program, policy.answers());
    let decide = |(index, (is_upstream, packet)): (usize, &(bool, Vec<u8>))| {
        // The kernel sees packets with their numbers, which begin again with each burst.
        let bytes = numbered(packet, number_of(index));
        let time_ns = 1_000_000_000 + index as u64 * 1000;
        let frame = Frame { bytes: &bytes, wire_len: bytes.len() as u32, link: weir_abi::Link::RawIp, time_ns };
        let verdict = evaluator.decide(usize::from(!is_upstream), frame, &mut ());
        let reason = match verdict.reason().rule_index() {
            Some(rule) => policy.program.rules[usize::from(rule)].text.clone(),
            None => format!("{:?}", verdict.reason()),
        };
        (verdict.action() == Some(Action::Accept), reason)
    };
    sent.iter().enumerate().map(decide).collect()
}

/// The packets that the kernel and the policy decide differently.
fn differences(router: &mut Router, ruleset: &Ruleset, sent: &[(bool, Vec<u8>)]) -> Vec<String> {
    let import = ruleset.import();
    let policy = ruleset.load(&import);
    router.clear();
    for (program, arguments, rules) in ruleset.for_the_kernel(&import) {
        router.load(program, arguments, &rules);
    }
    let theirs = router.judge(sent);
    let ours = weir(&policy, sent);
    let (passed, total) = (theirs.iter().filter(|passed| **passed).count(), sent.len());
    assert!(passed * 50 > total && (total - passed) * 50 > total, "{}: {passed} of {total} pass", ruleset.name);
    // Conntrack reads chunks of SCTP and states of DCCP, which Weir follows as it follows UDP.
    let has_chunks = |packet: &[u8]| matches!(packet[if packet[0] >> 4 == 6 { 6 } else { 9 }], 33 | 132 | 136);
    let tracks = import.policy.contains("tracking {");
    let differ = (0..sent.len()).filter(|&at| ours[at].0 != theirs[at] && !(tracks && has_chunks(&sent[at].1)));
    differ
        .map(|at| {
            let packet = weir_test_support::Packet::new(weir_test_support::Link::RawIp, sent[at].1.clone());
            let side = if sent[at].0 { "upstream" } else { "downstream" };
            format!(
                "{}: the kernel passes it: {}, Weir: {:?}\n  {side} {at} {packet}",
                ruleset.name, theirs[at], ours[at]
            )
        })
        .collect()
}

#[test]
fn the_kernel_decides_as_imported_policies_do() {
    with_router(|mut router| {
        router.clear();
        let all = traffic::packets();
        let forwarded = router.judge(&all);
        let sent: Vec<_> =
            all.into_iter().zip(forwarded).filter_map(|(packet, passes)| passes.then_some(packet)).collect();
        assert!(sent.len() > 2000, "only {} packets", sent.len());
        let mut wrong = Vec::new();
        for ruleset in rulesets().into_iter().filter(|ruleset| matches!(ruleset.format, Format::Nft | Format::Iptables))
        {
            let ruleset = ruleset.slow();
            let found = differences(&mut router, &ruleset, &sent);
            wrong.extend(found.iter().take(SHOWN).cloned());
            wrong.extend((!found.is_empty()).then(|| format!("{}: {} packets differ", ruleset.name, found.len())));
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn policies_and_reports_are_as_reviewed() {
    let names: Vec<String> = rulesets().into_iter().map(|ruleset| ruleset.name).collect();
    assert!(names.len() >= 12, "{names:?}");
    let mut wrong = Vec::new();
    for ruleset in rulesets() {
        let import = ruleset.import();
        ruleset.load(&import);
        let lists = import.lists.iter().map(|(path, text)| format!("--- {path}\n{text}")).collect::<String>();
        for (name, text) in
            [("imported.weir", &import.policy), ("report.txt", &import.findings.report()), ("lists.txt", &lists)]
        {
            if !(text.is_empty() && name == "lists.txt") {
                wrong.extend(bless_or_compare(&ruleset.folder.join(name), text));
            }
        }
    }
    assert!(wrong.is_empty(), "WEIR_BLESS=1 writes what is expected\n{}", wrong.join("\n"));
}
