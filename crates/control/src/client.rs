//! The client of the control protocol.

use crate::{ANSWER_BYTES_MAX, Answer, Request};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// An error of a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No server could be connected to.
    #[error("{}: {source}; {help}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
        /// Advice for the user.
        help: String,
    },
    /// The connection failed before the answer was complete.
    #[error("{}: {source}; is `weir run` running there?", path.display())]
    Connection {
        /// The socket.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The server closed the connection without an answer.
    #[error("{}: the connection was closed without an answer; is `weir run` running there?", path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
    },
    /// The line is not an answer of this version.
    #[error("{}: not an answer of this weir: {source}; is `weir run` running there?", path.display())]
    NotAnAnswer {
        /// The socket.
        path: PathBuf,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// The value of the answer does not have the expected type.
    #[error("not an answer of this weir: {0}")]
    NotTheType(serde_json::Error),
    /// The request cannot be serialized.
    #[error("not a request: {0}")]
    NotARequest(serde_json::Error),
    /// There is nothing to show, and why: a part that this Weir does not use, or nothing yet.
    #[error("{0}")]
    Nothing(String),
    /// The server refused the request and changed nothing. The text is shown unchanged.
    #[error("{0}")]
    Refused(String),
    /// The server could not fulfil the request, because something in its environment failed.
    #[error("{0}")]
    Failed(String),
}

impl Error {
    /// Whether the server has answered, so that the connection can be used further.
    pub fn is_answer(&self) -> bool {
        matches!(self, Error::Nothing(_) | Error::Refused(_) | Error::Failed(_))
    }
}

/// A connection to a server, for several requests.
pub struct Client {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the server.
    ///
    /// # Errors
    /// No server listens at the path, or it belongs to another user.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        let stream = UnixStream::connect(path).map_err(|error| not_connected(path, error))?;
        Ok(Client { path: path.to_owned(), stream: BufReader::new(stream) })
    }

    /// Sends a request and waits for the answer. After an error other than [`Error::Nothing`], [`Error::Refused`] and
    /// [`Error::Failed`] the connection is of no use.
    ///
    /// # Errors
    /// The server answers with an error, or the connection is closed: servers disconnect silent clients.
    pub fn ask(&mut self, request: &Request) -> Result<Value, Error> {
        self.send(&request.line().map_err(Error::NotARequest)?)?;
        self.receive()
    }

    /// Sends requests together. Appends their answers to `answers`, in their order: a value, or [`Error::Nothing`],
    /// [`Error::Refused`] or [`Error::Failed`]. All requests must fit into the buffers of the connection, because no answer is read before.
    ///
    /// # Errors
    /// As of [`Client::ask`]; then the other requests have no answer.
    pub fn ask_all(&mut self, requests: &[Request], answers: &mut Vec<Result<Value, Error>>) -> Result<(), Error> {
        let lines: Result<String, _> = requests.iter().map(Request::line).collect();
        self.send(&lines.map_err(Error::NotARequest)?)?;
        for _ in requests {
            match self.receive() {
                Err(error) if !error.is_answer() => return Err(error),
                answer => answers.push(answer),
            }
        }
        Ok(())
    }

    /// Sends a request whose answer is followed by bytes. Returns the answer and the connection, which the
    /// client shuts down for writing when it wants no more.
    ///
    /// # Errors
    /// As of [`Client::ask`].
    pub fn stream(mut self, request: &Request) -> Result<(Value, BufReader<UnixStream>), Error> {
        let value = self.ask(request)?;
        Ok((value, self.stream))
    }

    fn send(&mut self, lines: &str) -> Result<(), Error> {
        match self.stream.get_mut().write_all(lines.as_bytes()) {
            // A server that refuses the client answers and closes the connection without reading the request.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written.map_err(|source| Error::Connection { path: self.path.clone(), source }),
        }
    }

    fn receive(&mut self) -> Result<Value, Error> {
        let path = || self.path.clone();
        let mut answer = String::new();
        let read = self.stream.by_ref().take(ANSWER_BYTES_MAX).read_line(&mut answer);
        read.map_err(|source| Error::Connection { path: path(), source })?;
        match Answer::parse(&answer) {
            Ok(Answer::Ok(value)) => Ok(value),
            Ok(Answer::Nothing(text)) => Err(Error::Nothing(text)),
            Ok(Answer::Error(text)) => Err(Error::Refused(text)),
            Ok(Answer::Failed(text)) => Err(Error::Failed(text)),
            Err(_) if answer.is_empty() => Err(Error::NoAnswer { path: path() }),
            Err(source) => Err(Error::NotAnAnswer { path: path(), source }),
        }
    }
}

