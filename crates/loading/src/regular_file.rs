//! Opens regular files. Other files, which could block or never end, are refused before they are opened.

use rustix::fs::OFlags;
use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Opens a regular file for reading, without blocking.
///
/// # Errors
/// The file is not regular, or cannot be opened.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening a device may already have an effect.
    check(path)?;
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    // The file may have been replaced after the check.
    check_kind(file.metadata()?.file_type())?;
    Ok(file)
}

/// Checks that a path leads to a regular file.
///
/// # Errors
/// The file is not regular, or does not exist.
pub fn check(path: &Path) -> io::Result<()> {
    check_kind(fs::metadata(path)?.file_type())
}

fn check_kind(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a directory",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("is {what}, not a regular file")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "x").expect("the folder can be written to");
        std::os::unix::fs::symlink("file", at("link")).expect("the folder can be written to");
        std::os::unix::fs::symlink("loop", at("loop")).expect("the folder can be written to");
        let _socket = UnixListener::bind(at("socket")).expect("the folder can be written to");
        assert!(Command::new("mkfifo").arg(at("pipe")).status().expect("coreutils").success());
        for name in ["file", "link"] {
            open(&at(name)).expect("it is a file");
        }
        let refusal = |path: &Path| open(path).expect_err("it is no file").to_string();
        assert_eq!(refusal(&at("pipe")), "is a pipe, not a regular file");
        assert_eq!(refusal(&at("socket")), "is a socket, not a regular file");
        assert_eq!(refusal(folder.path()), "is a directory, not a regular file");
        assert_eq!(refusal(Path::new("/dev/zero")), "is a device, not a regular file");
        assert!(refusal(&at("loop")).contains("symbolic links"), "{}", refusal(&at("loop")));
        assert!(refusal(&at("none")).contains("No such file"), "{}", refusal(&at("none")));
    }
}
