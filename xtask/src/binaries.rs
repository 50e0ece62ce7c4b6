//! The test binaries, as cargo would run them.
//!
//! Cargo runs one test binary after another. `cargo xtask ci` runs several at once, and lets cargo only list them:
//! cargo calls this program under the name [`RUNNER`] (`target.runner`) instead of each binary. Under that name, the
//! program writes down the binary, its working directory and its environment.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Started under this name, this program writes down what it should run.
const RUNNER: &str = "list-instead-of-running";
/// The variable with the name of the package. Binaries are named by it.
const PACKAGE: &[u8] = b"CARGO_PKG_NAME=";

/// A test binary.
pub struct Binary {
    /// Package and file, without the hash of cargo: `weir live`.
    pub name: String,
    /// The command that cargo would run.
    pub command: Command,
}

/// The binaries that `cargo test` would run. They have the environment of `test`.
///
/// # Errors
/// A binary cannot be built, or `folder` is not writable.
pub fn list(test: &mut Command, folder: &Path) -> Result<Vec<Binary>, String> {
    let failed = |error: io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    let runner = folder.join(RUNNER);
    fs::copy(std::env::current_exe().map_err(failed)?, &runner).map_err(failed)?;
    test.arg("--config").arg(format!("target.'cfg(all())'.runner = ['{}']", runner.display()));
    crate::shell::run(test)?;
    let mut binaries = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path != runner {
            binaries.push(Binary::read(&fs::read(path).map_err(failed)?).ok_or("cargo named no binary")?);
        }
    }
    binaries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(binaries)
}

/// Writes down the binary in the arguments, if this program was called as [`RUNNER`].
pub fn called_as_runner() -> Option<ExitCode> {
    let program = std::env::current_exe().ok()?;
    if program.file_name()? != RUNNER {
        return None;
    }
    let binary = std::env::args_os().nth(1)?;
    let write = || {
        let path = fs::canonicalize(&binary)?;
        let file = path.file_name().unwrap_or(OsStr::new("none"));
        let folder = std::env::current_dir()?;
        let line = |text: &OsStr| [text.as_bytes(), b"\0"].concat();
        let environment = fs::read("/proc/self/environ")?;
        let run = [line(path.as_os_str()), line(folder.as_os_str()), environment].concat();
        fs::write(program.with_file_name(file), run)
    };
    Some(write().map_or_else(
        |error: io::Error| {
            eprintln!("{}: {error}", Path::new(&binary).display());
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

impl Binary {
    /// Reads path, working directory and environment. Each ends with a zero byte.
    fn read(run: &[u8]) -> Option<Self> {
        let mut parts = run.split(|byte| *byte == 0).filter(|part| !part.is_empty());
        let (path, folder) = (Path::new(OsStr::from_bytes(parts.next()?)), OsStr::from_bytes(parts.next()?));
        let mut command = Command::new(path);
        command.current_dir(folder);
        let mut package = "";
        for variable in parts {
            package = variable.strip_prefix(PACKAGE).and_then(|name| str::from_utf8(name).ok()).unwrap_or(package);
            let equals = variable.iter().position(|byte| *byte == b'=')?;
            let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            command.env(owned(&variable[..equals]), owned(&variable[equals + 1..]));
        }
        let file = path.file_name()?.to_str()?;
        let (name, _hash) = file.rsplit_once('-')?;
        Some(Binary { name: format!("{package} {name}"), command })
    }
}

#[cfg(test)]
mod tests {
    use super::Binary;
    use std::ffi::OsStr;
    use std::path::Path;

    #[test]
    fn a_binary_has_a_folder_and_an_environment() {
        let run = b"/target/live-9dfbee74\0/crates/weir\0CARGO_PKG_NAME=weir\0EMPTY=\0ARGS=a=b\0";
        let binary = Binary::read(run).expect("it is complete");
        assert_eq!(binary.name, "weir live");
        assert_eq!(binary.command.get_program(), "/target/live-9dfbee74");
        assert_eq!(binary.command.get_current_dir(), Some(Path::new("/crates/weir")));
        let variables: Vec<_> = binary.command.get_envs().collect();
        let expected = [("ARGS", "a=b"), ("CARGO_PKG_NAME", "weir"), ("EMPTY", "")];
        assert_eq!(variables, expected.map(|(name, value)| (OsStr::new(name), Some(OsStr::new(value)))));
        assert!(Binary::read(b"/target/live-9dfbee74\0").is_none());
    }
}
