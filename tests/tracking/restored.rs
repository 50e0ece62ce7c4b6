//! Connections that continue after a restart: the engines agree on them, and they become exact again.

use crate::agree::{self, Outcome};
use crate::conntrack_flows::{ACK, Dice, FIN, RST, SYN, Segment};
use crate::engines::{self, load};
use weir_abi::flow::{Flow, FlowKey, FlowState, Window};
use weir_engine::Filter;
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_state::flows::{FlowTable, KnownFlow};
use weir_test_support::{Link, Packet};

/// A table that refuses no flow, so that engines may fill it in different orders.
const SETTINGS: &str = "size 65536; invalid drop";

fn policy() -> Policy {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("restored.weir");
    let chain = "{\n  ct state established accept\n  ct state related accept\n  ct state new accept\n  drop\n}";
    let text = format!("tracking {{ {SETTINGS} }}\nupstream {chain}\ndownstream {chain}\n");
    std::fs::write(&path, text).expect("it can be written");
    load(&path).unwrap_or_else(|error| panic!("{error}"))
}

/// A connection as it is restored: of an open one nothing holds but what was acknowledged.
fn restored(flow: Flow) -> Flow {
    let sides = flow.sides.map(|side| weir_abi::flow::Side { next: side.una, ..side });
    match flow.state {
        FlowState::Established | FlowState::Resetting if !flow.liberal => {
            let sides = sides.map(|side| weir_abi::flow::Side { window: Window::NONE, ..side });
            Flow { state: FlowState::Restored, liberal: true, syn: false, sides, ..flow }
        }
        _ => flow,
    }
}

/// The flows that a restart leaves.
fn kept(flows: &[(FlowKey, Flow)]) -> Vec<KnownFlow> {
    let known = flows.iter().map(|&(key, flow)| KnownFlow { key, flow: restored(flow), proxied: None });
    known.collect()
}

fn enter(table: &FlowTable, flows: &[KnownFlow]) {
    table.clear();
    assert_eq!(table.enter(flows), flows.len());
    table.verify().expect("the invariants of the table hold");
}

fn sorted(mut outcome: Outcome) -> Outcome {
    outcome.flows.sort_by_key(|(key, _)| (key.words, key.is_ipv6));
    outcome
}

#[test]
fn engines_agree_on_connections_after_a_restart() {
    let policy = policy();
    let packets = agree::packets(&mut Dice::new(5), &agree::any);
    let (before, after) = packets.split_at(packets.len() / 2);
    let first = agree::run(&mut EvalFilter::new(&policy.program, policy.answers()), before);
    let flows = kept(&first.flows);
    let open = flows.iter().filter(|known| known.flow.state == FlowState::Restored).count();
    assert!(open > 10, "only {open} connections are open");

    let mut eval = EvalFilter::new(&policy.program, policy.answers());
    let restarted_ns = before[before.len() - 1].time_ns;
    assert!(flows.iter().all(|known| eval.enter_flow(&known.key, &known.flow, restarted_ns)));
    let eval = sorted(agree::run(&mut eval, after));
    let exact = eval.flows.iter().filter(|(key, flow)| {
        let was_restored = flows.iter().any(|known| known.key == *key && known.flow.state == FlowState::Restored);
        was_restored && flow.state == FlowState::Established && !flow.liberal
    });
    assert!(exact.count() > 0, "some connections become exact again");

    let mut native = policy.native().expect("it compiles");
    enter(native.flow_table().expect("it tracks"), &flows);
    agree::compare(&policy, after, "native", &eval, &sorted(agree::run(&mut native, after)));
    let mut xdp = policy.xdp().expect("it loads");
    enter(xdp.flow_table().expect("it tracks"), &flows);
    agree::compare(&policy, after, "xdp", &eval, &sorted(agree::run(&mut xdp, after)));
}

/// A connection after a restart, and packets of its ends.
struct After<'a> {
    policy: &'a Policy,
    filter: EvalFilter<'a>,
    time_ns: u64,
}

