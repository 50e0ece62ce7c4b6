//! Ends trials and leases of postures in time.

use crate::door::Door;
use crate::generations::generation::Loader;
use crate::generations::succession::Change;
use crate::parts::part::{Part, Running};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_control::{Active, Status};

/// Interval of looks at the clock.
const TICK: Duration = Duration::from_millis(50);
/// Pause before another try to end a trial.
const PAUSE: Duration = Duration::from_secs(1);

/// A thread that ends what is due, as long as the door exists.
pub struct Trials;

impl<L: Loader> Part<L> for Trials {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let door = Arc::downgrade(&running.door);
        let started = thread::Builder::new().name("weir-trials".to_owned()).spawn(move || watch(&door));
        started.map(drop).map_err(|error| Failure::system("a thread for trials", error))
    }
}

fn watch<L: Loader>(door: &Weak<Door<L>>) {
    while let Some(door) = door.upgrade() {
        if let Some(due) = door.controller.due() {
            end(&door, due);
        }
        drop(door);
        thread::sleep(TICK);
    }
}

fn end<L: Loader>(door: &Door<L>, due: Change) {
    let is_trial = due == Change::Timeout;
    match Failure::catch(|| door.make_due(due)) {
        Ok(true) if is_trial => {
            let Status { generation, posture, .. } = door.controller.status();
            warning!([Generation: generation] "weir: not confirmed in time: rolled back to {}", Active { generation, posture });
        }
        // The controller has said that the posture has ended.
        Ok(_) => {}
        Err(failure) => {
            let (what, then) = match is_trial {
                true => ("not confirmed in time", "the confirmed policy"),
                false => ("the automatic posture was not renewed", "the operator's posture"),
            };
            error!("weir: {what}, but {then} cannot be activated: {failure}");
            thread::sleep(PAUSE);
        }
    }
}
