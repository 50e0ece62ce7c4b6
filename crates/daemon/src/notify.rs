//! Messages to the service manager (sd_notify(3)): readiness, reloads, the status text and the watchdog.
//!
//! Without `NOTIFY_SOCKET` nothing is sent. An error is told once, because Weir works without a service manager.
//! Messages are sent by a thread, in order.

use sd_notify::NotifyState;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_policy::diag::printable::printable_line;

/// Messages that wait for a service manager that does not read. Others are lost.
const WAITING_MAX: usize = 64;

/// Whether Weir has said that packets are decided.
static READY: AtomicBool = AtomicBool::new(false);
/// Leads to the thread that sends, if there is a service manager.
static QUEUE: OnceLock<SyncSender<Message>> = OnceLock::new();
/// The longest wait until a message is sent, before the process executes another program.
const SEND_TIME: Duration = Duration::from_secs(1);
/// The longest start of the next program during which the watchdog is told that Weir makes progress.
const START_TIME: Duration = Duration::from_secs(300);

/// A message to the service manager.
struct Message {
    lines: Vec<String>,
    /// Is told when it was sent.
    sent: Option<SyncSender<()>>,
}

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

fn send_all(messages: &Receiver<Message>) {
    let mut is_told = false;
    for Message { lines, sent } in messages {
        let lines: Vec<NotifyState<'_>> = lines.iter().map(|line| NotifyState::Custom(line)).collect();
        if let Err(error) = sd_notify::notify(&lines)
            && !is_told
        {
            warning!("weir: the service manager cannot be notified: {error}");
            is_told = true;
        }
        // Nobody waits any more.
        sent.into_iter().for_each(|sent| _ = sent.try_send(()));
    }
}

fn send(message: &[NotifyState<'_>]) {
    put(message, None);
}

fn put(message: &[NotifyState<'_>], sent: Option<SyncSender<()>>) {
    if let Some(queue) = QUEUE.get() {
        // A service manager that does not read gets no more.
        let _full = queue.try_send(Message { lines: message.iter().map(ToString::to_string).collect(), sent });
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

    /// Says that the process executes another program, which says when it is ready. Returns when that is sent, because
    /// the thread that sends ends with this program.
    pub fn begin_upgrade() -> Self {
        let (sent, is_sent) = sync_channel(1);
        match NotifyState::monotonic_usec_now() {
            Ok(now) if READY.load(Ordering::Relaxed) => {
                put(&[NotifyState::Reloading, now, NotifyState::Watchdog], Some(sent));
                // A service manager that does not read delays nothing.
                let _late = is_sent.recv_timeout(SEND_TIME);
            }
            _ => {}
        }
        Reloading(())
    }
}

/// Says that Weir makes progress while the program of an upgrade starts, because policies may take long to load. A
/// start that hangs is left to the watchdog.
pub fn progress_until_ready() {
    let Some(interval) = sd_notify::watchdog_enabled() else { return };
    let work = move || {
        let begun = Instant::now();
        while !READY.load(Ordering::Relaxed) && begun.elapsed() < START_TIME {
            progress();
            thread::sleep(interval / 3);
        }
    };
    if let Err(error) = thread::Builder::new().name("weir-progress".to_owned()).spawn(work) {
        warning!("weir: the watchdog may end the upgrade: {error}");
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        if READY.load(Ordering::Relaxed) {
            send(&[NotifyState::Ready]);
        }
    }
}
