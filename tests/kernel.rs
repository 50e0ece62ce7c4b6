//! Large policies in the kernel: chains with too many rules for one BPF program, and tables that the verifier accepts
//! only with special code. The kernel must accept them and decide like the interpreter.

mod engines;
#[path = "random/packets.rs"]
mod packets;

use engines::{decide, difference, frame_sets, load, root};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::net::Ipv4Addr;
use weir_abi::Target;
use weir_engine::clang::{BpfShape, Clang, DataSizes};
use weir_engine::{EngineError, Filter, XdpFilter};
use weir_loading::eval::EvalFilter;
use weir_loading::{PART_RULES, Policy};
use weir_test_support::Packet;
use weir_test_support::policy::{Size, policies};

/// Number of packets that go through every chain.
const PACKETS: usize = 400;

/// Random packets, the same in every run.
fn packets(runner: &mut TestRunner) -> Vec<Packet> {
    let packet = prop_oneof![3 => packets::well_formed(), 1 => packets::broken(), 1 => packets::real()];
    packets::in_time(packet, PACKETS).new_tree(runner).expect("packets can be made up").current()
}

/// A policy with `rules` random rules upstream, the same in every run.
fn random(rules: usize, runner: &mut TestRunner) -> String {
    let size = Size { postures: 0, rules: [rules, rules] };
    let text = policies(packets::pool(), size).new_tree(runner).expect("policies can be made up").current().to_string();
    let (upstream, _) = text.split_once("\ndownstream {").expect("it has both directions");
    format!("{upstream}\ndownstream {{ accept }}\n")
}