impl<'a> After<'a> {
    /// Both sides have acknowledged everything: the client is at 101, the server at 501.
    fn restart(policy: &'a Policy) -> Self {
        let mut before = After { policy, filter: EvalFilter::new(&policy.program, policy.answers()), time_ns: 1 << 40 };
        before.pass(0, SYN, 100, 0, 0);
        before.pass(1, SYN | ACK, 500, 101, 0);
        before.pass(0, ACK, 101, 501, 0);
        before.pass(1, ACK, 501, 101, 0);
        let mut flows = Vec::new();
        before.filter.flows(&mut |key, flow| flows.push((*key, *flow)));
        let mut after = After { filter: EvalFilter::new(&policy.program, policy.answers()), ..before };
        for known in kept(&flows) {
            after.filter.enter_flow(&known.key, &known.flow, after.time_ns);
        }
        assert_eq!(after.flow().state, FlowState::Restored);
        after
    }

    fn flow(&self) -> Flow {
        let mut found = None;
        self.filter.flows(&mut |_, flow| found = Some(*flow));
        found.expect("there is one flow")
    }

    /// Passes a segment, and returns whether it is accepted.
    fn pass(&mut self, from: usize, flags: u8, seq: u32, ack: u32, payload: u16) -> bool {
        self.time_ns += 1_000_000;
        let bytes = Segment { from, flags, seq, ack, window: 8000, options: vec![], payload }.packet(0);
        let wire = bytes.len() as u32;
        let packet = Packet { bytes, wire, link: Link::RawIp, time_ns: self.time_ns };
        let outcome = agree::run(&mut self.filter, std::slice::from_ref(&packet));
        let shown = engines::verdict(&self.policy.program, outcome.verdicts[0]);
        shown.starts_with("accept")
    }
}

#[test]
fn an_exchange_makes_a_restored_connection_exact() {
    let policy = policy();
    let mut idle = After::restart(&policy);
    assert!(idle.pass(0, ACK, 101, 501, 10) && idle.flow().liberal);
    assert!(idle.pass(1, ACK, 501, 111, 0));
    assert_eq!((idle.flow().state, idle.flow().liberal), (FlowState::Established, false));
    assert!(!idle.pass(0, ACK, 3_000_000_000, 501, 10), "bounds hold again");

    // Meanwhile both sides have sent gigabytes.
    let mut busy = After::restart(&policy);
    assert!(busy.pass(0, ACK, 2_000_000_101, 1_000_000_501, 100));
    assert!(busy.pass(1, ACK, 1_000_000_501, 2_000_000_201, 50));
    assert!(busy.flow().liberal);
    assert!(busy.pass(0, ACK, 2_000_000_201, 1_000_000_551, 0));
    assert_eq!((busy.flow().state, busy.flow().liberal), (FlowState::Established, false));
    assert!(busy.pass(1, ACK, 1_000_000_551, 2_000_000_201, 50));
}

#[test]
fn whoever_does_not_know_the_numbers_neither_cuts_nor_bends_a_restored_connection() {
    let policy = policy();
    let mut after = After::restart(&policy);
    for step in 1..200_u32 {
        let guess = step.wrapping_mul(0x9e37_79b1);
        after.pass(0, RST, guess, 0, 0);
        after.pass(0, ACK, guess, guess.rotate_left(7), 100);
        // The forger knows the numbers of his own segments.
        after.pass(0, RST, guess, 0, 0);
        after.pass(0, RST, guess.wrapping_add(100), 0, 0);
        after.pass(0, FIN | ACK, guess.wrapping_add(100), guess, 0);
        after.pass(0, SYN, guess, 0, 0);
    }
    assert_eq!((after.flow().state, after.flow().liberal), (FlowState::Restored, true));
    assert!(after.pass(0, ACK, 101, 501, 10) && after.pass(1, ACK, 501, 111, 0) && after.pass(0, ACK, 111, 501, 0));
    assert_eq!((after.flow().state, after.flow().liberal), (FlowState::Established, false));
    assert!(after.pass(0, RST, 111, 0, 0));
    assert_eq!(after.flow().state, FlowState::Closed);
}
