//! Stamps of files. They show that a file has changed without reading it.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Identity, length and times of a file. A file that is rewritten or replaced has another stamp, unless this happens
/// within the resolution of the file system's clock (a few milliseconds) and keeps the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The stamps of files when they were read, by path.
pub type Stamps = HashMap<PathBuf, Stamp>;

impl Stamp {
    /// The stamp of a file.
    pub fn of(file: &Metadata) -> Self {
        Stamp {
            device: file.dev(),
            inode: file.ino(),
            bytes: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}
