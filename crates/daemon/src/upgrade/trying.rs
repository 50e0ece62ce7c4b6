//! Tries whether a new program can run what is loaded, in a child process, before anything changes.

use super::format::{FORMAT, VERSION};
use crate::generations::controller::Controller;
use crate::generations::generation::{Generation, KernelLoader, Loader, NativeLoader};
use crate::generations::succession::HandedSuccession;
use crate::interfaces;
use crate::options::RunOptions;
use crate::parts::hybrid;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use weir_abi::ABI_VERSION;
use weir_command::failure::Failure;
use weir_command::report;
use weir_engine::live::Datapath;
use weir_engine::live::xdp::Ports;

/// Longest time for the new program to load the policies.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);
/// What is read of the new program's output.
const OUTPUT_BYTES: u64 = 1 << 16;
/// Mode bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;

/// What the new program says when it has loaded all policies.
#[derive(Debug, Serialize, Deserialize)]
struct Tried {
    /// The format that it reads.
    upgrade: u32,
    /// The version of its layouts.
    abi: u32,
    version: String,
}

/// An upgrade that was tried.
pub struct Plan {
    /// The new program.
    pub program: PathBuf,
    /// The operator's decisions when it was tried, without what cannot be carried over.
    pub succession: HandedSuccession,
    /// The policies of the generations in use.
    pub policies: Vec<(u64, PathBuf)>,
    /// Whether the new program has the same layouts in memory, so that it can use the maps of this one.
    pub same_layout: bool,
    /// What will not be carried over, in words.
    pub missing: Vec<String>,
}

/// Lets the new program load the policies in use.
///
/// # Errors
/// Why it cannot take over.
pub fn plan<D: Datapath>(program: &Result<PathBuf, String>, controller: &Controller<D>) -> Result<Plan, Failure> {
    let refused = |why: String| Failure::Rejected(why);
    let program = program.clone().map_err(|why| refused(format!("the file of this program is not known: {why}")))?;
    check_file(&program).map_err(refused)?;
    let (mut succession, generations) = controller.succession();
    let mut missing = Vec::new();
    let previous = succession.previous.clone();
    let is_needed = |id: u64| {
        let trial = succession.trial.as_ref().map(|(active, _)| active);
        [succession.confirmed.as_ref(), trial].into_iter().flatten().any(|active| active.generation == id)
    };
    let mut lost = BTreeSet::new();
    for generation in &generations {
        match generation.check_files() {
            Ok(()) => {}
            Err(why) if is_needed(generation.id) => {
                return Err(refused(format!("generation {}: {why}; load and activate it first", generation.id)));
            }
            Err(why) => {
                missing.push(format!("the rollback target, generation {}: {why}", generation.id));
                lost.insert(generation.id);
            }
        }
    }
    if previous.is_some_and(|previous| lost.contains(&previous.generation)) {
        succession.previous = None;
    }
    let kept = generations.iter().filter(|generation| !lost.contains(&generation.id));
    let policies: Vec<(u64, PathBuf)> = kept.map(|one| (one.id, one.path().to_owned())).collect();
    let paths: BTreeSet<&Path> = policies.iter().map(|(_, path)| path.as_path()).collect();
    let tried = ask(&program, &paths).map_err(refused)?;
    if tried.upgrade != FORMAT {
        return Err(refused(format!("{}: version {} takes over in another way", program.display(), tried.version)));
    }
    let has_rules = |one: &Generation<D::Code>| one.slots().named().any(|(_, slot)| slot.slot.count() > 0);
    if tried.abi != ABI_VERSION && generations.iter().any(|one| has_rules(one)) {
        missing.push("the rules in slots".to_owned());
    }
    if generations.iter().any(|one| !one.program().adders.is_empty()) {
        missing.push("what rules add to tables while the new program starts".to_owned());
    }
    Ok(Plan { program, succession, policies, same_layout: tried.abi == ABI_VERSION, missing })
}

/// Refuses a program that another user can write, because that user could run anything as this one.
fn check_file(program: &Path) -> Result<(), String> {
    let found = fs::metadata(program).map_err(|error| format!("{}: {error}", program.display()))?;
    let is_trusted = [0, geteuid().as_raw()].contains(&found.uid()) && found.mode() & OTHERS_WRITE == 0;
    match (found.is_file(), is_trusted) {
        (true, true) => Ok(()),
        (false, _) => Err(format!("{}: not a file", program.display())),
        (true, false) => Err(format!("{}: other users can write it", program.display())),
    }
}

/// Runs the new program with the arguments of this one. Its output goes to files, so that it never waits for a reader.
fn ask(program: &Path, policies: &BTreeSet<&Path>) -> Result<Tried, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    let file = || {
        let file = File::from(memfd_create("weir-upgrade", MemfdFlags::CLOEXEC)?);
        Ok((file.try_clone()?, file))
    };
    let ((out, mut answer), (err, mut messages)) = (file().map_err(failed)?, file().map_err(failed)?);
    let mut command = Command::new(program);
    command.args(std::env::args_os().skip(1));
    policies.iter().for_each(|policy| _ = command.arg("--try-policy").arg(policy));
    let mut child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().map_err(failed)?;
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                let _gone = child.kill().and_then(|()| child.wait().map(drop));
                return Err(format!("{}: it does not answer", program.display()));
            }
            None => thread::sleep(PAUSE),
        }
    };
    let (answer, messages) = (text(&mut answer).map_err(failed)?, text(&mut messages).map_err(failed)?);
    let tried = serde_json::from_str(&answer).ok().filter(|_| status.success());
    tried.ok_or_else(|| {
        let why = if messages.trim().is_empty() { "it gives no answer" } else { messages.trim() };
        format!("{}: {status}: {why}", program.display())
    })
}

fn text(file: &mut File) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(OUTPUT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Loads policies as an upgrade would, and says what this program is. Nothing is attached to an interface. The
/// options were checked.
///
/// # Errors
/// This program cannot run one of them with these options.
pub fn try_policies(options: &RunOptions) -> Result<(), Failure> {
    let (trust, splitter) = (options.trust.read()?, hybrid::splitter(options)?);
    if options.engine.runs_in_kernel() {
        let ports = match options.host.as_slice() {
            [] => Ports::of(&interfaces::interfaces(options))?,
            host => Ports::of_host(host)?,
        };
        let loader = KernelLoader::new(Arc::new(ports), options.limits_room, trust).behind(splitter);
        load(options, &loader)?;
    } else {
        let loader = NativeLoader::new(trust).of(options.engine).with(options.controller.controller());
        load(options, &loader.behind(splitter))?;
    }
    report::print_json(&Tried { upgrade: FORMAT, abi: ABI_VERSION, version: VERSION.to_owned() })
}

fn load<L: Loader>(options: &RunOptions, loader: &L) -> Result<(), Failure> {
    options.try_policies.iter().try_for_each(|path| Generation::prepare(path, loader)?.loaded(None).map(drop))
}
