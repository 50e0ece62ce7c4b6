//! Answers clients while packets flow. A thread for each client; one change at a time.

use super::{Answer, REQUEST_BYTES_MAX, Request};
use crate::failure::Failure;
use crate::limit_counts::TOP_MAX;
use crate::run::controller::Controller;
use crate::run::generation::{Generation, Loader};
use serde_json::{Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Clients at a time.
const CLIENTS_MAX: usize = 32;
/// A client that says nothing for so long is let go.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// The socket. It is removed when dropped.
pub struct Server {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Server {
    /// Listens at `path`. Clients wait until there is something to answer from.
    ///
    /// # Errors
    /// Another Weir listens there, or the path cannot be used.
    pub fn listen(path: &Path) -> Result<Self, Failure> {
        Ok(Server { path: path.to_owned(), listener: Some(listen(path)?) })
    }

    /// Answers from `controller`; `loader` loads the policies that clients name.
    pub fn serve<L: Loader>(&mut self, controller: Arc<Mutex<Controller<L::Datapath>>>, loader: L) {
        let Some(listener) = self.listener.take() else { return };
        let clients = Arc::new(AtomicUsize::new(0));
        thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                if !may_connect(&stream) {
                    continue;
                }
                if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
                    clients.fetch_sub(1, Ordering::Relaxed);
                    let _gone = answer(&stream, &Answer::Failed(format!("more than {CLIENTS_MAX} clients")));
                    continue;
                }
                let (controller, loader, clients) = (controller.clone(), loader.clone(), clients.clone());
                thread::spawn(move || {
                    // A client that goes away needs no answer.
                    let _gone = serve(&stream, &controller, &loader);
                    clients.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; and there is nobody left to tell.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Binds the socket; one that nobody listens at any more, left by a process that was killed, is replaced.
fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: io::Error| Failure::file(path, error);
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(Failure::file(path, "is there already, and no socket"));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(Failure::file(path, "another weir listens there; --control names another path"));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    let listener = UnixListener::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

/// Whether the client is root or who we are.
fn may_connect(stream: &UnixStream) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(stream);
    peer.is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

fn serve<L: Loader>(stream: &UnixStream, controller: &Mutex<Controller<L::Datapath>>, loader: &L) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        reader.by_ref().take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let result = match serde_json::from_slice(&line) {
            Ok(request) => perform(request, controller, loader),
            Err(error) => Err(Failure::Rejected(format!("weir: not a request: {error}"))),
        };
        answer(
            stream,
            &match result {
                Ok(value) => Answer::Ok(value),
                Err(Failure::Rejected(text)) => Answer::Error(text),
                Err(Failure::Runtime(text)) => Answer::Failed(text),
                Err(failure @ (Failure::Mistakes { .. } | Failure::Told(_))) => Answer::Error(failure.to_string()),
            },
        )?;
        if !line.ends_with(b"\n") {
            return Ok(());
        }
    }
}

fn answer(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer).expect("an answer is JSON");
    line.push(b'\n');
    stream.write_all(&line)
}

fn perform<L: Loader>(
    request: Request,
    controller: &Mutex<Controller<L::Datapath>>,
    loader: &L,
) -> Result<Value, Failure> {
    let lock = || controller.lock().unwrap_or_else(PoisonError::into_inner);
    let status = |controller: &Controller<L::Datapath>| json!(controller.status());
    match request {
        Request::Status => Ok(status(&lock())),
        Request::Stats => Ok(json!(lock().stats())),
        Request::Limits { top, list } => {
            // Reading may take a while; others are answered meanwhile.
            let active = lock().active();
            Ok(json!(active.limits(top.min(TOP_MAX), list.as_deref())?))
        }
        Request::Load { policy } => {
            if !policy.is_absolute() {
                return Err(Failure::Rejected(format!("weir: {}: not an absolute path", policy.display())));
            }
            // Compiled beside what runs; others are answered meanwhile.
            let generation = Generation::prepare(&policy, loader)?;
            Ok(json!({ "generation": lock().add(generation) }))
        }
        Request::Activate { generation, confirm_s } => {
            let confirm = confirm_s.map(Duration::try_from_secs_f64).transpose();
            let confirm = confirm.map_err(|error| Failure::Rejected(format!("weir: --confirm: {error}")))?;
            let mut controller = lock();
            controller.activate(generation, confirm)?;
            Ok(status(&controller))
        }
        Request::Confirm => {
            let mut controller = lock();
            controller.confirm()?;
            Ok(status(&controller))
        }
        Request::Rollback => {
            let mut controller = lock();
            controller.rollback()?;
            Ok(status(&controller))
        }
        Request::Posture { name } => {
            let mut controller = lock();
            controller.posture(name.as_deref())?;
            Ok(status(&controller))
        }
    }
}
