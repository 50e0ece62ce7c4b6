//! `--keep-confirmed`: the last confirmed policy is kept in the state folder, and decides after a start with a policy
//! that does not load.
//!
//! ```text
//!   STATE/confirmed/7.weirb       the policy as a bundle, with its lists
//!   STATE/confirmed/7.json        which policy that was, and when; written last, so it makes the pair valid
//! ```
//! The folder belongs to root or the user who runs Weir, and no other user can write there, which is checked each time.
//! So its bundle needs no signature.

use crate::door::Door;
use crate::generations::generation::{Generation, Loader, LoaderCode};
use crate::options::RunOptions;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use weir_command::failure::Failure;
use weir_control::KeptStatus;
use weir_engine::bundle::trust::Trust;
use weir_engine::cpu::Cpu;
use weir_loading::PolicyFile;
use weir_state::owner::{self, Distrust, Missing};

/// The folder in the state folder.
const FOLDER: &str = "confirmed";
/// The end of the name of a bundle.
const BUNDLE: &str = "weirb";
/// The end of the name of its description.
const SOURCE: &str = "json";
/// The end of the name of a file that is not complete.
const NEW: &str = "new";
/// Longest description that is read.
const SOURCE_BYTES_MAX: u64 = 1 << 16;
/// Interval of looks at what is confirmed.
const TICK: Duration = Duration::from_millis(200);
/// Rest after a policy was kept, in times of what that took: lists may make a new generation each second.
const REST: u32 = 10;

/// The description of a kept policy.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Source {
    /// The path of its policy.
    policy: String,
    /// When it was kept.
    kept: String,
}

/// Keeps the last confirmed policy. Clones are the same.
#[derive(Clone)]
pub struct Keeper {
    folder: PathBuf,
    record: Arc<Mutex<Record>>,
}

#[derive(Default)]
struct Record {
    source: Option<Source>,
    /// The generation of this run that is kept.
    generation: Option<u64>,
    error: Option<String>,
    /// Why the policy of the start did not load, if the kept one decides since then.
    in_place_of: Option<String>,
}

