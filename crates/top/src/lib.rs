//! `weir top`: one screen that answers "am I attacked, by what, is it held, who is hurt".
//!
//! The screen is a pure function of a [`Model`], and the model of [`Snapshot`]s, keys and a clock that the caller
//! gives. So a running Weir, a recording and a test show the same screen. This crate knows a running Weir only through
//! `weir-control`.
#![forbid(unsafe_code)]

mod events;
mod history;
mod input;
mod keys;
mod model;
mod picture;
mod rates;
mod recording;
mod rows;
mod screen;
mod snapshot;
mod source;
mod terminal;
mod text;

pub use events::Event;
pub use input::{Command, Key};
pub use model::{Model, Setup};
pub use picture::Picture;
pub use rates::Rates;
pub use recording::Recording;
pub use screen::{draw, frame};
pub use snapshot::Snapshot;
pub use terminal::{Once, Options, run};

use std::io;
use std::path::PathBuf;

/// Why `weir top` ends.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The terminal cannot be used.
    #[error("the terminal: {0}")]
    Terminal(io::Error),
    /// Standard output is no terminal.
    #[error("standard output is no terminal: `--once` prints one screen, `--record FILE` records without a screen")]
    NoTerminal,
    /// A recording cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A line of a recording is not a snapshot.
    #[error("{}:{line}: not a snapshot of `weir top --record`: {source}", path.display())]
    NotASnapshot {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The error of the parser.
        source: serde_json::Error,
    },
    /// A line of captions has no time.
    #[error("{}:{line}: a caption begins with its time, seconds since 1970, and a blank", path.display())]
    NotACaption {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// A recording has no snapshot.
    #[error("{}: the recording is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// No Weir answers, and the screen is wanted once only.
    #[error(transparent)]
    Control(#[from] weir_control::Error),
}

#[cfg(test)]
mod tests;
