//! `weir run --mitigate`: measures what passes, finds attacks, and acts on them (docs/guide/mitigation.md).
//!
//! A thread reads the samples that rules make, and decides once a window. It takes no part in
//! moving packets: if it is slow, samples are lost, which is counted and taken into account. If it ends, what it has
//! put in place ends by its timeouts.

pub mod answers;
mod baseline;
pub mod events;
pub mod exporting;
mod handover;
pub mod hands;
pub mod observed;
pub mod options;
mod outlet;
pub mod part;
mod profile;
pub mod sampled;
pub mod state;
mod telling;
mod words;

pub use part::{MitigationPart, reader};
use state::{Copies, State};
use std::io;
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use weir_abi::kernel::SAMPLE_BYTES;
use weir_command::failure::Failure;
use weir_control::{AttackOperation, AttacksMode, Reply};
use weir_engine::live::samples::SampleReader;
use weir_mitigate::action::Mode;
use weir_mitigate::measure::WINDOW_NS;
use weir_mitigate::measure::observed::Observed;
use weir_mitigate::prefix::Prefix;

/// Copies that are read in a window. Others wait in the queue or are lost there.
const COPIES_MAX: usize = 16_384;
/// Copies that are read while the state is locked.
const BATCH: usize = 64;
/// Longest sleep, after which the thread looks whether it is to end.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// Windows between two looks at the protected tables.
const PROTECTED_WINDOWS: u64 = 40;

/// What the thread asks the rest of the daemon.
pub struct Surroundings {
    /// The copies that were made.
    pub copies: Box<dyn Fn() -> Copies + Send>,
    /// The prefixes of protected tables.
    pub protected: Box<dyn Fn() -> Vec<Prefix> + Send>,
    /// Packets that a card has dropped by source since the last call.
    pub by_card: Box<dyn Fn() -> Vec<(IpAddr, u64)> + Send>,
    /// Exact counts of protected addresses, if there are new ones.
    pub observed: Box<dyn FnMut() -> Option<Observed> + Send>,
}

