//! From which side the packets of a recording came, learned from their link layer.
//!
//! Addresses are the sender's to write. Which router passed a packet on is not: the Ethernet addresses of a hop, or the
//! interface of a tap, differ by direction. A line is one direction between two hops. An attacker outside can send any
//! packet, but only on lines that come from outside, and these carry his attack too. So a line is one from inside only
//! if it carries sources inside and none outside, and the opposite line carries sources outside. What an attacker sends
//! can neither make him such a line nor take it from the hosts inside. Where no line is one from inside, as in a
//! recording of one direction, or with the same addresses in all packets, the source decides alone.

use std::collections::HashMap;
use weir_abi::Link;
use weir_mitigate::header::Arrival;
use weir_policy::ir::eval::packet::Frame;

/// Packets without which nothing is concluded from a line.
const PACKETS_MIN: u64 = 16;
/// A line from inside has at most one packet in this many from a source outside: a router has addresses of its own.
const STRAY: u64 = 1000;
/// Lines that are remembered.
const LINES_MAX: usize = 4096;
const MAC_BYTES: usize = 6;

type Mac = [u8; MAC_BYTES];

/// One direction between two hops, or one interface if there are no hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Line {
    Hops { from: Mac, to: Mac },
    Interface(u32),
}

/// What a line has carried.
#[derive(Clone, Copy, Debug, Default)]
struct Carried {
    /// Packets from a source outside to a destination inside, and the reverse.
    inwards: u64,
    outwards: u64,
}

/// What is known of the lines of a recording.
#[derive(Debug, Default)]
pub struct Sides {
    lines: HashMap<Line, Carried>,
    /// Packets whose side was known by their line.
    known: u64,
}

impl Sides {
    /// The side from which a packet came, if its line says so. `interface` is its interface in the capture. `is_inside`
    /// says whether its source and its destination are inside. Packets between two hosts inside may be routed from one
    /// to the other, so their line says nothing.
    pub fn of(&mut self, frame: &Frame<'_>, interface: u32, is_inside: (bool, bool)) -> Option<Arrival> {
        let line = Line::of(frame, interface);
        match is_inside {
            (false, true) => {
                self.carried(line)?.inwards += 1;
                None
            }
            (true, false) => {
                self.carried(line)?.outwards += 1;
                let side = self.side(line);
                self.known += u64::from(side.is_some());
                side
            }
            _ => None,
        }
    }

    /// Whether lines said more than addresses.
    pub fn are_known(&self) -> bool {
        self.known > 0
    }

    fn carried(&mut self, line: Line) -> Option<&mut Carried> {
        if self.lines.len() >= LINES_MAX && !self.lines.contains_key(&line) {
            return None;
        }
        Some(self.lines.entry(line).or_default())
    }

    /// The side of a line that carries sources inside.
    fn side(&self, line: Line) -> Option<Arrival> {
        if self.is_from_inside(line) {
            return Some(Arrival::Inside);
        }
        let is_from_outside = self.lines.get(&line).is_some_and(|carried| carried.inwards >= PACKETS_MIN);
        let mut inside = self.lines.keys().filter(|other| line.may_be_opposite(other));
        (is_from_outside && inside.any(|&other| self.is_from_inside(other))).then_some(Arrival::Outside)
    }

    fn is_from_inside(&self, line: Line) -> bool {
        let Some(carried) = self.lines.get(&line) else { return false };
        let is_pure = carried.outwards >= PACKETS_MIN && carried.inwards * STRAY <= carried.outwards;
        let carries_inwards = |other: &Line| self.lines.get(other).is_some_and(|one| one.inwards >= PACKETS_MIN);
        is_pure
            && match line {
                Line::Hops { from, to } => carries_inwards(&Line::Hops { from: to, to: from }),
                Line::Interface(_) => {
                    self.lines.keys().any(|other| line.may_be_opposite(other) && carries_inwards(other))
                }
            }
    }
}

impl Line {
    fn of(frame: &Frame<'_>, interface: u32) -> Self {
        let mac = |at: usize| frame.bytes.get(at..at + MAC_BYTES).and_then(|bytes| Mac::try_from(bytes).ok());
        match (frame.link, mac(0), mac(MAC_BYTES)) {
            (Link::Ethernet, Some(to), Some(from)) if from != to => Line::Hops { from, to },
            _ => Line::Interface(interface),
        }
    }