/// Sends a request over a new connection and waits for the answer.
///
/// # Errors
/// No server listens at the path, or it answers with an error.
pub fn ask(path: &Path, request: &Request) -> Result<Value, Error> {
    // A request that is none needs no server.
    request.line().map_err(Error::NotARequest)?;
    Client::connect(path)?.ask(request)
}

/// Reads the value of an answer. [`Request`] documents its type.
///
/// # Errors
/// The value has another type.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(Error::NotTheType)
}

/// Explains why the server could not be connected to, and gives advice.
fn not_connected(path: &Path, source: io::Error) -> Error {
    let help = match source.kind() {
        ErrorKind::PermissionDenied => match fs::metadata(path) {
            Ok(socket) => format!("the socket belongs to user {}: run as root or as that user", socket.uid()),
            Err(_) => "run as root or as the user who started Weir".to_owned(),
        },
        ErrorKind::NotFound => "no `weir run` has its socket there; --control selects another path".to_owned(),
        ErrorKind::ConnectionRefused => "the `weir run` with this socket has ended".to_owned(),
        _ => "is `weir run` running there?".to_owned(),
    };
    Error::Connect { path: path.to_owned(), source, help }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ready, Status};
    use serde_json::json;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Sends a request to a server that gives `answer`. Returns the result, the request line and the path.
    fn ask_one_that_says(answer: &'static [u8]) -> (Result<Value, Error>, String, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("it can be bound");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a line");
            stream.write_all(answer).expect("it listens");
            line
        });
        let result = ask(&path, &Request::Load { policy: "/p.weir".into() });
        (result, server.join().expect("no panic"), path)
    }

    #[test]
    fn an_answer_is_a_value_or_why_there_is_none() {
        let (result, asked, _) = ask_one_that_says(b"{\"ok\":{\"generation\":7}}\n");
        assert_eq!(asked, "{\"load\":{\"policy\":\"/p.weir\"}}\n");
        let ready: Ready = read(result.expect("it is well")).expect("it is of that type");
        assert_eq!(ready.generation, 7);
        let error = |answer| ask_one_that_says(answer).0.expect_err("no value");
        assert!(matches!(error(b"{\"error\":\"weir: no\"}\n"), Error::Refused(text) if text == "weir: no"));
        let nothing = error(b"{\"nothing\":\"none yet\"}\n");
        assert!(nothing.is_answer() && matches!(nothing, Error::Nothing(text) if text == "none yet"));
        assert!(matches!(error(b"{\"failed\":\"gone\"}"), Error::Failed(text) if text == "gone"));
    }

    #[test]
    fn what_is_no_answer_is_told() {
        for (answer, problem) in [
            (&b""[..], "the connection was closed without an answer"),
            (b"{\"ok\":", "not an answer of this weir: EOF while parsing a value at line 1 column 6"),
            (b"\n", "not an answer of this weir: EOF while parsing a value at line 2 column 0"),
            (b"\xff\n", "stream did not contain valid UTF-8"),
        ] {
            let (result, _, path) = ask_one_that_says(answer);
            let expected = format!("{}: {problem}; is `weir run` running there?", path.display());
            assert_eq!(result.expect_err("no value").to_string(), expected);
        }
        let other = read::<Status>(json!({ "uptime_s": 1.0 })).expect_err("it lacks the rest");
        assert_eq!(other.to_string(), "not an answer of this weir: missing field `workers`");
    }

    #[test]
    fn who_cannot_be_connected_to_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let error = || ask(&path, &Request::Status).expect_err("nobody listens").to_string();
        let socket = path.display();
        let none = "no `weir run` has its socket there; --control selects another path";
        assert_eq!(error(), format!("{socket}: No such file or directory (os error 2); {none}"));
        drop(UnixListener::bind(&path).expect("it can be bound"));
        let ended = "the `weir run` with this socket has ended";
        assert_eq!(error(), format!("{socket}: Connection refused (os error 111); {ended}"));
    }
}
