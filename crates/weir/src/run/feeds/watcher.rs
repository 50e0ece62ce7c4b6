//! The thread that watches list files, and that reloads lists on SIGHUP.
//!
//! Only tables with `watch` are updated when a file changes. Other lists are compared with their files while a refused
//! update of them is not resolved: the refusal is resolved when the files have the contents of the list again.

use crate::failure::Failure;
use crate::report;
use crate::run::controller::Controller;
use crate::run::feeds::checks::Force;
use crate::run::feeds::directories::{Directories, Events};
use crate::run::feeds::settling::Settling;
use crate::run::feeds::updater::{Updater, name_of};
use crate::run::feeds::updates::{Cause, Updates};
use crate::run::generation::Loader;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
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
    id: ListId,
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
        let is_complete = |file: &Settling| !file.is_pending() || file.is_settled(now);
        match self.retry {
            Some(retry) if now >= retry => true,
            _ => is_changed && self.files.iter().all(|(_, file)| is_complete(file)),
        }
    }
}

/// The watched files of the active generation.
struct Watcher<L: Loader> {
    loader: L,
    updates: Arc<Updates>,
    /// The generation whose files these are; 0 before the first.
    generation: u64,
    feeds: Vec<Feed>,
    directories: Directories,
    /// The last look at the files.
    looked: Option<Instant>,
}

/// Starts the thread. It ends when the controller is gone.
///
/// # Errors
/// The thread cannot be started.
pub fn start<L: Loader>(
    controller: Weak<Controller<L::Datapath>>,
    loader: L,
    updates: Arc<Updates>,
) -> Result<(), Failure> {
    let watch = move || {
        let directories = Directories::new();
        let mut watcher = Watcher { loader, updates, generation: 0, feeds: Vec::new(), directories, looked: None };
        while let Some(controller) = controller.upgrade() {
            if let Err(failure) = Failure::catch(|| watcher.step(&controller, Instant::now())) {
                report::say(&format!("weir: list files: {}", failure.message()));
            }
            drop(controller);
            thread::sleep(TICK);
        }
    };
    let started = thread::Builder::new().name("weir-feeds".to_owned()).spawn(watch);
    started.map(drop).map_err(|error| Failure::system("a thread for list files", error))
}

impl<L: Loader> Watcher<L> {
    fn step(&mut self, controller: &Controller<L::Datapath>, now: Instant) -> Result<(), Failure> {
        if self.updates.take_reload_request() {
            self.reload(controller);
        }
        let active = controller.active();
        if active.id != self.generation {
            self.generation = active.id;
            self.feeds = active.text().map(|text| self.feeds_of(text, now)).unwrap_or_default();
            self.looked = None;
        }
        drop(active);
        if self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK) {
            self.look(now);
        }
        self.note_events(now);
        for at in 0..self.feeds.len() {
            let feed = &self.feeds[at];
            if feed.is_settled(now) && (feed.watch || self.updates.is_refused(&feed.name)) {
                self.take(at, controller);
                // The update may have activated another generation.
                if controller.active().id != self.generation {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Reloads all lists.
    fn reload(&self, controller: &Controller<L::Datapath>) {
        let reloaded = self.updater(controller).update(|_| true, Force::No, Cause::Signal);
        match reloaded {
            Ok(reloaded) if reloaded.lists.is_empty() => report::say("weir: SIGHUP: no list has changed"),
            Ok(_) => {}
            Err(refused) => report::say(&format!("weir: SIGHUP: nothing is changed: {}", refused.failure.message())),
        }
    }

    /// The lists of a generation that becomes active. Its files may have changed since it was loaded.
    fn feeds_of(&self, text: &Text, now: Instant) -> Vec<Feed> {
        let feed = |(id, files): (ListId, Vec<PathBuf>)| {
            let name = name_of(text, id);
            let watch = matches!(id, ListId::Table(index) if text.checked.tables[index].updates.watch);
            let is_refused = self.updates.is_refused(&name);
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
            Feed { id, name, watch, files: files.into_iter().map(file).collect(), retry: None }
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
            // The files may be those of a previous generation.
            if let Some(file) = files.get_mut(index) {
                file.event(event, now);
            }
        }
    }

    /// Looks at all files, and watches their directories.
    fn look(&mut self, now: Instant) {
        self.looked = Some(now);
        let watched = self.feeds.iter().filter(|feed| feed.watch).flat_map(|feed| &feed.files);
        let watched: Vec<PathBuf> = watched.map(|(path, _)| path.clone()).collect();
        self.directories.watch(&watched);
        for feed in &mut self.feeds {
            if feed.watch || self.updates.is_refused(&feed.name) {
                feed.files.iter_mut().for_each(|(path, file)| file.look(stamp(path), now));
            }
        }
    }

    /// Updates a table from its files, or compares a list with its files.
    fn take(&mut self, at: usize, controller: &Controller<L::Datapath>) {
        let feed = &self.feeds[at];
        let (id, watch) = (feed.id, feed.watch);
        // Stamps are older than what is read then: a later change has another stamp.
        let stamps: Stamps = feed.files.iter().filter_map(|(path, _)| Some((path.clone(), stamp(path)?))).collect();
        let updater = self.updater(controller);
        let retry = match watch {
            true => {
                let updated = updater.update(|list| list == id, Force::No, Cause::Watch);
                updated.is_err_and(|refused| refused.may_succeed_later)
            }
            false => match updater.is_as_in_files(id) {
                Ok(true) => {
                    self.updates.resolve(&self.feeds[at].name);
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

    fn updater<'a>(&'a self, controller: &'a Controller<L::Datapath>) -> Updater<'a, L> {
        Updater { controller, loader: &self.loader, updates: &self.updates }
    }
}

/// The stamp of a file, unless it is missing.
fn stamp(path: &Path) -> Option<Stamp> {
    fs::metadata(path).ok().map(|file| Stamp::of(&file))
}
