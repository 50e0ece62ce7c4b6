//! Opens a file of saved state for reading, whatever lies at its place.
//!
//! A file is read if it is a regular file of root or of the caller, if no other user can write it, and if it is not
//! larger than Weir makes such files. Opening never waits and follows no link. A file with a second name (a hard link)
//! is read too: its owner and mode decide who can write it by that name.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, Take};
use std::os::unix::fs::FileExt;
use std::time::UNIX_EPOCH;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::frame::HEADER_BYTES;
use crate::owner;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 16;
/// The largest file that is read: more than six times the flows of the largest table, over IPv6 and proxied. Other
/// files are smaller. Files are read piece by piece, so this bounds time and not memory.
const FILE_BYTES_MAX: i64 = 1 << 36;

/// An open file. It is read up to the end that it had when it was opened.
pub(super) struct StateFile {
    file: File,
    bytes: u64,
    modified_ns: u64,
}

/// Reads a file from its beginning.
pub(super) type Reader<'a> = BufReader<Take<&'a File>>;

/// Opens a file of a folder. `None` if there is none.
///
/// # Errors
/// Says why it must not or cannot be read.
pub(super) fn open(directory: &File, name: &str) -> Result<Option<StateFile>, String> {
    let failed = |errno: Errno| io::Error::from(errno).to_string();
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        // Opening a device has effects, so this comes first.
        Ok(found) => check(&found)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(errno)),
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(directory, name, flags, Mode::empty()).map_err(failed)?;
    let opened = fstat(&file).map_err(failed)?;
    check(&opened)?;
    let file = File::from(file);
    let modified = file.metadata().and_then(|metadata| metadata.modified()).map_err(|error| error.to_string())?;
    let modified_ns = modified.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    Ok(Some(StateFile { file, bytes: opened.st_size as u64, modified_ns }))
}

/// Refuses what is no regular file, what others can have written, and what is too large.
///
/// # Errors
/// Says which.
pub(super) fn check(found: &Stat) -> Result<(), String> {
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Symlink => Some("a link"),
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        _ => Some("a device"),
    };
    if let Some(kind) = kind {
        return Err(format!("it is {kind}, not a regular file"));
    }
    owner::check_written("it", found.st_uid, found.st_mode).map_err(|distrust| distrust.to_string())?;
    match found.st_size > FILE_BYTES_MAX {
        true => Err(format!("it has {} bytes, and at most {FILE_BYTES_MAX} are read", found.st_size)),
        false => Ok(()),
    }
}

impl StateFile {
    /// Its bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The time of its last change when it was opened, in nanoseconds since 1970.
    pub fn modified_ns(&self) -> u64 {
        self.modified_ns
    }

    /// Reads it from the beginning.
    pub fn reader(&self) -> io::Result<Reader<'_>> {
        let mut file = &self.file;
        file.rewind()?;
        Ok(BufReader::with_capacity(READ_BYTES, file.take(self.bytes)))
    }

    /// The bytes of its header, or fewer if there are not so many.
    pub fn head(&self) -> Vec<u8> {
        let mut head = vec![0; HEADER_BYTES.min(self.bytes as usize)];
        // What cannot be read is no header.
        if self.file.read_exact_at(&mut head, 0).is_err() {
            head.clear();
        }
        head
    }
}
