//! The folder of saved state and its files.
//!
//! ```text
//!   lock                      locked by the Weir that uses the folder
//!   tables-7.snapshot         all dynamic tables at one time
//!   tables-7.journal          changes since then, and until tables-8.journal begins
//!   debts                     the debts of limits
//!   flows                     established flows: what slots of the table hold, the last record of a slot counts
//!   *.new                     a file that is not complete
//!   *.unread                  a file that could not be read or used at a start; it is never removed
//! ```
//! Every file is reached through the descriptor of the folder, which was checked when it was opened
//! ([`crate::owner`]). Files are created new, so nothing is written through a link.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{
    AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, Stat, flock, fstat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::state_file::{self, StateFile};
use crate::owner::{self, Distrust, Missing};

/// The folder, locked for this process.
pub struct Folder {
    /// As the caller calls it.
    path: PathBuf,
    locked: RwLock<LockedFolder>,
    /// How often it was found to be another folder, which was opened then.
    reopened: AtomicU64,
}

/// An open folder with its lock.
struct LockedFolder {
    /// Where it is, without links.
    place: PathBuf,
    directory: File,
    lock: File,
}

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Another process uses it.
    #[error("another weir uses it")]
    Busy,
    /// Users other than root and the caller can change the folder or its lock, or the lock is no file.
    #[error("{0}")]
    Refused(String),
    /// The disk refuses.
    #[error("{0}")]
    Disk(#[from] io::Error),
}

/// The kinds of numbered files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbered {
    Snapshot,
    Journal,
}

/// How long another holder of the lock is waited for. A child process has its parent's lock between `fork` and `exec`,
/// and a process that was killed keeps it until the kernel has closed its files. Both last milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// The pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// The file that is locked.
const LOCK: &str = "lock";
/// The end of the name of a file that is not complete.
const NEW: &str = ".new";
/// The end of the name of a file that was set aside.
const UNREAD: &str = "unread";
/// The beginning of the names of numbered files.
const TABLES: &str = "tables-";
/// The file with the debts of limits.
pub(super) const DEBTS: &str = "debts";
/// The file with flows.
pub(super) const FLOWS: &str = "flows";
/// The highest number of a file. A Weir that makes a snapshot each second reaches it after millions of years.
const NUMBER_MAX: u64 = 1 << 48;

impl Numbered {
    const ALL: [Numbered; 2] = [Numbered::Journal, Numbered::Snapshot];

    fn name(self) -> &'static str {
        match self {
            Numbered::Snapshot => "snapshot",
            Numbered::Journal => "journal",
        }
    }

    /// The name of a file.
    pub fn file(self, number: u64) -> String {
        format!("{TABLES}{number}.{}", self.name())
    }

    /// What stands for the number in the name of a file of this kind. `None` if it is another file.
    fn number_text(self, name: &str) -> Option<&str> {
        name.strip_prefix(TABLES)?.strip_suffix(self.name())?.strip_suffix('.')
    }

    /// The number of a file with this name, as [`Numbered::file`] writes it.
    fn number(self, name: &str) -> Option<u64> {
        let number = self.number_text(name)?.parse().ok()?;
        ((1..=NUMBER_MAX).contains(&number) && self.file(number) == name).then_some(number)
    }
}

/// A number that is `step` higher.
///
/// # Errors
/// There is no such number.
pub(super) fn higher(number: u64, step: u64) -> io::Result<u64> {
    let next = number.checked_add(step).filter(|&next| next <= NUMBER_MAX);
    next.ok_or_else(|| io::Error::other(format!("the numbers of its files have reached {number}; remove these files")))
}

