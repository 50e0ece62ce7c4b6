//! The entries of the table of flows: 64 bytes each, keys included. `docs/decisions/0033-tcp-tracking.md` explains the
//! layout, `docs/reference/tracking.md` the meaning.
//!
//! A bucket consists of 32 tags, one cache line, and 32 entries of one cache line each. An entry has eight words:
//!
//! ```text
//!  word 0, 1   address of side 0, high and low half; an IPv4 address is the low 32 bits
//!  word 2, 3   address of side 1
//!  word 4      port of side 0, 16 | port of side 1, 16 | protocol, 8 | VLAN id, 12 | inner VLAN id, 12
//!  word 5      una of side 0, 32 | una of side 1, 32
//!  word 6      next of side 0, 32 | next of side 1, 32
//!  word 7      the status word
//!
//!   63  62   61 60    59      58      57    56   55  52 51   48 47   44 43     36 35     28  27  26        0
//!  +---+---+-------+-------+-------+------+----+-------+-------+-------+---------+---------+---+-----------+
//!  |lck|syn|sack1 0|replied|liberal|family|orig| state |scale 1|scale 0|window 1 |window 0 |pxy|   time    |
//!  +---+---+-------+-------+-------+------+----+-------+-------+-------+---------+---------+---+-----------+
//! ```
//! The first field of each word is in its most significant bits. Side 0 is outside, side 1 is inside ([`Arrival`]).
//! Words 0 to 4 and the family are the key. `lck` is free for engines. `pxy` says that a SYN proxy opened the flow:
//! what it needs to translate packets lies beside the table ([`Proxied`]).
//!
//! Flows of other protocols than TCP have no numbers. Their word 5 counts exchanges ([`Exchanges`]), word 6 is 0.

mod class;
mod exchanges;
mod hash;
mod head;
mod key;
mod needs;
mod proxied;
mod timeout;
mod window;

pub use class::{FlowClass, RECLAIM_TICKS, TAG_CLASS_SHIFT, TAG_HASH};
pub use exchanges::{ASSURED_EXCHANGES, ASSURED_TICKS, Exchanges};
pub use hash::{HashKeys, Hashed};
pub use head::{FlowHead, FlowSecrets, OPENING_LOCKS, SynSwitch};
pub use key::{Arrival, FlowKey, Prompt};
pub use needs::FlowNeeds;
pub use proxied::{Agreed, Proxied};
pub use timeout::{Timeout, Timeouts};
pub use window::Window;

/// Number of slots of a bucket.
pub const SLOTS: usize = 32;
/// A new flow goes to the first bucket of its key if fewer slots than these are used there, so that nearly all flows
/// are found with the tags of one bucket. Above it, the two choices fill the table.
pub const PREFERRED: usize = 24;
/// Number of words of an entry.
pub const ENTRY_WORDS: usize = 8;

/// log2 of the number of nanoseconds of a tick, 16.8 ms.
pub const TICK_SHIFT: u32 = 24;
/// Times are modulo this number of ticks, 26 days.
pub const TICKS: u32 = 1 << 27;
/// A flow may be this much newer than a packet, 69 s: another CPU has read a later time before. Its age is then 0.
pub const TICKS_EARLY: u32 = 1 << 12;
/// The longest timeout. It is well below [`TICKS`], so that a flow is recognised as expired for days.
pub const TIMEOUT_MAX_MS: u64 = 10 * 24 * 3600 * 1000;

/// The minimum, maximum and default number of flows of a table.
pub const SIZE_MIN: u32 = 64;
/// See [`SIZE_MIN`].
pub const SIZE_MAX: u32 = 1 << 27;
/// See [`SIZE_MIN`].
pub const SIZE_DEFAULT: u32 = 1 << 18;

/// The seed of the hash for replays of captures, which makes them deterministic.
pub const REPLAY_SEED: u64 = 0;

/// Bytes of a bucket: its tags, then its entries.
pub const BUCKET_BYTES: usize = SLOTS * (size_of::<u16>() + ENTRY_WORDS * size_of::<u64>());
/// Most flows of a class in a bucket, at least one, for a share in percent.
pub const fn share_of_bucket(percent: u8) -> usize {
    let share = SLOTS * percent as usize / 100;
    if share == 0 { 1 } else { share }
}

/// The number of buckets of a table for `size` flows.
pub const fn buckets(size: u32) -> u32 {
    size.div_ceil(SLOTS as u32)
}

