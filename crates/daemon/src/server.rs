//! The control server: a socket, a thread for each client, a line for each request. It does not interpret requests.
//!
//! No client blocks another. Silent clients lose their slots to new ones. Requests and answers must be transferred
//! within a time limit. A slot is released however the thread of its client ends.

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_control::{
    ANSWER_TIME_MAX, Answer, CLIENTS_MAX, DEFAULT_PATH, GIVE_WAY, REQUEST_BYTES_MAX, REQUEST_TIME_MAX, Request,
    SILENCE_MAX,
};
use weir_engine::live::os::inherited::Kept;
use weir_engine::live::os::peer;

/// Pause after the system could not accept a client.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Most clients that wait to be accepted.
const QUEUE_MAX: i32 = 128;
/// Answers that are longer are sent, even if there are further requests.
const ANSWERS_BYTES: usize = 1 << 16;

/// What a request is answered.
pub struct Answered {
    value: Value,
    /// What is sent behind the answer; then the connection ends.
    stream: Option<Stream>,
}

/// Sends bytes to a client until it has what it wants. An error means that the client has gone.
pub type Stream = Box<dyn FnOnce(&UnixStream) -> io::Result<()> + Send>;

impl From<Value> for Answered {
    fn from(value: Value) -> Self {
        Answered { value, stream: None }
    }
}

impl Answered {
    /// An answer that is followed by a stream.
    pub fn followed_by(value: Value, stream: Stream) -> Self {
        Answered { value, stream: Some(stream) }
    }
}

/// The server. Its socket is removed when it is dropped.
pub struct Server {
    path: PathBuf,
    listener: Option<UnixListener>,
    /// The listener's descriptor, to be handed over.
    listening: OwnedFd,
}

impl Server {
    /// Listens at `path`. Clients wait until [`Server::serve`] is called.
    ///
    /// # Errors
    /// Another Weir listens at the path, or the path cannot be used.
    pub fn listen(path: &Path) -> Result<Self, Failure> {
        if path == Path::new(DEFAULT_PATH) {
            make_folder(path)?;
        }
        Self::of(path, listen(path)?)
    }

    fn of(path: &Path, listener: UnixListener) -> Result<Self, Failure> {
        let listening = listener.as_fd().try_clone_to_owned().map_err(|error| Failure::file(path, error))?;
        Ok(Server { path: path.to_owned(), listener: Some(listener), listening })
    }

    /// Goes on listening at `path`, with the listener of the program before this one in its process. Clients that have
    /// connected meanwhile have waited.
    ///
    /// # Errors
    /// It does not listen at the path.
    pub fn continued(path: &Path, listener: OwnedFd) -> Result<Self, Failure> {
        let failed = |why: &str| Failure::Runtime(format!("{}: {why}", path.display()));
        let listens = net::sockopt::socket_acceptconn(&listener).is_ok_and(|listens| listens);
        let listener = UnixListener::from(listener);
        let is_own = listener.local_addr().is_ok_and(|own| own.as_pathname() == Some(path));
        match listens && is_own {
            true => Self::of(path, listener),
            false => Err(failed("the descriptor that was handed over does not listen here")),
        }
    }

    /// Hands the listener over to the next program in this process.
    ///
    /// # Errors
    /// Its descriptor cannot be kept.
    pub fn hand_over(&self, kept: &mut Kept) -> io::Result<i32> {
        kept.keep(self.listening.as_fd())
    }

    /// Answers requests by calling `handler`, several at a time. A panic of `handler` becomes an error answer.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn serve<A: Into<Answered>>(
        &mut self,
        handler: impl Fn(Request) -> Result<A, Failure> + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        let handler = move |request| handler(request).map(A::into);
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let (clients, handler) = (Arc::new(Clients::default()), Arc::new(handler));
        let mut acceptor = Acceptor { listener, spare: open_spare() };
        let accept = move || {
            loop {
                let Some(stream) = acceptor.next() else { continue };
                if let Err(why) = admit(stream, &clients, &handler) {
                    warning!("weir: control: {why}");
                }
            }
        };
        let started = thread::Builder::new().name("weir-control".to_owned()).spawn(accept);
        started.map(drop).map_err(|error| Failure::system("control", error))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error is ignored: the socket may have been removed already.
        let _gone = fs::remove_file(&self.path);
    }
}

