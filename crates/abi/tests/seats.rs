//! Tables of connections: no address of a set has more than its seats, and what has ended takes none.

#![allow(missing_docs, reason = "a test")]

use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashSet;
use weir_abi::each::WAYS;
use weir_abi::flow::Hashed;
use weir_abi::seats::{self, Claim, PROBES};

/// A set, and the flows that count.
struct Table {
    seats: u16,
    set: Vec<u64>,
    live: HashSet<u64>,
}

/// The seat of a flow with a number.
fn seat(number: u32) -> u64 {
    seats::of_flow(&Hashed { buckets: [number % 7, number % 11], tag: 1 + (number % 16_000) as u16 })
}

impl Table {
    fn new(seats: u16) -> Self {
        Table { seats, set: vec![0; seats::set_words(seats)], live: HashSet::new() }
    }

    fn grant(&mut self, tag: u16, number: u32, claim: Claim) -> bool {
        let live = &self.live;
        seats::grant(&mut self.set, self.seats, tag, seat(number), claim, &mut |seat| live.contains(&seat))
    }

    /// A packet of a proven connection.
    fn open(&mut self, tag: u16, number: u32) -> bool {
        self.live.insert(seat(number));
        self.grant(tag, number, Claim::Seat)
    }

    fn end(&mut self, number: u32) {
        self.live.remove(&seat(number));
    }
}

#[test]
fn an_address_has_as_many_connections_as_seats() {
    for number in [1, 2, 16, 17, 500] {
        let mut table = Table::new(number);
        let all: Vec<bool> = (0..2 * u32::from(number)).map(|nth| table.open(9, nth)).collect();
        assert_eq!(all.iter().filter(|&&granted| granted).count(), usize::from(number));
        assert!(table.open(8, 5000), "another address has its own");
        assert!((0..u32::from(number)).all(|nth| table.open(9, nth)), "those with a seat keep it");
        assert!(!table.grant(9, 6000, Claim::Free) && table.grant(7, 6000, Claim::Free));
    }
}

#[test]
fn whatever_ends_leaves_its_seat_without_being_told() {
    let mut table = Table::new(PROBES as u16);
    (0..PROBES).for_each(|nth| assert!(table.open(9, nth)));
    for nth in 0..200 {
        assert!(!table.open(9, 1000 + nth));
        table.end(1000 + nth);
        table.end(nth);
        assert!(table.grant(9, PROBES + nth, Claim::Free), "a SYN would find the seat");
        assert!(table.open(9, PROBES + nth));
    }
}

/// One packet looks up no more than [`PROBES`] flows, so a seat among more is found by one of several packets.
#[test]
fn a_free_seat_among_many_is_found_by_some_packet() {
    let mut table = Table::new(500);
    (0..500).for_each(|nth| assert!(table.open(9, nth)));
    table.end(77);
    let lookups = std::cell::Cell::new(0);
    let found = (1000..9000_u32).filter(|&number| {
        lookups.set(0);
        let live = &table.live;
        let mut is_live = |seat| {
            lookups.set(lookups.get() + 1);
            live.contains(&seat)
        };
        let found = seats::grant(&mut table.set, 500, 9, seat(number), Claim::Free, &mut is_live);
        assert!(lookups.get() <= PROBES);
        found
    });
    // 16 of 500 seats: one packet of 31.
    assert!((200..320).contains(&found.count()));
}

#[test]
fn a_connection_that_is_over_gives_its_seat_up() {
    let mut table = Table::new(1);
    assert!(table.open(9, 1) && !table.open(9, 2));
    assert!(table.grant(9, 3, Claim::Over) && !table.open(9, 2), "another one has none to give");
    assert!(table.grant(9, 1, Claim::Over) && table.open(9, 2));
    assert!(table.grant(9, 4, Claim::None));
}

#[test]
fn ways_without_connections_go_to_other_addresses() {
    let mut table = Table::new(2);
    (0..WAYS as u16).for_each(|tag| assert!(table.open(tag, tag.into())));
    table.end(5);
    // It takes the way of the address whose connection has ended.
    assert!(table.open(100, 100) && table.open(100, 101) && !table.open(100, 102));
    // The next one shares the seats of another one, which has one left.
    assert!(table.open(202, 200) && !table.open(202, 201), "202 is in way 2");
    assert!(!table.open(2, 300) && table.open(3, 301));
    assert!(table.open(202, 200), "it keeps its seat");
}

proptest! {
    /// Whatever happens, the connections that were granted and still count are never more than the seats of the set,
    /// and those of an address never more than its own and a shared one's.
    #[test]
    fn nobody_has_more_than_the_seats(
        seats in 1_u16..20,
        events in vec((0_u16..12, 0_u32..60, 0_u8..8), 1..600),
    ) {
        let mut table = Table::new(seats);
        let mut held: HashSet<(u16, u32)> = HashSet::new();
        for (tag, number, what) in events {
            // Each flow belongs to one address.
            let number = number * 12 + u32::from(tag);
            match what {
                0 | 1 => {
                    table.end(number);
                    held.remove(&(tag, number));
                    table.grant(tag, number, Claim::Over);
                }
                2 => _ = table.grant(tag, number, Claim::Free),
                _ => {
                    let had = held.contains(&(tag, number));
                    if table.open(tag, number) {
                        held.insert((tag, number));
                    } else {
                        prop_assert!(!had || table.set[..WAYS].iter().all(|&header| header != 0), "a seat was lost");
                        held.remove(&(tag, number));
                    }
                }
            }
            let own = |tag: u16| held.iter().filter(|&&(of, _)| of == tag).count();
            prop_assert!((0..12).all(|tag| own(tag) <= 2 * usize::from(seats)));
            prop_assert!(held.len() <= WAYS * usize::from(seats));
            if table.set[..WAYS].contains(&0) {
                prop_assert!((0..12).all(|tag| own(tag) <= usize::from(seats)));
            }
        }
    }
}
