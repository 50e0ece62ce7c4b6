//! The paper's thread layouts (its Fig. 4), over the ends of any engine.
//!
//! ```text
//!   1   one thread:    read lower, decide, send upper; read upper, decide, send lower
//!   2   two threads:   one for each direction
//!   5   read lower --\            /-- send upper
//!                     +-- decide +
//!       read upper --/            \-- send lower
//!   7   read lower --\            /-- state --\ /-- send upper
//!                     +-- header +             X
//!       read upper --/            \-- state --/ \-- send lower
//! ```
//! Threads hand over bursts, where the paper's hand over packets. The thread `header` decides without flows, and gives
//! bursts to both `state` threads in turn. Threads that read poll, and leave the core to others when nothing waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_abi::{Action, BURST_MAX, Verdict};
use weir_command::failure::Failure;
use weir_engine::native::Sharing;
use weir_engine::{Filter, FrameBurst, NativeCode, NativeFilter};
use weir_state::now_ns;

/// Bursts that may wait for a thread.
const WAITING_MAX: usize = 8;
/// Interval at which threads that wait look whether they must end.
const LOOK: Duration = Duration::from_millis(20);

/// Packets on their way from one thread to another.
pub trait Held: Send + 'static {
    /// The packets.
    fn burst(&self) -> FrameBurst<'_>;
}

/// Receives from an interface.
pub trait Read: Send + 'static {
    /// What it receives.
    type Held: Held;
    /// Receives a burst, if packets wait.
    ///
    /// # Errors
    /// The interface failed.
    fn read(&mut self) -> Result<Option<Self::Held>, Failure>;
}

/// Sends out of an interface.
pub trait Deliver: Send + 'static {
    /// What it sends.
    type Held: Held;
    /// Sends the accepted packets. Returns their number.
    ///
    /// # Errors
    /// The interface failed.
    fn deliver(&mut self, held: Self::Held, verdicts: &[Verdict]) -> Result<usize, Failure>;
}

/// The readers of both interfaces, lower first, and the senders into them.
pub struct Ends<R, S> {
    /// The readers.
    pub readers: [R; 2],
    /// The senders.
    pub senders: [S; 2],
}

/// The code of the rules.
#[derive(Clone)]
pub struct Codes {
    /// With tracking.
    pub tracking: Arc<NativeCode>,
    /// Without: what the thread `header` decides.
    pub header: Arc<NativeCode>,
}

/// The numbers of threads.
pub const THREADS: [usize; 4] = [1, 2, 5, 7];

type Verdicts = [Verdict; BURST_MAX];
/// The verdicts before a decision: the word 0 says `accept`.
const NONE: Verdicts = [Verdict(0); BURST_MAX];

/// A burst on its way, from the interface of that index, with the verdicts so far.
struct Way<H> {
    from: usize,
    held: H,
    verdicts: Box<Verdicts>,
}

/// The threads of a layout.
pub struct Running {
    state: Arc<State>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
}

#[derive(Default)]
struct State {
    enough: AtomicBool,
    sent: AtomicU64,
}

impl Running {
    /// Number of packets that were sent.
    #[cfg(feature = "dpdk")]
    pub fn sent(&self) -> u64 {
        self.state.sent.load(Ordering::Relaxed)
    }

    /// Ends the threads.
    ///
    /// # Errors
    /// A thread failed.
    pub fn stop(self) -> Result<(), Failure> {
        self.state.enough.store(true, Ordering::Relaxed);
        let ended = self.threads.into_iter().map(|thread| thread.join().expect("threads return errors"));
        // All of them end, also after a failure.
        ended.collect::<Vec<_>>().into_iter().collect()
    }
}

