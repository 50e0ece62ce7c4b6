//! Who could have put a file where it is: owner and mode of the file, and of every directory and link on the way to it.
//!
//! As sshd's `StrictModes`, and links are followed one by one, so that a link in somebody else's directory counts too. Users here are root and who
//! runs Weir: these can do with the process what they want anyway. Access control lists need no extra look: what they give to others shows in the
//! group's bits.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// Links on the way to a file, as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// Who may write besides the owner.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// In such a directory only the owner of an entry can remove or replace it, as in /tmp.
const STICKY: u32 = 0o1000;

/// Refuses a file that others than root and the caller can write, or put another in the place of. `file` is what was opened at `path`.
///
/// # Errors
/// Which file or directory lets them.
pub(super) fn check(path: &Path, file: &File) -> Result<(), String> {
    let opened = file.metadata().map_err(|error| error.to_string())?;
    let (place, found) = resolve(path)?;
    if (found.dev(), found.ino()) != (opened.dev(), opened.ino()) {
        return Err(format!("{} was replaced while it was opened", place.display()));
    }
    check_owner(&place, &opened)?;
    check_mode(&place, opened.mode())
}

/// The file at the end of all links, after a look at every directory and link that leads there. Nobody but root and the caller can change what was
/// looked at, so that it stays as it was.
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

/// The names of a path, the last one first.
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
    // Entries of others are refused when it is their turn.
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
