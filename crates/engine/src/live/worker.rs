//! A worker: one thread, one lane, one generation at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_abi::{BURST_MAX, Rewrite, Verdict};
use weir_state::now_ns;

use crate::live::cards::{CardAtPort, WorkerCards};
use crate::live::lane::{Lane, Side};
use crate::live::samples::WorkerSamples;
use crate::live::tap::{PolicyBits, WorkerTaps};
use crate::sealed::Configured;
use crate::{EngineError, Filter, FrameBurst, NativeFilter};

/// How long a worker without packets sleeps before it checks for a stop or a change.
const IDLE: Duration = Duration::from_millis(10);

/// The trailers of packets that come from no card.
const UNCUT: [u8; BURST_MAX] = [0; BURST_MAX];

/// The filters of an activation, one for each direction so that they count separately.
pub(super) struct Deciders {
    /// Number of the activation.
    pub activation: u64,
    /// By the side on which packets arrive.
    pub filters: [NativeFilter; 2],
    /// The chain of each filter.
    pub chains: [usize; 2],
    /// The configuration of the card whose answers the policy reads.
    pub answered: Option<Configured>,
    /// The taps that want its packets.
    pub taps: Arc<PolicyBits>,
    /// Number of bursts that the other filter has decided since each one decided its last.
    pub bursts_since: [u64; 2],
}

/// A filter releases its tables after this many bursts of the other direction. To release them costs a memory fence at
/// the next burst.
const REST_AFTER_BURSTS: u64 = 64;

impl Deciders {
    /// Releases the tables of both filters.
    fn rest(&mut self) {
        self.filters.iter_mut().for_each(NativeFilter::rest);
    }

    /// The filter of a side, which decides the next burst.
    fn turn(&mut self, from: Side) -> (&mut NativeFilter, usize) {
        let index = from as usize;
        self.bursts_since[index] = 0;
        self.bursts_since[1 - index] += 1;
        if self.bursts_since[1 - index] == REST_AFTER_BURSTS {
            self.filters[1 - index].rest();
        }
        (&mut self.filters[index], self.chains[index])
    }

    /// Decides a burst. Returns what leaves in place of the packets that were changed.
    fn decide(
        &mut self,
        from: Side,
        burst: &FrameBurst<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<&[Rewrite], EngineError> {
        let (filter, chain) = self.turn(from);
        filter.decide(chain, &in_time(filter, burst), verdicts)?;
        Ok(filter.rewrites())
    }

    /// Decides a burst from a card. Returns also the bytes to be cut from each packet.
    fn decide_sealed(
        &mut self,
        from: Side,
        burst: &FrameBurst<'_>,
        card: &CardAtPort,
        verdicts: &mut [Verdict],
    ) -> Result<(&[Rewrite], [u8; BURST_MAX]), EngineError> {
        let (filter, chain) = self.turn(from);
        let sealed = filter.read_sealed(&card.seals, in_time(filter, burst));
        filter.decide_sealed(chain, &sealed, verdicts)?;
        card.hand_control(&sealed);
        Ok((filter.rewrites(), *sealed.trailers()))
    }
}

/// The burst with the time at which it was received, if the filter needs it.
fn in_time<'a>(filter: &NativeFilter, burst: &FrameBurst<'a>) -> FrameBurst<'a> {
    if filter.needs_times() { burst.received_at(now_ns()) } else { *burst }
}

/// Where the controller leaves the next filters for a worker, and the worker returns used ones.
#[derive(Default)]
pub(super) struct Handover {
    /// Number of the pending activation. This is the only word that a worker reads for each burst.
    latest: AtomicU64,
    state: Mutex<HandoverState>,
    /// Number of the last change of cards that the worker has taken.
    cards: AtomicU64,
}

#[derive(Default)]
struct HandoverState {
    /// Number of the worker's current activation; 0 before the first.
    current: u64,
    next: Option<Deciders>,
    /// Used filters for the controller to free. If the worker unloaded the code, packets would wait.
    done: Vec<Deciders>,
}