/// Makes the folder of the default socket, which systemd makes for the service.
fn make_folder(path: &Path) -> Result<(), Failure> {
    let Some(folder) = path.parent() else { return Ok(()) };
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(Failure::file(folder, error)),
        _ => Ok(()),
    }
}

/// Binds the socket. Replaces a socket that a killed process has left.
fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let failed = |error: io::Error| Failure::file(path, error);
    let refused = |problem: &str| Failure::Runtime(format!("{}: {problem}", path.display()));
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(refused("exists and is not a socket"));
        }
        if ![0, rustix::process::geteuid().as_raw()].contains(&found.uid()) {
            let problem =
                format!("this is a socket of another user (uid {}); choose another path with --control", found.uid());
            return Err(refused(&problem));
        }
        if is_listened_at(path) {
            return Err(refused("another weir listens here; choose another path with --control"));
        }
        fs::remove_file(path).map_err(failed)?;
    }
    bind_private(path).map_err(failed)
}

/// Binds a socket that other users can never connect to. A change of its mode afterwards would follow a link.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the mode of the socket (unix(7)).
    fchmod(&socket, Mode::from_raw_mode(0o600))?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, QUEUE_MAX)?;
    Ok(socket.into())
}

/// Connects without waiting, because the queue of a busy server may be full.
fn is_listened_at(path: &Path) -> bool {
    let connect = || -> rustix::io::Result<()> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    matches!(connect(), Ok(()) | Err(Errno::AGAIN))
}

/// Accepts clients.
struct Acceptor {
    listener: UnixListener,
    /// A descriptor that is closed when no other is left, so that a client can be accepted and refused.
    spare: Option<File>,
}

fn open_spare() -> Option<File> {
    File::open("/dev/null").ok()
}

impl Acceptor {
    /// The next client. Without free descriptors it pauses and tries again, because clients that hang up free theirs.
    /// Without the pause the loop would use a whole core.
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
            // Another thread may take the descriptor first; the client then stays in the queue. The call does not
            // block, because the client that could not be accepted is still in the queue.
            if let Ok((stream, _)) = self.listener.accept() {
                refuse(&stream, &format!("cannot accept another client: {error}"));
            }
            self.spare = open_spare();
        }
        None
    }
}

/// Starts a thread for a client, if it has permission and there is a slot. The error says that the thread cannot be
/// started.
fn admit<H>(stream: UnixStream, clients: &Arc<Clients>, handler: &Arc<H>) -> io::Result<()>
where
    H: Fn(Request) -> Result<Answered, Failure> + Send + Sync + 'static,
{
    if let Err(why) = may_connect(&stream) {
        refuse(&stream, &why);
        return Ok(());
    }
    let Some(slot) = Clients::enter(clients, stream) else { return Ok(()) };
    let handler = handler.clone();
    let answer_all = move || {
        // An error means that the client has gone.
        let _gone = slot.serve(&*handler);
    };
    thread::Builder::new().name("weir-client".to_owned()).spawn(answer_all).map(drop)
}

/// Checks that the client is root or the user of this process. The error is for the client.
fn may_connect(stream: &UnixStream) -> Result<(), String> {
    let own = rustix::process::geteuid();
    match peer::user(stream.as_fd()) {
        Ok(user) if user == 0 || user == own.as_raw() => Ok(()),
        Ok(user) => Err(format!("permission denied to user {user}: run as root or as user {own}, who started Weir")),
        Err(error) => Err(format!("permission denied: the user of the client is not known: {error}")),
    }
}

/// Refuses a client. Nothing was sent to it before, so the answer fits into the socket's buffer.
fn refuse(stream: &UnixStream, why: &str) {
    let _gone = send(stream, &Answer::Failed(why.to_owned()).line());
}

/// The clients that have a slot.
#[derive(Default)]
struct Clients(Mutex<Vec<Arc<Client>>>);

struct Client {
    stream: UnixStream,
    /// End of the last request. `None` while a request is executed.
    silent_since: Mutex<Option<Instant>>,
}

/// One of [`CLIENTS_MAX`] slots. It is released when dropped.
struct ClientSlot {
    clients: Arc<Clients>,
    client: Arc<Client>,
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        self.clients.lock().retain(|one| !Arc::ptr_eq(one, &self.client));
        // This ends a thread that is still reading from the client.
        let _gone = self.client.stream.shutdown(Shutdown::Both);
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free slot, or the slot of the client that has hung up or been silent longest. If there is none, refuses
    /// the client.
    fn enter(clients: &Arc<Self>, stream: UnixStream) -> Option<ClientSlot> {
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
                    refuse(&stream, &format!("more than {CLIENTS_MAX} clients"));
                    return None;
                }
            }
        }
        let client = Arc::new(Client { stream, silent_since: Mutex::new(Some(Instant::now())) });
        list.push(client.clone());
        Some(ClientSlot { clients: clients.clone(), client })
    }
}

