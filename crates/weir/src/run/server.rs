//! Answers clients while packets flow: a socket, a thread for each client, a line for each request. What requests mean is not known here.
//!
//! No client keeps another waiting: slots are few, and those of clients that say nothing are given to others; requests and answers have a time
//! to be transferred in; whatever happens to a client's thread, its slot is released.

use crate::failure::Failure;
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_control::{
    ANSWER_TIME_MAX, Answer, CLIENTS_MAX, GIVE_WAY, REQUEST_BYTES_MAX, REQUEST_TIME_MAX, Request, SILENCE_MAX,
};

/// How long nobody is accepted after the system could not.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Clients that wait to be accepted.
const QUEUE_MAX: i32 = 128;

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

    /// Answers requests by `handler`, several at once. A panic of `handler` is an answer as well.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn serve(
        &mut self,
        handler: impl Fn(Request) -> Result<Value, Failure> + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let (clients, handler) = (Arc::new(Clients::default()), Arc::new(handler));
        let mut door = Door { listener, spare: spare() };
        let accept = move || {
            loop {
                let Some(stream) = door.next() else { continue };
                if let Err(why) = admit(stream, &clients, &handler) {
                    eprintln!("weir: control: {why}");
                }
            }
        };
        let started = thread::Builder::new().name("weir-control".to_owned()).spawn(accept);
        started.map(drop).map_err(|error| Failure::system("control", error))
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
    let refused = |problem: &str| Failure::Runtime(format!("{}: {problem}", path.display()));
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(refused("is there already, and no socket"));
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&found.uid()) {
            let problem =
                format!("a socket of another user (uid {}) lies there; --control names another path", found.uid());
            return Err(refused(&problem));
        }
        if is_listened_at(path) {
            return Err(refused("another weir listens there; --control names another path"));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    bind_private(path).map_err(failed)
}

/// Binds a socket that others cannot connect to, not even for a moment. Changing its mode afterwards would follow a link.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the mode of its socket (unix(7)).
    fchmod(&socket, Mode::from_raw_mode(0o600))?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, QUEUE_MAX)?;
    Ok(socket.into())
}

/// Asks without waiting: whoever listens may have no time, and a queue of clients that is full.
fn is_listened_at(path: &Path) -> bool {
    let connect = || -> rustix::io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    matches!(connect(), Ok(()) | Err(Errno::AGAIN))
}

/// Where clients come in.
struct Door {
    listener: UnixListener,
    /// A descriptor that is given up where there is no other, to tell a client so.
    spare: Option<File>,
}

fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Door {
    /// The next client. Without descriptors, it waits a little: the client is still there, clients that have hung up give theirs back, and asking
    /// at once would take a whole core.
    fn next(&mut self) -> Option<UnixStream> {
        if let Ok((stream, _)) = self.listener.accept() {
            return Some(stream);
        }
        thread::sleep(ACCEPT_PAUSE);
        let error = match self.listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(error) => error,
        };
        let none_left =
            [Errno::MFILE, Errno::NFILE].iter().any(|none| Some(none.raw_os_error()) == error.raw_os_error());
        if none_left && self.spare.take().is_some() {
            // Somebody else may have taken it meanwhile; then there is nobody to tell. That it does not wait for another client, the kernel sees to:
            // the one that could not be accepted is still in the queue.
            if let Ok((stream, _)) = self.listener.accept() {
                turn_away(&stream, &format!("no room for another client: {error}"));
            }
            self.spare = spare();
        }
        None
    }
}

/// Answers one client in a thread of its own, if it may ask and there is room. Returns why there is no thread.
fn admit<H>(stream: UnixStream, clients: &Arc<Clients>, handler: &Arc<H>) -> io::Result<()>
where
    H: Fn(Request) -> Result<Value, Failure> + Send + Sync + 'static,
{
    if let Err(why) = may_connect(&stream) {
        turn_away(&stream, &why);
        return Ok(());
    }
    let Some(slot) = Clients::enter(clients, stream) else { return Ok(()) };
    let handler = handler.clone();
    let answer_all = move || {
        // A client that goes away needs no answer.
        let _gone = slot.serve(&*handler);
    };
    thread::Builder::new().name("weir-client".to_owned()).spawn(answer_all).map(drop)
}

/// Whether the client is root or who we are; else what to tell it.
fn may_connect(stream: &UnixStream) -> Result<(), String> {
    let own = rustix::process::geteuid();
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(peer) if peer.uid.is_root() || peer.uid == own => Ok(()),
        Ok(peer) => {
            Err(format!("permission denied to user {}: ask as root or as user {own}, whose Weir it is", peer.uid))
        }
        Err(error) => Err(format!("permission denied: who asks is not known: {error}")),
    }
}

/// Tells a client that it is not served. It has not been read from, so that this fits into its queue.
fn turn_away(stream: &UnixStream, why: &str) {
    let _gone = answer(stream, &Answer::Failed(why.to_owned()));
}

