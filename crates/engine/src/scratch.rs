//! Temporary folders and child processes, which are removed before or after the process ends.
//!
//! | the process | effect |
//! | --- | --- |
//! | returns or fails | each folder is removed by its owner |
//! | gets SIGINT, SIGTERM or SIGHUP | the signal handler's thread calls [`abandon`], which kills and removes |
//! | is killed | the kernel kills the children; the next process that makes a folder removes unlocked folders |

use std::env;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

/// Prefix of the names of folders. A random part follows.
const PREFIX: &str = "weir-tmp-";
/// Prefix of the names of folders that are kept for inspection.
const KEPT_PREFIX: &str = "weir-kept-";
/// Maximum number of attempts to make a folder. Another process may remove it before it is locked.
const ATTEMPTS: usize = 8;

/// Maximum time to wait for the end of a killed process, in ms.
const ENDS_WITHIN_MS: u32 = 500;

/// Paths to remove and processes to kill.
#[derive(Default)]
struct Registry {
    paths: Vec<PathBuf>,
    groups: Vec<Pid>,
    /// Whether [`abandon`] was called. Nothing is created or started afterwards.
    is_abandoned: bool,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { paths: Vec::new(), groups: Vec::new(), is_abandoned: false });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "the process is being terminated")
}

/// Kills all child processes and removes all files. Nothing can be started or created afterwards: the process must end.
pub fn abandon() {
    let mut registry = registry();
    registry.is_abandoned = true;
    for group in registry.groups.drain(..) {
        // The group may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
        // A folder cannot be removed while a process writes to it.
        for _ in 0..ENDS_WITHIN_MS {
            if test_kill_process_group(group).is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    for path in registry.paths.drain(..) {
        remove(&path);
    }
}

/// Removes a path. The next process that makes a folder removes what fails here.
fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// A file or folder that is removed when this value is dropped, or by [`abandon`].
#[derive(Debug)]
pub(crate) struct Registered(PathBuf);

pub(crate) fn register_file(path: PathBuf) -> Registered {
    registry().paths.push(path.clone());
    Registered(path)
}

impl Registered {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Stops the removal of the path.
    pub(crate) fn forget(self) {
        self.unregister();
        std::mem::forget(self);
    }

    fn unregister(&self) {
        registry().paths.retain(|path| *path != self.0);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        remove(&self.0);
        self.unregister();
    }
}

/// A folder in the system's folder for temporary files.
#[derive(Debug)]
pub(crate) struct Folder {
    folder: Registered,
    /// The lock shows other processes that the folder is in use.
    _lock: File,
}

impl Folder {
    pub(crate) fn new() -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| sweep(&env::temp_dir()));
        for _ in 0..ATTEMPTS {
            // The lock covers creation and registration, so that [`abandon`] cannot run between them.
            let mut registry = registry();
            if registry.is_abandoned {
                return Err(interrupted());
            }
            // Other users must not read policies or replace objects, whatever the umask is.
            let private = Permissions::from_mode(0o700);
            let made = tempfile::Builder::new().prefix(PREFIX).permissions(private).disable_cleanup(true).tempdir()?;
            let path = made.path().to_owned();
            if let Some(lock) = lock(&path) {
                registry.paths.push(path.clone());
                return Ok(Folder { folder: Registered(path), _lock: lock });
            }
        }
        Err(io::Error::other("another process removes the temporary folders"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder, under a name that no process removes.
    pub(crate) fn keep(self) -> PathBuf {
        let path = self.folder.path().to_owned();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
        let kept = name.map(|random| path.with_file_name(format!("{KEPT_PREFIX}{random}")));
        self.folder.forget();
        match kept {
            Some(kept) if fs::rename(&path, &kept).is_ok() => kept,
            _ => path,
        }
    }
}

/// Locks a folder. Returns `None` if another process has the lock or removed the folder.
fn lock(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    flock(&folder, FlockOperation::NonBlockingLockExclusive).ok()?;
    (folder.metadata().ok()?.nlink() > 0).then_some(folder)
}

/// Removes folders that killed processes left behind.
fn sweep(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let path = entry.path();
        let Some(lock) = lock(&path) else { continue };
        if lock.metadata().is_ok_and(|folder| folder.uid() == rustix::process::geteuid().as_raw()) {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// Runs a program and waits for its end. The program ends at the latest with this process.
///
/// # Errors
/// It cannot be started, or [`abandon`] was called.
pub(crate) fn output(command: &mut Command) -> io::Result<Output> {
    let parent = rustix::process::getpid();
    // A separate process group, so that the children of the program are killed with it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: the closure makes only system calls and allocates nothing between fork and exec.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the request.
            if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        });
    }
    let mut registry = registry();
    if registry.is_abandoned {
        return Err(interrupted());
    }
    let child = command.spawn()?;
    let group = Pid::from_child(&child);
    registry.groups.push(group);
    drop(registry);
    let output = child.wait_with_output();
    let mut registry = self::registry();
    registry.groups.retain(|other| *other != group);
    if registry.is_abandoned { Err(interrupted()) } else { output }
}

#[cfg(test)]
mod tests {
    use super::{Folder, PREFIX, sweep};
    use std::fs;

    #[test]
    fn folders_of_the_dead_are_removed_and_those_of_the_living_stay() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left"));
        let other = parent.path().join("weir-other");
        fs::create_dir_all(left.join("deep/er")).unwrap();
        fs::create_dir(&other).unwrap();
        let living = parent.path().join(format!("{PREFIX}living"));
        fs::create_dir(&living).unwrap();
        let lock = super::lock(&living).unwrap();
        sweep(parent.path());
        assert_eq!((left.exists(), other.exists(), living.exists()), (false, true, true));
        drop(lock);
        sweep(parent.path());
        assert!(!living.exists());
    }

    #[test]
    fn a_folder_goes_with_its_owner_unless_it_is_kept() {
        let folder = Folder::new().unwrap();
        let path = folder.path().to_owned();
        fs::write(path.join("file"), "").unwrap();
        drop(folder);
        assert!(!path.exists());
        let kept = Folder::new().unwrap().keep();
        assert!(kept.exists() && !kept.to_string_lossy().contains(PREFIX));
        fs::remove_dir_all(kept).unwrap();
    }
}