/// Mitigation of a running Weir.
#[derive(Clone)]
pub struct Mitigation(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    stop: AtomicBool,
    /// Whether nothing may change, because the state is handed over.
    is_held: AtomicBool,
    /// Notifies those that wait for the state to be free again.
    is_free: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Mitigation {
    /// Starts to measure.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(state: State, reader: Arc<SampleReader>, surroundings: Surroundings) -> Result<Self, Failure> {
        let inner = Inner::of(state);
        let mitigation = Mitigation(Arc::new(inner));
        let own = mitigation.clone();
        let body = move || {
            own.0.attend(|| Watch { of: &own.0, reader, surroundings, frame: [0; SAMPLE_BYTES], windows: 0 }.run());
        };
        let thread = thread::Builder::new().name("weir-mitigate".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Failure::system("a thread for mitigation", error))?;
        *mitigation.0.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(mitigation)
    }

    /// Executes a request.
    ///
    /// # Errors
    /// There is no such attack, or nothing to decide.
    pub fn perform(&self, operation: &AttackOperation) -> Result<Reply, Failure> {
        let rejected = |text: String| Failure::Rejected(format!("weir: {text}"));
        let now_ns = weir_state::now_ns();
        let mut state = self.0.state();
        match operation {
            AttackOperation::List => {
                let mut listed = answers::list(&state, now_ns);
                if self.0.has_ended() {
                    listed.samples.problem = Some("the thread that measures has ended".to_owned());
                }
                Ok(listed.into())
            }
            AttackOperation::Show { attack } => match answers::show(&state, *attack, now_ns) {
                Some(entry) => Ok(entry.into()),
                None => Err(rejected(format!("there is no attack {attack}"))),
            },
            AttackOperation::Mode { mode } => {
                let Some(mode) = Mode::named(mode) else {
                    return Err(rejected(format!("`{}` is not a mode: watch, propose or act", mode.escape_debug())));
                };
                let undone = state.set_mode(mode, now_ns);
                notice!("weir: mitigation: mode {}, {undone} actions undone", mode.name());
                Ok(AttacksMode { mode: mode.name().to_owned(), undone }.into())
            }
            AttackOperation::Accept { .. } | AttackOperation::Dismiss { .. } => {
                Ok(state.decide(operation, now_ns).map_err(rejected)?.into())
            }
            AttackOperation::Baseline { top } => Ok(baseline::list(&state, *top).into()),
            AttackOperation::SetBaseline { of, rate, pps } => {
                let changed = baseline::set(&mut state, of, rate.as_deref(), *pps).map_err(rejected)?;
                let rate = rate.as_ref().map(|rate| format!(" {}", rate.escape_debug())).unwrap_or_default();
                notice!("weir: mitigation: baseline of {}{rate} set to {pps} packets/s", of.escape_debug());
                Ok(changed.into())
            }
            AttackOperation::ResetBaseline { of } => {
                let changed = baseline::reset(&mut state, of).map_err(rejected)?;
                notice!("weir: mitigation: baseline of {} reset", of.escape_debug());
                Ok(changed.into())
            }
        }
    }

    /// What the next program in this process continues with. The state is held from now on, so that no action begins or
    /// ends, and requests about attacks wait.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn hand_over(&self) -> Result<Vec<u8>, String> {
        let state = self.0.state();
        self.0.is_held.store(true, Ordering::Relaxed);
        state.events.settle();
        state.hand_over()
    }

    /// Frees the state again.
    pub fn go_on(&self) {
        let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.is_held.store(false, Ordering::Relaxed);
        drop(state);
        self.0.is_free.notify_all();
    }

    /// Ends the thread and undoes all actions.
    pub fn end(&self) {
        self.0.stop.store(true, Ordering::Relaxed);
        let thread = self.0.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A panic was reported when it happened.
        let _panicked = thread.map(JoinHandle::join);
        self.0.state().stop(weir_state::now_ns());
    }
}

impl Inner {
    fn of(state: State) -> Self {
        let (stop, is_held, is_free) = (AtomicBool::new(false), AtomicBool::new(false), Condvar::new());
        Inner { state: Mutex::new(state), stop, is_held, is_free, thread: Mutex::default() }
    }

    /// The state, once it is not handed over.
    fn state(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_free.wait_while(state, |_| self.is_held.load(Ordering::Relaxed)).unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work of the thread. If the thread ends by a failure or a bug, the actions would not end: a posture
    /// would stay. So all of them are undone.
    fn attend(&self, work: impl FnOnce()) {
        let ended = panic::catch_unwind(AssertUnwindSafe(work));
        if !self.stop.load(Ordering::Relaxed) {
            error!("weir: mitigation: the thread that measures has ended; all actions are undone");
            self.state().abandon(weir_state::now_ns());
        }
        if let Err(bug) = ended {
            panic::resume_unwind(bug);
        }
    }

    fn has_ended(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(JoinHandle::is_finished)
    }
}

/// The thread.
struct Watch<'a> {
    of: &'a Inner,
    reader: Arc<SampleReader>,
    surroundings: Surroundings,
    frame: [u8; SAMPLE_BYTES],
    windows: u64,
}

