//! Random policies with random packets. All engines, and the optimised program, give the same verdicts and counters.
//!
//! Failing cases are reduced and printed as text. Their seeds are kept in tests/random.regressions and are tried first.
//! A change of the generators makes other cases of them, so it removes them.
//! `WEIR_RANDOM_POLICIES=n` sets the number of policies, which is 12 otherwise.
//! `WEIR_RANDOM_P4=n` sets the number of policies that run as P4 only, which is 40 otherwise.

#[path = "conntrack/flows.rs"]
mod conntrack_flows;
mod engines;
#[path = "random/flows.rs"]
mod flows;
#[path = "random/interpreter.rs"]
mod interpreter;
#[path = "random/packets.rs"]
mod packets;
#[path = "proxied/flows.rs"]
mod proxied_flows;

#[cfg(feature = "dpdk")]
use engines::AsP4;
use engines::{Decided, Engines, SLOT_RULES, difference, load, root};
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{Write, stderr};
use weir_abi::Reason;
use weir_loading::Policy;
use weir_policy::ir::match_tree::{Condition, conditions};
use weir_policy::ir::{self, Node, Program};
use weir_policy::pass::{Placement, optimise};
use weir_test_support::Packet;
use weir_test_support::policy::{Policy as Text, Size, policies};

/// Number of packets that go through every chain of a policy.
const PACKETS: usize = 250;
/// Number of policies in all engines. Half of them get well-formed packets. Each takes clang a second or two.
const POLICIES: u32 = 12;
/// Number of policies that run as P4 only.
#[cfg(feature = "dpdk")]
const P4_POLICIES: u32 = 40;
/// Number of rules in a part of a chain in the kernel.
const PART_RULES: usize = 3;
/// Number of programs that only the interpreter runs.
const PROGRAMS: u32 = 1000;
/// Maximum time in ms in which a failing case is reduced.
const SHRINK_MAX_MS: u32 = 60_000;

fn runner(cases: u32) -> TestRunner {
    let regressions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/random.regressions");
    TestRunner::new(Config {
        cases,
        max_shrink_time: SHRINK_MAX_MS,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(regressions))),
        ..Config::default()
    })
}

fn policies_wanted() -> u32 {
    let wanted = std::env::var("WEIR_RANDOM_POLICIES").ok();
    wanted.map_or(POLICIES, |text| text.parse().expect("WEIR_RANDOM_POLICIES is a number"))
}

/// Loads the policy from a file, through the whole front end.
fn front_end(text: &Text) -> Result<Policy, TestCaseError> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("random.weir");
    std::fs::write(&path, text.to_string()).expect("the policy can be written");
    std::fs::write(folder.path().join(SLOT_RULES), text.slot_rules()).expect("the rules can be written");
    load(&path).map_err(TestCaseError::fail)
}

