//! The wire-side card: packets of its entries are dropped and counted, all others pass, in both directions. Without
//! Weir behind it, all packets pass.

#[cfg(feature = "dpdk")]
#[path = "card/flows.rs"]
mod flows;
#[path = "card/guest.rs"]
mod guest;
#[path = "card/running.rs"]
mod running;
#[path = "card/story.rs"]
mod story;

use crate::attach_other;
use crate::device_under_test::wait_until;
use crate::hosts::{Host, Hosts, Wires};
use crate::traffic::{Listener, frames, send};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use weir_engine::live::card::{CardSpec, CardTable, WireCard};

/// Bytes of the test frames.
const BYTES: u64 = 60;
/// Two sources of each family.
const SOURCES: [&str; 4] = ["10.66.0.1", "10.66.0.2", "2001:db8::1", "2001:db8::2"];

/// A card of the host with four entries.
fn spec(card: &Host) -> CardSpec {
    CardSpec {
        namespace: Some(card.namespace().to_owned()),
        outer: "outer".to_owned(),
        inner: "inner".to_owned(),
        entries: 4,
        update: Duration::from_millis(2),
        cpu_entries: 0,
        cpu_slowdown: Duration::ZERO,
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A frame from each source, `times` times. Frames of IPv6 have a tag.
fn from_all(times: usize) -> Vec<Vec<u8>> {
    let frame = |source: &&str| match source.contains(':') {
        true => format!("eth / vlan id=7 / ip6 saddr={source} daddr=2001:db8::9 / udp dport=9 / payload 2\n"),
        false => format!("eth / ip saddr={source} daddr=10.9.0.2 / udp dport=9 / payload 18\n"),
    };
    let once = frames(&SOURCES.iter().map(frame).collect::<String>());
    std::iter::repeat_n(once, times).flatten().collect()
}

/// Packets of each entry.
fn packets(table: &CardTable) -> HashMap<IpAddr, u64> {
    table.entries().map(|entry| (entry.source, entry.count.packets)).collect()
}

/// Sends frames through the card. Returns how many arrive of those that are not dropped.
fn deliver(hosts: &Hosts, frames: &[Vec<u8>], passed: usize) -> u64 {
    let listener = Listener::counting(&hosts.weir, "s");
    send(&hosts.client, "c", frames);
    listener.count(passed)
}

#[test]
fn a_card_drops_its_entries_and_passes_all_else() {
    let (hosts, host) = Hosts::of_host_with_card(Wires::default());
    let mut card = WireCard::open(&spec(&host)).expect("it is opened");
    assert!(card.access.iter().all(|access| access.ends_with("XDP in the driver")), "{:?}", card.access);
    // Entries are for packets from the wire only.
    let answered = |hosts: &Hosts| {
        let listener = Listener::counting(&hosts.client, "c");
        send(&hosts.weir, "s", &from_all(5));
        listener.count(20)
    };
    assert_eq!(deliver(&hosts, &from_all(5), 20), 20);
    let table = card.table.as_mut().expect("it has a table");
    let begun = Instant::now();
    for source in [SOURCES[0], SOURCES[2], SOURCES[0]] {
        table.add(address(source)).expect("there is room");
    }
    assert!(begun.elapsed() >= 2 * table.update(), "two changes take their time");
    assert_eq!((deliver(&hosts, &from_all(50), 100), answered(&hosts)), (100, 20));
    let dropped = HashMap::from([(address(SOURCES[0]), 50), (address(SOURCES[2]), 50)]);
    wait_until("they are counted", || packets(table) == dropped);
    let count = table.entries().find(|entry| entry.source == address(SOURCES[0])).expect("it is there").count;
    assert_eq!(count.bytes, 50 * BYTES);
    assert!(weir_state::now_ns() - count.last_ns < 10_000_000_000, "{count:?}");

    // A deleted entry says what it has dropped, and its number counts anew.
    let last = table.delete(address(SOURCES[0])).expect("it goes").expect("it was there");
    assert_eq!((last.packets, table.delete(address(SOURCES[0])).expect("nothing to do")), (50, None));
    assert_eq!(deliver(&hosts, &from_all(5), 15), 15);
    for more in ["10.66.0.2", "192.0.2.1", "192.0.2.2"] {
        table.add(address(more)).expect("there is room");
    }
    assert_eq!(packets(table)[&address("10.66.0.2")], 0);
    table.add(address("192.0.2.3")).expect_err("it is full");
    let mut gone = table.clear().expect("all go");
    gone.sort_by_key(|entry| entry.source);
    let left: Vec<_> = gone.iter().map(|entry| (entry.source, entry.count.packets)).collect();
    assert_eq!(left.len(), 4);
    assert_eq!(left[0], (address("10.66.0.2"), 0));
    assert_eq!(left[3], (address(SOURCES[2]), 55));
    assert_eq!(deliver(&hosts, &from_all(5), 20), 20);

    // Without its entries it is a wire.
    let table = card.table.as_mut().expect("it has a table");
    table.add(address(SOURCES[0])).expect("there is room");
    assert_eq!(deliver(&hosts, &from_all(5), 15), 15);
    drop(card);
    wait_until("everything passes", || deliver(&hosts, &from_all(5), 20) == 20);
    assert_eq!(answered(&hosts), 20);

    // The next card takes over.
    let mut card = WireCard::open(&spec(&host)).expect("it is opened again");
    card.table.as_mut().expect("it has a table").add(address(SOURCES[0])).expect("there is room");
    assert_eq!(deliver(&hosts, &from_all(5), 15), 15);
}

#[test]
fn the_cpu_of_a_card_drops_what_its_table_has_no_room_for() {
    let (hosts, host) = Hosts::of_host_with_card(Wires::default());
    let slow = Duration::from_micros(20);
    let spec = CardSpec { entries: 1, update: Duration::ZERO, cpu_entries: 1000, cpu_slowdown: slow, ..spec(&host) };
    let mut card = WireCard::open(&spec).expect("it is opened");
    let (table, cpu) = (card.table.as_mut().expect("a table"), card.cpu.as_mut().expect("a CPU"));
    table.add(address(SOURCES[0])).expect("there is room");
    SOURCES[..3].iter().for_each(|source| cpu.add(address(source)).expect("there is room"));
    assert_eq!(deliver(&hosts, &from_all(20), 20), 20);
    let expected = [0, 20, 20];
    let counted = |cpu: &CardTable| SOURCES[..3].iter().map(|one| packets(cpu)[&address(one)]).collect::<Vec<_>>();
    wait_until("the table is asked first", || counted(cpu) == expected && packets(table)[&address(SOURCES[0])] == 20);
}

#[test]
fn a_card_beside_neighbours_that_do_not_poll_runs_in_the_kernel() {
    let (hosts, host) = Hosts::of_host_with_card(Wires::default());
    hosts.weir.call("ethtool", "-K s gro off");
    let mut card = WireCard::open(&spec(&host)).expect("it is opened");
    let [outer, inner] = [&card.access[0], &card.access[1]];
    assert!(outer.contains("outer: XDP in the kernel") && outer.contains("inner takes no packets"), "{outer}");
    assert!(inner.ends_with("inner: XDP in the driver"), "{inner}");
    card.table.as_mut().expect("it has a table").add(address(SOURCES[2])).expect("there is room");
    assert_eq!(deliver(&hosts, &from_all(5), 15), 15);
    drop(card);
    wait_until("everything passes", || deliver(&hosts, &from_all(5), 20) == 20);
}

/// A card that cannot have both interfaces takes none.
#[test]
fn a_refused_card_leaves_the_wire_as_it_was() {
    let (hosts, host) = Hosts::of_host_with_card(Wires::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    attach_other(&host, "inner", folder.path());
    let refused = WireCard::open(&spec(&host)).err().expect("it is refused").to_string();
    assert!(refused.contains("interface inner") && refused.contains("(other)"), "{refused}");
    assert!(!host.call("ip", "link show dev outer").contains("xdp"));
    drop(hosts);
}

#[test]
fn what_is_not_there_is_named() {
    let host = Host::new();
    let open = |spec: CardSpec| WireCard::open(&spec).err().expect("it is refused").to_string();
    let missing = open(spec(&host));
    assert!(missing.starts_with("interface outer: "), "{missing}");
    let nowhere = open(CardSpec { namespace: Some("weir-none".into()), ..spec(&host) });
    assert!(nowhere.contains("/run/netns/weir-none"), "{nowhere}");
}
