//! The file system of a guest: an archive that the kernel unpacks into memory (cpio(5), "new ASCII format").
//!
//! ```text
//! "070701" and 13 numbers of 8 hexadecimal digits | name, zero, padding to 4 | content, padding to 4      for each file
//! ```

use crate::shell::{self, run};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Types of files in their modes.
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

/// An archive that is being written.
pub struct Image {
    bytes: Vec<u8>,
    /// Files and folders so far.
    names: BTreeSet<PathBuf>,
    /// A folder for programs without their debugging information.
    stripped: PathBuf,
}

impl Image {
    /// An empty archive. `stripped` is a folder for temporary files.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(stripped: &Path) -> Result<Self, String> {
        fs::create_dir_all(stripped).map_err(|error| format!("{}: {error}", stripped.display()))?;
        Ok(Image { bytes: Vec::new(), names: BTreeSet::new(), stripped: stripped.to_owned() })
    }

    /// Adds a folder and those that it is in.
    pub fn folder(&mut self, path: &str) {
        let path = Path::new(path);
        for folder in path.ancestors().collect::<Vec<_>>().into_iter().rev().filter(|folder| folder.parent().is_some())
        {
            self.put(folder, FOLDER | 0o755, &[]);
        }
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, content: &[u8], mode: u32) {
        self.folder(&Path::new(path).parent().expect("a file is in a folder").to_string_lossy());
        self.put(Path::new(path), FILE | mode, content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) {
        self.folder(&Path::new(path).parent().expect("a file is in a folder").to_string_lossy());
        self.put(Path::new(path), LINK | 0o777, to.as_bytes());
    }

    /// Adds a program of this machine with its libraries, at their paths and without debugging information.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn program(&mut self, path: &Path) -> Result<(), String> {
        let output = Command::new("ldd").arg(path).output().map_err(|error| format!("ldd: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let libraries = text.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
        for file in libraries.chain([path]) {
            if self.names.contains(file) {
                continue;
            }
            let stripped = self.stripped.join(file.file_name().expect("it has a name"));
            run(Command::new("objcopy").arg("--strip-debug").arg(file).arg(&stripped))?;
            self.file(&file.to_string_lossy(), &shell::read(&stripped)?, 0o755);
        }
        Ok(())
    }

    /// The archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn put(&mut self, path: &Path, mode: u32, content: &[u8]) {
        if self.names.insert(path.to_owned()) {
            let name = path.to_string_lossy();
            self.entry(name.trim_start_matches('/'), mode, content);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        let inode = self.names.len() as u32;
        let (length, name_length) = (content.len() as u32, name.len() as u32 + 1);
        // inode, mode, uid, gid, links, time, length, device (2), device of a device file (2), length of the name, sum
        let numbers = [inode, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        self.bytes.extend(b"070701");
        numbers.iter().for_each(|number| self.bytes.extend(format!("{number:08x}").bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Image;

    #[test]
    fn an_archive_has_each_folder_once_and_an_end() {
        let folder = std::env::temp_dir();
        let mut image = Image::new(&folder).expect("there is one");
        image.file("/a/b", b"12345", 0o644);
        image.link("/a/c", "b");
        let bytes = image.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).expect("these are ASCII");
        assert_eq!(text.matches("070701").count(), 4);
        let file = format!("070701{:08x}{:08x}", 2, 0o100_644);
        let at = text.find(&file).expect("it is there");
        // Header and name take 114 bytes, and two to a multiple of four.
        assert_eq!(&text[at + 110..at + 124], "a/b\0\0\x0012345\0\0\0");
        assert!(text.ends_with("TRAILER!!!\0\0\0\0"));
    }
}
