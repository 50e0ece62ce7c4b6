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

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// The folder, locked for this process.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

/// How long another holder of the lock is waited for. A child process has its parent's lock between `fork` and `exec`,
/// and a process that was killed keeps it until the kernel has closed its files. Both last milliseconds.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// The pause between two attempts to lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);
/// The end of the name of a file that was set aside.
const UNREAD: &str = "unread";
/// The kinds of numbered files.
pub(super) const SNAPSHOT: &str = "snapshot";
pub(super) const JOURNAL: &str = "journal";
/// The file with the debts of limits.
pub(super) const DEBTS: &str = "debts";
/// The file with flows.
pub(super) const FLOWS: &str = "flows";

impl Folder {
    /// Makes the folder if there is none, and locks it. Files that were not completed are removed. Waits up to
    /// [`LOCK_WAIT`] for a process that uses it.
    ///
    /// # Errors
    /// It cannot be used; [`io::ErrorKind::ResourceBusy`] if another process still uses it.
    pub fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let lock = private().create(true).truncate(false).open(path.join("lock"))?;
        exclusively(&lock)?;
        for entry in fs::read_dir(path)? {
            let file = entry?.path();
            if file.extension().is_some_and(|extension| extension == "new") {
                fs::remove_file(file)?;
            }
        }
        Ok(Folder { path: path.to_owned(), _lock: lock })
    }

    /// Path of a numbered file.
    pub(super) fn numbered(&self, number: u64, kind: &str) -> PathBuf {
        self.path.join(format!("tables-{number}.{kind}"))
    }

    /// The numbers of the files of a kind, sorted.
    pub(super) fn numbers(&self, kind: &str) -> io::Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_prefix("tables-")?.strip_suffix(kind)?.strip_suffix('.'));
            numbers.extend(number.and_then(|number| number.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The highest number of any file, or 0.
    pub(super) fn last_number(&self) -> io::Result<u64> {
        let last = |kind: &str| Ok::<_, io::Error>(self.numbers(kind)?.last().copied().unwrap_or(0));
        Ok(last(SNAPSHOT)?.max(last(JOURNAL)?))
    }

    /// Sets a file aside: gives it a name under which nothing reads or removes it. Returns that name.
    pub(super) fn set_aside(&self, file: &Path) -> io::Result<String> {
        let name = file.file_name().and_then(|name| name.to_str()).expect("files of the folder have such names");
        for number in 1u64.. {
            let number = if number > 1 { format!("-{number}") } else { String::new() };
            let kept = format!("{name}.{UNREAD}{number}");
            match fs::symlink_metadata(self.file(&kept)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::rename(file, self.file(&kept))?;
                    return Ok(kept);
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("a folder has fewer files");
    }

    /// Sets all files with state aside.
    pub(super) fn set_all_aside(&self) -> io::Result<()> {
        let mut files = vec![self.file(DEBTS), self.file(FLOWS)];
        for kind in [JOURNAL, SNAPSHOT] {
            files.extend(self.numbers(kind)?.into_iter().map(|number| self.numbered(number, kind)));
        }
        let there = |file: &Path| fs::symlink_metadata(file).is_ok();
        files.iter().filter(|file| there(file)).try_for_each(|file| self.set_aside(file).map(|_| ()))
    }

    /// The names of the files that were set aside, sorted.
    pub(super) fn unread(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_unread = name.rsplit_once('.').is_some_and(|(_, end)| end.starts_with(UNREAD));
            names.extend(Some(name).filter(|_| is_unread));
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Creates a file, which other users cannot read.
    pub(super) fn create(&self, file: &Path) -> io::Result<File> {
        private().create(true).truncate(true).open(file)
    }

    /// Gives a complete file its name, for good.
    pub(super) fn publish(&self, new: &Path, file: &Path) -> io::Result<()> {
        fs::rename(new, file)?;
        self.sync()
    }

    /// Makes the names of files last.
    pub(super) fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Path of another file.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Locks a file for this process.
fn exclusively(file: &File) -> io::Result<()> {
    let end = Instant::now() + LOCK_WAIT;
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another weir uses it"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options
}
