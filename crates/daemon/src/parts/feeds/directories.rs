//! Events of files, from the directories that contain them (inotify(7)).
//!
//! A directory is watched, not the file, because a file that is renamed over another one is a new file. If the path
//! of a file leads through a symbolic link, the directory of the target is watched too.

use crate::parts::feeds::settling::Event;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_command::report;

/// Bytes for the events of one call.
const EVENTS_BYTES: usize = 16 << 10;

/// The watched directories.
pub struct Directories {
    /// `None` if the kernel gives no events. Changes are then recognised by stamps.
    inotify: Option<OwnedFd>,
    /// The watched directories by their number. A directory may have several paths.
    watched: HashMap<i32, Vec<PathBuf>>,
    /// The files by directory and name.
    files: HashMap<(PathBuf, OsString), Vec<usize>>,
    /// Whether a failure was reported. Only the first one is.
    reported: bool,
}

/// What has happened to the files.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Indices of files, with what happened to them, in order.
    pub files: Vec<(usize, Event)>,
    /// Whether events were lost.
    pub overflow: bool,
}

impl Directories {
    /// Watches nothing yet.
    pub fn new() -> Self {
        let mut directories =
            Directories { inotify: None, watched: HashMap::new(), files: HashMap::new(), reported: false };
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(inotify) => directories.inotify = Some(inotify),
            Err(error) => directories.report("inotify", error),
        }
        directories
    }

    /// Watches the directories of these files, and no others. It is to be called repeatedly, because directories and
    /// links may be replaced.
    pub fn watch(&mut self, files: &[PathBuf]) {
        self.files.clear();
        for (index, file) in files.iter().enumerate() {
            let target = fs::canonicalize(file).ok();
            for path in [Some(file.clone()), target].into_iter().flatten() {
                let Some(name) = path.file_name().map(OsStr::to_owned) else { continue };
                let indices = self.files.entry((directory_of(&path), name)).or_default();
                if !indices.contains(&index) {
                    indices.push(index);
                }
            }
        }
        let Some(inotify) = &self.inotify else { return };
        let mut directories: Vec<&PathBuf> = self.files.keys().map(|(directory, _)| directory).collect();
        directories.sort();
        directories.dedup();
        let (mut watched, mut failed) = (HashMap::<i32, Vec<PathBuf>>::new(), None);
        for directory in directories {
            // A directory that is watched already keeps its number.
            match inotify::add_watch(inotify, directory, flags()) {
                Ok(number) => watched.entry(number).or_default().push(directory.clone()),
                // The directory may come back.
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => failed = Some((directory.clone(), error)),
            }
        }
        for number in self.watched.keys().filter(|number| !watched.contains_key(number)) {
            // The watch may be gone with its directory.
            let _gone = inotify::remove_watch(inotify, *number);
        }
        self.watched = watched;
        if let Some((directory, error)) = failed {
            self.report(&directory.display().to_string(), error);
        }
    }

    /// The events since the last call. Does not wait.
    pub fn events(&mut self) -> Events {
        let mut events = Events::default();
        let Some(inotify) = &self.inotify else { return events };
        let mut buffer = [MaybeUninit::uninit(); EVENTS_BYTES];
        let mut reader = Reader::new(inotify, &mut buffer);
        // Without more events, the call fails.
        while let Ok(event) = reader.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                events.overflow = true;
            }
            let (Some(paths), Some(name)) = (self.watched.get(&event.wd()), event.file_name()) else { continue };
            let name = OsStr::from_bytes(name.to_bytes());
            for directory in paths {
                let Some(files) = self.files.get(&(directory.clone(), name.to_owned())) else { continue };
                let Some(what) = what(event.events(), &directory.join(name)) else { continue };
                events.files.extend(files.iter().map(|&file| (file, what)));
            }
        }
        events
    }

    fn report(&mut self, object: &str, error: Errno) {
        if !std::mem::replace(&mut self.reported, true) {
            report::say(&format!(
                "weir: {object}: cannot be watched: {error}; files are looked at every second instead"
            ));
        }
    }
}

fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn flags() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_TO
        | WatchFlags::MOVED_FROM
        | WatchFlags::DELETE
        | WatchFlags::ONLYDIR
}

/// The meaning of an event of the file at `path`.
fn what(events: ReadFlags, path: &Path) -> Option<Event> {
    let any = |flags: ReadFlags| events.intersects(flags);
    if any(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
        Some(Event::Removed)
    } else if any(ReadFlags::MOVED_TO) {
        Some(Event::Replaced)
    } else if any(ReadFlags::CLOSE_WRITE) {
        Some(Event::Closed)
    } else if any(ReadFlags::MODIFY) {
        Some(Event::Written)
    } else if any(ReadFlags::CREATE) {
        // A new file is open for writing. A new name of a complete file is not.
        let complete = |file: &fs::Metadata| file.is_symlink() || file.nlink() > 1;
        let is_complete = fs::symlink_metadata(path).is_ok_and(|file| complete(&file));
        Some(if is_complete { Event::Replaced } else { Event::Written })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    fn of(directories: &mut Directories, file: usize) -> Vec<Event> {
        let Events { files, overflow } = directories.events();
        assert!(!overflow);
        let mut events: Vec<Event> =
            files.iter().filter(|(index, _)| *index == file).map(|(_, event)| *event).collect();
        events.dedup();
        events
    }

    #[test]
    fn events_of_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("data")).expect("the folder can be written to");
        fs::write(at("data/target"), "1").expect("the folder can be written to");
        symlink("data/target", at("link")).expect("the folder can be written to");
        let mut directories = Directories::new();
        directories.watch(&[at("bad.txt"), at("link"), at("none/file"), at("data/../other")]);
        assert_eq!(directories.events(), Events::default());
        fs::write(at("other"), "1").expect("the folder can be written to");
        assert_eq!(of(&mut directories, 3), [Event::Written, Event::Closed], "the folder has two paths");

        let mut file = File::create(at("bad.txt")).expect("the folder can be written to");
        file.write_all(b"192.0.2.1\n").expect("it can be written");
        assert_eq!(of(&mut directories, 0), [Event::Written]);
        drop(file);
        assert_eq!(of(&mut directories, 0), [Event::Closed]);
        fs::write(at("new"), "1").expect("the folder can be written to");
        fs::rename(at("new"), at("bad.txt")).expect("it can be renamed");
        assert_eq!(of(&mut directories, 0), [Event::Replaced]);
        fs::remove_file(at("bad.txt")).expect("it is there");
        fs::hard_link(at("data/target"), at("bad.txt")).expect("it is there");
        assert_eq!(of(&mut directories, 0), [Event::Removed, Event::Replaced]);

        fs::write(at("data/target"), "22").expect("the folder can be written to");
        assert_eq!(of(&mut directories, 1), [Event::Written, Event::Closed]);
        // A directory that is made later, and one that is replaced.
        fs::create_dir(at("none")).expect("the folder can be written to");
        directories.watch(&[at("bad.txt"), at("link"), at("none/file")]);
        fs::write(at("none/file"), "1").expect("the folder can be written to");
        assert_eq!(of(&mut directories, 2), [Event::Written, Event::Closed]);
        fs::rename(at("none"), at("old")).expect("it can be renamed");
        fs::create_dir(at("none")).expect("the folder can be written to");
        directories.watch(&[at("bad.txt"), at("link"), at("none/file")]);
        fs::write(at("old/file"), "1").expect("the folder can be written to");
        assert_eq!(of(&mut directories, 2), []);
        fs::write(at("none/file"), "1").expect("the folder can be written to");
        assert_eq!(of(&mut directories, 2), [Event::Written, Event::Closed]);
    }
}
