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
pub use updater::{NotUpdated, Updater};
pub use updates::{Cause, Updates};
pub use watcher::start;
