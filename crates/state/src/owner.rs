//! Checks who could have written a file or a folder: its owner and mode, and the owner and mode of every directory and
//! link on the path to it.
//!
//! The rules follow sshd's `StrictModes`. In addition links are followed one by one, so that a link in another user's
//! directory counts too. Only root and the user that runs Weir are trusted, since both can do anything with the process
//! anyway. Access control lists need no separate check, because their permissions show in the group bits.

use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

/// Maximum number of links on a path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Write permission of the group and of others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In such a directory only the owner of an entry can remove or replace it, as in /tmp.
const STICKY: u32 = 0o1000;
/// The mode of a folder that is made: its owner alone can use it.
const OWN: u32 = 0o700;

/// Why a file or folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// Users other than root and the caller can write or replace it.
    #[error("{0}")]
    Writable(String),
    /// The path is not a directory.
    #[error("{} is not a directory", .0.display())]
    NoDirectory(PathBuf),
    /// The system refuses.
    #[error("{}: {source}", .path.display())]
    System {
        /// What cannot be used.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What is done about a directory of a path that does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// The missing directory is an error.
    Refused,
    /// The missing directory is made.
    Made,
}

/// Refuses a file that users other than root and the caller can write or replace. `file` is the file opened at `path`.
///
/// # Errors
/// Names the file or directory that permits it.
pub fn check(path: &Path, file: &File) -> Result<(), Distrust> {
    let (place, found) = resolve(path, Missing::Refused)?;
    let opened = is_opened(&place, &found, file)?;
    check_written(place.display(), opened.uid(), opened.mode())
}

/// Opens a folder that no users other than root and the caller can write or replace. If it may be made, so may the
/// folders on the path to it. Returns its path without links.
///
/// # Errors
/// Names the directory or link that others can change. Nothing is made in a directory that others can change.
pub fn open_folder(path: &Path, missing: Missing) -> Result<(PathBuf, File), Distrust> {
    let (place, found) = resolve(path, missing)?;
    if !found.is_dir() {
        return Err(Distrust::NoDirectory(place));
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(&place);
    let file = opened.map_err(system(&place))?;
    let opened = is_opened(&place, &found, &file)?;
    // A sticky bit does not help here: a user who can write may add files.
    check_written(place.display(), opened.uid(), opened.mode())?;
    Ok((place, file))
}

/// Refuses what belongs to other users, or what they can write. `what` names it in the message.
///
/// # Errors
/// Says who can write it.
pub fn check_written(what: impl Display, owner: u32, mode: u32) -> Result<(), Distrust> {
    check_owner(&what, owner)?;
    check_mode(&what, mode)
}

/// Checks that a file is the one that was found at its path.
fn is_opened(place: &Path, found: &Metadata, file: &File) -> Result<Metadata, Distrust> {
    let opened = file.metadata().map_err(system(place))?;
    if (found.dev(), found.ino()) != (opened.dev(), opened.ino()) {
        return Err(Distrust::Writable(format!("{} was replaced while it was opened", place.display())));
    }
    Ok(opened)
}

/// Follows all links and checks every directory and link on the path. Only root and the caller can change what was
/// checked, so the result stays valid.
fn resolve(path: &Path, missing: Missing) -> Result<(PathBuf, Metadata), Distrust> {
    let absolute = std::path::absolute(path).map_err(system(path))?;
    let mut place = PathBuf::from("/");
    let mut rest: Vec<OsString> = names(&absolute);
    let mut links = 0;
    let mut at = found(&place, Missing::Refused)?;
    while let Some(name) = rest.pop() {
        // Whatever is found here, the directory that contains it counts.
        check_directory(&place, &at)?;
        if name == ".." {
            place.pop();
            at = found(&place, Missing::Refused)?;
            continue;
        }
        let next = place.join(name);
        let metadata = found(&next, missing)?;
        if metadata.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(Distrust::Writable(format!("{}: more than {LINKS_MAX} links", path.display())));
            }
            check_owner(next.display(), metadata.uid())?;
            let target = fs::read_link(&next).map_err(system(&next))?;
            if target.is_absolute() {
                place = PathBuf::from("/");
                at = found(&place, Missing::Refused)?;
            }
            rest.extend(names(&target));
        } else {
            (place, at) = (next, metadata);
        }
    }
    Ok((place, at))
}

/// What is at a path whose directory was checked.
fn found(path: &Path, missing: Missing) -> Result<Metadata, Distrust> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && missing == Missing::Made => {
            DirBuilder::new().mode(OWN).create(path).map_err(system(path))?;
            fs::symlink_metadata(path).map_err(system(path))
        }
        found => found.map_err(system(path)),
    }
}

fn system(path: &Path) -> impl FnOnce(io::Error) -> Distrust {
    move |source| Distrust::System { path: path.to_owned(), source }
}

/// The components of a path, last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

fn check_directory(path: &Path, metadata: &Metadata) -> Result<(), Distrust> {
    check_owner(path.display(), metadata.uid())?;
    // Entries of other users are refused when the walk reaches them.
    if metadata.mode() & STICKY != 0 { Ok(()) } else { check_mode(path.display(), metadata.mode()) }
}

fn check_owner(what: impl Display, owner: u32) -> Result<(), Distrust> {
    let caller = rustix::process::geteuid().as_raw();
    if owner == 0 || owner == caller {
        return Ok(());
    }
    let who = if caller == 0 { String::new() } else { format!(" or user {caller}, who runs weir") };
    Err(Distrust::Writable(format!("{what} belongs to user {owner}, not to root{who}")))
}

fn check_mode(what: impl Display, mode: u32) -> Result<(), Distrust> {
    if mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let mode = mode & 0o7777;
    let text = format!("{what} can be written by others than its owner (mode {mode:04o}; `chmod go-w` it)");
    Err(Distrust::Writable(text))
}
