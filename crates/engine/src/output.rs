//! An output file that appears complete or not at all. It has no name until it is finished, so nothing is left behind
//! however the process ends.
//!
//! Symbolic links are followed, dangling ones too, like a shell's `>` does. The finished file replaces an existing one,
//! so a failure leaves the old file unchanged. Devices and pipes are written directly.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::scratch::{self, Registered};

/// Maximum number of symbolic links that are followed, as in Linux (path_resolution(7)).
const LINKS_MAX: usize = 40;

/// A file while it is written.
#[derive(Debug)]
pub struct OutputFile {
    file: File,
    destination: Destination,
}

/// How the file gets its name.
#[derive(Debug)]
enum Destination {
    /// A device, a pipe or an open stream, which has one.
    Stream,
    /// The file has no name yet. `finish` links it to this path.
    Unnamed(PathBuf),
    /// The file system does not support files without a name. The file has a temporary name, which is removed or, by
    /// `finish`, renamed to this path.
    Named(PathBuf, Registered),
}

impl OutputFile {
    /// Creates the file.
    ///
    /// # Errors
    /// The folder does not exist, the path is a folder, or the file is not writable.
    pub fn create(path: &Path) -> io::Result<Self> {
        let there = fs::metadata(path).ok();
        if let Some(there) = &there
            && !there.is_file()
        {
            let file = OpenOptions::new().write(true).open(path)?;
            return Ok(OutputFile { file, destination: Destination::Stream });
        }
        let target = target(path)?;
        if there.is_some() {
            rustix::fs::access(&target, Access::WRITE_OK)?;
        }
        let (file, destination) = match unnamed(folder(&target)) {
            Ok(file) => (file, Destination::Unnamed(target)),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                let name = other_name(&target);
                let file = OpenOptions::new().write(true).create_new(true).mode(0o666).open(&name)?;
                (file, Destination::Named(target, scratch::register_file(name)))
            }
            Err(error) => return Err(error.into()),
        };
        if let Some(there) = there {
            file.set_permissions(Permissions::from_mode(there.mode() & 0o7777))?;
        }
        Ok(OutputFile { file, destination })
    }

    /// Standard output.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn standard_output() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(OutputFile { file, destination: Destination::Stream })
    }

    /// Whether the output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.file.is_terminal()
    }

    /// Gives the file its name, which replaces an existing file of that name.
    ///
    /// # Errors
    /// The folder is not writable.
    pub fn finish(self) -> io::Result<()> {
        match self.destination {
            Destination::Stream => Ok(()),
            Destination::Unnamed(target) => {
                let name = other_name(&target);
                let unnamed = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                rustix::fs::linkat(CWD, unnamed.as_str(), CWD, &name, AtFlags::SYMLINK_FOLLOW)?;
                let linked = scratch::register_file(name);
                fs::rename(linked.path(), target)?;
                linked.forget();
                Ok(())
            }
            Destination::Named(target, name) => {
                fs::rename(name.path(), target)?;
                name.forget();
                Ok(())
            }
        }
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens a file without a name in a folder.
fn unnamed(folder: &Path) -> Result<File, Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666))?))
}

/// An unused name in the same folder.
fn other_name(target: &Path) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    folder(target).join(OsString::from(format!(".weir-{}-{number}", std::process::id())))
}

/// The folder of a path from [`target`].
fn folder(target: &Path) -> &Path {
    target.parent().unwrap_or(Path::new("/"))
}

/// Resolves all symbolic links of a path. The file itself need not exist.
///
/// # Errors
/// A folder on the path does not exist, there are too many links, or the path does not name a file.
pub fn target(path: &Path) -> io::Result<PathBuf> {
    let mut path = std::path::absolute(path)?;
    for _ in 0..LINKS_MAX {
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::IsADirectory))?;
        let folder = fs::canonicalize(folder(&path))?;
        match fs::read_link(folder.join(name)) {
            Ok(link) => path = folder.join(link),
            Err(_) => return Ok(folder.join(name)),
        }
    }
    Err(Errno::LOOP.into())
}

/// Whether two paths lead to the same file, or would lead to it if it existed. Pipes count as files here. Devices do
/// not: their input and output are independent.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    match (a.metadata(), b.metadata()) {
        (Ok(a), Ok(b)) => is_same(&a, &b),
        (Err(_), Err(_)) => matches!((target(a), target(b)), (Ok(a), Ok(b)) if a == b),
        _ => false,
    }
}

/// Whether a path leads to the file of an open stream, as `/dev/stdout` does.
pub fn is_stream(path: &Path, stream: impl AsFd) -> bool {
    let stream = stream.as_fd().try_clone_to_owned().and_then(|copy| File::from(copy).metadata());
    matches!((path.metadata(), stream), (Ok(a), Ok(b)) if is_same(&a, &b))
}

fn is_same(a: &fs::Metadata, b: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = a.file_type();
    !kind.is_char_device() && !kind.is_block_device() && (a.dev(), a.ino()) == (b.dev(), b.ino())
}

#[cfg(test)]
mod tests {
    use super::{OutputFile, is_same_file};
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_same_file_by_other_names() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "").unwrap();
        fs::write(at("b"), "").unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        symlink("a", at("soft")).unwrap();
        symlink("new", at("dangling")).unwrap();
        symlink("dangling", at("twice")).unwrap();
        symlink(".", at("here")).unwrap();
        for name in ["a", "./a", "hard", "soft", "here/a"] {
            assert!(is_same_file(&at("a"), &at(name)), "{name}");
        }
        for name in ["./new", "dangling", "twice", "here/new", "here/here/twice"] {
            assert!(is_same_file(&at("new"), &at(name)), "{name}");
        }
        assert!(!is_same_file(&at("a"), &at("b")));
        assert!(!is_same_file(&at("a"), &at("new")));
        assert!(!is_same_file(Path::new("/dev/null"), Path::new("/dev/null")));
    }

    #[test]
    fn a_file_appears_when_it_is_finished() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::set_permissions(at("old"), fs::Permissions::from_mode(0o640)).unwrap();
        symlink("new", at("dangling")).unwrap();
        for name in ["old", "dangling"] {
            let mut output = OutputFile::create(&at(name)).unwrap();
            output.write_all(b"never finished").unwrap();
        }
        assert_eq!(
            (names(folder.path()), fs::read(at("old")).unwrap()),
            (vec!["dangling".into(), "old".into()], b"old".to_vec())
        );
        for name in ["old", "dangling"] {
            let mut output = OutputFile::create(&at(name)).unwrap();
            output.write_all(b"finished").unwrap();
            output.finish().unwrap();
        }
        assert_eq!(names(folder.path()), ["dangling", "new", "old"]);
        assert_eq!(
            (fs::read(at("old")).unwrap(), fs::read(at("new")).unwrap()),
            (b"finished".to_vec(), b"finished".to_vec())
        );
        assert_eq!(fs::metadata(at("old")).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(at("dangling").is_symlink());
        symlink("loop", at("loop")).unwrap();
        for (name, problem) in [("loop", "symbolic links"), (".", "directory"), ("none/x", "No such file")] {
            let error = OutputFile::create(&at(name)).unwrap_err().to_string();
            assert!(error.contains(problem), "{name}: {error}");
        }
    }
}