/// Whether a client has hung up and all its data was read. Its thread may not have noticed yet.
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

/// The result of reading from a client.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    Request(Vec<u8>),
    /// The client has hung up or has been silent for too long.
    End,
    /// Not a request. The connection cannot continue.
    Invalid(String),
}

impl ClientSlot {
    /// Answers requests until there are no more. Answers to requests that arrive together are sent together.
    fn serve(&self, handler: &impl Fn(Request) -> Result<Answered, Failure>) -> io::Result<()> {
        let stream = &self.client.stream;
        let mut reader = BufReader::new(stream);
        let mut answers = String::new();
        loop {
            let line = match read_line(&mut reader, SILENCE_MAX, REQUEST_TIME_MAX)? {
                Received::Request(line) => line,
                Received::End => return Ok(()),
                Received::Invalid(why) => return send(stream, &refusal(&why).line()),
            };
            self.client.set_silent_since(None);
            let (answer, follows) = answer(&line, handler);
            answers.push_str(&answer.line());
            if let Some(follows) = follows {
                send(stream, &answers)?;
                stream.set_write_timeout(None)?;
                return follows(stream);
            }
            let is_last = !line.ends_with(b"\n");
            if is_last || !reader.buffer().contains(&b'\n') || answers.len() > ANSWERS_BYTES {
                send(stream, &answers)?;
                answers.clear();
                self.client.set_silent_since(Some(Instant::now()));
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

/// The answer to a line, and what follows it.
fn answer(line: &[u8], handler: &impl Fn(Request) -> Result<Answered, Failure>) -> (Answer, Option<Stream>) {
    let request = match Request::parse(line) {
        Ok(request) => request,
        Err(error) => return (refusal(&error.to_string()), None),
    };
    let failure = match Failure::catch(|| handler(request)) {
        Ok(Answered { value, stream }) => return (Answer::Ok(value), stream),
        Err(failure) => failure,
    };
    (failed(failure), None)
}

fn failed(failure: Failure) -> Answer {
    match failure {
        Failure::Rejected(text) => Answer::Error(text),
        Failure::Runtime(text) | Failure::NoDescriptors(text) => Answer::Failed(text),
        failure @ (Failure::Mistakes { .. } | Failure::Reported(_)) => Answer::Error(failure.to_string()),
    }
}

/// The answer to a line that is not a request.
fn refusal(why: &str) -> Answer {
    Answer::Error(format!("weir: not a request: {why}"))
}

/// Reads a line. The last one may lack its newline. The line must begin within `silence`, and then be complete within
/// `time`.
fn read_line(reader: &mut BufReader<&UnixStream>, silence: Duration, time: Duration) -> io::Result<Received> {
    let mut line = Vec::new();
    let mut deadline = Instant::now() + silence;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let late = || match line.is_empty() {
            true => Received::End,
            false => Received::Invalid(format!("incomplete after {} s", time.as_secs_f64())),
        };
        if left.is_zero() {
            return Ok(late());
        }
        if reader.buffer().is_empty() {
            reader.get_ref().set_read_timeout(Some(left))?;
        }
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&error.kind()) => return Ok(late()),
            Err(error) => return Err(error),
        };
        if bytes.is_empty() {
            return Ok(if line.is_empty() { Received::End } else { Received::Request(line) });
        }
        if line.is_empty() {
            deadline = Instant::now() + time;
        }
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let length = end.unwrap_or(bytes.len());
        if line.len() + length > REQUEST_BYTES_MAX {
            return Ok(Received::Invalid(format!("longer than {REQUEST_BYTES_MAX} bytes")));
        }
        line.extend_from_slice(&bytes[..length]);
        reader.consume(length);
        if end.is_some() {
            return Ok(Received::Request(line));
        }
    }
}

/// Sends answers within [`ANSWER_TIME_MAX`].
fn send(mut stream: &UnixStream, answers: &str) -> io::Result<()> {
    let deadline = Instant::now() + ANSWER_TIME_MAX;
    let mut rest = answers.as_bytes();
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
