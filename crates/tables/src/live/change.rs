//! Changes of live tables, and why a table refuses them.

use std::net::IpAddr;

use crate::image::BuildError;
use crate::problem::Problem;

/// Why a live table refuses a change, or cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LiveError {
    /// The layout cannot hold the table, or cannot hold it with the change.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The change itself is invalid.
    #[error("{prefix}: {problem}")]
    Change {
        /// The prefix as the caller gave it.
        prefix: String,
        /// What is wrong.
        problem: Problem,
    },
    /// A set that the fused table does not have.
    #[error("there is no set {set}: the table has {sets}")]
    NoSuchSet {
        /// The set number that was given.
        set: usize,
        /// Number of sets.
        sets: usize,
    },
    /// Readers have not begun another burst for a long time, and too much memory waits for them.
    #[error("readers still hold {images} replaced images of the table; try again when they have gone on")]
    ReadersBehind {
        /// Number of replaced images.
        images: usize,
    },
    /// A batch stopped in the middle. Changes of lower addresses were made.
    #[error("{error}; {done} entries were changed")]
    Stopped {
        /// Number of changes that were made.
        done: usize,
        /// Why.
        error: Box<LiveError>,
    },
    /// A table with counters has no room for another entry.
    #[error("the table has room for the counters of {entries} entries; load the policy again to get more")]
    NoNumber {
        /// Number of entries.
        entries: usize,
    },
    /// The memory that programs read is too small for the image.
    #[error(
        "the image needs {bytes} bytes, and the loaded programs have room for {room}; load the policy again to get more"
    )]
    NoRoom {
        /// Size of the image, with its room for changes.
        bytes: usize,
        /// Size of the memory.
        room: usize,
    },
}

/// One change of one prefix in one set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    pub(super) set: usize,
    pub(super) addr: IpAddr,
    pub(super) len: u8,
    pub(super) to: To<'a>,
}

/// The new state of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To<'a> {
    Held(Option<&'a str>),
    Absent,
}

impl<'a> Change<'a> {
    /// Inserts the prefix of `len` bits around `addr`, with this label if the table has labels.
    pub fn insert(addr: IpAddr, len: u8, label: Option<&'a str>) -> Self {
        Change { set: 0, addr, len, to: To::Held(label) }
    }

    /// Removes the prefix of `len` bits around `addr`. Longer and shorter prefixes stay.
    pub fn remove(addr: IpAddr, len: u8) -> Self {
        Change { set: 0, addr, len, to: To::Absent }
    }

    /// This change in set `set` of a fused table, counted from 0.
    pub fn in_set(self, set: usize) -> Self {
        Change { set, ..self }
    }

    pub(super) fn wrong(&self, problem: Problem) -> LiveError {
        LiveError::Change { prefix: format!("{}/{}", self.addr, self.len), problem }
    }
}
