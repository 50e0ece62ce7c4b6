//! Bare Debian 12, made by debootstrap from the sources of this machine's apt.

use crate::shell::run;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The release, and the key that its archive is signed with.
const RELEASE: &str = "bookworm";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The last file that is written to a base.
const WHOLE: &str = "etc/apt/apt.conf.d/90trial";

/// A file system. It is removed when it is dropped.
pub struct Root(PathBuf);

impl Root {
    /// A copy of `folder`/base in `folder`/root. The base is made if there is none: essential packages and `packages`,
    /// which are separated by commas. `mirror` replaces the first one that apt has.
    ///
    /// # Errors
    /// There is no debootstrap, or the mirror does not answer.
    pub fn new(folder: &Path, packages: &str, mirror: Option<&str>) -> Result<Self, String> {
        let (base, copy) = (folder.join("base"), folder.join("root"));
        if !base.join(WHOLE).exists() {
            remove(&base)?;
            bootstrap(&base, packages, mirror)?;
        }
        remove(&copy)?;
        run(Command::new("cp").args(["--archive", "--reflink=auto"]).arg(&base).arg(&copy))?;
        let root = Root(copy);
        root.run("apt-get -qq update")?;
        Ok(root)
    }

    /// The path of a file here.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside.trim_start_matches('/'))
    }

    /// Writes a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn put(&self, inside: &str, text: &str) -> Result<(), String> {
        write(&self.path(inside), text)
    }

    /// Runs a line in the file system with the network of this machine, while it is not booted.
    ///
    /// # Errors
    /// It fails.
    pub fn run(&self, line: &str) -> Result<String, String> {
        let mut command = nspawn(&self.0);
        command.args(["--pipe", "--quiet", "--setenv=DEBIAN_FRONTEND=noninteractive", "sh", "-c", line]);
        told(line, &mut command)
            .and_then(|(succeeds, text)| if succeeds { Ok(text) } else { Err(format!("{line}: {text}")) })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // What remains is removed by the next trial.
        let _gone = remove(&self.0);
    }
}

/// Makes a file system with apt's settings.
fn bootstrap(base: &Path, packages: &str, mirror: Option<&str>) -> Result<(), String> {
    let sources = sources(mirror)?;
    let address = sources[0].split(' ').next().expect("a line has words");
    let mut make = Command::new("debootstrap");
    make.args(["--variant=minbase", &format!("--include={packages}"), &format!("--keyring={KEYRING}"), RELEASE]);
    run(make.arg(base).arg(address).stdout(Stdio::null()))?;
    // The file system is thrown away, so dpkg need not wait for the disk.
    write(&base.join("etc/dpkg/dpkg.cfg.d/trial"), "force-unsafe-io\n")?;
    let settings = said(Command::new("apt-config").args(["dump", "--no-empty", "Acquire"]))?;
    let proxies = settings.lines().filter(|line| line.contains("::Proxy ")).map(|line| format!("{line}\n"));
    let lines: String = sources.iter().map(|line| format!("deb [signed-by={KEYRING}] {line}\n")).collect();
    write(&base.join("etc/apt/sources.list"), &lines)?;
    write(&base.join(WHOLE), &proxies.collect::<String>())
}

/// systemd-nspawn with a file system.
pub fn nspawn(root: &Path) -> Command {
    let mut command = Command::new("systemd-nspawn");
    // This machine may have no service manager that counts containers.
    command.args(["--register=no", "--keep-unit", "--directory"]).arg(root);
    command
}

/// The sources of Debian's release in this machine's apt, as `ADDRESS SUITE COMPONENT`, the release itself first.
fn sources(mirror: Option<&str>) -> Result<Vec<String>, String> {
    let policy = said(Command::new("apt-cache").arg("policy").env("LC_ALL", "C"))?;
    let mut found: Vec<String> = Vec::new();
    for line in policy.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, address, suite, _, "Packages"] = words[..]
            && let Some((suite, "main")) = suite.split_once('/')
            && suite.starts_with(RELEASE)
        {
            found.push(format!("{address} {suite} main"));
        }
    }
    found.sort_by_key(|line| !line.contains(&format!(" {RELEASE} ")));
    if let Some(mirror) = mirror {
        found.retain(|line| !line.contains(&format!(" {RELEASE} ")));
        found.insert(0, format!("{mirror} {RELEASE} main"));
    }
    let first = found.first().is_some_and(|line| line.contains(&format!(" {RELEASE} ")));
    if first { Ok(found) } else { Err(format!("apt has no source of {RELEASE}: use --mirror")) }
}

/// Prints a line and what it says. Returns whether it succeeds, and the text.
///
/// # Errors
/// It does not run.
pub fn told(line: &str, command: &mut Command) -> Result<(bool, String), String> {
    println!("  # {line}");
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{line}: {error}"))?;
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    // nspawn complains if /run is on a disk.
    let lines = text.lines().filter(|line| !line.starts_with("Attempted to remove disk file system"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    text.lines().for_each(|line| println!("    {line}"));
    Ok((output.status.success(), text))
}

/// What a command prints.
///
/// # Errors
/// It does not run.
pub fn said(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{name}: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Removes a folder, if there is one.
///
/// # Errors
/// It stays.
pub fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", folder.display())),
        Ok(()) | Err(_) => Ok(()),
    }
}