impl Watch<'_> {
    fn run(mut self) {
        let mut end_ns = weir_state::now_ns() + WINDOW_NS;
        let mut read = 0;
        while !self.of.stop.load(Ordering::Relaxed) {
            let now_ns = weir_state::now_ns();
            if now_ns >= end_ns {
                if let Err(error) = self.catch_up(COPIES_MAX - read.min(COPIES_MAX)) {
                    return unreadable(&error);
                }
                self.end_window(weir_state::now_ns());
                // After a pause, windows are not made up for.
                end_ns = (end_ns + WINDOW_NS).max(weir_state::now_ns());
                read = 0;
                continue;
            }
            let left = Duration::from_nanos(end_ns - now_ns).min(SLEEP_MAX);
            if read >= COPIES_MAX {
                thread::sleep(left);
                continue;
            }
            match self.read(left) {
                Ok(copies) => read += copies,
                Err(error) => return unreadable(&error),
            }
        }
    }

    /// Reads copies that have arrived, or arrive within a time. Returns their number.
    fn read(&mut self, timeout: Duration) -> io::Result<usize> {
        if !self.reader.wait(timeout)? {
            return Ok(0);
        }
        let (now_ns, mut state) = (weir_state::now_ns(), self.of.state());
        for copies in 0..BATCH {
            match self.reader.read(&mut self.frame) {
                Some(sample) => state.see(sample, now_ns),
                None => return Ok(copies),
            }
        }
        Ok(BATCH)
    }

    /// Reads the copies that wait at the end of a window, up to a number. After a pause they are those of the time that
    /// the window covers.
    fn catch_up(&mut self, most: usize) -> io::Result<()> {
        let mut left = self.reader.waiting().min(most as u64);
        while left > 0 {
            match self.read(Duration::ZERO)? {
                0 => break,
                copies => left = left.saturating_sub(copies as u64),
            }
        }
        Ok(())
    }

    fn end_window(&mut self, now_ns: u64) {
        let copies = (self.surroundings.copies)();
        let waiting = self.reader.waiting();
        let protected = self.windows.is_multiple_of(PROTECTED_WINDOWS).then(|| (self.surroundings.protected)());
        self.windows += 1;
        let by_card = (self.surroundings.by_card)();
        let observed = (self.surroundings.observed)();
        let mut state = self.of.state();
        state.see_by_card(&by_card);
        observed.into_iter().for_each(|observed| state.observe(observed));
        protected.into_iter().for_each(|protected| state.protect(protected));
        state.end_window(copies, waiting, now_ns);
    }
}

fn unreadable(error: &io::Error) {
    error!("weir: mitigation: samples cannot be read: {error}");
}

#[cfg(test)]
mod tests {
    use super::Inner;
    use super::events::Events;
    use super::hands::{Carried, Places};
    use super::state::State;
    use crate::generations::still::Daemon;
    use crate::parts::mitigation::part::Hand;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use weir_mitigate::action::{Action, Measure, Trial};
    use weir_mitigate::mitigator::Settings;

    const POLICY: &str =
        "upstream { accept } downstream { accept } posture high { upstream { drop } downstream { accept } }";

    /// A thread's state with an active posture, and the rest of the daemon.
    fn with_posture() -> (Inner, Daemon) {
        let daemon = Daemon::new(POLICY);
        let places = Places { slot: "attacks".to_owned(), tables: Vec::new() };
        let mut carried = Carried::new(Box::new(Hand(Arc::downgrade(&daemon.door))), places);
        let measure = Measure::Posture("high".to_owned());
        carried.apply(&Action { id: 1, attack: 1, measure, trial: Trial::default() }, 0).expect("it is carried out");
        assert_eq!(daemon.decides().as_deref(), Some("high"));
        let state = State::new(Vec::new(), Settings::default(), carried, Events::default(), 1);
        (Inner::of(state), daemon)
    }

    #[test]
    fn a_posture_does_not_outlive_the_thread() {
        let (inner, daemon) = with_posture();
        inner.attend(|| {});
        assert_eq!((daemon.decides(), daemon.automatic()), (None, None));

        // A bug while the state was locked.
        let (inner, daemon) = with_posture();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            inner.attend(|| {
                let _locked = inner.state();
                panic!("a bug");
            });
        }));
        assert!(ended.is_err());
        assert_eq!((daemon.decides(), daemon.automatic()), (None, None));

        // The caller that stops the thread undoes the actions, so they stay here.
        let (inner, daemon) = with_posture();
        inner.stop.store(true, Ordering::Relaxed);
        inner.attend(|| {});
        assert_eq!(daemon.decides().as_deref(), Some("high"));
    }
}
