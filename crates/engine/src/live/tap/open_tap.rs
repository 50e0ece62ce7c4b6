//! An open tap, as the datapath and its reader share it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use weir_abi::tap::below;
use weir_abi::{Link, Verdict};

use super::filter::{PolicyNames, TapFilter};
use crate::live::lane::Side;

/// The copy of a decided packet.
#[derive(Clone, Debug)]
pub struct Copied {
    /// Its first bytes, as it was received.
    pub bytes: Box<[u8]>,
    /// Its length.
    pub wire_len: u32,
    /// How it begins.
    pub link: Link,
    /// The side on which it arrived.
    pub from: Side,
    /// What was decided. Its reason is a number of the policy.
    pub verdict: Verdict,
    /// Number of the activation, or of the policy in the kernel.
    pub policy: u32,
    /// The names of the policy's rules.
    pub names: Arc<PolicyNames>,
    /// Time in ns since 1970.
    pub at_ns: u64,
}

/// What became of the packets that a tap wants. The others were left out by chance ([`TapFilter::one_in`]), or their
/// copies still wait in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TapCounts {
    /// Packets that it wants.
    pub matched: u64,
    /// Copies that were handed to the reader, or wait for it.
    pub copied: u64,
    /// Packets that were not copied, because the tap has had its copies of this second.
    pub over: u64,
    /// Packets that were not copied, because their headers are not as wanted ([`TapFilter::headers`]).
    pub excluded: u64,
    /// Copies that were lost, because the reader was too slow.
    pub lost: u64,
}

/// An open tap.
pub(super) struct OpenTap {
    pub index: usize,
    pub filter: TapFilter,
    /// The epoch in which it was opened. Earlier copies belong to another tap.
    pub since: u32,
    /// Its actions and sides, as bits.
    actions: u8,
    sides: u8,
    below: u32,
    sender: SyncSender<Copied>,
    /// Copies that it may still get from workers.
    pub left: AtomicI64,
    pub matched: AtomicU64,
    pub copied: AtomicU64,
    pub over: AtomicU64,
    pub excluded: AtomicU64,
    pub lost: AtomicU64,
}

impl OpenTap {
    pub fn new(index: usize, filter: TapFilter, since: u32, sender: SyncSender<Copied>) -> Self {
        OpenTap {
            index,
            since,
            actions: filter.actions.iter().fold(0, |bits, &action| bits | 1 << action as u8),
            sides: filter.sides.iter().fold(0, |bits, &side| bits | 1 << side as u8),
            below: below(filter.one_in),
            sender,
            left: AtomicI64::new(filter.budget_pps.into()),
            filter,
            matched: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            over: AtomicU64::new(0),
            excluded: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Whether it wants packets with this action and side. Their reason is known to fit.
    pub fn wants(&self, verdict: Verdict, from: Side) -> bool {
        self.actions >> (verdict.0 & 3) & self.sides >> from as u8 & 1 != 0
    }

    /// Counts a packet that it would want if its headers were others.
    pub fn exclude(&self) {
        self.matched.fetch_add(1, Ordering::Relaxed);
        self.excluded.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a packet that it wants. Returns whether it gets a copy. `random` are 32 random bits.
    pub fn takes(&self, random: impl FnOnce() -> u32) -> bool {
        self.matched.fetch_add(1, Ordering::Relaxed);
        if self.below != 0 && random() >= self.below {
            return false;
        }
        // The word is written only while there is something left, so workers do not contend for it in a flood.
        if self.left.load(Ordering::Relaxed) <= 0 || self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            self.over.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Hands a copy to the reader. Without room it is lost.
    pub fn send(&self, copy: Copied) {
        match self.sender.try_send(copy) {
            Ok(()) => _ = self.copied.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Full(_)) => _ = self.lost.fetch_add(1, Ordering::Relaxed),
            // The reader has gone.
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

/// Adds copies that a tap may get, at most those of a second in all.
pub(super) fn renew(left: &AtomicI64, more: i64, most: i64) {
    let now = left.load(Ordering::Relaxed);
    let room = most - now.max(0);
    // A negative number comes from writers that found nothing left at the same time.
    left.fetch_add(more.min(room) - now.min(0), Ordering::Relaxed);
}
