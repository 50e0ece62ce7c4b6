//! More addresses than have room: every engine counts the same ones, and the others together.

use crate::engines::{Engines, load};
use std::fmt::Write;
use weir_abi::features::{ONE_IN, RECORDS, SIZE_MIN};
use weir_state::features::DirectionSnapshot;

const POLICY: &str = "observe { size 64 }\nupstream { udp dport 9 drop; accept }\ndownstream { accept }\n";

/// More packets than have records.
const ROUNDS: usize = 2 * RECORDS * ONE_IN as usize / 800;

#[test]
fn addresses_without_room_are_counted_together() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("few.weir"), POLICY).expect("the policy can be written");
    let policy = load(&folder.path().join("few.weir")).expect("the policy is right");
    let mut lines = String::new();
    for host in 0..400 {
        let (daddr, dport) = (host % 200, if host % 5 == 0 { 9 } else { 10 });
        let _ = writeln!(lines, "ip saddr=192.0.2.1 daddr=198.51.100.{daddr} / udp sport=4000 dport={dport}");
        let _ = writeln!(lines, "ip6 saddr=2001:db8::{host:x} daddr=2001:db8:1::{daddr:x} / tcp flags=syn");
    }
    let packets = weir_test_support::packets(&lines).expect("the packets are right");
    let mut engines = Engines::load(&policy).expect("all engines load it");
    for _ in 0..2 {
        let decided = engines.agree(&packets).expect("all agree");
        let [upstream, downstream] = decided.features.expect("the policy observes");
        assert_eq!(upstream.entries.len(), SIZE_MIN as usize, "all places are taken");
        assert!(upstream.rest.total() > 100 && downstream.rest.total() > 100);
        let packets = |direction: &DirectionSnapshot| direction.total().0;
        assert_eq!([packets(&upstream), packets(&downstream)], [800 - 80, 800]);
    }
    let many = (0..ROUNDS).flat_map(|_| packets.iter().cloned()).collect::<Vec<_>>();
    let [_, downstream] = engines.agree(&many).expect("all agree").features.expect("the policy observes");
    let [samples] = &downstream.samples[..] else { panic!("one worker has all packets") };
    assert_eq!((samples.seen, samples.records.len()), (800 * ROUNDS as u64, RECORDS));
    assert!(samples.taken > RECORDS as u64 * 3 / 2);
}
