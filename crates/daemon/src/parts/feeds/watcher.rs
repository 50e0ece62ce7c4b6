//! The thread that watches list files, and that reloads lists on SIGHUP.
//!
//! Only tables with `watch` are updated when a file changes. Other lists are compared with their files while a refused
//! update of them is not resolved: the refusal is resolved when the files have the contents of the list again.

use crate::door::Door;
use crate::generations::generation::Loader;
use crate::parts::feeds::checks::Force;
use crate::parts::feeds::directories::{Directories, Events};
use crate::parts::feeds::settling::Settling;
use crate::parts::feeds::updater::name_of;
use crate::parts::feeds::updates::{Cause, Updates};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_command::report;
use weir_control::ListName;
use weir_loading::{ListId, Stamp, Stamps, Text};

/// Interval of looking for events.
const TICK: Duration = Duration::from_millis(50);
/// Interval of looking at the files themselves.
const LOOK: Duration = Duration::from_secs(1);
/// Pause before an update that may succeed later is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// A list with its files.
struct Feed {
    name: ListName,
    /// Whether it is updated when a file changes.
    watch: bool,
    files: Vec<(PathBuf, Settling)>,
    /// When a failed update is tried again.
    retry: Option<Instant>,
}

impl Feed {
    fn is_settled(&self, now: Instant) -> bool {
        let is_changed = self.files.iter().any(|(_, file)| file.is_pending());
        let is_due = self.retry.is_some_and(|retry| now >= retry);
        (is_changed || is_due) && self.files.iter().all(|(_, file)| !file.is_pending() || file.is_settled(now))
    }
}

/// The watched files of the active generation.
struct Watcher {
    /// The generation whose files these are; 0 before the first.
    generation: u64,
    feeds: Vec<Feed>,
    directories: Directories,
    /// The last look at the files.
    looked: Option<Instant>,
}

/// Starts the thread. It ends when the door is gone.
///
/// # Errors
/// The thread cannot be started.
pub fn start<L: Loader>(door: Weak<Door<L>>) -> Result<(), Failure> {
    let watch = move || {
        let directories = Directories::new();
        let mut watcher = Watcher { generation: 0, feeds: Vec::new(), directories, looked: None };
        while let Some(door) = door.upgrade() {
            if let Err(failure) = Failure::catch(|| watcher.step(&door, Instant::now())) {
                warning!("weir: list files: {}", failure.message());
            }
            drop(door);
            thread::sleep(TICK);
        }
    };
    let started = thread::Builder::new().name("weir-feeds".to_owned()).spawn(watch);
    started.map(drop).map_err(|error| Failure::system("a thread for list files", error))
}

impl Watcher {
    fn step<L: Loader>(&mut self, door: &Door<L>, now: Instant) -> Result<(), Failure> {
        if door.updates.take_reload_request() {
            reload(door);
        }
        let active = door.controller.active();
        if active.id != self.generation {
            self.generation = active.id;
            self.feeds = active.text().map(|text| self.feeds_of(text, &door.updates, now)).unwrap_or_default();
            self.looked = None;
        }
        drop(active);
        if self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK) {
            self.look(&door.updates, now);
        }
        self.note_events(now);
        for at in 0..self.feeds.len() {
            let feed = &self.feeds[at];
            if feed.is_settled(now) && (feed.watch || door.updates.is_refused(&feed.name)) {
                self.take(at, door);
                // The update may have activated another generation.
                if door.controller.active().id != self.generation {
                    break;
                }
            }
        }
        Ok(())
    }

    /// The lists of a generation that becomes active. Its files may have changed since it was loaded.
    fn feeds_of(&self, text: &Text, updates: &Updates, now: Instant) -> Vec<Feed> {
        let feed = |(id, files): (ListId, Vec<PathBuf>)| {
            let name = name_of(text, id);
            let watch = matches!(id, ListId::Table(index) if text.checked.tables[index].updates.watch);
            let is_refused = updates.is_refused(&name);
            let file = |path: PathBuf| {
                let before = self.feeds.iter().flat_map(|feed| &feed.files).find(|(known, _)| *known == path);
                let mut file = Settling::new(text.stamps.get(&path).copied());
                if let Some((_, before)) = before {
                    file.continue_from(before);
                }
                if is_refused {
                    file.request(now);
                }
                (path, file)
            };
            Feed { name, watch, files: files.into_iter().map(file).collect(), retry: None }
        };
        text.file_backed().into_iter().map(feed).collect()
    }

    fn note_events(&mut self, now: Instant) {
        let Events { files: events, overflow } = self.directories.events();
        if overflow {
            self.looked = None;
        }
        let mut files: Vec<&mut Settling> = self
            .feeds
            .iter_mut()
            .filter(|feed| feed.watch)
            .flat_map(|feed| &mut feed.files)
            .map(|(_, file)| file)
            .collect();
        for (index, event) in events {
            // The files may belong to a previous generation.
            if let Some(file) = files.get_mut(index) {
                file.event(event, now);
            }
        }
    }

    /// Looks at all files, and watches their directories.
    fn look(&mut self, updates: &Updates, now: Instant) {
        self.looked = Some(now);
        let watched = self.feeds.iter().filter(|feed| feed.watch).flat_map(|feed| &feed.files);
        let watched: Vec<PathBuf> = watched.map(|(path, _)| path.clone()).collect();
        self.directories.watch(&watched);
        for feed in &mut self.feeds {
            if feed.watch || updates.is_refused(&feed.name) {
                feed.files.iter_mut().for_each(|(path, file)| file.look(stamp(path), now));
            }
        }
    }

    /// Updates a table from its files, or compares a list with its files.
    fn take<L: Loader>(&mut self, at: usize, door: &Door<L>) {
        let feed = &self.feeds[at];
        let name = feed.name.clone();
        // Stamps are older than what is read then: a later change has another stamp.
        let stamps: Stamps = feed.files.iter().filter_map(|(path, _)| Some((path.clone(), stamp(path)?))).collect();
        let retry = match feed.watch {
            true => {
                let updated = door.update(|list| *list == name, Force::No, Cause::Watch);
                updated.is_err_and(|refused| refused.may_succeed_later)
            }
            false => match door.is_as_in_files(&name) {
                Ok(true) => {
                    door.updates.resolve(&name);
                    false
                }
                Ok(false) => false,
                Err(_) => true,
            },
        };
        let feed = &mut self.feeds[at];
        feed.retry = retry.then(|| Instant::now() + RETRY);
        feed.files.iter_mut().for_each(|(path, file)| file.take(stamps.get(path).copied()));
    }
}

/// Reloads all lists.
fn reload<L: Loader>(door: &Door<L>) {
    match door.update(|_| true, Force::No, Cause::Signal) {
        Ok(reloaded) if reloaded.lists.is_empty() => report::say("weir: SIGHUP: no list has changed"),
        Ok(_) => {}
        Err(refused) => error!("weir: SIGHUP: nothing is changed: {}", refused.failure.message()),
    }
}

/// The stamp of a file, unless it is missing.
fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|file| Stamp::of(&file))
}
