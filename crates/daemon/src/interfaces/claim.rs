//! Claims on interfaces: at most one Weir and one guard use an interface.
//!
//! A claim is an exclusive lock (flock(2)) on a file in a directory that only the user of Weir may write to. The kernel
//! releases it when its holder ends for any reason.
//!
//! ```text
//!   /run/weir/net-4026531840-if-3          locked by `weir run` from before it reads its policy until it begins to end
//!   /run/weir/net-4026531840-if-3.guard    locked by its guard, until the link is as it should be
//!   /run/weir/port-0000:01:00.0            a card of DPDK
//! ```
//! An interface is identified by its network namespace and its index, because it may have several names. Each file
//! contains the process ID of its holder, which removes the file. A Weir that starts removes those that killed
//! processes have left, because an interface of a namespace that is gone is never claimed again. Virtual ports of DPDK
//! are not claimed: they belong to their process, even if another process has one of the same name. Reasons and limits
//! are in `docs/decisions/0018-claims.md`.

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fmt::{self, Display, Formatter};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::live::os::inherited::{Inherited, Kept};
use weir_engine::live::os::link::LinkSwitch;

/// The directory of claims.
pub const FOLDER: &str = "/run/weir";
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest time from a holder's lock until it has written its process ID, or has removed the file of a killed one.
const UNNAMED_MAX: Duration = Duration::from_millis(200);
/// Mode bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;
/// Mode bit that lets only the owner of a file rename it.
const STICKY: u32 = 0o1000;

/// What a claim is for: an interface, and the name of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimTarget {
    file: String,
    interface: String,
}

impl ClaimTarget {
    /// The targets of all the interfaces. Only DPDK ports may be unknown to the kernel.
    ///
    /// # Errors
    /// An interface does not exist, or two names are of the same interface.
    pub fn of<'a>(interfaces: impl Iterator<Item = &'a String>, ports: PortKind) -> Result<Vec<Self>, Failure> {
        let mut targets: Vec<ClaimTarget> = Vec::new();
        for interface in interfaces {
            let file = match (LinkSwitch::new(interface).index(), ports) {
                (Ok(index), _) => format!("net-{}-if-{index}", network_namespace()?),
                (Err(_), PortKind::Dpdk) if is_private(interface) => continue,
                (Err(_), PortKind::Dpdk) => format!("port-{}", interface.replace(|c| !is_plain(c), "_")),
                (Err(error), PortKind::Kernel) => return Err(error.into()),
            };
            if let Some(same) = targets.iter().find(|target| target.file == file) {
                return Err(Failure::Rejected(format!("weir: {} and {interface} are one interface", same.interface)));
            }
            targets.push(ClaimTarget { file, interface: interface.clone() });
        }
        Ok(targets)
    }
}

impl ClaimTarget {
    /// Refuses an interface that is given for another purpose, too.
    ///
    /// # Errors
    /// It is among `others`.
    pub fn refuse_shared(targets: &[Self], others: &[Self]) -> Result<(), Failure> {
        let shared = targets.iter().find(|target| others.iter().any(|other| other.file == target.file));
        shared.map_or(Ok(()), |ClaimTarget { interface, .. }| {
            Err(Failure::Rejected(format!("weir: interface {interface} is given for two purposes")))
        })
    }
}

/// The kind of interfaces that are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// Interfaces of the kernel.
    Kernel,
    /// Interfaces of the kernel, and cards without a kernel driver.
    Dpdk,
}

/// The format on the guard's command line: `net-4026531840-if-3=eth0`.
impl Display for ClaimTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.file, self.interface)
    }
}

impl FromStr for ClaimTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((file, interface)) if !file.is_empty() && file.chars().all(is_plain) => {
                Ok(ClaimTarget { file: file.to_owned(), interface: interface.to_owned() })
            }
            _ => Err("a claim is expected".to_owned()),
        }
    }
}

/// Whether the file name of a claim may contain a character.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | ':' | '.' | '_')
}