/// Policies with up to four chains in all engines.
fn engines_agree(packets: BoxedStrategy<Packet>) {
    let size = Size { postures: 1, rules: [0, 14] };
    let case = (flows::among(packets, PACKETS), policies(packets::pool(), size));
    let has_failed = Cell::new(false);
    let outcome = runner(policies_wanted().div_ceil(2)).run(&case, |(packets, text)| {
        let policy = front_end(&text)?;
        let agreed = Engines::load_with_parts(&policy, PART_RULES).and_then(|mut engines| engines.agree(&packets));
        agreed.map(|_| ()).map_err(|failure| {
            // Reducing takes long, so the first failure is printed before it, past the capture of the test runner.
            if !has_failed.replace(true) {
                let _closed = writeln!(
                    stderr(),
                    "{failure}\nThis case is reduced, for {SHRINK_MAX_MS} ms at most:\n{text}{}",
                    text.slot_rules()
                );
            }
            TestCaseError::fail(failure)
        })
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn engines_agree_on_well_formed_packets() {
    engines_agree(packets::well_formed());
}

#[test]
fn engines_agree_on_broken_and_real_packets() {
    engines_agree(prop_oneof![2 => packets::broken(), 2 => packets::real(), 1 => packets::broken_real()].boxed());
}

/// Policies as P4, without the other engines.
#[cfg(feature = "dpdk")]
#[test]
fn p4_decides_as_the_interpreter() {
    let wanted = std::env::var("WEIR_RANDOM_P4").map_or(P4_POLICIES, |text| text.parse().expect("a number"));
    let packet = prop_oneof![2 => packets::well_formed(), 1 => packets::broken(), 1 => packets::real(), 1 => packets::broken_real()];
    let case = (flows::among(packet, PACKETS), policies(packets::pool(), Size { postures: 1, rules: [0, 14] }));
    let as_p4 = AsP4::default();
    let outcome = runner(wanted).run(&case, |(packets, text)| {
        let policy = front_end(&text)?;
        let mut engines = Engines::load_p4(&policy).map_err(TestCaseError::fail)?;
        as_p4.count(&engines);
        engines.agree(&packets).map(|_| ()).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    as_p4.tell(2);
}

/// Packets and policies for the interpreter.
fn interpreted_cases() -> impl Strategy<Value = (Vec<Packet>, Text)> {
    let size = Size { postures: 1, rules: [0, 20] };
    let packet = prop_oneof![3 => packets::well_formed(), 1 => packets::broken(), 1 => packets::real()];
    (flows::among(packet, 40), policies(packets::pool(), size))
}

#[test]
fn optimised_programs_decide_as_they_were_written() {
    let case = interpreted_cases();
    let hits = Cell::new(0);
    let outcome = runner(PROGRAMS).run(&case, |(packets, text)| {
        let policy = front_end(&text)?;
        let lowered = interpret(&policy.program, &policy, &packets);
        let rules = &lowered.counters[usize::from(Reason::RULE_BASE)..];
        hits.set(hits.get() + rules.iter().filter(|counter| counter.packets > 0).count());
        for placement in [Placement::Staged, Placement::Lazy] {
            let program = optimise(&policy.program, placement);
            let again = ir::parse::parse(&program.to_string()).map_err(TestCaseError::fail)?;
            prop_assert!(again == program, "printed IR reads as another program:\n{program}");
            let optimised = interpret(&program, &policy, &packets);
            if let Some(difference) = difference(&program, &packets, &lowered, &optimised) {
                return Err(TestCaseError::fail(format!("{placement:?}: {difference}\n{program}")));
            }
        }
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(hits.get() > 5 * PROGRAMS as usize, "only {} rules were hit: packets do not fit policies", hits.get());
}

#[test]
fn conditions_say_what_the_tree_says() {
    let outcome = runner(PROGRAMS / 10).run(&interpreted_cases(), |(packets, text)| {
        let policy = front_end(&text)?;
        let program = optimise(&policy.program, Placement::Staged);
        let tree = interpret(&program, &policy, &packets);
        let listed = interpret(&from_conditions(&program), &policy, &packets);
        match difference(&program, &packets, &tree, &listed) {
            None => Ok(()),
            Some(difference) => Err(TestCaseError::fail(format!("{difference}\n{program}"))),
        }
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// The program with one tree node for each rule's condition, and no other nodes.
fn from_conditions(program: &Program) -> Program {
    let mut program = program.clone();
    for chain in &mut program.chains {
        let node = |condition: &Condition<'_>| {
            let tests = condition.tests.iter().rev();
            tests.fold(Node::Rule(condition.rule), |node, &test| Node::When { test: test.clone(), body: vec![node] })
        };
        let parts = chain.tree.nodes.split_inclusive(|node| *node == Node::Track);
        let listed = parts.flat_map(|part| {
            let tracks = part.last().filter(|node| **node == Node::Track).cloned();
            conditions(part).iter().map(node).chain(tracks).collect::<Vec<_>>()
        });
        chain.tree.nodes = listed.collect();
    }
    program
}

/// Runs every chain of a form of the policy's program in the interpreter.
fn interpret(program: &Program, policy: &Policy, packets: &[Packet]) -> Decided {
    let mut evaluator = interpreter::new(program, policy);
    let (mut verdicts, mut leaves) = (Vec::new(), BTreeMap::new());
    for chain in 0..program.chains.len() {
        let mut decide = |(index, packet): (usize, &Packet)| {
            let verdict = evaluator.decide(chain, interpreter::frame(packet), &mut ());
            leaves.extend(evaluator.leaving().map(|leaving| ((chain, index), leaving.bytes.clone())));
            verdict
        };
        verdicts.push(packets.iter().enumerate().map(&mut decide).collect());
    }
    interpreter::decided(&mut evaluator, program, verdicts, leaves)
}

#[test]
fn the_shipped_capture_is_there() {
    assert!(packets::captured().len() > 1000, "{} has too few packets", root().join(packets::CAPTURE).display());
}