/// The time in ticks.
pub const fn ticks(time_ns: u64) -> u32 {
    (time_ns >> TICK_SHIFT) as u32 & (TICKS - 1)
}

/// A timeout in ticks. A flow has expired if more ticks than this have passed.
pub const fn timeout_ticks(milliseconds: u64) -> u32 {
    ((milliseconds * 1_000_000) >> TICK_SHIFT) as u32
}

/// The ticks from `then` to `now`; 0 if `then` is up to [`TICKS_EARLY`] later.
pub const fn age(now: u32, then: u32) -> u32 {
    (now.wrapping_sub(then).wrapping_add(TICKS_EARLY) & (TICKS - 1)).saturating_sub(TICKS_EARLY)
}

/// The state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FlowState {
    /// TCP: a SYN was seen.
    SynSent = 1,
    /// TCP: SYNs of both sides were seen, a simultaneous open.
    SynSent2 = 2,
    /// TCP: a SYN and its SYN-ACK were seen.
    SynReceived = 3,
    /// TCP: the first SYN-ACK of a simultaneous open was seen.
    SynReceived2 = 4,
    /// TCP: data can flow.
    Established = 5,
    /// TCP: established, and the last packet was a reset in the window that the receiver may ignore.
    Resetting = 6,
    /// TCP: a FIN was seen.
    FinWait = 7,
    /// TCP: an ACK after a FIN was seen.
    CloseWait = 8,
    /// TCP: FINs of both sides were seen.
    LastAck = 9,
    /// TCP: both FINs are acknowledged.
    TimeWait = 10,
    /// TCP: reset.
    Closed = 11,
    /// Other protocols: only the opening side has sent packets.
    Unreplied = 12,
    /// Other protocols: both sides have sent packets.
    Replied = 13,
    /// TCP: established when it was saved, and restored from disk. Its numbers are as old as the save.
    Restored = 14,
    /// Other protocols: both sides have answered each other for a while ([`Exchanges`]).
    Assured = 15,
}

impl FlowState {
    /// Every state with its name.
    pub const ALL: [(FlowState, &str); 15] = [
        (FlowState::SynSent, "syn-sent"),
        (FlowState::SynSent2, "syn-sent2"),
        (FlowState::SynReceived, "syn-recv"),
        (FlowState::SynReceived2, "syn-recv2"),
        (FlowState::Established, "established"),
        (FlowState::Resetting, "resetting"),
        (FlowState::FinWait, "fin-wait"),
        (FlowState::CloseWait, "close-wait"),
        (FlowState::LastAck, "last-ack"),
        (FlowState::TimeWait, "time-wait"),
        (FlowState::Closed, "closed"),
        (FlowState::Unreplied, "unreplied"),
        (FlowState::Replied, "replied"),
        (FlowState::Restored, "restored"),
        (FlowState::Assured, "assured"),
    ];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|&&(state, _)| state == self).map_or("", |&(_, name)| name)
    }

    /// Whether flows of TCP have the state, and no others.
    pub const fn is_of_tcp(self) -> bool {
        !matches!(self, FlowState::Unreplied | FlowState::Replied | FlowState::Assured)
    }

    /// The state with a number of four bits; `None` for the others.
    pub fn from_number(number: u64) -> Option<Self> {
        Self::ALL.iter().map(|&(state, _)| state).find(|&state| state as u64 == number)
    }
}

/// What the tracker knows of one side of a TCP flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// The highest acknowledgement that the other side sent; before it, the initial sequence number (SND.UNA).
    pub una: u32,
    /// The end of what the side has sent (SND.NXT).
    pub next: u32,
    /// The largest window that the side has offered. [`Window::NONE`] until it sends.
    pub window: Window,
    /// The shift of its windows, or [`Side::NO_SCALE`].
    pub scale: u8,
    /// Whether it accepts selective acknowledgements.
    pub sack: bool,
}

impl Side {
    /// The scale of a SYN without the option. After the handshake no side has it.
    pub const NO_SCALE: u8 = 15;
    /// The largest shift (RFC 7323, section 2.3).
    pub const SCALE_MAX: u8 = 14;
}

