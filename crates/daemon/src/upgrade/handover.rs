//! Hands over to the new program: writes what it needs, and executes it in this process.

use super::format::{FORMAT, VERSION};
use super::trying::Plan;
use crate::door::Door;
use crate::generations::carried::HandedLedger;
use crate::generations::generation::Loader;
use crate::generations::succession::HandedSuccession;
use crate::interfaces::claim::{self, Claims};
use crate::interfaces::guard::{Guard, Handed};
use crate::notify::Reloading;
use crate::server::Server;
use crate::signals::Flags;
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGUSR2};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_engine::live::HandedLink;
use weir_engine::live::os::inherited::{Ignored, Kept};
use weir_state::handover::StateHandover;
use weir_state::saved::Folder;

/// The file with the description, in the folder of an upgrade.
pub const DESCRIPTION: &str = "handed.json";
/// The folder of the state beside it.
pub const STATE: &str = "state";

/// What the new program gets. Descriptors are numbers of this process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Description {
    pub format: u32,
    pub from_version: String,
    /// Upgrades of this process, with this one.
    pub upgrades: u64,
    /// All descriptors that are kept open.
    pub descriptors: Vec<i32>,
    /// The files of claims.
    pub claims: Vec<(String, i32)>,
    /// The listener of the control socket.
    pub control: i32,
    pub guard: Handed,
    /// The links of programs in the kernel; `None` for an engine in user space.
    pub links: Option<Vec<HandedLink>>,
    pub counts: HandedLedger,
    pub state: StateHandover,
    pub succession: HandedSuccession,
    /// The policies of generations in use.
    pub policies: Vec<(u64, PathBuf)>,
    pub flows_from_file: bool,
    pub missing: Vec<String>,
}

/// The folder of an upgrade of this process. No other process has the same number and the same time of its start.
///
/// # Errors
/// The kernel does not say when this process has started.
pub fn folder() -> io::Result<PathBuf> {
    /// Fields after the name in proc_pid_stat(5): the time of the start is field 22.
    const STARTED: usize = 22 - 3;
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
    let started = after_name.split_whitespace().nth(STARTED);
    let started = started.ok_or_else(|| io::Error::other("/proc/self/stat has too few fields"))?;
    Ok(Path::new(claim::FOLDER).join(format!("upgrade-{}-{started}", std::process::id())))
}

/// Removes folders that processes have left which ended during an upgrade. A process of another PID namespace may use
/// the same place and cannot be seen from here, so young folders stay.
pub fn remove_stale() {
    const YOUNG: Duration = Duration::from_secs(3600);
    let is_stale = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("upgrade-").and_then(|rest| rest.split('-').next()?.parse::<i32>().ok());
        let pid = pid.and_then(Pid::from_raw);
        let age = entry.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
        pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) && age.is_some_and(|age| age > YOUNG)
    };
    let entries = fs::read_dir(claim::FOLDER).into_iter().flatten().flatten();
    // A folder that remains does no harm.
    entries.filter(is_stale).for_each(|entry| _ = fs::remove_dir_all(entry.path()));
}

/// What the main loop hands over.
pub struct Ends<'a, L: Loader> {
    pub door: &'a Door<L>,
    pub guard: &'a Guard,
    pub claims: &'a Claims,
    pub server: &'a Server,
    pub flags: &'a Flags,
    /// What parts hand over, by name.
    pub handed: Vec<(String, Vec<u8>)>,
    /// Upgrades of this process so far.
    pub upgrades: u64,
}

/// Why there is no new program.
pub struct NotUpgraded {
    pub failure: Failure,
    /// Whether the datapath was stopped, so that this program ends.
    pub is_stopped: bool,
}

/// Executes the new program. Returns only if that fails.
pub fn hand_over<L: Loader>(plan: Plan, ends: &Ends<'_, L>) -> NotUpgraded {
    let mut is_stopped = false;
    let failure = match attempt(plan, ends, &mut is_stopped) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    if let Ok(folder) = folder() {
        let _gone = fs::remove_dir_all(folder);
    }
    if !is_stopped {
        ends.door.reopen();
    }
    NotUpgraded { failure, is_stopped }
}

/// A value that does not exist.
enum Never {}

