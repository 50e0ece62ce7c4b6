//! Opens a file for appending, by a path that less privileged users may change.
//!
//! Weir runs as root, and its log may be in a directory of another user or in `/tmp`. A symbolic link is followed only
//! if it belongs to root or to the user of Weir. This is the rule of `fs.protected_symlinks`, applied to every
//! component of the path. Each component is opened relative to its parent, so that nothing can be replaced between
//! check and use. Opening does not block: a pipe without a reader is an error.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fcntl_setfl, fstat, fstatfs, openat, readlinkat, statat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path};

/// Most links on a path, as in the kernel.
const LINKS_MAX: usize = 40;
/// `PROC_SUPER_MAGIC`: the kernel itself resolves links in this file system (`/dev/stdout`).
const PROC: u64 = 0x9fa0;
const APPEND: OFlags = OFlags::WRONLY.union(OFlags::APPEND).union(OFlags::CREATE);
/// Does not wait for the reader of a pipe, and does not make a terminal the controlling terminal.
const NO_WAIT: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Opens a file for appending. Creates it if it does not exist.
///
/// # Errors
/// It cannot be opened, or the path contains a link or pipe of another user.
pub fn open(path: &Path) -> io::Result<File> {
    let file = walk(path)?;
    check(&file)?;
    // Writes may block as usual.
    fcntl_setfl(&file, OFlags::APPEND)?;
    Ok(File::from(file))
}

fn walk(path: &Path) -> io::Result<OwnedFd> {
    let mut folder = folder_at(CWD, if path.is_absolute() { "/" } else { "." })?;
    let (mut rest, mut links) = (parts(path), 0);
    while let Some(name) = rest.pop_front() {
        let found = statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        let is_link = found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
        if !is_link && rest.is_empty() {
            return Ok(openat(&folder, &name, APPEND | NO_WAIT | OFlags::NOFOLLOW, Mode::from_raw_mode(0o666))?);
        }
        if !is_link {
            folder = folder_at(folder.as_fd(), &name)?;
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let link = openat(&folder, &name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        if fstatfs(&link)?.f_type as u64 == PROC {
            let whole: std::path::PathBuf = std::iter::once(name).chain(rest).collect();
            return Ok(openat(&folder, &whole, APPEND | NO_WAIT, Mode::from_raw_mode(0o666))?);
        }
        check_owner(&link, "symbolic link")?;
        let target = OsString::from_vec(readlinkat(&link, "", Vec::new())?.into_bytes());
        let target = Path::new(&target);
        if target.is_absolute() {
            folder = folder_at(CWD, "/")?;
        }
        let mut before = parts(target);
        before.append(&mut rest);
        rest = before;
    }
    Err(Errno::ISDIR.into())
}

fn parts(path: &Path) -> VecDeque<OsString> {
    let names = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    names.map(|part| part.as_os_str().to_owned()).collect()
}

fn folder_at(folder: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name.as_ref(), flags, Mode::empty())?)
}

/// Accepts a regular file, a character device such as a terminal, or a pipe of this user or root.
fn check(file: &OwnedFd) -> io::Result<()> {
    match FileType::from_raw_mode(fstat(file)?.st_mode) {
        FileType::RegularFile | FileType::CharacterDevice => Ok(()),
        FileType::Fifo => check_owner(file, "pipe"),
        _ => Err(io::Error::other("neither a file nor a pipe")),
    }
}

fn check_owner(of: &OwnedFd, what: &str) -> io::Result<()> {
    let (owner, own) = (fstat(of)?.st_uid, rustix::process::geteuid().as_raw());
    match owner {
        owner if owner == own || owner == 0 => Ok(()),
        owner => Err(io::Error::other(format!("a {what} of another user (uid {owner}) is not trusted"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    const NOBODY: u32 = 65534;

    fn append(path: &Path, text: &str) -> Result<(), String> {
        let write = |mut file: File| file.write_all(text.as_bytes());
        open(path).and_then(write).map_err(|error| error.to_string())
    }

    #[test]
    fn own_files_and_links_are_opened_as_usual() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let file = at("file");
        append(&file, "1").expect("it is made");
        fs::create_dir(at("sub")).expect("it is ours");
        symlink("../file", at("sub/relative")).expect("it is ours");
        symlink(at("sub"), at("absolute")).expect("it is ours");
        for path in ["file", "sub/relative", "absolute/relative", "sub/../absolute/./relative"] {
            append(&at(path), "2").unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "12222");
        symlink("none", at("dangling")).expect("it is ours");
        append(&at("dangling"), "3").expect("the target is created");
        assert_eq!(fs::read_to_string(at("none")).expect("it was made"), "3");
        symlink("loop", at("loop")).expect("it is ours");
        for (path, problem) in [("loop", "Too many levels"), ("sub", "Is a directory"), ("file/x", "Not a directory")] {
            let said = append(&at(path), "").expect_err("it is refused");
            assert!(said.contains(problem), "{path}: {said}");
        }
        append(Path::new("/dev/stdout"), "").expect("links of the kernel are followed");
        append(Path::new("/dev/null"), "x").expect("a device takes it");
    }

    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("it is ours");
        append(&pipe, "").expect_err("nobody reads");
        let _reader = openat(CWD, &pipe, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("it is ours");
        append(&pipe, "x").expect("there is a reader");
        if rustix::process::geteuid().is_root() {
            lchown(&pipe, Some(NOBODY), None).expect("root may");
            let said = append(&pipe, "").expect_err("it is another's");
            assert_eq!(said, "a pipe of another user (uid 65534) is not trusted");
        }
    }

    #[test]
    fn links_of_other_users_are_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).expect("it is ours");
        symlink(at("victim"), at("link")).expect("it is ours");
        symlink(at("sub"), at("folder")).expect("it is ours");
        symlink("link", at("own-to-theirs")).expect("it is ours");
        for link in ["link", "folder"] {
            lchown(at(link), Some(NOBODY), None).expect("root may");
        }
        for path in ["link", "folder/file", "own-to-theirs"] {
            let said = append(&at(path), "x").expect_err("it is refused");
            assert_eq!(said, "a symbolic link of another user (uid 65534) is not trusted", "{path}");
        }
        assert!(!at("victim").exists() && fs::metadata(at("sub")).expect("it is there").uid() == 0);
        assert_eq!(fs::read_dir(at("sub")).expect("it is there").count(), 0);
    }
}
