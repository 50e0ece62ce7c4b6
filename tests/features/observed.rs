//! More addresses than have room: every engine counts the same ones, and the others together.

use crate::engines::{Engines, frame_sets, load};
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_abi::features::{IPV4_MARK, ONE_IN, QUEUE, RECORDS, SIZE_MIN};
use weir_abi::{BURST_MAX, Verdict};
use weir_engine::Filter;
use weir_engine::frame_set::FrameSet;
use weir_state::features::{DirectionSnapshot, Snapshot};

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

/// Bursts of IPv4 alone and of both families, with an address that most packets have, with keys that have a half in
/// common, and with an IPv4 address that is also written as IPv6. With few cells, the order of packets decides which
/// addresses get one.
#[test]
fn keys_of_both_families_are_told_apart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut lines, mut to_victim) = (String::new(), 0);
    for number in 0..40 * BURST_MAX as u32 {
        let random = number.wrapping_mul(0x9e37_79b1) >> 8;
        let (host, kind) = (random % 100, number / BURST_MAX as u32 % 4);
        let _ = match (kind, random / 256 % 8) {
            // The first packet of a burst does not have the key of most others.
            (1, 0) | (2, 0..4) => {
                writeln!(lines, "ip6 saddr=2001:db8::1 daddr=2001:db8:{host:x}::ffff:c633:6401 / tcp")
            }
            (1, 1..6) => writeln!(lines, "ip saddr=192.0.2.1 daddr=198.51.100.200 / tcp"),
            (3, 0..2) => writeln!(lines, "ip6 saddr=2001:db8::1 daddr=::ffff:198.51.100.200 / tcp"),
            (3, 2..5) => writeln!(lines, "ip saddr=192.0.2.1 daddr=198.51.100.200 / tcp"),
            _ => writeln!(lines, "ip saddr=192.0.2.1 daddr=198.51.100.{host} / tcp"),
        };
        to_victim += u64::from(lines.trim_end().ends_with("198.51.100.200 / tcp"));
    }
    let packets = weir_test_support::packets(&lines).expect("the packets are right");
    for size in [SIZE_MIN, 4096] {
        let path = folder.path().join("keys.weir");
        let text = format!("observe {{ size {size} }}\nupstream {{ accept }}\ndownstream {{ accept }}\n");
        std::fs::write(&path, text).expect("the policy can be written");
        let policy = load(&path).expect("the policy is right");
        let mut engines = Engines::load(&policy).expect("all engines load it");
        let [upstream, _] = engines.agree(&packets).expect("all agree").features.expect("the policy observes");
        assert_eq!(upstream.rest.total() > 0, size == SIZE_MIN, "only the smaller one is full");
        let victim = upstream.entries.iter().find(|entry| entry.key == [0, IPV4_MARK | 0xc633_64c8]);
        assert_eq!(victim.map(|entry| entry.counts.total()), Some(to_victim), "both families together");
    }
}

/// Each has a cell of its own.
const VICTIM: &str = "
defaults { malformed accept; not-ip accept; fragment rules }
observe { inside { 198.51.100.0/24, 2001:db8:1::/120 } }
upstream { udp dport 9 drop; accept }
downstream { accept }
";

