//! What requests mean to a running Weir.

use crate::failure::Failure;
use crate::run::controller::Controller;
use crate::run::descriptors;
use crate::run::generation::{Generation, Loader};
use crate::run::succession::Refusal;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use weir_control::{Ready, Request, TOP_MAX};
use weir_engine::live::Datapath;
use weir_loading::regular_file;

/// Does what is asked for; `loader` loads the policies that clients name.
///
/// # Errors
/// It is refused, and nothing has changed; or something failed.
pub fn perform<L: Loader>(
    request: Request,
    controller: &Controller<L::Datapath>,
    loader: &L,
) -> Result<Value, Failure> {
    match request {
        Request::Status => {}
        Request::Stats => return Ok(json!(controller.stats())),
        Request::Limits { top, list } => {
            return Ok(json!(controller.active().limits(top.min(TOP_MAX), list.as_deref())?));
        }
        Request::Load { policy } => {
            if !policy.is_absolute() {
                return Err(Failure::Rejected(format!("weir: {}: not an absolute path", policy.display())));
            }
            // A pipe might never give its bytes.
            regular_file::check(&policy)
                .map_err(|error| Failure::Rejected(format!("weir: {}: {error}", policy.display())))?;
            // Compiled beside what runs.
            let generation = prepare(&policy, controller, loader)?;
            return Ok(json!(Ready { generation: controller.add(generation) }));
        }
        Request::Activate { generation, confirm_s } => controller.activate(generation, trial(confirm_s)?)?,
        Request::Confirm => controller.confirm()?,
        Request::Rollback => controller.rollback()?,
        Request::Posture { name } => controller.posture(name.as_deref())?,
    }
    Ok(json!(controller.status()))
}

/// Prepares a generation. If that takes more descriptors than there are, older generations that are not in use go, as they do when too many
/// stand ready.
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
        eprintln!("weir: generation {gone} no longer stands ready: {}", failure.message());
    }
}

/// The length of a trial. Whether it is one that trials may have, is said where generations are activated.
fn trial(confirm_s: Option<f64>) -> Result<Option<Duration>, Failure> {
    let length = |seconds: f64| Duration::try_from_secs_f64(seconds);
    let trial = confirm_s.map(length).transpose();
    trial.map_err(|_| Failure::Rejected(format!("weir: {}", Refusal::TrialLength)))
}