/// Starts a layout by its number of threads.
///
/// # Panics
/// If there is no such layout.
pub fn start<R: Read<Held = S::Held>, S: Deliver>(threads: usize, ends: Ends<R, S>, codes: &Codes) -> Running {
    let Ends { readers: [lower, upper], senders: [to_lower, to_upper] } = ends;
    let mut parts = Parts { state: Arc::default(), threads: Vec::new() };
    let tracking = |sharing, worker| codes.tracking.filter(sharing, worker);
    match threads {
        1 => {
            let mut filter = tracking(Sharing::Alone, 0);
            let (mut readers, mut senders) = ([lower, upper], [to_upper, to_lower]);
            parts.poll(move |state| {
                let mut any = false;
                for from in 0..2 {
                    any |= pass(from, &mut readers[from], &mut filter, &mut senders[from], state)?;
                }
                Ok(any)
            });
        }
        2 => {
            for (from, (mut reader, mut sender)) in [(lower, to_upper), (upper, to_lower)].into_iter().enumerate() {
                let mut filter = tracking(Sharing::Shared, from);
                parts.poll(move |state| pass(from, &mut reader, &mut filter, &mut sender, state));
            }
        }
        5 => {
            let decided = parts.senders([to_upper, to_lower]);
            let (give, read) = sync_channel(WAITING_MAX);
            parts.readers([lower, upper], &give);
            parts.decide(tracking(Sharing::Alone, 0), read, move |way| decided[way.from].send(way).is_ok());
        }
        7 => {
            let decided = parts.senders([to_upper, to_lower]);
            let mut states = Vec::new();
            for worker in 0..2 {
                let (give, checked) = sync_channel(WAITING_MAX);
                let decided = decided.clone();
                let filter = tracking(Sharing::Shared, worker);
                parts.decide(filter, checked, move |way| decided[way.from].send(way).is_ok());
                states.push(give);
            }
            drop(decided);
            let (give, read) = sync_channel(WAITING_MAX);
            parts.readers([lower, upper], &give);
            let mut next = 0;
            parts.decide(codes.header.filter(Sharing::Alone, 0), read, move |way| {
                next = (next + 1) % 2;
                states[next].send(way).is_ok()
            });
        }
        other => unreachable!("there is no layout of {other} threads"),
    }
    Running { state: parts.state, threads: parts.threads }
}

/// Reads, decides and sends a burst. Returns whether there was one.
fn pass<R: Read<Held = S::Held>, S: Deliver>(
    from: usize,
    reader: &mut R,
    filter: &mut NativeFilter,
    sender: &mut S,
    state: &State,
) -> Result<bool, Failure> {
    let Some(held) = reader.read()? else { return Ok(false) };
    let mut verdicts = NONE;
    filter.decide(from, &held.burst().received_at(now_ns()), &mut verdicts)?;
    let sent = sender.deliver(held, &verdicts)?;
    state.sent.fetch_add(sent as u64, Ordering::Relaxed);
    Ok(true)
}

/// The threads while they are started.
struct Parts {
    state: Arc<State>,
    threads: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Parts {
    /// A thread that polls until the end. `work` returns whether there was any.
    fn poll(&mut self, mut work: impl FnMut(&State) -> Result<bool, Failure> + Send + 'static) {
        let state = self.state.clone();
        self.threads.push(thread::spawn(move || {
            while !state.enough.load(Ordering::Relaxed) {
                if !work(&state)? {
                    thread::yield_now();
                }
            }
            Ok(())
        }));
    }

    /// Starts a thread that handles bursts until their sender ends. `work` returns false if there is no receiver for
    /// its bursts.
    fn take<H: Held>(
        &mut self,
        given: Receiver<Way<H>>,
        mut work: impl FnMut(Way<H>, &State) -> Result<bool, Failure> + Send + 'static,
    ) {
        let state = self.state.clone();
        self.threads.push(thread::spawn(move || {
            while !state.enough.load(Ordering::Relaxed) {
                match given.recv_timeout(LOOK) {
                    Ok(way) => {
                        if !work(way, &state)? {
                            return Ok(());
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
            Ok(())
        }));
    }

    /// Starts the threads that read.
    fn readers<R: Read>(&mut self, readers: [R; 2], give: &SyncSender<Way<R::Held>>) {
        for (from, mut reader) in readers.into_iter().enumerate() {
            let give = give.clone();
            self.poll(move |_| {
                let Some(held) = reader.read()? else { return Ok(false) };
                // There is no receiver when the threads are ending.
                Ok(give.send(Way { from, held, verdicts: Box::new(NONE) }).is_ok())
            });
        }
    }

    /// Starts the threads that send, and returns what gives to them, by the side where packets came from.
    fn senders<S: Deliver>(&mut self, senders: [S; 2]) -> [SyncSender<Way<S::Held>>; 2] {
        senders.map(|mut sender| {
            let (give, decided) = sync_channel(WAITING_MAX);
            self.take(decided, move |way: Way<S::Held>, state| {
                let sent = sender.deliver(way.held, &way.verdicts[..])?;
                state.sent.fetch_add(sent as u64, Ordering::Relaxed);
                Ok(true)
            });
            give
        })
    }

    /// Starts a thread that decides. What was not accepted before stays so.
    fn decide<H: Held>(
        &mut self,
        mut filter: NativeFilter,
        given: Receiver<Way<H>>,
        mut next: impl FnMut(Way<H>) -> bool + Send + 'static,
    ) {
        self.take(given, move |mut way, _| {
            let mut verdicts = NONE;
            filter.decide(way.from, &way.held.burst().received_at(now_ns()), &mut verdicts)?;
            for (own, before) in verdicts.iter_mut().zip(&way.verdicts[..]) {
                if before.action() != Some(Action::Accept) {
                    *own = *before;
                }
            }
            *way.verdicts = verdicts;
            Ok(next(way))
        });
    }
}
