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
//! contains the process ID of its holder, which removes the file. Virtual ports of DPDK are not claimed: they belong to
//! their process, even if another process has one of the same name. Reasons and limits are in
//! `docs/decisions/0018-claims.md`.

use crate::failure::Failure;
use rustix::fs::OFlags;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};
use weir_engine::live::link::LinkSwitch;

/// The directory of claims.
const FOLDER: &str = "/run/weir";
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// Longest time from a holder's lock until it has written its process ID.
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

/// Whether it is a virtual port of DPDK. Their names begin with the name of a driver (`net_memif0`), as those of kernel
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
    _held: Vec<Claim>,
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
            return Ok(Claims { _held: Vec::new() });
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
                    Attempt::Held { by: Some(pid) } if start.elapsed() >= patience => {
                        return Err(refused(target, claimant, &format!(" (pid {pid})")));
                    }
                    Attempt::Held { by: None } if start.elapsed() >= patience.max(UNNAMED_MAX) => {
                        return Err(refused(target, claimant, ""));
                    }
                    Attempt::Held { .. } => thread::sleep(PAUSE),
                }
            }
        });
        Ok(Claims { _held: held.collect::<Result<_, _>>()? })
    }
}

fn refused(target: &ClaimTarget, claimant: Claimant, holder: &str) -> Failure {
    Failure::Runtime(format!("interface {}: {}{holder}", target.interface, claimant.refusal()))
}