/// A flow besides its key: words 5 to 7 of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Time of the last packet that counts for the timeout, ticks.
    pub time: u32,
    /// The state.
    pub state: FlowState,
    /// The number of the side that opened the flow.
    pub opener: usize,
    /// Whether windows are unknown, so that they refuse nothing.
    pub liberal: bool,
    /// Whether the other side has answered.
    pub replied: bool,
    /// Whether the opener sent a SYN in a state that ignores it, and no answer was seen since.
    pub syn: bool,
    /// Whether a SYN proxy opened it, so that its packets are translated. Its numbers are the server's sequence
    /// numbers.
    pub proxied: bool,
    /// The sides; of other protocols than TCP both are empty.
    pub sides: [Side; 2],
}

impl Flow {
    /// The words 5, 6 and 7 of an entry. `is_ipv6` belongs to the key.
    pub fn pack(&self, is_ipv6: bool) -> [u64; 3] {
        let pair = |word: fn(&Side) -> u32| u64::from(word(&self.sides[0])) << 32 | u64::from(word(&self.sides[1]));
        let mut status = u64::from(self.time) | (self.state as u64) << 52 | (self.opener as u64) << 56;
        for (index, side) in self.sides.iter().enumerate() {
            status |= u64::from(side.window.0) << (28 + 8 * index) | u64::from(side.scale) << (44 + 4 * index);
            status |= u64::from(side.sack) << (60 + index);
        }
        let bits = [(27, self.proxied), (57, is_ipv6), (58, self.liberal), (59, self.replied), (62, self.syn)];
        status |= bits.iter().map(|&(bit, set)| u64::from(set) << bit).sum::<u64>();
        [pair(|side| side.una), pair(|side| side.next), status]
    }

    /// The flow and whether it is IPv6, from the words 5, 6 and 7 of an entry.
    ///
    /// # Panics
    /// If the entry holds no flow.
    pub fn unpack(words: [u64; 3]) -> (Self, bool) {
        Flow::read(words).expect("an entry has a state")
    }

    /// As [`Flow::unpack`]; `None` if the entry holds no flow.
    pub fn read([una, next, status]: [u64; 3]) -> Option<(Self, bool)> {
        let bit = |at: usize| status >> at & 1 != 0;
        let side = |index: usize| Side {
            una: (una >> (32 - 32 * index)) as u32,
            next: (next >> (32 - 32 * index)) as u32,
            window: Window((status >> (28 + 8 * index)) as u8),
            scale: (status >> (44 + 4 * index)) as u8 & 15,
            sack: bit(60 + index),
        };
        let flow = Flow {
            time: status as u32 & (TICKS - 1),
            state: FlowState::from_number(status >> 52 & 15)?,
            opener: (status >> 56) as usize & 1,
            liberal: bit(58),
            replied: bit(59),
            syn: bit(62),
            proxied: bit(27),
            sides: [side(0), side(1)],
        };
        Some((flow, bit(57)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_survives_packing() {
        let one = Side { una: 0xdead_beef, next: 0xffff_ffff, window: Window::of(65535), scale: 14, sack: true };
        let other = Side { una: 1, next: 0x8000_0000, window: Window::of(1), scale: Side::NO_SCALE, sack: false };
        for (number, &(state, name)) in FlowState::ALL.iter().enumerate() {
            let flow = Flow {
                time: TICKS - 1 - number as u32,
                state,
                opener: number & 1,
                liberal: number & 2 != 0,
                replied: number & 4 != 0,
                syn: number & 8 != 0,
                proxied: number & 2 == 0,
                sides: if number & 1 == 0 { [one, other] } else { [other, one] },
            };
            assert_eq!(Flow::unpack(flow.pack(number % 3 == 0)), (flow, number % 3 == 0), "{name}");
            assert_eq!(flow.pack(false)[2] >> 63, 0, "the lock is free");
        }
    }

    #[test]
    fn ages_wrap() {
        assert_eq!(age(5, TICKS - 5), 10);
        assert_eq!([age(7, 7), age(7, 8), age(2, TICKS_EARLY + 2), age(TICKS - 3, 4)], [0; 4]);
        assert_eq!(age(2, TICKS_EARLY + 3), TICKS - TICKS_EARLY - 1);
        assert_eq!(ticks(u64::MAX), TICKS - 1);
        assert_eq!(timeout_ticks(1000), 59);
        assert!(timeout_ticks(TIMEOUT_MAX_MS) < TICKS / 2);
    }

    #[test]
    fn bytes_a_flow() {
        assert_eq!(SLOTS * (2 + 8 * ENTRY_WORDS), 66 * SLOTS);
    }
}
