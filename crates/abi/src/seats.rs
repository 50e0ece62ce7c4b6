//! Tables of the connections that each address holds (`limit each ip saddr connections 20`).
//! `datapath/connections/seats.h` implements the same in C.
//!
//! An address has as many *seats* as it may hold connections. A connection that its client has proven takes a seat with
//! its first packet, and a packet of a proven connection without a seat exceeds the limit. Nothing counts up or down: a
//! seat names its flow, and is taken as long as the table of flows has that flow, not expired and in a state that
//! counts. So however a flow ends, its seat is free, and no engine has to notice the end.
//!
//! A table consists of sets of [`WAYS`] addresses. A set of addresses with `n` seats has 8 + 8 * `n` words:
//!
//! ```text
//!  word 0..8        a header of each way         17 bits: 1, and the tag of its address; 0: the way is free
//!  word 8 + w * n   the first seat of way w      0: free
//!
//!   63   58 57                36 35                14 13        0
//!  +-------+--------------------+--------------------+-----------+
//!  |   0   |  second bucket     |  first bucket      |  tag      |    a seat: the hash of its flow, tag never 0
//!  +-------+--------------------+--------------------+-----------+
//! ```
//! Addresses are hashed as in [`crate::each`], and two addresses of a set with one tag share their seats. An address
//! without a way takes a free one, or one whose seats are all free. If there is none, it shares the seats of another
//! address of its set.
//!
//! Example: an address with 2 seats has one connection, whose flow has the tag 5 and the buckets 7 and 9. Its seats
//! are `9 << 36 | 7 << 14 | 5` and 0. A second connection takes the other seat, and a third one has none.

use crate::each::WAYS;
use crate::flow::{Flow, FlowState, Hashed, TAG_HASH};

/// The maximum number of connections of an address.
pub const SEATS_MAX: u16 = 500;
/// Number of addresses of a table, if the policy does not say it.
pub const SIZE_DEFAULT: u32 = 1 << 16;
/// Maximum number of words of a table: 256 MiB.
pub const WORDS_MAX: usize = 1 << 25;
/// Flows that one packet looks up to find a free seat, and as many to find a free way.
pub const PROBES: u32 = 16;

/// The bit of a used header.
pub const HEADER_USED: u64 = 1 << 16;
/// The lowest bit of the number of the first bucket in a seat.
pub const FIRST_SHIFT: u32 = 14;
/// The lowest bit of the number of the second one.
pub const SECOND_SHIFT: u32 = 36;
/// Number of bits of the number of a bucket.
pub const BUCKET_BITS: u32 = 22;

/// Number of words of a set.
pub const fn set_words(seats: u16) -> usize {
    WAYS * (1 + seats as usize)
}

/// Number of words of a table for `size` addresses, a power of two.
pub const fn table_words(size: u32, seats: u16) -> usize {
    size as usize * (1 + seats as usize)
}

/// The seat of a flow.
pub const fn of_flow(hashed: &Hashed) -> u64 {
    let [first, second] = hashed.buckets;
    (second as u64) << SECOND_SHIFT | (first as u64) << FIRST_SHIFT | hashed.tag as u64
}

/// The buckets and the tag of the flow of a seat.
pub fn flow_of(seat: u64) -> Hashed {
    let bucket = |shift: u32| (seat >> shift) as u32 & ((1 << BUCKET_BITS) - 1);
    Hashed { buckets: [bucket(FIRST_SHIFT), bucket(SECOND_SHIFT)], tag: seat as u16 & TAG_HASH }
}

/// What a packet wants of the seats of its address. The state of its flow after the packet decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Claim {
    /// Nothing: it belongs to no connection.
    None = 0,
    /// A seat must be free, and stays free: the connection is not proven. A forged packet takes nothing from others.
    Free = 1,
    /// A seat: the connection is proven and not over.
    Seat = 2,
    /// Its seat becomes free: the connection is over.
    Over = 3,
}

