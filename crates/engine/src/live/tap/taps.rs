//! The taps of a datapath, and the policies that it knows.

use std::fmt::{self, Debug, Formatter};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use memmap2::MmapRaw;
use weir_abi::tap::TAPS;

use super::filter::PolicyNames;
use super::kernel::KernelTaps;
use super::open_tap::{OpenTap, TapCounts};
use super::policy_bits::PolicyBits;
use crate::EngineError;

/// Policies that no longer decide packets whose names are kept: copies of their packets may still wait.
const GONE_MAX: usize = 16;

/// All taps of a datapath.
pub struct Taps {
    /// Changes with the open taps. This is the only word that a worker reads for each burst.
    pub(super) version: AtomicU64,
    /// Number of workers so far. It changes under the lock.
    pub(super) workers: AtomicUsize,
    state: Mutex<State>,
    /// The memory of programs, if they decide the packets.
    kernel: Option<KernelTaps>,
}

#[derive(Default)]
pub(super) struct State {
    /// Number of changes of the open taps.
    pub epoch: u32,
    pub open: [Option<Arc<OpenTap>>; TAPS],
    /// The number of the last policy.
    last_policy: u32,
    pub policies: Vec<Policy>,
    /// Closed taps that workers may still use, at most those that each saw last. They are freed here, because a worker
    /// that returned their memory to the system would delay packets.
    closed: Vec<Arc<OpenTap>>,
    /// What closed taps have counted.
    past: TapCounts,
}

/// A policy that decides packets, or did so.
pub(super) struct Policy {
    number: u32,
    names: Arc<PolicyNames>,
    pub bits: Weak<PolicyBits>,
}

impl Debug for Taps {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Taps")
    }
}

impl Taps {
    /// Taps of workers.
    pub fn of_workers() -> Arc<Self> {
        Arc::new(Taps {
            version: AtomicU64::new(0),
            workers: AtomicUsize::new(0),
            state: Mutex::default(),
            kernel: None,
        })
    }

    /// Taps of programs in the kernel.
    ///
    /// # Errors
    /// The process lacks the right to create BPF maps.
    pub fn of_kernel() -> Result<Arc<Self>, EngineError> {
        let kernel = Some(KernelTaps::create()?);
        Ok(Arc::new(Taps { version: AtomicU64::new(0), workers: AtomicUsize::new(0), state: Mutex::default(), kernel }))
    }

    /// The memory of programs.
    pub(in crate::live) fn kernel(&self) -> Option<&KernelTaps> {
        self.kernel.as_ref()
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open taps; `None` while they change.
    pub(super) fn try_open_taps(&self) -> Option<Vec<Arc<OpenTap>>> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(state.open.iter().flatten().cloned().collect())
    }

    /// Counts a worker. Returns its number. Open taps have room for its copies from now on.
    pub(super) fn join(&self) -> usize {
        let state = self.state();
        state.open.iter().flatten().for_each(|tap| tap.join());
        self.workers.fetch_add(1, Ordering::Release)
    }

    /// What became of the packets that an open tap wants.
    pub(super) fn counts_of(&self, tap: &OpenTap) -> TapCounts {
        tap.counts(self.kernel.as_ref().map(|kernel| kernel.counts(tap.index)).unwrap_or_default())
    }

    /// The number of open taps, and what became of the packets that taps wanted since the start.
    pub fn totals(&self) -> (usize, TapCounts) {
        let state = self.state();
        let open: Vec<TapCounts> = state.open.iter().flatten().map(|tap| self.counts_of(tap)).collect();
        (open.len(), open.into_iter().fold(state.past, TapCounts::plus))
    }

    /// Closes a tap, which has counted so much.
    pub(super) fn close(&self, index: usize, counts: TapCounts) {
        let mut state = self.state();
        state.past = state.past.plus(counts);
        state.free_closed();
        let closed = state.open[index].take();
        state.closed.extend(closed);
        state.epoch += 1;
        self.changed(&state);
    }

    /// Tells workers and programs which taps are open.
    pub(super) fn changed(&self, state: &State) {
        if let Some(kernel) = &self.kernel {
            kernel.open(state.epoch, state.open.iter().flatten().map(|tap| (tap.index, &tap.filter)));
        }
        self.version.fetch_add(1, Ordering::Relaxed);
    }

    /// The bits of a policy that workers will use.
    pub(in crate::live) fn policy(&self, reasons: usize, names: &Arc<PolicyNames>) -> Arc<PolicyBits> {
        let mut state = self.state();
        state.last_policy += 1;
        let bits = Arc::new(PolicyBits::own(state.last_policy, reasons, names.clone()));
        state.know(&bits, names);
        bits
    }

    /// The bits of a policy's programs, whose words are in `memory`. They have no names until [`Taps::activate`].
    ///
    /// # Panics
    /// Panics if the taps are those of workers.
    pub(in crate::live) fn policy_of_programs(&self, memory: MmapRaw, reasons: usize) -> Arc<PolicyBits> {
        assert!(self.kernel.is_some(), "programs have their own taps");
        let number = {
            let mut state = self.state();
            state.last_policy += 1;
            state.last_policy
        };
        Arc::new(KernelTaps::bits(memory, number, reasons))
    }

    /// Names the rules of a policy and finds those that taps want, before its programs decide packets.
    pub(in crate::live) fn activate(&self, bits: &Arc<PolicyBits>, names: &Arc<PolicyNames>) {
        bits.name(names.clone());
        self.state().know(bits, names);
    }
}

impl State {
    /// Frees closed taps that no worker uses any more.
    pub fn free_closed(&mut self) {
        self.closed.retain(|tap| Arc::strong_count(tap) > 1);
    }

    /// Finds what open taps want of a policy, and keeps its names.
    fn know(&mut self, bits: &Arc<PolicyBits>, names: &Arc<PolicyNames>) {
        for tap in self.open.iter().flatten() {
            bits.set(tap.index, &tap.filter);
        }
        let (number, bits) = (bits.number(), Arc::downgrade(bits));
        self.policies.retain(|policy| policy.number != number);
        self.policies.push(Policy { number, names: names.clone(), bits });
        let gone = self.policies.iter().filter(|policy| policy.bits.strong_count() == 0).count();
        let mut excess = gone.saturating_sub(GONE_MAX);
        self.policies.retain(|policy| {
            let is_excess = excess > 0 && policy.bits.strong_count() == 0;
            excess -= usize::from(is_excess);
            !is_excess
        });
    }

    pub fn names(&self, number: u32) -> Arc<PolicyNames> {
        let policy = self.policies.iter().find(|policy| policy.number == number);
        policy.map(|policy| policy.names.clone()).unwrap_or_default()
    }
}