/// Creates the directory if it does not exist. Another user who could write to it could hold every claim.
fn prepare(folder: &Path) -> Result<(), Failure> {
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
    _locked: File,
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
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)?;
        match file.try_lock() {
            Ok(()) if is_at(&file, path) => {
                file.set_len(0)?;
                file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
                Ok(Attempt::Claimed(Claim { path: path.to_owned(), _locked: file }))
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
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use tempfile::TempDir;

    fn target(file: &str, interface: &str) -> ClaimTarget {
        ClaimTarget { file: file.to_owned(), interface: interface.to_owned() }
    }

    fn take(folder: &Path, targets: &[ClaimTarget]) -> Result<Claims, Failure> {
        Claims::take_in(folder, targets, Claimant::Weir, Duration::ZERO)
    }

    fn refusal(folder: &Path, targets: &[ClaimTarget]) -> String {
        take(folder, targets).err().expect("it is refused").message().to_owned()
    }

    /// A directory for claims, and its parent.
    fn folder() -> (TempDir, PathBuf) {
        let above = tempfile::tempdir().expect("a folder");
        let folder = above.path().join("weir");
        (above, folder)
    }

    #[test]
    fn a_claim_is_held_until_it_is_released() {
        let (_above, folder) = folder();
        let (one, both) = ([target("net-1-if-3", "b")], [target("net-1-if-3", "b"), target("net-1-if-2", "a")]);
        let held = take(&folder, &one).expect("nobody has it");
        assert_eq!(fs::metadata(&folder).expect("it was made").mode() & 0o7777, 0o700);
        assert_eq!(refusal(&folder, &both), format!("interface b: another weir has it (pid {})", std::process::id()));
        assert!(!folder.join("net-1-if-2").exists(), "nothing of the other is left");
        let _guard = Claims::take_in(&folder, &one, Claimant::Guard, Duration::ZERO).expect("guards have their own");
        let (own, long) = (folder.clone(), Duration::from_secs(30));
        let waiting = thread::spawn(move || Claims::take_in(&own, &both, Claimant::Weir, long).is_ok());
        drop(held);
        assert!(waiting.join().expect("it ends"));
        let left: Vec<_> =
            fs::read_dir(&folder).expect("it is there").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["net-1-if-3.guard"]);
        let guard = Claims::take_in(&folder, &one, Claimant::Guard, Duration::ZERO).err().expect("there is one");
        assert!(guard.message().starts_with("interface b: the guard of another weir still has it (pid "), "{guard}");
    }

    #[test]
    fn the_claim_of_a_killed_process_can_be_taken() {
        let (_above, folder) = folder();
        DirBuilder::new().mode(0o755).create(&folder).expect("it can be made");
        fs::write(folder.join("net-1-if-3"), "4194304\n").expect("a file");
        let held = take(&folder, &[target("net-1-if-3", "b")]).expect("nobody has a lock");
        let text = fs::read_to_string(folder.join("net-1-if-3")).expect("it is there");
        assert_eq!(text, format!("{}\n", std::process::id()));
        drop(held);
    }

    #[test]
    fn only_one_of_many_holds_a_claim() {
        let (_above, folder) = folder();
        let held = std::sync::atomic::AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(claims) = take(&folder, &[target("net-1-if-3", "b")]) else { continue };
                        assert_eq!(held.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        drop(claims);
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_that_others_could_write_to_is_refused() {
        let (above, folder) = folder();
        let set = |path: &Path, mode: u32| fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
        let one = [target("net-1-if-3", "b")];
        let says = |words: &str| {
            let said = refusal(&folder, &one);
            let remedy = format!("install -d -m 700 -o {} ", rustix::process::geteuid());
            assert!(said.contains(words) && said.contains(&remedy), "{said}");
        };
        drop(take(&folder, &one).expect("it can be made"));
        for mode in [0o777, 0o720, 0o1777, 0o702] {
            set(&folder, mode);
            says(&format!("other users may write to it (mode {mode:04o})"));
        }
        set(&folder, 0o755);
        drop(take(&folder, &one).expect("others may only look"));
        for mode in [0o777, 0o775] {
            set(above.path(), mode);
            says("other users may replace it");
        }
        set(above.path(), 0o1777);
        drop(take(&folder, &one).expect("as in /tmp, nobody may rename what is ours"));
        if rustix::process::geteuid().is_root() {
            chown(&folder, Some(65534), None).expect("root may");
            says("it belongs to uid 65534");
            chown(&folder, Some(0), None).expect("root may");
        }
        let elsewhere = above.path().join("elsewhere");
        fs::rename(&folder, &elsewhere).expect("it is ours");
        symlink(&elsewhere, &folder).expect("it is ours");
        says("it is not a directory");
        fs::remove_file(&folder).expect("it is ours");
        fs::write(&folder, "").expect("it is ours");
        says("it is not a directory");
    }

    #[test]
    fn no_link_is_followed_to_a_lock() {
        let (above, folder) = folder();
        DirBuilder::new().mode(0o700).create(&folder).expect("it can be made");
        let victim = above.path().join("victim");
        fs::write(&victim, "untouched").expect("a file");
        symlink(&victim, folder.join("net-1-if-3")).expect("it is ours");
        assert!(refusal(&folder, &[target("net-1-if-3", "b")]).contains("net-1-if-3: "));
        assert_eq!(fs::read_to_string(&victim).expect("it is there"), "untouched");
    }

    #[test]
    fn an_interface_is_known_by_namespace_and_index() {
        let of = |ports: &[&str], whose: PortKind| {
            let ports: Vec<String> = ports.iter().map(|&port| port.to_owned()).collect();
            ClaimTarget::of(ports.iter(), whose)
        };
        let lo = of(&["lo"], PortKind::Kernel).expect("every machine has it");
        let namespace = network_namespace().expect("there is one");
        assert_eq!(lo, [target(&format!("net-{namespace}-if-1"), "lo")]);
        assert_eq!(lo[0].to_string().parse(), Ok(lo[0].clone()));
        let twice = of(&["lo", "lo"], PortKind::Kernel).expect_err("it is one").to_string();
        assert_eq!(twice, "weir: lo and lo are one interface");
        let lo = of(&["lo"], PortKind::Kernel).expect("it is there");
        assert!(ClaimTarget::refuse_shared(&lo, &[]).is_ok());
        let shared = ClaimTarget::refuse_shared(&lo, &lo).expect_err("it is the same").to_string();
        assert_eq!(shared, "weir: interface lo is given for two purposes");
        let missing = of(&["weir-none"], PortKind::Kernel).expect_err("there is none").to_string();
        assert!(missing.starts_with("weir: interface weir-none: "), "{missing}");
        for text in ["", "=lo", "lo", "../x=lo"] {
            assert!(text.parse::<ClaimTarget>().is_err(), "{text}");
        }
    }

    #[test]
    fn virtual_ports_of_dpdk_are_private_and_cards_are_not() {
        let ports = ["net_memif0", "0000:fe:1f.7", "a/b", "lo"].map(str::to_owned);
        let targets = ClaimTarget::of(ports.iter(), PortKind::Dpdk).expect("each is another");
        assert_eq!(targets[..2], [target("port-0000:fe:1f.7", "0000:fe:1f.7"), target("port-a_b", "a/b")]);
        assert!(targets[2].file.starts_with("net-"), "{targets:?}");
    }
}