impl Keeper {
    /// The keeper, if the option is given.
    pub fn of(options: &RunOptions) -> Option<Self> {
        let folder = options.state_folder.as_deref().filter(|_| options.keep_confirmed)?.join(FOLDER);
        Some(Keeper { folder, record: Arc::default() })
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads the kept policy, because the configured one has failed to load.
    ///
    /// # Errors
    /// `failure`, if there is no kept policy. If there is one, it does not load either.
    pub fn load<L: Loader>(&self, failure: Failure, loader: &L) -> Result<Generation<LoaderCode<L>>, Failure> {
        let (path, source) = match self.find() {
            Ok(Some(found)) => found,
            Ok(None) => {
                error!("weir: no confirmed policy is kept in {}", self.folder.display());
                return Err(failure);
            }
            Err(problem) => {
                error!("weir: no confirmed policy can be read: {problem}");
                return Err(failure);
            }
        };
        // Everything about the mistakes, once; the status has the first one.
        error!("{failure}");
        let kept = PolicyFile::open(&path).and_then(|file| file.read(&Trust::default()));
        let first = kept.map_err(Failure::from).and_then(|policy| match policy.is_bundle() {
            true => Generation::of_policy(&path, policy, loader),
            // Who can have written a text is not checked.
            false => Err(Failure::Runtime(format!("{}: is not a bundle", path.display()))),
        });
        let first = first.inspect_err(|_| error!("weir: the last confirmed policy does not load either"))?;
        let Source { policy, kept } = &source;
        warning!("weir: starts with the last confirmed policy, which was {policy} at {kept}");
        let mut record = self.record();
        record.in_place_of = Some(failure.message().to_owned());
        (record.source, record.generation) = (Some(source), Some(FIRST));
        Ok(first)
    }

    /// The newest complete pair.
    fn find(&self) -> Result<Option<(PathBuf, Source)>, Distrust> {
        let (place, _) = match owner::open_folder(&self.folder, Missing::Refused) {
            Err(Distrust::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        for number in numbers(&place, SOURCE).into_iter().rev() {
            let (bundle, path) = (file(&place, number, BUNDLE), file(&place, number, SOURCE));
            let system = |source| Distrust::System { path: path.clone(), source };
            let opened = weir_loading::regular_file::open(&path).map_err(system)?;
            owner::check(&path, &opened)?;
            let bytes = io::read_to_string(io::Read::take(opened, SOURCE_BYTES_MAX)).map_err(system)?;
            if let Ok(source) = serde_json::from_str(&bytes)
                && bundle.exists()
            {
                return Ok(Some((bundle, source)));
            }
        }
        Ok(None)
    }

    /// Starts the thread that keeps what is confirmed, for as long as the door exists.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start<L: Loader>(&self, door: &Arc<Door<L>>) -> Result<(), Failure> {
        let reporter = self.clone();
        door.controller.report(move |status| status.kept = Some(reporter.status(status.generation)));
        if let Ok(Some((_, source))) = self.find() {
            self.record().source.get_or_insert(source);
        }
        let (keeper, door) = (self.clone(), Arc::downgrade(door));
        let started = thread::Builder::new().name("weir-keep".to_owned()).spawn(move || keeper.watch(&door));
        started.map(drop).map_err(|error| Failure::system("a thread for the confirmed policy", error))
    }

    fn watch<L: Loader>(&self, door: &Weak<Door<L>>) {
        let mut known = self.record().generation;
        let mut next = Instant::now();
        while let Some(door) = door.upgrade() {
            let confirmed = door.controller.confirmed().filter(|confirmed| known != Some(confirmed.id));
            if let Some(generation) = confirmed.filter(|_| Instant::now() >= next) {
                let begun = Instant::now();
                self.keep(&door, &generation);
                known = Some(generation.id);
                next = Instant::now() + begun.elapsed() * REST;
            }
            drop(door);
            thread::sleep(TICK);
        }
    }

    fn keep<L: Loader>(&self, door: &Door<L>, generation: &Generation<LoaderCode<L>>) {
        let kept = Failure::catch(|| match door.loader.splitter() {
            Some(_) => Err(Failure::Runtime("a policy that is split with a card cannot be kept".to_owned())),
            None => self.write(generation),
        });
        let mut record = self.record();
        match kept {
            Ok(source) => {
                (record.source, record.generation, record.error) = (Some(source), Some(generation.id), None);
            }
            Err(failure) => {
                let why = failure.message().to_owned();
                warning!("weir: the confirmed policy is not kept: {why}");
                record.error = Some(why);
            }
        }
    }

    /// Compiles a policy to a bundle and writes the pair.
    fn write<C>(&self, generation: &Generation<C>) -> Result<Source, Failure> {
        let bundle = generation.policy().to_bundle(Cpu::Native)?.bundle;
        let refused = |why: Distrust| Failure::Runtime(why.to_string());
        let (place, folder) = owner::open_folder(&self.folder, Missing::Made).map_err(refused)?;
        let failed = |error| Failure::file(&place, error);
        let number = numbers(&place, BUNDLE).into_iter().chain(numbers(&place, SOURCE)).max().unwrap_or(0) + 1;
        let kept = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let source = Source { policy: generation.path().display().to_string(), kept };
        let (bundled, described) = (file(&place, number, BUNDLE), file(&place, number, SOURCE));
        bundle.write(&bundled, None)?;
        File::open(&bundled).and_then(|file| file.sync_all()).map_err(failed)?;
        let new = described.with_extension(NEW);
        fs::write(&new, serde_json::to_string(&source).expect("a description is JSON")).map_err(failed)?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(failed)?;
        fs::rename(&new, &described).map_err(failed)?;
        folder.sync_all().map_err(failed)?;
        remove_others(&place, number);
        Ok(source)
    }

    /// The status, while the generation `active` decides.
    fn status(&self, active: u64) -> KeptStatus {
        let record = self.record();
        KeptStatus {
            folder: self.folder.display().to_string(),
            policy: record.source.as_ref().map(|source| source.policy.clone()),
            kept: record.source.as_ref().map(|source| source.kept.clone()),
            generation: record.generation,
            error: record.error.clone(),
            in_place_of: record.in_place_of.clone().filter(|_| active == FIRST),
        }
    }
}

/// The number of the generation of the start.
const FIRST: u64 = 1;

fn file(folder: &Path, number: u64, end: &str) -> PathBuf {
    folder.join(format!("{number}.{end}"))
}

/// The numbers of the files with this end, sorted.
fn numbers(folder: &Path, end: &str) -> Vec<u64> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let number =
        |name: &str| name.strip_suffix(end)?.strip_suffix('.')?.parse().ok().filter(|&number| number < u64::MAX);
    let mut numbers: Vec<u64> = names.filter_map(|name| number(name.to_str()?)).collect();
    numbers.sort_unstable();
    numbers
}

/// Removes older pairs, and what a killed process has not completed. What cannot be removed is found again next time.
fn remove_others(folder: &Path, number: u64) {
    let keep = [file(folder, number, BUNDLE), file(folder, number, SOURCE)];
    let found = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in found.filter(|path| !keep.contains(path)) {
        let _stays = fs::remove_file(path);
    }
}

/// Loads the first policy: the configured one, else the kept one.
///
/// # Errors
/// Neither loads, or the parts refuse the policy.
pub fn first<L: Loader>(
    options: &RunOptions,
    keeper: Option<&Keeper>,
    loader: &L,
    check: impl Fn(&Generation<LoaderCode<L>>) -> Result<(), Failure>,
    is_stopped: impl Fn() -> bool,
) -> Result<Generation<LoaderCode<L>>, Failure> {
    let configured = Generation::prepare(&options.policy, loader).and_then(|first| {
        check(&first)?;
        Ok(first)
    });
    match (configured, keeper) {
        // A signal has ended the compiler.
        (Err(failure), Some(keeper)) if !is_stopped() => {
            let first = keeper.load(failure, loader)?;
            check(&first)?;
            Ok(first)
        }
        (configured, _) => configured,
    }
}
