//! Executes the requests of clients.

mod features;
mod flows;
pub mod occupancy;
pub mod slots;
mod table_answers;
mod table_list;
pub mod tables;

use crate::generations::controller::Controller;
use crate::generations::generation::{Generation, Loader};
use crate::generations::preparation;
use crate::generations::succession::Refusal;
use crate::interfaces::states;
use crate::parts::feeds::{Cause, Force, Updater, Updates};
use crate::parts::flow_room;
use crate::parts::metrics::process;
use std::time::Duration;
use weir_abi::Reason;
use weir_command::failure::Failure;
use weir_command::{additions, tracked};
use weir_control::{
    AdditionStats, FlowsStatus, ListName, Ready, Reply, Request, Room, SlotRoom, Stats, Status, TOP_MAX, TableRoom,
};
use weir_engine::live::Datapath;
use weir_loading::regular_file;
use weir_state::SharedState;
use weir_state::slot_store::BoundSlot;

/// Executes a request. `loader` loads policies for `load` and `reload`.
///
/// # Errors
/// The request is refused and nothing has changed, or it has failed.
pub fn perform<L: Loader>(
    request: Request,
    controller: &Controller<L::Datapath>,
    loader: &L,
    updates: &Updates,
) -> Result<Reply, Failure> {
    match request {
        Request::Status => {}
        Request::Stats => return Ok(stats(controller, loader).into()),
        Request::Room => return Ok(room(controller, loader).into()),
        Request::Limits { top, list } => {
            return Ok(controller.active().limits(top.min(TOP_MAX), list.as_deref())?.into());
        }
        Request::Load { policy } => {
            if !policy.is_absolute() {
                return Err(Failure::Rejected(format!("weir: {}: not an absolute path", policy.display())));
            }
            // Reading a pipe could block for ever.
            regular_file::check(&policy)
                .map_err(|error| Failure::Rejected(format!("weir: {}: {error}", policy.display())))?;
            // The active generation continues meanwhile.
            let generation = preparation::prepare(controller, || Generation::prepare(&policy, loader))?;
            return Ok(Ready { generation: controller.add(generation) }.into());
        }
        Request::Unload { generation } => controller.unload(generation)?,
        Request::Activate { generation, confirm_s } => controller.activate(generation, trial(confirm_s)?)?,
        Request::Reconfigure { .. } => {
            return Err(Failure::Rejected("weir: there is no configuration: start Weir with --config".to_owned()));
        }
        Request::Confirm => controller.confirm()?,
        Request::Rollback => controller.rollback()?,
        Request::Posture { name } => controller.posture(name.as_deref())?,
        Request::Table { table, operation } => {
            return tables::perform(&table, operation, &controller.active(), loader.shared(), updates);
        }
        Request::Features { top } => {
            return Ok(features::shown(top, controller.active().program(), loader.shared())?.into());
        }
        Request::Flows { operation } => {
            return flows::perform(&operation, controller.active().program(), loader.shared());
        }
        Request::Slot { slot, operation } => {
            return slots::perform(&slot, operation, controller.active().slots(), loader.shared());
        }
        Request::Attacks { .. } => {
            return Err(Failure::Nothing("attacks are not measured: start Weir with --mitigate".to_owned()));
        }
        Request::Capture(_) => {
            return Err(Failure::Rejected("weir: a capture needs a connection of its own".to_owned()));
        }
        Request::Shadow { .. } => {
            return Err(Failure::Runtime("weir: shadows are not served yet; try again".to_owned()));
        }
        Request::Card { .. } => {
            return Err(Failure::Nothing("there is no card: start Weir with --card".to_owned()));
        }
        Request::Upgrade { .. } => {
            return Err(Failure::Runtime("weir: upgrades are not served yet; try again".to_owned()));
        }
        Request::Reload { force } => {
            let updater = Updater { controller, loader, updates };
            let reloaded = updater.update(|_| true, Force::from(force), Cause::Reload);
            return Ok(reloaded.map_err(|refused| refused.failure)?.into());
        }
    }
    Ok(status(controller, loader, updates).into())
}

/// All counters of the software.
pub fn stats<L: Loader>(controller: &Controller<L::Datapath>, loader: &L) -> Stats {
    let shared = loader.shared();
    let tracked = shared.known_tracked().map(tracked::stats);
    Stats { additions: addition_stats(shared), tracked, ..controller.stats() }
}

/// The status with the interfaces and with what became of updates.
fn status<L: Loader>(controller: &Controller<L::Datapath>, loader: &L, updates: &Updates) -> Status {
    let active = controller.active();
    let text = active.text();
    let tables = active.declared();
    let watched = tables.all().iter().filter(|table| table.updates.watch).map(|table| table.name.clone()).collect();
    let has_list = |list: &ListName| match list {
        ListName::Table(name) => tables.named(name).is_some(),
        ListName::Limits(name) => text.is_some_and(|text| text.checked.limits.iter().any(|list| list.name == *name)),
    };
    let flows = flow_room(controller, loader.shared());
    let interfaces = states::status(&controller.ports());
    let times = process::workers().into_iter();
    let workers_cpu_ms = times.map(|(worker, seconds)| (worker, (seconds * 1000.0) as u64)).collect();
    Status { updates: updates.status(watched, has_list), flows, interfaces, workers_cpu_ms, ..controller.status() }
}

/// The room in the table of flows, if the active policy tracks.
pub fn flow_room<D: Datapath>(controller: &Controller<D>, shared: &SharedState) -> Option<FlowsStatus> {
    let Stats { upstream, downstream, .. } = controller.stats();
    let reason = Reason::STATE_FULL.builtin_name().unwrap_or_default();
    let refused =
        [upstream, downstream].iter().map(|stats| stats.total.reasons.get(reason).copied().unwrap_or(0)).sum();
    flow_room::room(controller.active().program(), shared, refused)
}

/// How full the tables and slots of the active generation are.
fn room<L: Loader>(controller: &Controller<L::Datapath>, loader: &L) -> Room {
    let (active, shared) = (controller.active(), loader.shared());
    let (store, binding) = (shared.tables(), active.tables());
    let table = |name: &String| {
        // A table without an image has no rule that looks it up.
        let (entries, size) = store.read(binding?, name, |table| (table.count(), table.size())).ok()?;
        Some(TableRoom { table: name.clone(), entries, size, refused: size.map(|_| store.refused_by(name)) })
    };
    let slot = |(name, bound): (&str, &BoundSlot)| {
        let (rules, size) = (bound.slot.count(), shared.slots().room(&bound.slot));
        SlotRoom { slot: name.to_owned(), rules, size }
    };
    let tables = active.declared().all().iter().filter_map(|declared| table(&declared.name)).collect();
    Room { tables, slots: active.slots().named().map(slot).collect() }
}

/// What rules have added to tables.
fn addition_stats(shared: &SharedState) -> AdditionStats {
    additions::stats(shared.additions().counts())
}

/// The length of a trial. Its bounds are checked when the generation is activated.
///
/// # Errors
/// It is no length of time.
pub fn trial(confirm_s: Option<f64>) -> Result<Option<Duration>, Failure> {
    let length = |seconds: f64| Duration::try_from_secs_f64(seconds);
    let trial = confirm_s.map(length).transpose();
    trial.map_err(|_| Failure::Rejected(format!("weir: {}", Refusal::TrialLength)))
}