    /// Whether another line may carry the other direction.
    fn may_be_opposite(&self, other: &Line) -> bool {
        match (self, other) {
            (Line::Hops { from, to }, Line::Hops { from: other_from, to: other_to }) => {
                (from, to) == (other_to, other_from)
            }
            (Line::Interface(one), Line::Interface(other)) => one != other,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{PACKETS_MIN, Sides};
    use weir_abi::Link;
    use weir_mitigate::header::Arrival;
    use weir_policy::ir::eval::packet::Frame;

    const INWARDS: (bool, bool) = (false, true);
    const OUTWARDS: (bool, bool) = (true, false);
    const OUTSIDE: u8 = 1;
    const INSIDE: u8 = 2;

    fn see(sides: &mut Sides, (from, to): (u8, u8), is_inside: (bool, bool), packets: u64) -> Option<Arrival> {
        let bytes = [[0, 0, 0, 0, 0, to], [0, 0, 0, 0, 0, from]].concat();
        let frame = Frame { bytes: &bytes, wire_len: 60, link: Link::Ethernet, time_ns: 0 };
        (0..packets).map(|_| sides.of(&frame, 0, is_inside)).last().flatten()
    }

    #[test]
    fn a_source_inside_that_comes_from_the_router_outside_is_known() {
        let mut sides = Sides::default();
        see(&mut sides, (OUTSIDE, INSIDE), INWARDS, 100);
        assert_eq!(see(&mut sides, (INSIDE, OUTSIDE), OUTWARDS, PACKETS_MIN - 1), None);
        assert_eq!(see(&mut sides, (INSIDE, OUTSIDE), OUTWARDS, 1), Some(Arrival::Inside));
        assert_eq!(see(&mut sides, (OUTSIDE, INSIDE), OUTWARDS, 1), Some(Arrival::Outside));
        // However many there are.
        assert_eq!(see(&mut sides, (OUTSIDE, INSIDE), OUTWARDS, 10_000), Some(Arrival::Outside));
        assert_eq!(see(&mut sides, (INSIDE, OUTSIDE), OUTWARDS, 1), Some(Arrival::Inside));
    }

    #[test]
    fn an_attacker_does_not_teach_that_he_is_inside() {
        let mut sides = Sides::default();
        // He is there first, and nothing else comes by his router.
        let other = 3;
        assert_eq!(see(&mut sides, (other, INSIDE), OUTWARDS, 10_000), None);
        see(&mut sides, (OUTSIDE, INSIDE), INWARDS, 100);
        see(&mut sides, (INSIDE, OUTSIDE), OUTWARDS, 100);
        assert_eq!(see(&mut sides, (other, INSIDE), OUTWARDS, 1), None, "it is not known from inside");
        // His attack tells.
        see(&mut sides, (other, INSIDE), INWARDS, 100);
        see(&mut sides, (INSIDE, other), OUTWARDS, 100);
        assert_eq!(see(&mut sides, (other, INSIDE), OUTWARDS, 1), Some(Arrival::Outside));
    }

    #[test]
    fn where_lines_say_nothing_nothing_is_known() {
        // All packets have the same addresses, or none.
        for ends in [(OUTSIDE, INSIDE), (0, 0)] {
            let mut sides = Sides::default();
            see(&mut sides, ends, INWARDS, 100);
            assert_eq!(see(&mut sides, ends, OUTWARDS, 100), None);
            assert!(!sides.are_known());
        }
        // One direction.
        let mut sides = Sides::default();
        see(&mut sides, (OUTSIDE, INSIDE), INWARDS, 100);
        assert_eq!(see(&mut sides, (OUTSIDE, INSIDE), OUTWARDS, 100), None);
        // Hosts inside that a router connects.
        see(&mut sides, (INSIDE, OUTSIDE), OUTWARDS, 100);
        assert_eq!(see(&mut sides, (OUTSIDE, INSIDE), (true, true), 100), None);
    }

    #[test]
    fn the_interfaces_of_a_tap_are_lines() {
        let mut sides = Sides::default();
        let frame = Frame { bytes: &[0x45; 20], wire_len: 20, link: Link::RawIp, time_ns: 0 };
        (0..100).for_each(|_| _ = sides.of(&frame, 0, INWARDS));
        let last = (0..100).map(|_| sides.of(&frame, 1, OUTWARDS)).last().flatten();
        assert_eq!((last, sides.of(&frame, 0, OUTWARDS)), (Some(Arrival::Inside), Some(Arrival::Outside)));
    }
}