impl Folder {
    /// Makes the folder if there is none, and locks it. Files that were not completed are removed. Waits up to
    /// [`LOCK_WAIT`] for a process that uses it.
    ///
    /// # Errors
    /// It cannot be used, must not be used, or another process still uses it.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let locked = LockedFolder::open(path, Missing::Made, LOCK_WAIT)?;
        locked.remove_incomplete()?;
        Ok(Folder { path: path.to_owned(), locked: RwLock::new(locked), reopened: AtomicU64::new(0) })
    }

    /// Opens what is at the path now, because it is another folder, or because the lock was lost. The files there were
    /// not read, so they are set aside.
    fn reopen(&self) -> io::Result<()> {
        let mut locked = self.locked.write().unwrap_or_else(PoisonError::into_inner);
        if locked.check_still_own().is_ok() {
            // Another thread was faster.
            return Ok(());
        }
        let other = LockedFolder::open(&self.path, Missing::Refused, Duration::ZERO)?;
        other.remove_incomplete()?;
        other.set_all_aside()?;
        *locked = other;
        self.reopened.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// How often another folder was opened under the same name. What was written before is not in it.
    pub(super) fn reopened(&self) -> u64 {
        self.reopened.load(Ordering::Relaxed)
    }

    fn locked(&self) -> RwLockReadGuard<'_, LockedFolder> {
        self.locked.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a file, for messages.
    pub(super) fn shown(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>> {
        self.locked().names()
    }

    /// The numbers of the files of a kind, sorted.
    pub(super) fn numbers(&self, kind: Numbered) -> io::Result<Vec<u64>> {
        let mut numbers: Vec<u64> = self.names()?.iter().filter_map(|name| kind.number(name)).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Names that look like names of numbered files, but have no valid number.
    pub(super) fn misnumbered(&self) -> io::Result<Vec<String>> {
        let looks = |name: &str, kind: Numbered| kind.number_text(name).is_some() && kind.number(name).is_none();
        let mut names = self.names()?;
        names.retain(|name| Numbered::ALL.iter().any(|&kind| looks(name, kind)));
        Ok(names)
    }

    /// The highest number of any file, or 0.
    pub(super) fn last_number(&self) -> io::Result<u64> {
        let last = |kind: Numbered| Ok::<_, io::Error>(self.numbers(kind)?.last().copied().unwrap_or(0));
        Ok(last(Numbered::Snapshot)?.max(last(Numbered::Journal)?))
    }

    /// Opens a file for reading. `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, is too large, or other users can have written it.
    pub(super) fn read(&self, name: &str) -> Result<Option<StateFile>, String> {
        state_file::open(&self.locked().directory, name)
    }

    /// Sets a file aside: gives it a name under which nothing reads or removes it. Returns that name.
    pub(super) fn set_aside(&self, name: &str) -> io::Result<String> {
        self.locked().set_aside(name)
    }

    /// Sets all files with state aside.
    pub(super) fn set_all_aside(&self) -> io::Result<()> {
        self.locked().set_all_aside()
    }

    /// The names of the files that were set aside, sorted.
    pub(super) fn unread(&self) -> io::Result<Vec<String>> {
        let mut names = self.names()?;
        names.retain(|name| name.rsplit_once('.').is_some_and(|(_, end)| end.starts_with(UNREAD)));
        Ok(names)
    }

    /// Creates a file, which other users cannot read. A former one with the name of an incomplete file is removed.
    ///
    /// # Errors
    /// The disk refuses, there is such a file, or another process uses the folder.
    pub(super) fn create(&self, name: &str) -> io::Result<File> {
        if self.locked().check_still_own().is_err() {
            self.reopen()?;
        }
        let locked = self.locked();
        if name.ends_with(NEW) && locked.has(name)? {
            locked.remove(name)?;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&locked.directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Gives a complete file its name, for good.
    ///
    /// # Errors
    /// The disk refuses, or another process may use the folder.
    pub(super) fn publish(&self, new: &str, name: &str) -> io::Result<()> {
        self.rename(new, name)?;
        self.sync()
    }

    /// Gives a complete file its name, which lasts once the folder is synced.
    ///
    /// # Errors
    /// As for [`Folder::publish`].
    pub(super) fn rename(&self, new: &str, name: &str) -> io::Result<()> {
        let locked = self.locked();
        locked.check_still_own()?;
        Ok(renameat(&locked.directory, new, &locked.directory, name)?)
    }

    /// Removes a file.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        self.locked().remove(name)
    }

    /// Makes the names of files last.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.locked().directory.sync_all()
    }
}

impl LockedFolder {
    /// Opens a folder and locks it. Waits up to `patience` for a process that uses it.
    fn open(path: &Path, missing: Missing, patience: Duration) -> Result<Self, FolderError> {
        let (place, directory) = owner::open_folder(path, missing).map_err(|distrust| match distrust {
            Distrust::System { path: at, source } if at == path => FolderError::Disk(source),
            Distrust::System { path: at, source } => {
                FolderError::Disk(io::Error::new(source.kind(), format!("{}: {source}", at.display())))
            }
            Distrust::NoDirectory(_) => FolderError::Disk(Errno::NOTDIR.into()),
            distrust @ Distrust::Writable(_) => FolderError::Refused(distrust.to_string()),
        })?;
        let lock = open_lock(&directory)?;
        exclusively(&lock, patience)?;
        let locked = LockedFolder { place, directory, lock };
        // Another process may have replaced it before it was locked.
        locked.check_still_own()?;
        Ok(locked)
    }

    /// The names of all files that Weir can have made: its names are text.
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        names.retain(|name| name != "." && name != "..");
        names.sort_unstable();
        Ok(names)
    }

    /// Whether there is anything with this name.
    fn has(&self, name: &str) -> io::Result<bool> {
        match statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.directory, name, AtFlags::empty())?)
    }

    /// Removes what a process that was killed has not completed.
    fn remove_incomplete(&self) -> io::Result<()> {
        for name in self.names()?.iter().filter(|name| name.ends_with(NEW)) {
            if self.remove(name).is_err() {
                self.set_aside(name)?;
            }
        }
        Ok(())
    }

    /// Sets a file aside: gives it a name under which nothing reads or removes it. Returns that name.
    fn set_aside(&self, name: &str) -> io::Result<String> {
        for number in 1u64.. {
            let number = if number > 1 { format!("-{number}") } else { String::new() };
            let kept = format!("{name}.{UNREAD}{number}");
            if !self.has(&kept)? {
                renameat(&self.directory, name, &self.directory, &kept)?;
                return Ok(kept);
            }
        }
        unreachable!("a folder has fewer files");
    }

    /// Sets all files with state aside.
    fn set_all_aside(&self) -> io::Result<()> {
        let is_numbered = |name: &str| Numbered::ALL.iter().any(|kind| kind.number_text(name).is_some());
        let names = self.names()?.into_iter().filter(|name| name == DEBTS || name == FLOWS || is_numbered(name));
        names.into_iter().try_for_each(|name| self.set_aside(&name).map(|_| ()))
    }

    /// Checks that the name still leads to the folder, and the lock's name to the lock. Otherwise another Weir may use
    /// what is there now, or the same folder.
    fn check_still_own(&self) -> io::Result<()> {
        let leads_to = |found: rustix::io::Result<Stat>, file: &File| match found {
            Ok(found) => {
                let own = file.metadata()?;
                Ok((found.st_dev, found.st_ino) == (own.dev(), own.ino()))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(io::Error::from(error)),
        };
        if !leads_to(statat(CWD, &self.place, AtFlags::SYMLINK_NOFOLLOW), &self.directory)? {
            return Err(io::Error::other("it is another folder now"));
        }
        if !leads_to(statat(&self.directory, LOCK, AtFlags::SYMLINK_NOFOLLOW), &self.lock)? {
            return Err(io::Error::other(format!("its file `{LOCK}` was removed or replaced")));
        }
        Ok(())
    }
}

