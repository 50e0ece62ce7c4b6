//! Asks a running Weir.

use super::{Answer, Request};
use crate::failure::Failure;
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Sends a request and waits for the answer.
///
/// # Errors
/// Nobody listens there, or the answer is an error.
pub fn ask(path: &Path, request: &Request) -> Result<Value, Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Failure::Runtime(format!("{}: {error}; is `weir run` running there?", path.display()))
    };
    let mut line =
        serde_json::to_string(request).map_err(|error| Failure::Rejected(format!("weir: not a request: {error}")))?;
    line.push('\n');
    let mut stream = UnixStream::connect(path).map_err(|error| not_connected(path, &error))?;
    match stream.write_all(line.as_bytes()) {
        // Whoever does not let us ask says why, and hangs up.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.map_err(|error| failed(&error))?,
    }
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).map_err(|error| failed(&error))?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Ok(value)) => Ok(value),
        Ok(Answer::Error(text)) => Err(Failure::Rejected(text)),
        Ok(Answer::Failed(text)) => Err(Failure::Runtime(text)),
        Err(_) if answer.is_empty() => Err(failed(&"it hung up without an answer")),
        Err(error) => Err(failed(&format_args!("not an answer of this weir: {error}"))),
    }
}

/// Why nobody can be asked, and what helps.
fn not_connected(path: &Path, error: &io::Error) -> Failure {
    let help = match error.kind() {
        ErrorKind::PermissionDenied => match fs::metadata(path) {
            Ok(socket) => format!("the socket belongs to user {}: run as root or as that user", socket.uid()),
            Err(_) => "run as root or as the user whose Weir it is".to_owned(),
        },
        ErrorKind::NotFound => "no `weir run` has its socket there; --control names another path".to_owned(),
        ErrorKind::ConnectionRefused => "the `weir run` whose socket that was has ended".to_owned(),
        _ => "is `weir run` running there?".to_owned(),
    };
    Failure::Runtime(format!("{}: {error}; {help}", path.display()))
}
