//! Executes the requests of clients.

use crate::additions;
use crate::failure::Failure;
use crate::run::controller::Controller;
use crate::run::descriptors;
use crate::run::generation::{Generation, Loader};
use crate::run::succession::Refusal;
use crate::run::tables;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use weir_control::{AdditionStats, Ready, Request, Stats, TOP_MAX};
use weir_engine::live::Datapath;
use weir_loading::regular_file;
use weir_state::SharedState;

/// Executes a request. `loader` loads policies for `load`.
///
/// # Errors
/// The request is refused and nothing has changed, or it has failed.
pub fn perform<L: Loader>(
    request: Request,
    controller: &Controller<L::Datapath>,
    loader: &L,
) -> Result<Value, Failure> {
    match request {
        Request::Status => {}
        Request::Stats => return Ok(json!(Stats { additions: addition_stats(loader.shared()), ..controller.stats() })),
        Request::Limits { top, list } => {
            return Ok(json!(controller.active().limits(top.min(TOP_MAX), list.as_deref())?));
        }
        Request::Load { policy } => {
            if !policy.is_absolute() {
                return Err(Failure::Rejected(format!("weir: {}: not an absolute path", policy.display())));
            }
            // Reading a pipe could block for ever.
            regular_file::check(&policy)
                .map_err(|error| Failure::Rejected(format!("weir: {}: {error}", policy.display())))?;
            // The active generation continues meanwhile.
            let generation = prepare(&policy, controller, loader)?;
            return Ok(json!(Ready { generation: controller.add(generation) }));
        }
        Request::Activate { generation, confirm_s } => controller.activate(generation, trial(confirm_s)?)?,
        Request::Confirm => controller.confirm()?,
        Request::Rollback => controller.rollback()?,
        Request::Posture { name } => controller.posture(name.as_deref())?,
        Request::Table { table, operation } => {
            return tables::perform(&table, operation, &controller.active(), loader.shared());
        }
    }
    Ok(json!(controller.status()))
}

/// What rules have added to tables.
fn addition_stats(shared: &SharedState) -> AdditionStats {
    shared.additions().map(|queues| additions::stats(queues.counts())).unwrap_or_default()
}

/// Prepares a generation. If there are too few descriptors, it unloads the oldest generations that are not in use.
fn prepare<L: Loader>(
    policy: &Path,
    controller: &Controller<L::Datapath>,
    loader: &L,
) -> Result<Generation<<L::Datapath as Datapath>::Code>, Failure> {
    loop {
        let prepared = Generation::prepare(policy, loader).and_then(|generation| {
            descriptors::check_left()?;
            Ok(generation)
        });
        let failure = match prepared {
            Err(failure @ Failure::NoDescriptors(_)) => descriptors::explain(failure),
            prepared => return prepared,
        };
        let Some(gone) = controller.remove_oldest() else { return Err(failure) };
        eprintln!("weir: generation {gone} is unloaded: {}", failure.message());
    }
}

/// The length of a trial. Its bounds are checked when the generation is activated.
fn trial(confirm_s: Option<f64>) -> Result<Option<Duration>, Failure> {
    let length = |seconds: f64| Duration::try_from_secs_f64(seconds);
    let trial = confirm_s.map(length).transpose();
    trial.map_err(|_| Failure::Rejected(format!("weir: {}", Refusal::TrialLength)))
}
