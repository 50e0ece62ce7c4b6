//! Feeds: tables and limits follow their list files (docs/guide/feeds.md).
//!
//! ```text
//!   ctl reload, SIGHUP ──> all lists ──┐
//!                                      ├──> Updater: read, compare, check ──> change in place, or a new generation
//!   a watched file changes ──> table ──┘                              └────> refused: nothing changes, status says why
//! ```

mod checks;
mod contents;
mod directories;
mod guarded;
mod settling;
mod updater;
mod updates;
mod watcher;

pub use checks::Force;
pub use contents::Contents;
pub use guarded::Guarded;
pub use updater::{NotUpdated, Updater, name_of};
pub use updates::{Cause, Updates};

use crate::generations::generation::Loader;
use crate::parts::part::{Part, Running};
use weir_command::failure::Failure;

/// Feeds as a part of the daemon: a thread that watches list files.
pub struct Feeds;

impl<L: Loader> Part<L> for Feeds {
    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        watcher::start(std::sync::Arc::downgrade(&running.door))
    }
}