impl Claim {
    /// The claim of a packet of a flow. A closed window says nothing: a client that never opens its own still holds the
    /// connection.
    pub fn of(flow: &Flow) -> Self {
        use FlowState::{
            Assured, CloseWait, Closed, Established, FinWait, LastAck, Replied, Resetting, Restored, SynReceived,
            SynReceived2, SynSent, SynSent2, TimeWait, Unreplied,
        };
        match flow.state {
            SynSent | SynSent2 | SynReceived | SynReceived2 => Claim::Free,
            // It was picked up, and may be made up.
            Established | Resetting if !flow.replied => Claim::Free,
            // A half-closed connection is still held.
            Established | Resetting | Restored | FinWait | CloseWait | LastAck => Claim::Seat,
            TimeWait | Closed => Claim::Over,
            Unreplied | Replied | Assured => Claim::None,
        }
    }
}

/// Grants the claim of a packet, or returns `false`: it exceeds the limit of its address. `tag` belongs to the address,
/// and `seat` to the flow of the packet. `is_live` tells whether the flow of a seat counts.
pub fn grant(
    set: &mut [u64],
    seats: u16,
    tag: u16,
    seat: u64,
    claim: Claim,
    is_live: &mut dyn FnMut(u64) -> bool,
) -> bool {
    let (headers, all) = set.split_at_mut(WAYS);
    let mut set = Set { headers, all, seats: seats.into(), seat };
    let header = HEADER_USED | u64::from(tag);
    let known = set.headers.iter().position(|&word| word == header);
    match (claim, known) {
        (Claim::None, _) | (Claim::Free | Claim::Over, None) => true,
        (Claim::Over, Some(way)) => {
            if let Some(at) = set.own(way) {
                set.all[at] = 0;
            }
            true
        }
        (Claim::Free, Some(way)) => set.own(way).is_some() || set.free(way, is_live).is_some(),
        (Claim::Seat, Some(way)) => set.take(way, is_live),
        (Claim::Seat, None) => match set.headers.iter().position(|&word| word == 0) {
            Some(way) => set.take_way(way, header, is_live),
            None => {
                let shared = usize::from(tag) % WAYS;
                if set.own(shared).is_some() {
                    return true;
                }
                match set.idle(is_live) {
                    Some(way) => set.take_way(way, header, is_live),
                    None => set.take(shared, is_live),
                }
            }
        },
    }
}

struct Set<'a> {
    headers: &'a mut [u64],
    /// The seats of all ways.
    all: &'a mut [u64],
    /// Number of seats of a way.
    seats: usize,
    /// The seat of the packet's flow.
    seat: u64,
}

impl Set<'_> {
    /// The seats of a way, in the order in which the flow looks for one. Flows begin at different ones.
    fn order(&self, way: usize) -> impl Iterator<Item = usize> + use<> {
        let (seats, start) = (self.seats, flow_of(self.seat).tag as usize % self.seats);
        (0..seats).map(move |nth| way * seats + (start + nth) % seats)
    }

    /// The seat that the flow has.
    fn own(&self, way: usize) -> Option<usize> {
        self.order(way).find(|&at| self.all[at] == self.seat)
    }

    /// The first seat without a flow, or else the first one whose flow does not count, among the first [`PROBES`].
    fn free(&self, way: usize, is_live: &mut dyn FnMut(u64) -> bool) -> Option<usize> {
        let empty = self.order(way).find(|&at| self.all[at] == 0);
        empty.or_else(|| self.order(way).take(PROBES as usize).find(|&at| !is_live(self.all[at])))
    }

    /// Whether the flow has, or gets, a seat.
    fn take(&mut self, way: usize, is_live: &mut dyn FnMut(u64) -> bool) -> bool {
        if self.own(way).is_some() {
            return true;
        }
        let free = self.free(way, is_live);
        free.iter().for_each(|&at| self.all[at] = self.seat);
        free.is_some()
    }

    fn take_way(&mut self, way: usize, header: u64, is_live: &mut dyn FnMut(u64) -> bool) -> bool {
        self.headers[way] = header;
        self.take(way, is_live)
    }

    /// The first way whose flows all do not count. It is found with [`PROBES`] lookups of flows or not at all.
    fn idle(&self, is_live: &mut dyn FnMut(u64) -> bool) -> Option<usize> {
        let mut probes = PROBES;
        for way in 0..WAYS {
            let mut is_idle = true;
            for &seat in self.all[way * self.seats..][..self.seats].iter().filter(|&&seat| seat != 0) {
                probes = probes.checked_sub(1)?;
                if is_live(seat) {
                    is_idle = false;
                    break;
                }
            }
            if is_idle {
                return Some(way);
            }
        }
        None
    }
}