/// Packets of a burst to one address are summed up. Packets to others are counted one by one.
#[test]
fn an_attack_on_one_address_is_counted_as_packets_to_many() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("victim.weir"), VICTIM).expect("the policy can be written");
    let policy = load(&folder.path().join("victim.weir")).expect("the policy is right");
    let mut lines = String::new();
    for number in 0..640u32 {
        let random = number.wrapping_mul(0x9e37_79b1) >> 8;
        // From none to all of a burst belong to the victim.
        let host = if random % 64 < number / 8 { 7 } else { random % 256 };
        let source = random / 256 % 200;
        let ports = format!("sport={} dport={}", [53, 4000, 1900][number as usize % 3], 8 + number % 5);
        let _ = match random / 64 % 8 {
            0 => writeln!(lines, "ip6 saddr=2001:db8::{source:x} daddr=2001:db8:1::{host:x} / udp {ports}"),
            1 => writeln!(lines, "ip saddr=192.0.2.{source} daddr=203.0.113.{host} / tcp flags=ack"),
            2 => writeln!(lines, "ip saddr=192.0.2.{source} daddr=198.51.100.{host} / icmp type=8"),
            3 => writeln!(lines, "ip saddr=192.0.2.{source} daddr=198.51.100.{host} / tcp flags=syn,ack"),
            4 => writeln!(lines, "ip saddr=192.0.2.{source} daddr=198.51.100.{host} / tcp flags=rst"),
            _ => writeln!(lines, "ip saddr=192.0.2.{source} daddr=198.51.100.{host} / udp {ports}"),
        };
    }
    let packets = weir_test_support::packets(&lines).expect("the packets are right");
    let mut engines = Engines::load(&policy).expect("all engines load it");
    let [upstream, downstream] = engines.agree(&packets).expect("all agree").features.expect("the policy observes");
    let most = upstream.entries.iter().map(|entry| entry.counts.total()).max();
    assert!(most.is_some_and(|most| most > 150) && upstream.entries.len() > 50, "{most:?}");
    assert!(upstream.outside.total() > 20 && downstream.outside.total() == 640);
}

/// Programs in the kernel count packets when their queue is full, and what waits there at the exchange is counted by
/// its reader. So any number of packets gives the counts of engines that have no queue.
#[test]
fn packets_that_wait_are_counted_at_the_exchange() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in [("few.weir", POLICY), ("victim.weir", VICTIM)] {
        std::fs::write(folder.path().join(name), text).expect("the policy can be written");
        let policy = load(&folder.path().join(name)).expect("the policy is right");
        let mut engines = Engines::load(&policy).expect("all engines load it");
        let mut lines = String::new();
        for host in 0..3 * QUEUE {
            let _ = writeln!(lines, "ip saddr=192.0.2.{host} daddr=198.51.100.{} / udp dport=10", host % 150);
        }
        let packets = weir_test_support::packets(&lines).expect("the packets are right");
        for count in [1, QUEUE - 1, QUEUE, QUEUE + 1, 3 * QUEUE - 5] {
            let decided = engines.agree(&packets[..count]).expect("all agree");
            let totals = decided.features.expect("the policy observes").map(|direction| direction.total().0);
            assert_eq!(totals, [count as u64; 2], "{name}");
        }
    }
}

/// Sheets are exchanged while a program counts, also in the middle of a queue.
#[test]
fn nothing_is_lost_while_a_program_counts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("few.weir"), POLICY).expect("the policy can be written");
    let policy = load(&folder.path().join("few.weir")).expect("the policy is right");
    let lines: String =
        (0..55).map(|host| format!("ip saddr=192.0.2.1 daddr=198.51.100.{host} / udp dport=10\n")).collect();
    let packets = weir_test_support::packets(&lines).expect("the packets are right");
    let sets = frame_sets(&packets);
    let mut filter = policy.xdp().expect("the kernel takes it");
    let features = filter.features().expect("the policy observes").clone();
    let (exchanges, stopped, mut decided) = (AtomicU64::new(0), AtomicBool::new(false), 0);
    let seen = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut snapshot, mut seen) = (Snapshot::default(), 0);
            while !stopped.load(Ordering::SeqCst) {
                features.exchange(&mut snapshot).expect("the kernel waits");
                seen += snapshot.directions[0].total().0;
                exchanges.fetch_add(1, Ordering::SeqCst);
            }
            seen
        });
        while exchanges.load(Ordering::SeqCst) < 20 && !reader.is_finished() {
            for burst in sets.iter().flat_map(FrameSet::bursts) {
                filter.decide(0, &burst, &mut [Verdict(0); BURST_MAX]).expect("the kernel runs it");
                decided += burst.len() as u64;
            }
        }
        stopped.store(true, Ordering::SeqCst);
        reader.join().expect("it reads")
    });
    // Each sheet once.
    let rest: u64 = (0..2)
        .map(|_| {
            let snapshot = filter.take_features().expect("the kernel waits").expect("the policy observes");
            snapshot.directions[0].total().0
        })
        .sum();
    assert_eq!(seen + rest, decided);
}