impl Handover {
    /// Hands filters over for the worker's next burst. Pending filters that the worker has not taken are discarded.
    pub fn give(&self, deciders: Deciders) {
        let mut state = self.state();
        self.latest.store(deciders.activation, Ordering::Release);
        let _never_taken = state.next.replace(deciders);
    }

    /// Number of the worker's current activation; 0 before the first.
    pub fn current(&self) -> u64 {
        self.state().current
    }

    /// Number of the last change of cards that the worker has taken.
    pub fn cards(&self) -> u64 {
        self.cards.load(Ordering::Acquire)
    }

    /// Whether the worker uses this activation, or may start to.
    pub fn holds(&self, activation: u64) -> bool {
        let state = self.state();
        state.current == activation || state.next.as_ref().is_some_and(|next| next.activation == activation)
    }

    /// Frees the used filters.
    pub fn free_done(&self) {
        let done = std::mem::take(&mut self.state().done);
        drop(done);
    }

    /// Between bursts: takes the pending filters, if any. The lock is free except while the controller hands over or
    /// reads.
    fn take(&self, current: &mut Option<Deciders>) {
        let latest = self.latest.load(Ordering::Acquire);
        if current.as_ref().is_some_and(|deciders| deciders.activation == latest) {
            return;
        }
        let mut state = self.state();
        let Some(next) = state.next.take() else { return };
        state.current = next.activation;
        let mut done = current.replace(next);
        done.iter_mut().for_each(Deciders::rest);
        state.done.extend(done);
    }

    fn state(&self) -> MutexGuard<'_, HandoverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker copies of packets: samples for mitigation, and what taps want.
pub(super) struct WorkerCopies {
    pub samples: Option<WorkerSamples>,
    pub taps: WorkerTaps,
}

impl WorkerCopies {
    fn follow(&mut self, deciders: &Deciders) {
        self.taps.follow(&deciders.taps);
    }

    /// Copies packets of a burst, which end before as many bytes as `cut` says.
    fn take(&mut self, from: Side, burst: &FrameBurst<'_>, verdicts: &mut [Verdict], cut: &[u8; BURST_MAX]) {
        self.taps.take(from, burst, verdicts, cut);
        if let Some(samples) = &self.samples {
            samples.take(from, burst, verdicts, cut);
        }
    }
}

/// Moves packets until told to stop. The first filters were handed over before.
pub(super) fn run(
    lane: &mut dyn Lane,
    handover: &Handover,
    mut cards: WorkerCards,
    mut copies: WorkerCopies,
    stop: &AtomicBool,
) -> Result<(), EngineError> {
    let mut verdicts = [Verdict(0); BURST_MAX];
    let mut deciders = None;
    while !stop.load(Ordering::Relaxed) {
        let mut moved = 0;
        for from in Side::BOTH {
            handover.take(&mut deciders);
            let deciders = deciders.as_mut().expect("deciders were given before the worker began");
            cards.follow(deciders.activation, deciders.answered, &handover.cards);
            copies.follow(deciders);
            let burst = lane.receive(from)?;
            let count = burst.len();
            if count == 0 {
                continue;
            }
            let (rewrites, trailers) = match cards.before(from, &burst) {
                None => (deciders.decide(from, &burst, &mut verdicts)?, None),
                Some(card) => {
                    let (rewrites, trailers) = deciders.decide_sealed(from, &burst, card, &mut verdicts)?;
                    (rewrites, Some(trailers))
                }
            };
            copies.take(from, &burst, &mut verdicts[..count], trailers.as_ref().unwrap_or(&UNCUT));
            if let Some(trailers) = trailers {
                lane.cut(&trailers[..count]);
            }
            lane.dispatch(&verdicts[..count], rewrites)?;
            moved += count;
        }
        if moved == 0 {
            deciders.iter_mut().for_each(Deciders::rest);
            lane.wait(IDLE)?;
        }
    }
    Ok(())
}