/// Whether it is a virtual port of DPDK. Their names begin with the name of a driver (`net_memif0`), as names of kernel
/// interfaces may too.
fn is_private(port: &str) -> bool {
    port.starts_with("net_")
}

/// The inode number of this thread's network namespace. It is unique among existing namespaces.
fn network_namespace() -> Result<u64, Failure> {
    const OWN: &str = "/proc/thread-self/ns/net";
    fs::metadata(OWN).map(|namespace| namespace.ino()).map_err(|error| Failure::file(Path::new(OWN), error))
}

/// The program that claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claimant {
    /// `weir run`
    Weir,
    /// `weir guard`
    Guard,
}

impl Claimant {
    fn suffix(self) -> &'static str {
        match self {
            Claimant::Weir => "",
            Claimant::Guard => ".guard",
        }
    }

    fn refusal(self) -> &'static str {
        match self {
            Claimant::Weir => "another weir has it",
            Claimant::Guard => "the guard of another weir still has it",
        }
    }
}

/// Claims on interfaces. They are released when dropped.
pub struct Claims {
    held: Vec<Claim>,
}

impl Claims {
    /// Claims the targets. Waits up to `patience` for other holders.
    ///
    /// # Errors
    /// Another process holds one of them, or there is no directory that only this user may write to.
    pub fn take(targets: &[ClaimTarget], claimant: Claimant, patience: Duration) -> Result<Self, Failure> {
        Self::take_in(Path::new(FOLDER), targets, claimant, patience)
    }

    fn take_in(
        folder: &Path,
        targets: &[ClaimTarget],
        claimant: Claimant,
        patience: Duration,
    ) -> Result<Self, Failure> {
        if targets.is_empty() {
            return Ok(Claims { held: Vec::new() });
        }
        prepare(folder)?;
        // Both of two that start at once lock in the same order, so that one gets all.
        let mut targets: Vec<&ClaimTarget> = targets.iter().collect();
        targets.sort_by(|a, b| a.file.cmp(&b.file));
        let start = Instant::now();
        let held = targets.into_iter().map(|target| {
            let path = folder.join(format!("{}{}", target.file, claimant.suffix()));
            loop {
                match Claim::attempt(&path).map_err(|error| Failure::file(&path, error))? {
                    Attempt::Claimed(claim) => return Ok(claim),
                    Attempt::Held { by } if start.elapsed() >= patience.max(settling(by)) => {
                        let holder = by.map_or_else(String::new, |pid| format!(" (pid {pid})"));
                        return Err(refused(target, claimant, &holder));
                    }
                    Attempt::Held { .. } => thread::sleep(PAUSE),
                }
            }
        });
        let held = held.collect::<Result<_, _>>()?;
        if claimant == Claimant::Weir {
            remove_stale(folder);
        }
        Ok(Claims { held })
    }
}

impl Claims {
    /// Hands the claims over to the next program in this process: the names of their files, and their descriptors.
    ///
    /// # Errors
    /// A descriptor cannot be kept.
    pub fn hand_over(&self, kept: &mut Kept) -> io::Result<Vec<(String, i32)>> {
        let name = |claim: &Claim| claim.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.held.iter().map(|claim| Ok((name(claim), kept.keep(claim.locked.as_fd())?))).collect()
    }

    /// Takes claims of the targets over from the program before this one in its process.
    ///
    /// # Errors
    /// One of them was not handed over, or is not a locked claim.
    pub fn continued(
        targets: &[ClaimTarget],
        handed: &[(String, i32)],
        inherited: &mut Inherited,
    ) -> Result<Self, Failure> {
        let held = targets.iter().map(|target| {
            let path = Path::new(FOLDER).join(&target.file);
            let failed = |why: &str| Failure::Runtime(format!("{}: {why}", path.display()));
            let number = handed.iter().find(|(file, _)| *file == target.file).map(|&(_, number)| number);
            let number = number.ok_or_else(|| failed("this claim was not handed over"))?;
            let file = File::from(inherited.take(number).map_err(|error| Failure::file(&path, error))?);
            // The lock belongs to the open file, so this process has it already.
            match file.try_lock().is_ok() && is_at(&file, &path) {
                true => Ok(Claim { path, locked: file }),
                false => Err(failed("the descriptor that was handed over is not this claim")),
            }
        });
        Ok(Claims { held: held.collect::<Result<_, _>>()? })
    }
}

