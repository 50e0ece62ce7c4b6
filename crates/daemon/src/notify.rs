//! Messages to the service manager (sd_notify(3)): readiness, reloads, the status text and the watchdog.
//!
//! Without `NOTIFY_SOCKET` nothing is sent. An error is told once, because Weir works without a service manager.
//! Messages are sent by a thread, in order.

use sd_notify::NotifyState;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use weir_command::failure::Failure;
use weir_policy::diag::printable::printable_line;

/// Messages that wait for a service manager that does not read. Others are lost.
const WAITING_MAX: usize = 64;

/// Whether Weir has said that packets are decided.
static READY: AtomicBool = AtomicBool::new(false);
/// Leads to the thread that sends, if there is a service manager.
static QUEUE: OnceLock<SyncSender<Vec<String>>> = OnceLock::new();

/// Starts the thread that sends, if there is a service manager. Sending blocks while the service manager does not read,
/// and nothing else may block then.
///
/// # Errors
/// The thread cannot be started.
pub fn start() -> Result<(), Failure> {
    if !is_wanted() {
        return Ok(());
    }
    let (queue, messages) = sync_channel(WAITING_MAX);
    let started = thread::Builder::new().name("weir-notify".to_owned()).spawn(move || send_all(&messages));
    started.map_err(|error| Failure::system("a thread for the service manager", error))?;
    let _only_once = QUEUE.set(queue);
    Ok(())
}

/// Whether there is a service manager.
pub fn is_wanted() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

fn send_all(messages: &Receiver<Vec<String>>) {
    let mut is_told = false;
    for message in messages {
        let lines: Vec<NotifyState<'_>> = message.iter().map(|line| NotifyState::Custom(line)).collect();
        if let Err(error) = sd_notify::notify(&lines)
            && !is_told
        {
            warning!("weir: the service manager cannot be notified: {error}");
            is_told = true;
        }
    }
}

fn send(message: &[NotifyState<'_>]) {
    if let Some(queue) = QUEUE.get() {
        // A service manager that does not read gets no more.
        let _full = queue.try_send(message.iter().map(ToString::to_string).collect());
    }
}

/// Says that packets are decided.
pub fn ready() {
    READY.store(true, Ordering::Relaxed);
    send(&[NotifyState::Ready]);
}

/// Says that Weir ends.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Sets the status text. A line end in it would begin another message.
pub fn status(text: &str) {
    send(&[NotifyState::Status(&printable_line(text))]);
}

/// Says that Weir makes progress.
pub fn progress() {
    send(&[NotifyState::Watchdog]);
}

/// A reload. The service manager takes Weir for ready again when this is dropped, however the reload ends.
pub struct Reloading(());

impl Reloading {
    /// Says that a reload begins.
    pub fn begin() -> Self {
        match NotifyState::monotonic_usec_now() {
            Ok(now) if READY.load(Ordering::Relaxed) => send(&[NotifyState::Reloading, now]),
            // Without the time the service manager would end Weir.
            _ => {}
        }
        Reloading(())
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        if READY.load(Ordering::Relaxed) {
            send(&[NotifyState::Ready]);
        }
    }
}
