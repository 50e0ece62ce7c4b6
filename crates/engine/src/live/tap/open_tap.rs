//! An open tap, as the datapath and its reader share it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_abi::{Action, Link, Verdict};

use super::copy_ring::{CopyRing, WorkerCounts};
use super::filter::{PolicyNames, Reasons, TapFilter};
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
    /// Copies that it may still get from workers.
    pub left: AtomicI64,
    /// A ring for each worker, by its number.
    rings: Mutex<Vec<Arc<CopyRing>>>,
    /// Where readers that empty the ring of the kernel leave its copies.
    sender: SyncSender<Copied>,
    /// What of these found room, and what did not.
    pub handed: AtomicU64,
    pub refused: AtomicU64,
    /// What programs had counted for earlier taps.
    before: TapCounts,
}

impl TapCounts {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: TapCounts) -> TapCounts {
        TapCounts {
            matched: self.matched + other.matched,
            copied: self.copied + other.copied,
            over: self.over + other.over,
            excluded: self.excluded + other.excluded,
            lost: self.lost + other.lost,
        }
    }
}

impl OpenTap {
    /// A tap with room for the copies of so many workers. `before` is what programs had counted for earlier taps.
    pub fn new(
        (index, since): (usize, u32),
        filter: TapFilter,
        (workers, sender): (usize, SyncSender<Copied>),
        before: TapCounts,
    ) -> Self {
        OpenTap {
            index,
            since,
            actions: filter.actions.iter().fold(0, |bits, &action| bits | 1 << action as u8),
            sides: filter.sides.iter().fold(0, |bits, &side| bits | 1 << side as u8),
            left: AtomicI64::new(filter.budget_pps.into()),
            filter,
            rings: Mutex::new((0..workers).map(|_| CopyRing::new()).collect()),
            sender,
            handed: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            before,
        }
    }

    /// What workers have counted.
    pub fn of_workers(&self) -> TapCounts {
        let word = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let of_ring = |ring: &Arc<CopyRing>| {
            let WorkerCounts { matched, copied, over, excluded, lost } = ring.counts();
            let [matched, copied, over] = [matched, copied, over].map(word);
            TapCounts { matched, copied, over, excluded: word(excluded), lost: word(lost) }
        };
        self.rings().iter().map(of_ring).fold(TapCounts::default(), TapCounts::plus)
    }

    /// What became of the packets that it wants. `of_programs` is what programs have counted for this tap and earlier
    /// ones.
    pub fn counts(&self, of_programs: TapCounts) -> TapCounts {
        let (own, before) = (self.of_workers(), self.before);
        TapCounts {
            matched: own.matched + of_programs.matched - before.matched,
            copied: own.copied + self.handed.load(Ordering::Relaxed),
            over: own.over + of_programs.over - before.over,
            excluded: own.excluded + of_programs.excluded - before.excluded,
            lost: own.lost + self.refused.load(Ordering::Relaxed) + of_programs.lost - before.lost,
        }
    }

    fn rings(&self) -> MutexGuard<'_, Vec<Arc<CopyRing>>> {
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room for the copies of a worker that starts after the tap was opened.
    pub fn join(&self) {
        self.rings().push(CopyRing::new());
    }

    /// The ring of a worker.
    pub fn ring(&self, worker: usize) -> Arc<CopyRing> {
        self.rings()[worker].clone()
    }

    /// All rings.
    pub fn all_rings(&self) -> Vec<Arc<CopyRing>> {
        self.rings().clone()
    }

    /// Whether it wants all packets that arrive on a side.
    pub fn wants_all(&self, from: Side) -> bool {
        const ALL: u8 = (1 << Action::ALL.len()) - 1;
        self.filter.reasons == Reasons::All && self.actions == ALL && self.sides >> from as u8 & 1 != 0
    }

    /// Whether it wants packets with this action and side. Their reason is known to fit.
    pub fn wants(&self, verdict: Verdict, from: Side) -> bool {
        self.actions >> (verdict.0 & 3) & self.sides >> from as u8 & 1 != 0
    }

    /// Takes up to `wanted` copies of what is left, for packets of one burst. Returns their number.
    pub fn grant(&self, wanted: u32) -> u32 {
        // The word is written only while there is something left, so workers do not contend for it in a flood.
        if self.left.load(Ordering::Relaxed) <= 0 {
            return 0;
        }
        let before = self.left.fetch_sub(wanted.into(), Ordering::Relaxed);
        before.clamp(0, wanted.into()) as u32
    }

    /// Hands a copy from the ring of the kernel to the reader. Without room it is lost.
    pub fn hand(&self, copy: Copied) {
        match self.sender.try_send(copy) {
            Ok(()) => _ = self.handed.fetch_add(1, Ordering::Relaxed),
            Err(TrySendError::Full(_)) => _ = self.refused.fetch_add(1, Ordering::Relaxed),
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
