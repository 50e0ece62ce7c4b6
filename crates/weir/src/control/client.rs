//! Asks a running Weir.

use super::{Answer, Request};
use crate::failure::Failure;
use serde_json::Value;
use std::io::{BufRead, BufReader, ErrorKind, Write};
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
    let mut stream = UnixStream::connect(path).map_err(|error| failed(&error))?;
    let mut line = serde_json::to_string(request).expect("a request is JSON");
    line.push('\n');
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
        Err(error) => Err(failed(&format_args!("not an answer of this weir: {error}"))),
    }
}