/// How long a claim may still change its holder: one that does not run (here) may be a Weir that removes stale files.
fn settling(by: Option<u32>) -> Duration {
    let pid = by.and_then(|pid| Pid::from_raw(pid as i32));
    let runs = |pid: Pid| test_kill_process(pid) != Err(Errno::SRCH);
    if pid.is_some_and(runs) { Duration::ZERO } else { UNNAMED_MAX }
}

/// Removes the files of claims without a holder.
fn remove_stale(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_claim = |name: &str| name.starts_with("net-") || name.starts_with("port-");
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_claim)) {
        // A file that remains does no harm.
        let _stays = remove_if_stale(&entry.path());
    }
}

/// The file is locked while it is removed, as by its holder. A process that claims it meanwhile tries again.
fn remove_if_stale(path: &Path) -> io::Result<()> {
    let file = options().open(path)?;
    if file.try_lock().is_ok() && is_at(&file, path) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// No link is followed to a lock.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options
}

fn refused(target: &ClaimTarget, claimant: Claimant, holder: &str) -> Failure {
    Failure::Runtime(format!("interface {}: {}{holder}", target.interface, claimant.refusal()))
}

/// Creates the directory if it does not exist. Another user who could write to it could hold every claim.
pub fn prepare(folder: &Path) -> Result<(), Failure> {
    let own = rustix::process::geteuid().as_raw();
    let refused = |problem: &dyn Display| {
        let remedy = format!("claims on interfaces need a directory that only uid {own} can write to");
        let folder = folder.display();
        Failure::Runtime(format!("{folder}: {problem}; {remedy}: `install -d -m 700 -o {own} {folder}`"))
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(&error)),
        Ok(()) | Err(_) => {}
    }
    let parent = folder.parent().unwrap_or(Path::new("/"));
    let above = fs::metadata(parent).map_err(|error| Failure::file(parent, error))?;
    let others_rename = above.mode() & OTHERS_WRITE != 0 && above.mode() & STICKY == 0;
    if others_rename || ![0, own].contains(&above.uid()) {
        return Err(refused(&format_args!("other users may replace it (in {})", parent.display())));
    }
    let found = fs::symlink_metadata(folder).map_err(|error| refused(&error))?;
    if !found.is_dir() {
        return Err(refused(&"it is not a directory"));
    }
    if found.uid() != own {
        return Err(refused(&format_args!("it belongs to uid {}", found.uid())));
    }
    if found.mode() & OTHERS_WRITE != 0 {
        return Err(refused(&format_args!("other users may write to it (mode {:04o})", found.mode() & 0o7777)));
    }
    Ok(())
}

/// One claim. The file is removed while it is locked.
struct Claim {
    path: PathBuf,
    locked: File,
}

/// The result of an attempt.
enum Attempt {
    Claimed(Claim),
    /// Another process holds it. `None` if that has not written its process ID yet.
    Held {
        by: Option<u32>,
    },
}

impl Claim {
    fn attempt(path: &Path) -> io::Result<Attempt> {
        let mut file = options().create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) if is_at(&file, path) => {
                file.set_len(0)?;
                file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
                Ok(Attempt::Claimed(Claim { path: path.to_owned(), locked: file }))
            }
            // The previous holder has removed the file since it was opened.
            Ok(()) => Ok(Attempt::Held { by: None }),
            Err(TryLockError::WouldBlock) => {
                Ok(Attempt::Held { by: io::read_to_string(&file)?.trim_end().parse().ok() })
            }
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // If the file remains, the next claim reuses it.
        let _stays = fs::remove_file(&self.path);
    }
}

/// Whether the path still leads to this open file.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(found)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (open.dev(), open.ino()) == (found.dev(), found.ino())
}

#[cfg(test)]
mod tests;