impl From<FolderError> for io::Error {
    fn from(error: FolderError) -> Self {
        match error {
            FolderError::Busy => io::Error::new(ErrorKind::ResourceBusy, error.to_string()),
            FolderError::Refused(why) => io::Error::new(ErrorKind::PermissionDenied, why),
            FolderError::Disk(error) => error,
        }
    }
}

impl From<Errno> for FolderError {
    fn from(errno: Errno) -> Self {
        FolderError::Disk(errno.into())
    }
}

/// Opens the file that is locked, and makes it if there is none.
fn open_lock(directory: &File) -> Result<File, FolderError> {
    let refused = |why: String| FolderError::Refused(format!("its file `{LOCK}`: {why}"));
    match statat(directory, LOCK, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => state_file::check(&found).map_err(refused)?,
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let lock = openat(directory, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
    state_file::check(&fstat(&lock)?).map_err(refused)?;
    Ok(lock.into())
}

/// Locks a file for this process.
fn exclusively(file: impl AsFd, patience: Duration) -> Result<(), FolderError> {
    let end = Instant::now() + patience;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => return Err(FolderError::Busy),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_before_they_overflow() {
        assert_eq!(higher(NUMBER_MAX - 2, 2).expect("there is one"), NUMBER_MAX);
        assert!(higher(NUMBER_MAX - 1, 2).is_err() && higher(u64::MAX, 1).is_err());
        let number = |name: &str| Numbered::Journal.number(name);
        assert_eq!(number("tables-7.journal"), Some(7));
        assert_eq!(number(&Numbered::Journal.file(NUMBER_MAX)), Some(NUMBER_MAX));
        for name in [
            "tables-0.journal",
            "tables-07.journal",
            "tables-+7.journal",
            "tables-7.snapshot",
            "tables-7.journal.unread",
            "tables-281474976710657.journal",
            "tables-18446744073709551616.journal",
            "tables-.journal",
        ] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
