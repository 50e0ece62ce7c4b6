//! P4 whose tracking is split between the pipeline and a controller: which packets the controller gets, and that its time
//! changes no verdict.

use crate::agree::{any, compare, packets, run, written};
use crate::conntrack_flows::{ACK, Dice, FIN, RST, SYN, Segment};
use crate::engines;
use std::time::Duration;
use weir_abi::Reason;
use weir_engine::cpu::Cpu;
use weir_engine::{Bound, Controller, Filter, TrackedBy};
use weir_loading::Policy;
use weir_loading::eval::EvalFilter;
use weir_test_support::{Link, Packet};

/// Its verdicts do not depend on the order of packets of different flows, so packets pass others that wait.
const RULES: &str = "ct state established accept
  ct state related accept
  ct state new tcp sport 0-1150 drop
  ct state new accept
  ct state invalid counter
  tcp track
  drop";

fn policy(settings: &str, rules: &str) -> Policy {
    written(&format!("tracking {{ {settings} }}\nupstream {{\n  {rules}\n}}\ndownstream {{\n  {rules}\n}}\n"))
}

#[test]
fn a_controller_changes_no_verdict() {
    let by_limit = RULES.replace("ct state new accept", "ct state new limit rate 500pps accept");
    // In a table without room new flows take the place of others. A limit decides packets of all flows in their order.
    let policies = [("size 64; embryonic 50%", RULES), ("size 1024; one-way", RULES), ("size 96", &by_limit)];
    for (nth, (settings, rules)) in policies.into_iter().enumerate() {
        let policy = policy(settings, rules);
        let packets = packets(&mut Dice::new(nth as u64 + 100), &any);
        let eval = run(&mut EvalFilter::new(&policy.program, policy.answers()), &packets);
        let mut as_p4 = engines::as_p4(&policy).unwrap_or_else(|error| panic!("{settings}: {error}"));
        for (name, filter) in &mut as_p4 {
            compare(&policy, &packets, &format!("{name}, {settings}"), &eval, &run(filter, &packets));
            filter.flow_table().expect("it tracks").verify().expect("the invariants of the table hold");
        }
        let tracked: Vec<_> = as_p4.iter().map(|(_, filter)| filter.tracked_by()).collect();
        let [None, Some(TrackedBy { pipeline, controller })] = tracked[..] else { panic!("{tracked:?}") };
        assert!(pipeline > 1000 && controller > 1000, "{settings}: {pipeline} and {controller}");
    }
}

/// Packets of one burst: the first one goes to the controller.
fn burst(segments: &[(u32, Segment)], time_ns: u64) -> Vec<Packet> {
    let packet = |(flow, segment): &(u32, Segment)| {
        let bytes = segment.packet(*flow);
        Packet { wire: bytes.len() as u32, bytes, link: Link::RawIp, time_ns }
    };
    segments.iter().map(packet).collect()
}

fn segment(from: usize, flags: u8, seq: u32, ack: u32) -> Segment {
    Segment { from, flags, seq, ack, window: 1000, options: vec![], payload: 0 }
}

/// The number of flows that are open.
const OPEN: u32 = 16;
/// The number of the first one. Its port is above those that a rule refuses.
const FIRST: u32 = 150;

/// Opens the flows: three packets of each change its state.
fn opening() -> Vec<Packet> {
    let all = |from, flags, seq, ack| (FIRST..FIRST + OPEN).map(move |flow| (flow, segment(from, flags, seq, ack)));
    let (syns, answers) = (all(0, SYN, 100, 0), all(1, SYN | ACK, 500, 101));
    [syns.collect(), answers.collect(), all(0, ACK, 101, 501).collect::<Vec<_>>()]
        .iter()
        .flat_map(|segments| burst(segments, 1 << 40))
        .collect()
}

#[test]
fn the_controller_gets_what_changes_a_state() {
    let policy = policy("size 1024; pickup off; invalid drop", RULES);
    let compiled = policy.compile_p4(Cpu::Native).expect("P4 has all of it");
    for takes in [Duration::ZERO, Duration::from_millis(2)] {
        let controller = Some(Controller { takes });
        let bound = Bound { controller, ..policy.bind(None).expect("there is memory") };
        let mut filter = compiled.filter(bound).expect("it loads");
        let mut eval = EvalFilter::new(&policy.program, policy.answers());
        let mut before = TrackedBy::default();
        // The packets that the pipeline and the controller track, and the reason of the last packet.
        let mut pass = |packets: &[Packet], here: u64, away: u64| {
            let (eval, decided) = (run(&mut eval, packets), run(&mut filter, packets));
            compare(&policy, packets, "split", &eval, &decided);
            let by = filter.tracked_by().expect("it has a controller");
            assert_eq!((by.pipeline - before.pipeline, by.controller - before.controller), (here, away));
            before = by;
            decided.verdicts.last().expect("there are packets").reason()
        };
        let open = u64::from(OPEN);
        pass(&opening(), 0, 3 * open);
        // Both sides acknowledge. Numbers outside of the window, resets among them, are refused in the pipeline.
        let acks: Vec<_> = (FIRST..FIRST + OPEN).map(|flow| (flow, segment(0, ACK, 101, 501))).collect();
        pass(&burst(&acks, 2 << 40), open, 0);
        let outside = segment(0, ACK, 900_000, 501);
        assert_eq!(pass(&burst(&[(FIRST, outside)], 2 << 40), 1, 0), Reason::OUT_OF_WINDOW);
        let reset = segment(0, RST, 900_000, 0);
        assert_eq!(pass(&burst(&[(FIRST, reset)], 2 << 40), 1, 0), Reason::RST_OUT_OF_WINDOW);
        // A FIN, then ACKs of other flows, which pass it, and one of the same flow, which changes nothing behind it.
        let mut mixed = vec![(FIRST, segment(0, FIN | ACK, 101, 501))];
        mixed.extend(acks[1..].iter().cloned());
        mixed.push((FIRST, segment(0, ACK, 102, 501)));
        pass(&burst(&mixed, 3 << 40), open - 1, 2);
        // Unknown flows: the controller decides that they cannot be opened.
        assert_eq!(pass(&burst(&[(99, segment(0, ACK, 1, 1))], 3 << 40), 0, 1), Reason::NO_STATE);
        // A SYN that is refused by a rule opens no flow, and the next packet of the flow finds none.
        let refused = [(102, segment(0, SYN, 1, 0)), (102, segment(0, ACK, 2, 7))];
        pass(&burst(&refused, 3 << 40), 0, 2);
        filter.flow_table().expect("it tracks").verify().expect("the invariants of the table hold");
    }
}

/// Without tracking there is nothing to split.
#[test]
fn a_policy_that_does_not_track_has_no_controller() {
    let policy = written("upstream { accept }\ndownstream { accept }\n");
    let controller = Controller { takes: Duration::from_secs(3600) };
    let mut filter = policy.p4(Some(controller)).expect("it loads");
    let decided = run(&mut filter, &opening());
    assert_eq!((decided.verdicts.len(), filter.tracked_by()), (48, Some(TrackedBy::default())));
}
