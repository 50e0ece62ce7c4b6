//! A daemon without packets, for tests: its datapath only remembers what it was told.

use crate::door::Door;
use crate::generations::controller::Controller;
use crate::generations::generation::{Generation, Loader, Prepared};
use crate::generations::succession::Change;
use crate::interfaces::guard::Guard;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_abi::{Counter, Reason};
use weir_command::failure::Failure;
use weir_control::{Request, Status};
use weir_engine::EngineError;
use weir_engine::bundle::trust::Trust;
use weir_engine::live::{Datapath, Loaded, PortStatus, Reading, Readings, Stray};
use weir_loading::Policy;
use weir_state::{SharedState, UsedBy};

/// Rules that have counters.
const RULES_MAX: usize = 64;

/// Code that decides nothing.
#[derive(Debug)]
pub struct StillCode;

/// The datapath.
#[derive(Clone)]
pub struct Still {
    active: Arc<Mutex<Loaded<StillCode>>>,
    /// Whether activations fail.
    fails: Arc<AtomicBool>,
}

impl Datapath for Still {
    type Code = StillCode;

    fn activate(&self, policy: &Loaded<StillCode>) -> Result<(), EngineError> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(EngineError::Stopping);
        }
        *self.active.lock().expect("no panic") = policy.clone();
        Ok(())
    }

    fn workers(&self) -> usize {
        1
    }

    fn readings(&self) -> Readings<StillCode> {
        let code = self.active.lock().expect("no panic").code.clone();
        let block = vec![Counter::default(); usize::from(Reason::RULE_BASE) + RULES_MAX];
        Readings { active: Reading { code, counts: vec![[block.clone(), block]] }, others: Vec::new() }
    }

    fn take_final(&self) -> Vec<Reading<StillCode>> {
        Vec::new()
    }

    fn strays(&self) -> Vec<Stray<StillCode>> {
        Vec::new()
    }

    fn ports(&self) -> Vec<PortStatus> {
        Vec::new()
    }

    fn has_failed(&self) -> bool {
        false
    }

    fn stop(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Its loader.
#[derive(Clone)]
pub struct StillLoader(Trust, Arc<SharedState>);

impl Loader for StillLoader {
    type Datapath = Still;

    fn load(&self, policy: &Policy) -> Result<Prepared<StillCode>, Failure> {
        let bound = policy.bind(Some(&self.1))?;
        Ok(Prepared { code: Arc::new(StillCode), state: bound.state })
    }

    fn trust(&self) -> &Trust {
        &self.0
    }

    fn shared(&self) -> &SharedState {
        &self.1
    }
}

/// The daemon, with the files of its policies.
pub struct Daemon {
    /// Its entrance.
    pub door: Arc<Door<StillLoader>>,
    datapath: Still,
    now: Arc<Mutex<Instant>>,
    folder: tempfile::TempDir,
}

impl Daemon {
    /// A daemon that runs a policy.
    pub fn new(policy: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let loader = StillLoader(Trust::default(), Arc::new(SharedState::new(UsedBy::Workers)));
        let path = file(&folder, "first.weir", policy);
        let first = Generation::prepare(&path, &loader).expect("it is right");
        let active = Arc::new(Mutex::new(first.loaded(None).expect("it has a base policy")));
        let datapath = Still { active, fails: Arc::default() };
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let controller =
            Controller::new(datapath.clone(), first, Arc::new(Guard::of_host(&[])), None).expect("no trial");
        let controller = controller.with_clock(move || *clock.lock().expect("no panic"));
        Daemon { door: Arc::new(Door::new(Arc::new(controller), loader, Arc::default())), datapath, now, folder }
    }

    /// Writes a file. Returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        file(&self.folder, name, text)
    }

    /// Makes activations fail from now on.
    pub fn fail(&self) {
        self.datapath.fails.store(true, Ordering::Relaxed);
    }

    /// Lets activations succeed again.
    pub fn succeed(&self) {
        self.datapath.fails.store(false, Ordering::Relaxed);
    }

    /// Lets time pass for trials and leases.
    pub fn pass(&self, time: Duration) {
        *self.now.lock().expect("no panic") += time;
    }

    /// Makes the change that is due.
    pub fn make_due(&self) -> Option<Change> {
        let due = self.door.controller.due()?;
        assert!(self.door.make_due(due.clone()).unwrap_or_else(|failure| panic!("{failure}")));
        Some(due)
    }

    /// Loads and activates another policy. Returns its generation.
    pub fn activate(&self, name: &str, policy: &str, confirm_s: Option<f64>) -> u64 {
        let loaded = self.ask(Request::Load { policy: self.file(name, policy) });
        let generation = loaded["generation"].as_u64().expect("a number");
        self.ask(Request::Activate { generation, confirm_s });
        generation
    }

    /// Asks as a client does.
    pub fn ask(&self, request: Request) -> Value {
        json!(self.door.request(request).unwrap_or_else(|refused| panic!("{refused}")))
    }

    /// The status.
    pub fn status(&self) -> Status {
        serde_json::from_value(self.ask(Request::Status)).expect("a status")
    }

    /// The posture that mitigation has activated, and the operator's, which it is in place of.
    pub fn automatic(&self) -> Option<(String, Option<String>)> {
        self.status().automatic.map(|automatic| (automatic.posture, automatic.in_place_of))
    }

    /// The posture that decides packets in the datapath.
    pub fn decides(&self) -> Option<String> {
        let active = self.datapath.active.lock().expect("no panic").clone();
        let generation = self.door.controller.active();
        assert!(generation.has_code(&active.code), "the controller and the datapath disagree");
        generation.posture_of(active.chains).map(str::to_owned)
    }
}

fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, text).expect("a file");
    path
}
