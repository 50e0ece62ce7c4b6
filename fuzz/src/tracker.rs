//! The fuzz target for tracking.

use std::sync::Arc;
use weir_abi::{Action, LimitEntries, Link, Reason};
use weir_policy::ir::eval::packet::Frame;
use weir_policy::ir::eval::{Evaluator, Tables};
use weir_policy::ir::{Program, SlotId, parse};

/// A program that tracks, with a small table. The placeholders are settings.
const PROGRAM: &str = "\
program fuzz
tracking size 64 embryonic SHARE% unproven SHARE% pickup PICKUP one-way ONEWAY vlan VLAN invalid drop syn-sent 2000ms syn-recv 1000ms \
established 9000ms fin-wait 2000ms close-wait 1000ms last-ack 1000ms time-wait 2000ms closed 1000ms \
unacknowledged 3000ms udp 1000ms udp-replied 2000ms icmp 1000ms other 4000ms
rule 0 fuzz:1 [drop] ct state related ip ttl 7 drop
rule 1 fuzz:2 [accept] accept
chain upstream
  track
  when ct state in 4
    when ip4
      when ip ttl in 7
        rule 0
  rule 1
chain downstream
  track
  rule 1
";
/// Bytes of the input that describe a packet.
const STEP_BYTES: usize = 12;

struct NoTables;

impl Tables for NoTables {
    fn find(&self, _: SlotId, _: u128) -> u32 {
        0
    }

    fn entries(&self, _: SlotId) -> Option<Vec<(u128, u8, u32)>> {
        None
    }

    fn limits(&self, _: weir_policy::ir::LimiterId) -> Arc<LimitEntries> {
        unreachable!("the program has no limiters")
    }
}

/// Random packets of a few flows. After each packet the table must keep its invariants, and a packet that is refused
/// must change no flow.
pub(crate) fn tracker(data: &[u8]) {
    let Some((&settings, steps)) = data.split_first() else { return };
    let switch = |bit: u8| if settings >> bit & 1 == 0 { "off" } else { "on" };
    let share = 1 + settings % 100;
    let vlan = ["match", "ignore"][usize::from(switch(2) == "on")];
    let text = PROGRAM.replace("SHARE", &share.to_string()).replace("PICKUP", switch(0));
    let text = text.replace("ONEWAY", switch(1)).replace("VLAN", vlan);
    let program: Program = parse::parse(&text).expect("the program is valid");
    let mut evaluator = Evaluator::new(&program, NoTables);
    let mut time_ns = 1_000_000_000;
    for step in steps.chunks_exact(STEP_BYTES) {
        time_ns += u64::from(step[0] & 31) * 40_000_000;
        let packet = packet(step);
        let wire_len = packet.len() as u32;
        let frame = Frame { bytes: &packet, wire_len, link: Link::RawIp, time_ns };
        let before = flows(&evaluator);
        // Mostly from the side of its address.
        let from = usize::from(step[1] >> 7) ^ usize::from(step[11] == 0xff);
        let verdict = evaluator.decide(from, frame, &mut ());
        evaluator.verify_flows();
        let refused = (Reason::BAD_FLAGS..=Reason::STATE_FULL).contains(&verdict.reason());
        if refused {
            assert_eq!(verdict.action(), Some(Action::Drop));
            // Flows may have expired meanwhile, but none has changed.
            assert!(flows(&evaluator).iter().all(|flow| before.contains(flow)), "a refused packet changes nothing");
        }
    }
}

type Known = (weir_abi::flow::FlowKey, weir_abi::flow::Flow);

fn flows(evaluator: &Evaluator<'_, NoTables>) -> Vec<Known> {
    let mut flows = Vec::new();
    evaluator.flows(&mut |key, flow| flows.push((*key, *flow)));
    flows
}

/// An IPv4 packet of twelve bytes: protocol, flow, direction, flags, and numbers near a few values.
fn packet(step: &[u8]) -> Vec<u8> {
    let ends = [[192, 0, 2, step[1] & 7], [198, 51, 100, step[1] >> 3 & 3]];
    let is_reply = step[1] & 0x80 != 0;
    let (source, destination) = if is_reply { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    let number = |at: usize| {
        let bases = [0, 1000, u32::MAX - 500, 1 << 31];
        bases[usize::from(step[at] & 3)].wrapping_add(u32::from(u16::from_be_bytes([step[at + 1], step[at + 2]])))
    };
    let port = 1024 + u16::from(step[2]);
    let ports = if is_reply { [80, port] } else { [port, 80] };
    let protocol = [6, 6, 6, 6, 6, 17, 1, 47][usize::from(step[0] >> 5)];
    let mut transport: Vec<u8> = match protocol {
        6 => {
            let mut header = [ports[0].to_be_bytes(), ports[1].to_be_bytes()].concat();
            header.extend(number(4).to_be_bytes());
            header.extend(number(7).to_be_bytes());
            // A shift, or a block of selective acknowledgement.
            let options = if step[3] & 0x40 == 0 { vec![1, 3, 3, step[10]] } else { vec![4, 2, 1, 0] };
            header.extend([0x60, step[3]]);
            header.extend([step[10], step[11], 0, 0, 0, 0]);
            header.extend(options);
            header
        }
        1 => {
            let types = [8, 0, 13, 14, 3, 11, 5, 9];
            vec![types[usize::from(step[3] & 7)], 0, 0, 0, 0, step[2], 0, 0]
        }
        _ => [ports[0].to_be_bytes(), ports[1].to_be_bytes(), [0, 8], [0, 0]].concat(),
    };
    if protocol == 1 && step[3] & 4 != 0 {
        // An error that quotes a segment.
        transport.extend([0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0]);
        transport.extend(destination);
        transport.extend(source);
        transport.extend([ports[1].to_be_bytes(), ports[0].to_be_bytes()].concat());
        transport.extend(number(4).to_be_bytes());
    } else if protocol == 6 {
        transport.resize(transport.len() + usize::from(step[11] & 15) * 9, 0);
    }
    let length = (20 + transport.len()) as u16;
    let fragment = if step[2] == 0xff { 0x20 } else { 0 };
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, fragment, 0, if step[2] & 1 == 0 { 64 } else { 7 }, protocol, 0, 0]);
    packet.extend(source);
    packet.extend(destination);
    packet.extend(transport);
    packet
}
