//! The cache of flows, beside a plain list of packets.

use proptest::prelude::*;
use std::collections::HashMap;
use weir_export::flows::{Addition, Addresses, Bounds, End, Flow, Flows, Key};

fn key(number: u8) -> Key {
    let addresses = Addresses::V4([192, 0, 2, number], [198, 51, 100, 1]);
    let (source_port, destination_port, icmp, input, output) = (1, 2, 0, 3, 4);
    Key { addresses, protocol: 6, source_port, destination_port, icmp, input, output, status: 129 }
}

fn packet(at_ms: u64) -> Addition {
    Addition { at_ms, bytes: 100, tcp_flags: 2 }
}

proptest! {
    /// Packets and bytes of ended flows are those that were added, there are never more flows than room, and no
    /// flow lasts longer than both timeouts.
    #[test]
    fn no_packet_is_lost_or_counted_twice(
        steps in prop::collection::vec((0..12u8, 0..4_000u64, 0..2_000u64, any::<u8>()), 1..200),
        room in 0..8usize,
    ) {
        let bounds = Bounds { flows: room, idle_ms: 3_000, active_ms: 10_000 };
        let mut flows = Flows::new(bounds);
        let mut ended: Vec<(Key, Flow, End)> = Vec::new();
        let (mut now_ms, mut wanted) = (0, HashMap::<Key, (u64, u64, u8)>::new());
        for (number, later_ms, bytes, tcp_flags) in steps {
            now_ms += later_ms;
            let mut end = |key: &Key, flow: &Flow, end: End| ended.push((*key, *flow, end));
            flows.expire(now_ms, &mut end);
            flows.add(key(number), Addition { at_ms: now_ms, bytes, tcp_flags }, &mut end);
            let sum = wanted.entry(key(number)).or_default();
            *sum = (sum.0 + 1, sum.1 + bytes, sum.2 | tcp_flags);
            prop_assert!(flows.len() <= room.max(1));
        }
        let evicted = ended.iter().filter(|(_, _, end)| *end == End::Full).count();
        prop_assert_eq!(flows.evicted(), evicted as u64);
        flows.finish(&mut |key, flow, end| ended.push((*key, *flow, end)));
        prop_assert!(flows.is_empty());
        let mut found = HashMap::<Key, (u64, u64, u8)>::new();
        for (key, flow, _) in &ended {
            let sum = found.entry(*key).or_default();
            *sum = (sum.0 + flow.packets, sum.1 + flow.bytes, sum.2 | flow.tcp_flags);
            prop_assert!(flow.last_ms - flow.first_ms < bounds.active_ms);
        }
        prop_assert_eq!(found, wanted);
    }
}

#[test]
fn flows_end_for_their_reasons() {
    let mut flows = Flows::new(Bounds { flows: 2, idle_ms: 10, active_ms: 25 });
    let mut ended = Vec::new();
    let mut end = |key: &Key, flow: &Flow, end: End| ended.push((*key, flow.packets, end));
    flows.add(key(1), packet(0), &mut end);
    flows.add(key(2), packet(1), &mut end);
    flows.add(key(1), packet(9), &mut end);
    // Flow 2 is silent longer.
    flows.add(key(3), packet(9), &mut end);
    flows.expire(18, &mut end);
    flows.add(key(1), packet(18), &mut end);
    flows.expire(19, &mut end);
    flows.add(key(1), packet(25), &mut end);
    flows.finish(&mut end);
    let wanted = [(key(2), 1, End::Full), (key(3), 1, End::Idle), (key(1), 3, End::Active), (key(1), 1, End::Forced)];
    assert_eq!(ended, wanted);
    assert_eq!(flows.evicted(), 1);
}

#[test]
fn a_clock_that_goes_back_ends_nothing() {
    let mut flows = Flows::new(Bounds::default());
    let mut end = |_: &Key, _: &Flow, _: End| panic!("no flow ends");
    flows.add(key(1), packet(100_000), &mut end);
    flows.add(key(1), packet(10), &mut end);
    flows.expire(0, &mut end);
    let mut last = None;
    flows.finish(&mut |_, flow, _| last = Some(*flow));
    assert_eq!(last.map(|flow| (flow.first_ms, flow.last_ms, flow.packets)), Some((10, 100_000, 2)));
}