fn written(text: &str) -> Policy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("large.weir");
    std::fs::write(&path, text).expect("the policy can be written");
    load(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// Fails unless the filter decides the packets like the interpreter.
fn agrees(policy: &Policy, filter: &mut dyn Filter, packets: &[Packet]) {
    let program = &policy.program;
    let eval = decide(&mut EvalFilter::new(program, policy.answers()), program, &mut frame_sets(packets));
    let eval = eval.expect("the interpreter takes every policy");
    let other = decide(filter, program, &mut frame_sets(packets)).unwrap_or_else(|error| panic!("{error}"));
    if let Some(difference) = difference(program, packets, &eval, &other) {
        panic!("eval and xdp differ: {difference}");
    }
}

/// A test of parsing or tracking that depends on what came before it multiplies what the verifier follows, and with it
/// the time until a policy is active.
#[test]
fn the_verifier_follows_parser_and_tracker_once() {
    for (upstream, most) in [("accept", 20_000), ("tcp track accept; accept", 250_000)] {
        let filter =
            written(&format!("inside {{ 192.0.2.0/24 }}\nupstream {{ {upstream} }}\ndownstream {{ accept }}\n"))
                .xdp()
                .unwrap_or_else(|error| panic!("{error}"));
        for cost in filter.verifier_costs() {
            assert!(cost.verified_insns < most, "{upstream}: {cost:?}");
        }
    }
}

/// Number of parts of each chain.
fn parts(filter: &XdpFilter) -> Vec<usize> {
    filter.verifier_costs().iter().map(|cost| cost.parts).collect()
}

/// The policy in `tests/kernel`, with its rules repeated `times` times.
fn repeated(times: usize) -> Policy {
    let text = std::fs::read_to_string(root().join("tests/kernel/payload-and-ipv6.weir")).expect("the policy is there");
    let (before, rules) = text.split_once("upstream {\n").expect("it has rules");
    let (rules, after) = rules.split_once("  drop\n}").expect("they end with a verdict");
    written(&format!("{before}upstream {{\n{}  drop\n}}{after}", rules.repeat(times)))
}

#[test]
fn forty_rules_twelve_times() {
    let policy = repeated(12);
    let data = policy.bind(None).expect("there is memory");
    let whole = policy.compile_bpf(&data).expect("it compiles");
    let refused = whole.filter().err().expect("the verifier gives up");
    assert!(matches!(refused, EngineError::TooLarge { .. }), "{refused}");

    let mut filter = policy.xdp().unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(parts(&filter), [16, 0]);
    agrees(&policy, &mut filter, &packets(&mut TestRunner::deterministic()));
}

#[test]
fn two_thousand_rules_of_any_shape() {
    let mut runner = TestRunner::deterministic();
    let policy = written(&random(2000, &mut runner));
    let data = policy.bind_kernel_replay().expect("there is memory");
    let parts_of_32 = policy.compile_bpf_in_parts(&data, PART_RULES[0]).unwrap_or_else(|error| panic!("{error}"));
    let mut filter = parts_of_32.filter().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(parts(&filter), [32, 0]);
    agrees(&policy, &mut filter, &packets(&mut runner));
}

/// One program exceeds the range of BPF's jumps. Parts are shorter.
#[test]
fn sets_of_thousands_in_several_rules() {
    // Scattered addresses, so that the search is a tree and not a bit map.
    let address = |number: u32| Ipv4Addr::from((number.wrapping_mul(0x9e37_79b1) >> 1) + 0x0100_0000);
    let set = |rule: u32| (0..4000).map(|at| address(4 * at + rule).to_string()).collect::<Vec<_>>().join(", ");
    let rules: Vec<String> = (0..4).map(|rule| format!("ip saddr {{ {} }} counter drop\n", set(rule))).collect();
    let policy = written(&format!("upstream {{\n{}accept\n}}\ndownstream {{ accept }}\n", rules.concat()));
    let data = policy.bind(None).expect("there is memory");
    let refused = policy.compile_bpf(&data).err().expect("one program is too long").to_string();
    assert!(refused.contains("a jump of BPF reaches 32,767 instructions"), "{refused}");
    let mut filter = policy.xdp().unwrap_or_else(|failure| panic!("{failure}"));
    agrees(&policy, &mut filter, &packets(&mut TestRunner::deterministic()));
}

/// Every layout with as much memory as 3 million prefixes need, ten times the largest table of cities.
#[test]
fn tables_of_every_layout_in_128_mebibytes() {
    const BYTES: u32 = 1 << 27;
    let four = "type ipv4; elements = { 10.0.0.0/8, 192.0.2.1, 198.51.100.7 }";
    let hosts = "type ipv4; elements = { 192.0.2.1, 198.51.100.7 }";
    let six = "type ipv6; elements = { 2001:db8::/48, 2001:db8:1::/64 }";
    let policy = written(&format!(
        "table d16 {{ layout d16x4r; {four} }}
table leaf {{ layout rank-leaf; {four} }}
table counted {{ layout counted-leaf; {four} }}
table one {{ layout exact-set; {hosts} }}
table fused-a {{ layout exact-sets; {hosts} }}
table fused-b {{ layout exact-sets; {hosts} }}
table leaf6 {{ layout rank-leaf6; {six} }}
table range6 {{ layout range6; {six} }}
table exact6 {{ layout exact-set6; type ipv6; elements = {{ 2001:db8:1::/64, 2001:db8::1 }} }}
table fused6-a {{ layout exact-sets6; type ipv6; elements = {{ 2001:db8:1::/64, 2001:db8::1 }} }}
table fused6-b {{ layout exact-sets6; type ipv6; elements = {{ 2001:db8:1::/64, 2001:db8::2 }} }}
limits each {{ elements = {{ 10.1.0.0/16 : 1pps, 2001:db8::/64 : 2pps }}; log all }}
upstream {{
  ip saddr @d16 counter
  ip saddr @leaf counter
  ip saddr @counted counter
  ip saddr @one counter
  ip saddr @fused-a counter
  ip daddr @fused-b counter
  ip6 saddr @leaf6 counter
  ip6 saddr @range6 counter
  ip6 daddr @exact6 counter
  ip6 saddr @fused6-a counter
  ip6 saddr @fused6-b counter
  ip saddr limit @each
  ip6 saddr limit @each
  accept
}}
downstream {{ accept }}
"
    ));
    let data = policy.bind(None).expect("there is memory");
    let artifact = policy.artifact().unwrap_or_else(|failure| panic!("{failure}"));
    let mut shape = BpfShape::new(&artifact.shape, &data);
    let DataSizes::Known { tables, limits: Some(limits) } = &mut shape.sizes else { panic!("the policy has limits") };
    tables.iter_mut().for_each(|table| table.bytes = BYTES);
    limits.bytes = BYTES;
    let clang = Clang::find().unwrap_or_else(|error| panic!("{error}"));
    let object =
        clang.bpf("large", artifact.source(Target::Bpf), &shape).unwrap_or_else(|error| panic!("{error}")).object;
    let filter = XdpFilter::load(&artifact.name, &object, &artifact.shape, &data);
    let mut filter = filter.unwrap_or_else(|error| panic!("{error}"));
    agrees(&policy, &mut filter, &packets(&mut TestRunner::deterministic()));
}
