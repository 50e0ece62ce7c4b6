//! Taps: copies of decided packets for user space. A tap says which packets it wants by action, reason and side. The
//! datapath finds the taps of a packet by two tables of bits, one bit for each tap.
//!
//! ```text
//! struct taps (one for all generations)                 struct tap_record (in the ring)
//!    0 open      epoch << 32 | open taps by kind            0 at_ns       8 verdict    12 len
//!    8 wheres    bits of taps that test headers            16 cap        20 policy     24 epoch
//!   64 tap       4 of 64 bytes                             28 taps       29 side       30 port
//!  384 headers   4 of 128 bytes ([`TapWhere`])             32 bytes      `cap` of them
//!  896 cpu       9728 bytes for each CPU
//! ```
//! A kind of packets is an action and a side. The lower half of `open` has [`TAPS`] bits for each ([`kind_shift`]).
//! The bits of taps by reason are in `struct words`, because each generation has its own reasons.
//!
//! Example: tap 1 wants dropped packets from the lower side. Bit 1 is set in all bytes by reason, and bit 9 in `open`:
//! the action is 1 and the side 0.

use crate::Action;
use crate::tap_where::TapWhere;

/// Maximum number of open taps.
pub const TAPS: usize = 4;
/// The most that [`Tap::one_in`] may be, so that a product in the kernel has 64 bits.
pub const ONE_IN_MAX: u32 = 1 << 31;
/// Bytes of a packet that are copied at most.
pub const TAP_BYTES_MAX: usize = 9216;
/// Room behind them, which the copy of a packet with a VLAN tag beside it needs.
const SPARE_BYTES: usize = 160;

/// An open tap: `struct tap`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tap {
    /// Copies that it may still get until it gets more.
    pub left: i64,
    /// The most wanted packets that go by between two copies. Their mean number is half of it.
    pub skips: u64,
    /// [`Tap::skips`]; 0 if the tap tests headers, because it has to see each packet.
    pub lets_by: u64,
    /// Bytes of a packet that it wants.
    pub snap: u32,
    zero: [u32; 9],
}

impl Tap {
    /// A tap that wants `snap` bytes of one packet in `one_in`, at most [`ONE_IN_MAX`]. 0 and 1: each packet.
    pub const fn new(one_in: u32, snap: u32, tests_headers: bool) -> Self {
        let one_in = if one_in > ONE_IN_MAX { ONE_IN_MAX } else { one_in };
        let skips = 2 * (one_in as u64).saturating_sub(1);
        let lets_by = if tests_headers { 0 } else { skips };
        Tap { left: 0, skips, lets_by, snap, zero: [0; 9] }
    }
}

/// Where [`Taps::open`] has the bits of the taps that want packets with this action from a side (0 lower, 1 upper).
pub const fn kind_shift(action: Action, side: usize) -> usize {
    (2 * action as usize + side) * TAPS
}

/// What one CPU counts for a tap: `struct tap_count`. It is a cache line, because most packets write to no other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TapCount {
    /// Packets that the tap wants. Those that are `excluded` are not among them.
    pub matched: u64,
    /// Packets that were not copied, because the tap has had enough.
    pub over: u64,
    /// Copies for which the ring had no room.
    pub lost: u64,
    /// Packets that cannot be in the ranges of the tap.
    pub excluded: u64,
    /// The next packet that is copied, as a number of `matched`. If it is further away than [`Tap::skips`], the next
    /// one is.
    pub next: u64,
    zero: [u64; 3],
}

/// The copy of a packet: `struct tap_record`. The ring has its first bytes only, as many as `cap` says.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TapRecord {
    /// Time, of CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// A [`Verdict`](crate::Verdict).
    pub verdict: u32,
    /// Length of the packet.
    pub len: u32,
    /// Bytes of it that follow.
    pub cap: u32,
    /// Number of the policy that decided it.
    pub policy: u32,
    /// Epoch of [`Taps::open`] when it was copied.
    pub epoch: u32,
    /// Bits of the taps that get it.
    pub taps: u8,
    /// The side of the port at which it arrived: 0 lower, 1 upper.
    pub side: u8,
    /// Number of that port.
    pub port: u16,
    /// The bytes.
    pub bytes: [u8; TAP_BYTES_MAX + SPARE_BYTES],
}

/// Bytes of a record in front of the packet.
pub const TAP_RECORD_HEAD: usize = 32;

/// What a packet has in its headers: `struct tap_head`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TapHead {
    /// The source address, its higher half first.
    pub saddr: [u64; 2],
    /// The destination address.
    pub daddr: [u64; 2],
    /// 4 or 6; 0 if nothing is known.
    pub family: u32,
    /// The protocol; [`TapHead::UNKNOWN`] if it is not known.
    pub proto: u32,
    /// The source port, or unknown.
    pub sport: u32,
    /// The destination port, or unknown.
    pub dport: u32,
    zero: [u64; 2],
}

impl TapHead {
    /// A number that is not known.
    pub const UNKNOWN: u32 = 1 << 16;
    /// Nothing is known.
    pub const NONE: TapHead = TapHead {
        saddr: [0; 2],
        daddr: [0; 2],
        family: 0,
        proto: Self::UNKNOWN,
        sport: Self::UNKNOWN,
        dport: Self::UNKNOWN,
        zero: [0; 2],
    };
}

/// What a CPU writes: `struct tap_cpu`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TapCpu {
    /// By tap.
    pub count: [TapCount; TAPS],
    /// The headers of its packet.
    pub head: TapHead,
    /// The copy that is being made.
    pub record: TapRecord,
}

/// What all programs share: `struct taps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Taps {
    /// The epoch, which every change increases, and the bits of the open taps by kind of packet.
    pub open: u64,
    /// Bits of taps whose `headers` packets must be in.
    pub wheres: u32,
    zero: [u32; 13],
    /// By number.
    pub tap: [Tap; TAPS],
    zeros: [u64; 8],
    /// By number.
    pub headers: [TapWhere; TAPS],
    /// The first CPU. There are as many as the machine may have.
    pub cpu: [TapCpu; 1],
}

const _: () = assert!(size_of::<Tap>() == 64 && size_of::<TapCount>() == 64);
const _: () = assert!(size_of::<TapRecord>() == 9408 && size_of::<TapCpu>() == 9728 && size_of::<TapHead>() == 64);
const _: () = assert!(std::mem::offset_of!(Taps, cpu) == 896);
const _: () = assert!(std::mem::offset_of!(TapRecord, bytes) == TAP_RECORD_HEAD);
