//! A worker: one thread, one lane, one generation at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_abi::{BURST_MAX, Verdict};

use crate::limits::now_ns;
use crate::live::lane::{Lane, Side};
use crate::{EngineError, Filter, FrameBurst, NativeFilter};

/// How long a worker without packets sleeps before it looks whether it shall stop or change.
const IDLE: Duration = Duration::from_millis(10);

/// What a worker decides by: a filter for each direction, so that their counts stay apart.
pub(super) struct Deciders {
    /// Number of the activation.
    pub activation: u64,
    /// By the side that packets come from.
    pub filters: [NativeFilter; 2],
    /// The chain of each.
    pub chains: [usize; 2],
}

impl Deciders {
    fn decide(&mut self, from: Side, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        let index = from as usize;
        let filter = &mut self.filters[index];
        match filter.has_limits() {
            true => filter.decide(self.chains[index], &burst.received_at(now_ns()), verdicts),
            false => filter.decide(self.chains[index], burst, verdicts),
        }
    }
}

/// Where the controller leaves what a worker shall decide by next, and the worker what it has done with.
#[derive(Default)]
pub(super) struct Handover {
    /// Number of the activation that waits. The only word that a worker reads for each burst.
    latest: AtomicU64,
    state: Mutex<HandoverState>,
}

#[derive(Default)]
struct HandoverState {
    /// Number of the activation that the worker decides by; 0 before the first.
    current: u64,
    next: Option<Deciders>,
    /// For the controller to free: unloading code would make packets wait.
    done: Vec<Deciders>,
}

impl Handover {
    /// The worker's next burst is decided by these. What waits and was not taken is never decided by.
    pub fn give(&self, deciders: Deciders) {
        let mut state = self.state();
        self.latest.store(deciders.activation, Ordering::Release);
        let _never_taken = state.next.replace(deciders);
    }

    /// Number of the activation that the worker decides by; 0 before the first.
    pub fn current(&self) -> u64 {
        self.state().current
    }

    /// Whether the worker decides by this activation, or may.
    pub fn holds(&self, activation: u64) -> bool {
        let state = self.state();
        state.current == activation || state.next.as_ref().is_some_and(|next| next.activation == activation)
    }

    /// Frees what the worker is done with.
    pub fn free_done(&self) {
        let done = std::mem::take(&mut self.state().done);
        drop(done);
    }

    /// At a burst's border: changes to what waits, if something does. The lock is free but for the moments in which the controller gives or looks.
    fn take(&self, current: &mut Option<Deciders>) {
        let latest = self.latest.load(Ordering::Acquire);
        if current.as_ref().is_some_and(|deciders| deciders.activation == latest) {
            return;
        }
        let mut state = self.state();
        let Some(next) = state.next.take() else { return };
        state.current = next.activation;
        let done = current.replace(next);
        state.done.extend(done);
    }

    fn state(&self) -> MutexGuard<'_, HandoverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves packets until told to stop. Something was given before.
pub(super) fn run(lane: &mut dyn Lane, handover: &Handover, stop: &AtomicBool) -> Result<(), EngineError> {
    let mut verdicts = [Verdict(0); BURST_MAX];
    let mut deciders = None;
    while !stop.load(Ordering::Relaxed) {
        let mut moved = 0;
        for from in Side::BOTH {
            handover.take(&mut deciders);
            let deciders = deciders.as_mut().expect("deciders were given before the worker began");
            let burst = lane.receive(from)?;
            let count = burst.len();
            if count > 0 {
                deciders.decide(from, &burst, &mut verdicts)?;
                lane.dispatch(&verdicts[..count])?;
                moved += count;
            }
        }
        if moved == 0 {
            lane.wait(IDLE)?;
        }
    }
    Ok(())
}
