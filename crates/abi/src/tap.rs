//! Taps: copies of decided packets for user space. A tap says which packets it wants by action, reason and side. The
//! datapath finds the taps of a packet by three tables of bits, one bit for each tap.
//!
//! ```text
//! struct taps (one for all generations)                 struct tap_record (in the ring)
//!    0 open      epoch << 32 | bit of each open tap         0 at_ns       8 verdict    12 len
//!    8 actions   bits of taps, by action                   16 cap        20 policy     24 epoch
//!   12 sides     bits of taps, by side                     28 taps       29 side       30 port
//!   14 where     bits of taps that test headers            32 bytes      `cap` of them
//!   64 tap       4 of 64 bytes
//!  384 headers   4 of 128 bytes ([`TapWhere`])
//!  896 cpu       9728 bytes for each CPU
//! ```
//! The bits of taps by reason are in `struct words`, because each generation has its own reasons.
//!
//! Example: tap 1 wants dropped packets from the lower side. Bit 1 is set in `actions[1]`, in `sides[0]`, in all bytes
//! by reason, and in `open`.

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
    /// One packet in so many is copied, at most [`ONE_IN_MAX`]. 0 and 1: each packet.
    pub one_in: u32,
    /// Bytes of a packet that it wants.
    pub snap: u32,
    zero: [u64; 6],
}

impl Tap {
    /// A tap that wants `snap` bytes of one packet in `one_in`.
    pub const fn new(one_in: u32, snap: u32) -> Self {
        let one_in = if one_in > ONE_IN_MAX { ONE_IN_MAX } else { one_in };
        Tap { left: 0, one_in, snap, zero: [0; 6] }
    }
}

/// What one CPU counts for a tap: `struct tap_count`. It is a cache line, because most packets write to no other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TapCount {
    /// Packets that the tap wants.
    pub matched: u64,
    /// Packets that were not copied, because the tap has had enough.
    pub over: u64,
    /// Copies for which the ring had no room.
    pub lost: u64,
    /// Packets that cannot be in the ranges of the tap.
    pub excluded: u64,
    /// Wanted packets that go by until the next copy, below twice [`Tap::one_in`] - 1. A larger number means none.
    pub skip: u64,
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
    /// The epoch, which every change increases, and a bit for each open tap.
    pub open: u64,
    /// Bits of taps by action.
    pub actions: [u8; 4],
    /// Bits of taps by side.
    pub sides: [u8; 2],
    /// Bits of taps whose `headers` packets must be in.
    pub wheres: u8,
    zero: [u8; 49],
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