fn attempt<L: Loader>(plan: Plan, ends: &Ends<'_, L>, is_stopped: &mut bool) -> Result<Never, Failure> {
    let refused = |why: &str| Failure::Runtime(why.to_owned());
    let controller = &ends.door.controller;
    if !ends.door.shut() {
        return Err(refused("a change takes too long; try again"));
    }
    let (now, _) = controller.succession();
    let is_as_tried = (&now.confirmed, &now.trial.as_ref().map(|(active, _)| active))
        == (&plan.succession.confirmed, &plan.succession.trial.as_ref().map(|(active, _)| active));
    if !is_as_tried {
        return Err(refused("another policy was activated while the new program was tried; try again"));
    }
    let mut kept = Kept::default();
    let failed = |error: io::Error| Failure::system("what is handed over", error);
    let path = controller.hand_over(&mut kept).map_err(failed)?;
    let flows_from_file = path.is_none() || !plan.same_layout;
    if path.is_none() {
        *is_stopped = true;
        ends.guard.before_stop();
        thread::scope(|scope| {
            scope.spawn(|| ends.guard.open_early());
            controller.stop()
        })?;
    }
    let claims = ends.claims.hand_over(&mut kept).map_err(failed)?;
    let control = ends.server.hand_over(&mut kept).map_err(failed)?;
    let guard = ends.guard.hand_over(&mut kept).map_err(failed)?;
    let folder = prepare_folder().map_err(failed)?;
    ends.door.loader.shared().additions().collect(weir_state::now_ns());
    let state = ends.door.loader.shared().hand_over(&mut |fd| kept.keep(fd)).map_err(failed)?;
    write_state(&folder, ends, flows_from_file)?;
    ends.handed.iter().try_for_each(|(name, bytes)| write(&folder.join(part_file(name)), bytes)).map_err(failed)?;
    // Late, so that the new program has little to make up for.
    let (counts, links) = controller.hand_over_counts(path);
    let description = Description {
        format: FORMAT,
        from_version: VERSION.to_owned(),
        upgrades: ends.upgrades + 1,
        descriptors: kept.numbers().to_vec(),
        claims,
        control,
        guard,
        links,
        counts,
        state,
        succession: HandedSuccession { next: now.next, automatic: now.automatic, ..plan.succession },
        policies: plan.policies,
        flows_from_file,
        missing: plan.missing,
    };
    let description = serde_json::to_vec(&description).map_err(|error| refused(&error.to_string()))?;
    write(&folder.join(DESCRIPTION), &description).map_err(failed)?;
    if ends.flags.is_stopped() {
        return Err(refused("weir was told to end"));
    }
    let _reloading = Reloading::begin_upgrade();
    // The new program must not end by signals that it does not catch yet.
    let _ignored = Ignored::until_dropped(&[SIGHUP, SIGUSR2]);
    let error = Command::new(&plan.program).args(std::env::args_os().skip(1)).exec();
    Err(Failure::Runtime(format!("{}: {error}", plan.program.display())))
}

/// Makes the folder anew.
fn prepare_folder() -> io::Result<PathBuf> {
    let folder = folder()?;
    claim::prepare(Path::new(claim::FOLDER)).map_err(|failure| io::Error::other(failure.message()))?;
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&folder)?;
    Ok(folder)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}

/// The file of what a part hands over.
pub fn part_file(name: &str) -> String {
    format!("part-{name}")
}

/// Writes what is not in maps that are handed over.
fn write_state<L: Loader>(folder: &Path, ends: &Ends<'_, L>, with_flows: bool) -> Result<(), Failure> {
    let (shared, active) = (ends.door.loader.shared(), ends.door.controller.active());
    let path = folder.join(STATE);
    let opened = Folder::open(&path).map_err(|problem| Failure::Runtime(format!("{}: {problem}", path.display())))?;
    let needs = active.program().flow_needs();
    let table = needs.as_ref().filter(|_| with_flows).and_then(|needs| shared.flows(needs));
    let flows = table.as_ref().zip(needs.as_ref().map(|needs| &needs.timeouts));
    weir_state::saved::handover::write(opened, shared, active.tables(), flows)
        .map_err(|error| Failure::file(&path, error))
}
