//! The shadow: a policy that judges copies of packets and changes nothing (docs/guide/shadow.md).
//!
//! ```text
//!   datapath --- verdict of the active policy ---> the packet
//!      |
//!      tap: one in N ---> a thread: native code of the shadow ---> comparison ---> ctl shadow
//! ```
//! It is the same on every engine, because a tap is. The shadow has state of its own. Its dynamic tables begin with the
//! entries of the active policy's and follow changes by hand and by feeds (`tables.rs`). Slots have the rules that slots
//! of the active policy with the same names have. Flows and limits begin as its policy declares them.

mod judge;
mod running;
mod tables;

use crate::generations::controller::Controller;
use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};
use running::{RunningShadow, ShadowPolicy};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use weir_abi::tap::TAP_BYTES_MAX;
use weir_command::failure::Failure;
use weir_command::report;
use weir_control::{Reply, Request, ShadowOperation, ShadowShown, Stats};
use weir_engine::bundle::trust::Trust;
use weir_engine::live::Datapath;
use weir_engine::live::tap::{TapFilter, Taps};
use weir_loading::{Policy, PolicyFile, regular_file};
use weir_policy::ir::Direction;
use weir_policy::slot_rule;
use weir_state::tables::TableStore;

use crate::door::ChangeWatcher;

/// Most copies per second. More than a thread can judge, so a budget is not what loses packets.
const BUDGET_PPS: u32 = 50_000_000;
/// Bytes of a packet that a policy may read.
const SNAP: u32 = weir_abi::WINDOW_BYTES as u32;
const _: () = assert!(SNAP as usize <= TAP_BYTES_MAX);

/// Answers requests about the shadow.
#[derive(Default)]
pub struct Shadow {
    answering: Option<Arc<dyn Shadowing>>,
    /// How the program before this one in its process has loaded its shadow.
    handed: Option<ShadowOperation>,
}

/// What answers requests, and knows how its shadow was loaded.
trait Shadowing: ChangeWatcher {
    fn loaded(&self) -> Option<ShadowOperation>;
}

impl<L: Loader> Part<L> for Shadow {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let shadows = Arc::new(Shadows {
            taps: running.taps.clone(),
            trust: running.door.loader.trust().clone(),
            controller: running.door.controller.clone(),
            tables: running.door.loader.shared().tables().clone(),
            current: Mutex::default(),
        });
        running.door.join(shadows.clone());
        self.answering = Some(shadows.clone());
        let Some(handed) = self.handed.take() else { return Ok(()) };
        // It is compiled again, and nothing else waits for that.
        let work = move || match shadows.perform(&handed) {
            Ok(_) => eprintln!("weir: the shadow was loaded again, and its report begins anew"),
            Err(failure) => warning!("weir: the shadow has ended by the upgrade: {}", failure.message().trim_end()),
        };
        let thread = thread::Builder::new().name("weir-shadow-load".to_owned()).spawn(work);
        thread.map(drop).map_err(|error| Failure::system("a thread for the shadow", error))
    }

    fn name(&self) -> &'static str {
        "shadow"
    }

    fn hand_over(&mut self) -> Option<Vec<u8>> {
        serde_json::to_vec(&self.answering.as_ref()?.loaded()?).ok()
    }

    fn continue_with(&mut self, handed: Vec<u8>) {
        self.handed = serde_json::from_slice(&handed).ok();
        if self.handed.is_none() {
            warning!("weir: the shadow has ended by the upgrade");
        }
    }
}

/// The shadow of a datapath, if there is one.
struct Shadows<D: Datapath> {
    taps: Arc<Taps>,
    trust: Trust,
    controller: Arc<Controller<D>>,
    /// The tables of the active policy.
    tables: Arc<TableStore>,
    current: Mutex<Option<RunningShadow>>,
}

impl<D: Datapath + 'static> ChangeWatcher for Shadows<D> {
    fn answer(&self, request: &Request, _: &dyn Fn() -> Stats) -> Option<Result<Reply, Failure>> {
        match request {
            Request::Shadow { operation } => Some(self.perform(operation).map(Reply::from)),
            _ => None,
        }
    }
}

impl<D: Datapath + 'static> Shadowing for Shadows<D> {
    fn loaded(&self) -> Option<ShadowOperation> {
        self.current().as_ref().map(RunningShadow::loaded)
    }
}

impl<D: Datapath> Shadows<D> {
    fn perform(&self, operation: &ShadowOperation) -> Result<ShadowShown, Failure> {
        match operation {
            ShadowOperation::Load { policy, every, posture } => {
                let judging = self.load(policy, posture.as_deref())?;
                // The previous shadow ends first, because there are few taps.
                drop(self.current().take());
                let filter = TapFilter { one_in: *every, snap: SNAP, budget_pps: BUDGET_PPS, ..TapFilter::default() };
                let tap = self.taps.open(filter).map_err(|error| Failure::Rejected(format!("weir: {error}")))?;
                let shadow = RunningShadow::start(judging, *every, tap)?;
                Ok(ShadowShown { shadow: Some(self.current().insert(shadow).report()) })
            }
            ShadowOperation::Show => Ok(ShadowShown { shadow: self.current().as_ref().map(RunningShadow::report) }),
            ShadowOperation::End => {
                let shadow = self.current().take();
                Ok(ShadowShown { shadow: shadow.map(RunningShadow::end) })
            }
        }
    }

    /// Reads and compiles a policy.
    fn load(&self, path: &Path, posture: Option<&str>) -> Result<ShadowPolicy, Failure> {
        if !path.is_absolute() {
            return Err(Failure::Rejected(format!("weir: {}: not an absolute path", path.display())));
        }
        let unreadable = |error| Failure::Rejected(format!("weir: {}: {error}", path.display()));
        // Reading a pipe could block for ever.
        regular_file::check(path).map_err(unreadable)?;
        let mut policy = PolicyFile::open(path)?.read(&self.trust)?;
        report::say_warnings(&policy);
        let chain = |direction| policy.chain(posture, direction);
        let chains = [chain(Direction::Upstream)?, chain(Direction::Downstream)?];
        self.put_into_slots(&mut policy);
        let (filter, tables) = tables::begin(&policy, &self.tables, self.controller.active().tables())?;
        Ok(ShadowPolicy { path: path.to_owned(), posture: posture.map(str::to_owned), policy, filter, chains, tables })
    }

    /// Gives the slots of a policy the rules that slots of the active policy with the same names have now. Rules that
    /// have no room there are left out, and named.
    fn put_into_slots(&self, policy: &mut Policy) {
        let active = self.controller.active();
        for (slot, bound) in active.slots().named() {
            if !policy.program.rule_slots.iter().any(|declared| declared.name == slot) {
                continue;
            }
            for listed in bound.slot.list() {
                let rule = slot_rule::text(&listed.record);
                if let Err(problem) = policy.add_slot_rule(slot, &rule) {
                    eprintln!("weir: the shadow has no rule `{rule}` in its slot {slot}: {problem}");
                }
            }
        }
    }

    fn current(&self) -> MutexGuard<'_, Option<RunningShadow>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
