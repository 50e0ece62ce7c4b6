//! A shadow that judges: its thread, and its report.

use super::judge::Judge;
use super::tables::ShadowTables;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{ShadowOperation, ShadowReport};
use weir_engine::live::tap::{TapCounts, TapReader};
use weir_engine::{EngineError, NativeFilter};
use weir_loading::Policy;

/// How long the thread waits for a packet before it looks whether it shall end.
const LOOK: Duration = Duration::from_millis(20);
/// Copies that are judged before the report is brought up to date, at most.
const TURN: usize = 4096;

/// A policy that is ready to judge.
pub struct ShadowPolicy {
    /// Its file.
    pub path: PathBuf,
    /// Its posture; `None` for its base policy.
    pub posture: Option<String>,
    /// The policy.
    pub policy: Policy,
    /// Its code.
    pub filter: NativeFilter,
    /// Its chains, by the side on which packets arrive.
    pub chains: [usize; 2],
    /// Its dynamic tables.
    pub tables: ShadowTables,
}

/// A shadow. It ends when this is dropped.
pub struct RunningShadow {
    path: PathBuf,
    name: String,
    posture: Option<String>,
    every: u32,
    /// Whether it tracks connections.
    tracks: bool,
    begun: Instant,
    state: Arc<Mutex<State>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its reports share.
struct State {
    judge: Judge,
    tables: ShadowTables,
    counts: TapCounts,
    judged: Option<Instant>,
    failed: Option<String>,
}

impl RunningShadow {
    /// Starts to judge the packets of a tap.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(judging: ShadowPolicy, every: u32, mut tap: TapReader) -> Result<Self, Failure> {
        let ShadowPolicy { path, posture, policy, filter, chains, tables } = judging;
        let tracks = policy.program.flow_needs().is_some();
        let judge = Judge::new(policy.program, filter, chains);
        let state = State { judge, tables, counts: TapCounts::default(), judged: None, failed: None };
        let (state, stop) = (Arc::new(Mutex::new(state)), Arc::new(AtomicBool::new(false)));
        let (shared, stopped) = (state.clone(), stop.clone());
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                if let Err(error) = turn(&mut tap, &shared) {
                    eprintln!("weir: the shadow has ended: {error}");
                    locked(&shared).failed = Some(error.to_string());
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("weir-shadow".to_owned()).spawn(work);
        let thread = Some(thread.map_err(|error| Failure::system("a thread for the shadow", error))?);
        let name = path.display().to_string();
        Ok(RunningShadow { path, name, posture, every, tracks, begun: Instant::now(), state, stop, thread })
    }

    /// What it has judged so far.
    pub fn loaded(&self) -> ShadowOperation {
        ShadowOperation::Load { policy: self.path.clone(), every: self.every, posture: self.posture.clone() }
    }

    /// What it has found so far.
    pub fn report(&self) -> ShadowReport {
        let mut state = locked(&self.state);
        let seconds = |since: Instant| since.elapsed().as_secs_f64();
        ShadowReport {
            policy: self.name.clone(),
            posture: self.posture.clone(),
            every: self.every,
            seconds: seconds(self.begun),
            idle_s: state.judged.map(seconds),
            decided: state.counts.matched,
            lost: state.counts.lost + state.counts.over,
            failed: state.failed.clone(),
            tables: state.tables.continued.clone(),
            table_changes_missed: state.tables.missed(),
            tracks: self.tracks,
            comparison: state.judge.comparison(),
        }
    }

    /// Ends it. Copies that wait are judged before.
    pub fn end(mut self) -> ShadowReport {
        self.stop();
        self.report()
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _panicked = thread.join();
        }
    }
}

impl Drop for RunningShadow {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Judges the copies that wait, up to [`TURN`]; waits if there are none.
fn turn(tap: &mut TapReader, state: &Mutex<State>) -> Result<(), EngineError> {
    let mut next = tap.wait(LOOK);
    let mut state = locked(state);
    state.tables.follow();
    for _ in 0..TURN {
        let Some(copy) = next else { break };
        state.judge.take(copy)?;
        state.judged = Some(Instant::now());
        next = tap.read();
    }
    state.judge.finish()?;
    state.counts = tap.counts();
    Ok(())
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
