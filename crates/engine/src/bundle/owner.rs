//! Checks who could have written a file: the owner and mode of the file, and of every directory and link on the path to
//! it.
//!
//! The rules are those of sshd's `StrictModes`. In addition links are followed one by one, so that a link in another
//! user's directory counts too. Only root and the user that runs Weir are trusted, since both can do anything with the
//! process anyway. Access control lists need no separate check, because their permissions show in the group bits.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links on a path, as in the kernel.
const LINKS_MAX: usize = 40;

/// Write permission of the group and of others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In such a directory only the owner of an entry can remove or replace it, as in /tmp.
const STICKY: u32 = 0o1000;

/// Refuses a file that users other than root and the caller can write or replace. `file` is the file opened at `path`.
///
/// # Errors
/// Names the file or directory that permits it.
pub(super) fn check(path: &Path, file: &File) -> Result<(), String> {
    let opened = file.metadata().map_err(|error| error.to_string())?;
    let (place, found) = resolve(path)?;
    if (found.dev(), found.ino()) != (opened.dev(), opened.ino()) {
        return Err(format!("{} was replaced while it was opened", place.display()));
    }
    check_owner(&place, &opened)?;
    check_mode(&place, opened.mode())
}

/// Follows all links and checks every directory and link on the path. Only root and the caller can change what was
/// checked, so the result stays valid.
fn resolve(path: &Path) -> Result<(PathBuf, Metadata), String> {
    let failed = |path: &Path, error| format!("{}: {error}", path.display());
    let absolute = std::path::absolute(path).map_err(|error| failed(path, error))?;
    let mut place = PathBuf::from("/");
    let mut rest: Vec<OsString> = names(&absolute);
    let mut links = 0;
    check_directory(&place, &fs::symlink_metadata(&place).map_err(|error| failed(&place, error))?)?;
    while let Some(name) = rest.pop() {
        if name == ".." {
            place.pop();
            continue;
        }
        let next = place.join(name);
        let metadata = fs::symlink_metadata(&next).map_err(|error| failed(&next, error))?;
        if metadata.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                return Err(format!("{}: more than {LINKS_MAX} links", path.display()));
            }
            check_owner(&next, &metadata)?;
            let target = fs::read_link(&next).map_err(|error| failed(&next, error))?;
            if target.is_absolute() {
                place = PathBuf::from("/");
            }
            rest.extend(names(&target));
        } else if rest.is_empty() {
            return Ok((next, metadata));
        } else {
            check_directory(&next, &metadata)?;
            place = next;
        }
    }
    Err(format!("{} is a directory", path.display()))
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

fn check_directory(path: &Path, metadata: &Metadata) -> Result<(), String> {
    check_owner(path, metadata)?;
    // Entries of other users are refused when the walk reaches them.
    if metadata.mode() & STICKY != 0 { Ok(()) } else { check_mode(path, metadata.mode()) }
}

fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), String> {
    let (owner, caller) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner == 0 || owner == caller {
        return Ok(());
    }
    let who = if caller == 0 { String::new() } else { format!(" or user {caller}, who runs weir") };
    Err(format!("{} belongs to user {owner}, not to root{who}", path.display()))
}

fn check_mode(path: &Path, mode: u32) -> Result<(), String> {
    if mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    let mode = mode & 0o7777;
    Err(format!("{} can be written by others than its owner (mode {mode:04o}; `chmod go-w` it)", path.display()))
}
