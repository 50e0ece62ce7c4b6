//! Weir as a service: readiness, status text and watchdog for the service manager, and SIGHUP.
//!
//! SIGHUP with a configuration reads it again and activates its policy, as `weir ctl reconfigure`. Without one it reads
//! the lists of the active policy again.

use crate::door::Door;
use crate::generations::generation::Loader;
use crate::notify;
use crate::parts::part::{Part, Running};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_command::figures::grouped;
use weir_control::{Active, AttackOperation, Reconfigured, Reply, Request};

/// Interval of the status text.
const STATUS_INTERVAL: Duration = Duration::from_secs(5);

/// The service as the last part of the daemon, so that it is ready when everything else is.
#[derive(Default)]
pub struct Service {
    is_ready: bool,
    /// The interval of the service manager's watchdog, if it has one.
    watchdog: Option<Duration>,
    progress: Option<Instant>,
    /// Whether a thread reads the configuration again. Another SIGHUP meanwhile waits for its end.
    reconfiguring: Arc<AtomicBool>,
}

impl Service {
    /// The part of this process.
    pub fn new() -> Self {
        Service { watchdog: sd_notify::watchdog_enabled(), ..Service::default() }
    }
}

/// Whether an interval is over since `last`, which becomes `now` if so.
fn is_due(last: &mut Option<Instant>, interval: Duration) -> bool {
    let now = Instant::now();
    let due = last.is_none_or(|last| now.saturating_duration_since(last) >= interval);
    if due {
        *last = Some(now);
    }
    due
}

impl<L: Loader> Part<L> for Service {
    fn step(&mut self, running: &Running<'_, L>) {
        if !self.is_ready {
            self.is_ready = true;
            notify::ready();
            start_status(&running.door);
        }
        if !self.reconfiguring.load(Ordering::Acquire) && running.flags.take_hang_up() {
            self.hang_up(running);
        }
        // The main loop has made a turn. It never waits for an activation, so a turn that does not come is a failure.
        if self.watchdog.is_some_and(|interval| is_due(&mut self.progress, interval / 3)) {
            notify::progress();
        }
    }

    fn end(&mut self, _running: &Running<'_, L>) {
        notify::stopping();
    }
}

impl Service {
    fn hang_up<L: Loader>(&self, running: &Running<'_, L>) {
        if !running.door.is_configured() {
            running.door.updates.request_reload();
            return;
        }
        let (door, busy) = (running.door.clone(), self.reconfiguring.clone());
        busy.store(true, Ordering::Release);
        let work = move || {
            match Failure::catch(|| door.request(Request::Reconfigure { confirm_s: None })) {
                Ok(Reply::Reconfigured(done)) => tell(&done),
                Ok(_) => {}
                Err(failure) => {
                    error!("{failure}");
                    error!("weir: SIGHUP: the configuration is not applied, and the active policy stays");
                }
            }
            busy.store(false, Ordering::Release);
        };
        if let Err(error) = thread::Builder::new().name("weir-reload".to_owned()).spawn(work) {
            self.reconfiguring.store(false, Ordering::Release);
            error!("weir: SIGHUP: {}", Failure::system("a thread", error));
        }
    }
}

/// Tells what SIGHUP has done.
fn tell(done: &Reconfigured) {
    let Reconfigured { generation, policy, posture_lost, restart, .. } = done;
    notice!([Generation: generation] "weir: SIGHUP: generation {generation} is active: {policy}");
    if let Some(posture) = posture_lost {
        warning!("weir: SIGHUP: the policy has no posture {posture} any more, so its base policy decides");
    }
    if !restart.is_empty() {
        warning!("weir: SIGHUP: changed, but only a restart applies it: {}", restart.join(", "));
    }
}

/// Starts the thread that sends the status text, as long as the door exists. What it asks may wait for an activation.
fn start_status<L: Loader>(door: &Arc<Door<L>>) {
    if !notify::is_wanted() {
        return;
    }
    let door = Arc::downgrade(door);
    let work = move || {
        let mut said = String::new();
        while let Some(door) = door.upgrade() {
            let text = status(&door);
            drop(door);
            if text != said {
                notify::status(&text);
                said = text;
            }
            thread::sleep(STATUS_INTERVAL);
        }
    };
    if let Err(error) = thread::Builder::new().name("weir-status".to_owned()).spawn(work) {
        warning!("weir: there is no status text: {error}");
    }
}

/// The status text: what decides, packets, and attacks if they are measured.
fn status<L: Loader>(door: &Door<L>) -> String {
    let status = door.controller.status();
    let mut text = Active { generation: status.generation, posture: status.posture }.to_string();
    if status.confirm_left_s.is_some() {
        text += " on trial";
    }
    if let Some(why) = status.kept.and_then(|kept| kept.in_place_of) {
        text = format!("the last confirmed policy decides, because the configured one did not load ({why}); {text}");
    }
    if let Ok(Reply::UpgradeStatus(upgrades)) = door.request(Request::Upgrade { begin: false })
        && let Some(why) = upgrades.refused
    {
        let _ = write!(text, "; not upgraded: {why}");
    }
    if let Ok(Reply::Stats(stats)) = door.request(Request::Stats) {
        let sum = |of: fn(&weir_control::Tally) -> u64| of(&stats.upstream.total) + of(&stats.downstream.total);
        let (packets, dropped) = (grouped(sum(|tally| tally.packets)), grouped(sum(|tally| tally.dropped)));
        let _ = write!(text, "; {packets} packets, {dropped} dropped");
    }
    if let Ok(Reply::AttacksListed(listed)) = door.request(Request::Attacks { operation: AttackOperation::List }) {
        let lasting = listed.attacks.iter().filter(|attack| !attack.is_over).count();
        let _ = write!(text, "; {lasting} attacks");
    }
    text
}
