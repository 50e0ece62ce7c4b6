//! Recordings: snapshots as JSON lines.

use crate::{Error, Snapshot};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;

/// Maximum number of snapshots of a recording that is played: a day of one each second.
const SNAPSHOTS_MAX: usize = 86_400;
/// Maximum length of a line. Weir with a thousand rules says about half a megabyte.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Snapshots in the order in which they were taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The snapshots; at least one.
    pub snapshots: Vec<Snapshot>,
    /// Whether the last line is not complete, because the recorder was stopped while it wrote.
    pub is_cut: bool,
}

impl Recording {
    /// Reads a recording. A last line without its line feed is left out.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not a snapshot, or there is none.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let mut reader = BufReader::new(File::open(path).map_err(failed)?);
        let mut recording = Recording::default();
        for number in 1..=SNAPSHOTS_MAX {
            let mut line = String::new();
            reader.by_ref().take(LINE_BYTES_MAX).read_line(&mut line).map_err(failed)?;
            if line.is_empty() {
                break;
            }
            match serde_json::from_str(&line) {
                Ok(snapshot) => recording.snapshots.push(snapshot),
                Err(_) if !line.ends_with('\n') => recording.is_cut = true,
                Err(source) => return Err(Error::NotASnapshot { path: path.to_owned(), line: number, source }),
            }
        }
        if recording.snapshots.is_empty() {
            return Err(Error::Empty { path: path.to_owned() });
        }
        Ok(recording)
    }
}

/// Appends snapshots to a file. Each line is written at once, so a recorder that is stopped leaves whole lines.
pub struct Recorder {
    file: File,
    path: std::path::PathBuf,
}

impl Recorder {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let file = File::create(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        Ok(Recorder { file, path: path.to_owned() })
    }

    /// Writes a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let written = self.file.write_all(line(snapshot).as_bytes());
        written.map_err(|source| Error::File { path: self.path.clone(), source })
    }
}

/// A snapshot as a line.
pub fn line(snapshot: &Snapshot) -> String {
    serde_json::to_string(snapshot).expect("a snapshot is JSON") + "\n"
}

#[cfg(test)]
mod tests {
    use super::{Recorder, Recording};
    use crate::{Error, Snapshot};
    use std::fs;

    #[test]
    fn a_recording_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("top.jsonl");
        let snapshots = [1.5, 2.5].map(|time_s| Snapshot { time_s, ..Snapshot::default() });
        let mut recorder = Recorder::create(&path).expect("a file");
        snapshots.iter().for_each(|snapshot| recorder.write(snapshot).expect("it is written"));
        let read = Recording::read(&path).expect("a recording");
        assert_eq!(read, Recording { snapshots: snapshots.to_vec(), is_cut: false });
        // The recorder was killed in the middle of a line.
        let text = fs::read_to_string(&path).expect("a text") + "{\"time_s\":3";
        fs::write(&path, text).expect("it is written");
        assert_eq!(Recording::read(&path).expect("a recording").snapshots.len(), 2);
        assert!(Recording::read(&path).expect("a recording").is_cut);
    }

    #[test]
    fn what_is_no_recording_is_refused_with_the_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("top.jsonl");
        fs::write(&path, "{\"time_s\":1}\n{\"time\":1}\n").expect("it is written");
        assert!(matches!(Recording::read(&path), Err(Error::NotASnapshot { line: 2, .. })));
        fs::write(&path, "").expect("it is written");
        assert!(matches!(Recording::read(&path), Err(Error::Empty { .. })));
    }
}