/// The clients that have a slot.
#[derive(Default)]
struct Clients(Mutex<Vec<Arc<Client>>>);

struct Client {
    stream: UnixStream,
    /// Since when nothing was asked; none while a request is performed.
    silent_since: Mutex<Option<Instant>>,
}

/// A client's place among [`CLIENTS_MAX`], until dropped.
struct Slot {
    clients: Arc<Clients>,
    client: Arc<Client>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.clients.lock().retain(|one| !Arc::ptr_eq(one, &self.client));
        // A thread that is still told to read from it has an end.
        let _gone = self.client.stream.shutdown(Shutdown::Both);
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a slot, if need be that of a client that has hung up or been silent for long, the longest first. Without one, the client is told.
    fn enter(clients: &Arc<Self>, stream: UnixStream) -> Option<Slot> {
        let mut list = clients.lock();
        if list.len() >= CLIENTS_MAX {
            let gives_way = |one: &Client| {
                one.silent_since().filter(|since| since.elapsed() >= GIVE_WAY || has_hung_up(&one.stream))
            };
            let silent = list.iter().enumerate().filter_map(|(at, one)| Some((gives_way(one)?, at))).min();
            match silent {
                Some((_, at)) => _ = list.remove(at).stream.shutdown(Shutdown::Both),
                None => {
                    drop(list);
                    turn_away(&stream, &format!("more than {CLIENTS_MAX} clients"));
                    return None;
                }
            }
        }
        let client = Arc::new(Client { stream, silent_since: Mutex::new(Some(Instant::now())) });
        list.push(client.clone());
        Some(Slot { clients: clients.clone(), client })
    }
}

/// Whether a client has gone and left nothing to be read. Its thread may not have had the time to find out.
fn has_hung_up(stream: &UnixStream) -> bool {
    matches!(net::recv(stream, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT), Ok((0, _)))
}

impl Client {
    fn silent_since(&self) -> Option<Instant> {
        *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_silent_since(&self, since: Option<Instant>) {
        *self.silent_since.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }
}

/// What a client said.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Request(Vec<u8>),
    /// It has hung up, or said nothing for too long.
    Nothing,
    /// What is no request, and nothing can follow.
    Nonsense(String),
}

impl Slot {
    /// Answers requests until there are no more.
    fn serve(&self, handler: &impl Fn(Request) -> Result<Value, Failure>) -> io::Result<()> {
        let stream = &self.client.stream;
        let mut reader = BufReader::new(stream);
        loop {
            let line = match read_line(&mut reader, SILENCE_MAX, REQUEST_TIME_MAX)? {
                Said::Request(line) => line,
                Said::Nothing => return Ok(()),
                Said::Nonsense(why) => return answer(stream, &Answer::Error(format!("weir: not a request: {why}"))),
            };
            self.client.set_silent_since(None);
            let result = match Request::parse(&line) {
                Ok(request) => Failure::catch(|| handler(request)),
                Err(error) => Err(Failure::Rejected(format!("weir: not a request: {error}"))),
            };
            answer(
                stream,
                &match result {
                    Ok(value) => Answer::Ok(value),
                    Err(Failure::Rejected(text)) => Answer::Error(text),
                    Err(Failure::Runtime(text) | Failure::NoDescriptors(text)) => Answer::Failed(text),
                    Err(failure @ (Failure::Mistakes { .. } | Failure::Told(_))) => Answer::Error(failure.to_string()),
                },
            )?;
            self.client.set_silent_since(Some(Instant::now()));
            if !line.ends_with(b"\n") {
                return Ok(());
            }
        }
    }
}

/// Reads a line, which may lack its end if the client says no more. It has to begin within `silence`, and to be whole within `time` then.
fn read_line(reader: &mut BufReader<&UnixStream>, silence: Duration, time: Duration) -> io::Result<Said> {
    let mut line = Vec::new();
    let mut deadline = Instant::now() + silence;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let late = || match line.is_empty() {
            true => Said::Nothing,
            false => Said::Nonsense(format!("not whole after {} s", time.as_secs_f64())),
        };
        if left.is_zero() {
            return Ok(late());
        }
        reader.get_ref().set_read_timeout(Some(left))?;
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => return Ok(late()),
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            return Ok(if line.is_empty() { Said::Nothing } else { Said::Request(line) });
        }
        if line.is_empty() {
            deadline = Instant::now() + time;
        }
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let length = end.unwrap_or(bytes.len());
        if line.len() + length > REQUEST_BYTES_MAX {
            return Ok(Said::Nonsense(format!("longer than {REQUEST_BYTES_MAX} bytes")));
        }
        line.extend_from_slice(&bytes[..length]);
        reader.consume(length);
        if end.is_some() {
            return Ok(Said::Request(line));
        }
    }
}

/// Sends an answer to a client that takes it within [`ANSWER_TIME_MAX`].
fn answer(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let line = answer.line();
    let deadline = Instant::now() + ANSWER_TIME_MAX;
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "server/tests.rs"]
mod tests;
