//! Generations: policies that are compiled and loaded for the datapath, so that they can be activated at once.

use crate::parts::card::options::CardRules;
use crate::parts::hybrid::splitter::{Offloaded, Splitter};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fs, io};
use weir_command::failure::Failure;
use weir_command::limit_counts::{Counting, Top, Visit};
use weir_command::report;
use weir_control::{GenerationStatus, LimitsStatus, LimitsTotal};
use weir_engine::bundle::trust::Trust;
use weir_engine::cpu::Cpu;
use weir_engine::live::engines::LiveEngine;
use weir_engine::live::tap::{PolicyNames, RuleName};
use weir_engine::live::xdp::{KernelCode, KernelPath, Ports};
use weir_engine::live::{Datapath, Loaded, Workers};
use weir_engine::{Bound, Controller, NativeCode};
use weir_loading::{LimitList, ListContents, ListId, LoadError, Policy, PolicyFile, PolicyTables, Stamps, Text};
use weir_policy::ir::{Direction, Program, Rule, RuleId};
use weir_state::limits::LimiterCounts;
use weir_state::slot_store::SlotBinding;
use weir_state::tables::TableBinding;
use weir_state::{BoundState, SharedState, UsedBy};

/// Compiles and loads policies for a datapath.
pub trait Loader: Clone + Send + Sync + 'static {
    /// The datapath.
    type Datapath: Datapath + 'static;

    /// Compiles and loads a policy. The active generation is not affected.
    ///
    /// # Errors
    /// The compiler, the loader or the kernel refuses it.
    fn load(&self, policy: &Policy) -> Result<Prepared<<Self::Datapath as Datapath>::Code>, Failure>;

    /// Which bundles it accepts.
    fn trust(&self) -> &Trust;

    /// The state that all of its generations share.
    fn shared(&self) -> &SharedState;

    /// Splits policies between a card and the software, if there is a card.
    fn splitter(&self) -> Option<&Splitter> {
        None
    }
}

/// The code of a loader's datapath.
pub type LoaderCode<L> = <<L as Loader>::Datapath as Datapath>::Code;

/// A loaded policy.
pub struct Prepared<C> {
    /// The code for the datapath.
    pub code: Arc<C>,
    /// The state that it is bound to.
    pub state: BoundState,
}

/// Loads native code for workers, or P4 programs.
#[derive(Clone)]
pub struct NativeLoader {
    runs_p4: bool,
    controller: Option<Controller>,
    trust: Trust,
    shared: Arc<SharedState>,
    splitter: Option<Arc<Splitter>>,
}

impl NativeLoader {
    /// A loader with new shared state. `trust` says which bundles it accepts.
    pub fn new(trust: Trust) -> Self {
        let shared = Arc::new(SharedState::new(UsedBy::Workers));
        NativeLoader { runs_p4: false, controller: None, trust, shared, splitter: None }
    }

    /// This loader for an engine.
    #[must_use]
    pub fn of(self, engine: LiveEngine) -> Self {
        NativeLoader { runs_p4: engine.runs_p4(), ..self }
    }

    /// This loader with a controller for each P4 pipeline.
    #[must_use]
    pub fn with(self, controller: Option<Controller>) -> Self {
        NativeLoader { controller, ..self }
    }

    /// This loader for policies with a part on a card.
    #[must_use]
    pub fn behind(self, splitter: Option<Arc<Splitter>>) -> Self {
        NativeLoader { splitter, ..self }
    }

    /// This loader with other shared state, unless there is none.
    #[must_use]
    pub fn continuing(self, shared: Option<SharedState>) -> Self {
        NativeLoader { shared: shared.map_or(self.shared, Arc::new), ..self }
    }
}

impl Loader for NativeLoader {
    type Datapath = Workers;

    fn load(&self, policy: &Policy) -> Result<Prepared<NativeCode>, Failure> {
        let tracked = self.controller.map(|_| self.shared.tracked().clone());
        let bound = Bound { controller: self.controller, tracked, ..policy.bind(Some(&self.shared))? };
        let state = bound.state.clone();
        let compiled = match self.runs_p4 {
            true => policy.compile_p4(Cpu::Native)?,
            false => policy.compile_native(Cpu::Native)?,
        };
        Ok(Prepared { code: compiled.load(bound)?, state })
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn shared(&self) -> &SharedState {
        &self.shared
    }

    fn splitter(&self) -> Option<&Splitter> {
        self.splitter.as_deref()
    }
}

/// Loads programs for the kernel, with the interfaces.
#[derive(Clone)]
pub struct KernelLoader {
    trust: Trust,
    ports: Arc<Ports>,
    shared: Arc<SharedState>,
    splitter: Option<Arc<Splitter>>,
}

impl KernelLoader {
    /// A loader for these interfaces, with new shared state. `trust` says which bundles it accepts. Without
    /// `limits_room`, the first policy with limits determines the room for limits.
    pub fn new(ports: Arc<Ports>, limits_room: Option<usize>, trust: Trust) -> Self {
        let shared = Arc::new(SharedState::new(UsedBy::Kernel { limits_room }));
        KernelLoader { trust, ports, shared, splitter: None }
    }

    /// This loader for policies with a part on a card.
    #[must_use]
    pub fn behind(self, splitter: Option<Arc<Splitter>>) -> Self {
        KernelLoader { splitter, ..self }
    }

    /// This loader with other shared state, unless there is none.
    #[must_use]
    pub fn continuing(self, shared: Option<SharedState>) -> Self {
        KernelLoader { shared: shared.map_or(self.shared, Arc::new), ..self }
    }
}

impl Loader for KernelLoader {
    type Datapath = KernelPath;

    fn load(&self, policy: &Policy) -> Result<Prepared<KernelCode>, Failure> {
        let bound = policy.bind(Some(&self.shared))?;
        let code = policy.kernel(&bound, &self.ports)?;
        Ok(Prepared { code, state: bound.state })
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn shared(&self) -> &SharedState {
        &self.shared
    }

    fn splitter(&self) -> Option<&Splitter> {
        self.splitter.as_deref()
    }
}

/// Tells a file from another one, and from the same one with other contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        let modified = (found.mtime(), found.mtime_nsec());
        Ok(Stamp { device: found.dev(), inode: found.ino(), bytes: found.size(), modified })
    }
}

/// The names of the rules of a program.
fn names_of(program: &Program) -> Arc<PolicyNames> {
    let name = |rule: &Rule| RuleName { at: rule.at.clone(), text: rule.text.clone() };
    Arc::new(PolicyNames { rules: program.rules.iter().map(name).collect() })
}

/// A compiled and loaded policy, which can be activated at once. `C` is its code.
pub struct Generation<C> {
    /// Its number, from 1.
    pub id: u64,
    path: PathBuf,
    /// Its file, when it was loaded.
    stamp: Option<Stamp>,
    policy: Policy,
    prepared: Prepared<C>,
    /// The names of its rules, for copies of packets.
    names: Arc<PolicyNames>,
    /// Names of the tables that follow list files.
    listed: OnceLock<Vec<String>>,
    /// The card's part, if there is a card.
    offloaded: Option<Offloaded>,
}

impl<C> Generation<C> {
    /// Reads, checks, compiles and loads a policy. The active generation is not affected.
    ///
    /// # Errors
    /// The policy is invalid, or cannot be compiled or loaded.
    pub fn prepare<L: Loader<Datapath: Datapath<Code = C>>>(path: &Path, loader: &L) -> Result<Self, Failure> {
        // Before it is read: a file that is replaced meanwhile counts as changed.
        let stamp = Stamp::of(path).ok();
        let policy = PolicyFile::open(path)?.read(loader.trust())?;
        report::say_warnings(&policy);
        Ok(Generation { stamp, ..Self::load(path, policy, loader, None)? })
    }

    /// Compiles and loads a policy that was read from `path` already.
    ///
    /// # Errors
    /// It cannot be compiled or loaded.
    pub fn of_policy<L: Loader<Datapath: Datapath<Code = C>>>(
        path: &Path,
        policy: Policy,
        loader: &L,
    ) -> Result<Self, Failure> {
        Self::load(path, policy, loader, None)
    }

    fn load<L: Loader<Datapath: Datapath<Code = C>>>(
        path: &Path,
        policy: Policy,
        loader: &L,
        choice: Option<BTreeSet<RuleId>>,
    ) -> Result<Self, Failure> {
        let (policy, offloaded) = match loader.splitter() {
            Some(splitter) => splitter.split(policy, choice),
            None => (policy, None),
        };
        let prepared = loader.load(&policy)?;
        let (path, names, listed) = (path.to_owned(), names_of(&policy.program), OnceLock::new());
        Ok(Generation { id: 0, path, stamp: None, policy, prepared, names, listed, offloaded })
    }

    /// This policy with other contents of some lists, compiled and loaded. `stamps` are the stamps of their files.
    ///
    /// # Errors
    /// The policy has an error with these lists, or cannot be compiled or loaded.
    pub fn with_lists<L: Loader<Datapath: Datapath<Code = C>>>(
        &self,
        lists: &[(ListId, ListContents)],
        stamps: Stamps,
        loader: &L,
    ) -> Result<Self, Failure> {
        // A choice that follows traffic stays.
        let follows = loader.splitter().is_some_and(|splitter| splitter.rules == CardRules::Follow);
        let choice = self.offloaded().filter(|_| follows).map(|offloaded| offloaded.choice.clone());
        self.with_choice(lists, stamps, choice, loader)
    }

    /// Like `with_lists`, with a choice of rules for the card. Without one it uses the choice of the start. It also
    /// does so if the rules differ with these lists.
    ///
    /// # Errors
    /// As for [`Generation::with_lists`].
    pub fn with_choice<L: Loader<Datapath: Datapath<Code = C>>>(
        &self,
        lists: &[(ListId, ListContents)],
        stamps: Stamps,
        choice: Option<BTreeSet<RuleId>>,
        loader: &L,
    ) -> Result<Self, Failure> {
        let policy = self.policy.with_lists(lists, stamps)?;
        let same = |(one, other): (&Rule, &Rule)| one.at == other.at && one.text == other.text;
        let [before, now] = [&self.program().rules, &policy.program.rules];
        let has_same_rules = before.len() == now.len() && before.iter().zip(now).all(same);
        let generation = Self::load(&self.path, policy, loader, choice.filter(|_| has_same_rules))?;
        Ok(Generation { stamp: self.stamp, ..generation })
    }

    /// Whether a card that it is loaded for looks a table up.
    pub fn is_on_card(&self, table: &str) -> bool {
        self.offloaded().is_some_and(|offloaded| offloaded.card.lookups.iter().any(|lookup| lookup.name == table))
    }

    /// The card's part of it, if there is a card that takes one.
    pub fn offloaded(&self) -> Option<&Offloaded> {
        self.offloaded.as_ref()
    }

    /// Where it was read from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that its files still have the policy that it was loaded from. Lists are not compared.
    ///
    /// # Errors
    /// What has changed.
    pub fn check_files(&self) -> Result<(), String> {
        let changed = |path: &Path| format!("{} has changed since it was loaded", path.display());
        for source in self.text().iter().flat_map(|text| text.sources.all()) {
            let path = Path::new(&source.name);
            let now = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            if now != source.text {
                return Err(changed(path));
            }
        }
        let now = Stamp::of(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
        match self.is_bundle() && self.stamp.as_ref() != Some(&now) {
            true => Err(changed(&self.path)),
            false => Ok(()),
        }
    }

    /// Its lists of limits.
    pub fn limit_lists(&self) -> &[LimitList] {
        self.policy.limit_lists()
    }

    /// Its policy, with the chain that reads a card's answers.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Its text, unless it is a bundle.
    pub fn text(&self) -> Option<&Text> {
        self.policy.text()
    }

    /// The tables that it declares.
    pub fn declared(&self) -> &PolicyTables {
        self.policy.tables()
    }

    /// Its program.
    pub fn program(&self) -> &Program {
        &self.policy.program
    }

    /// The code and the chains of a posture.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn loaded(&self, posture: Option<&str>) -> Result<Loaded<C>, Failure> {
        let chain = |direction| {
            self.program().chain(posture, direction).ok_or_else(|| {
                let posture = posture.unwrap_or_default();
                Failure::Rejected(format!("weir: {} has no posture {posture}", self.path.display()))
            })
        };
        let chains = [chain(Direction::Upstream)?, chain(Direction::Downstream)?];
        Ok(Loaded { names: self.names.clone(), ..Loaded::plain(self.prepared.code.clone(), chains) })
    }

    /// The names of its rules.
    pub fn names(&self) -> &Arc<PolicyNames> {
        &self.names
    }

    /// The images of its tables, if they can change.
    pub fn tables(&self) -> Option<&TableBinding> {
        self.prepared.state.tables.as_ref().map(|tables| &*tables.binding)
    }

    /// Its slots of rules.
    pub fn slots(&self) -> &SlotBinding {
        &self.prepared.state.slots
    }

    fn counted(&self) -> Option<&LimiterCounts> {
        self.prepared.state.limits.as_ref().and_then(|limits| limits.counted.as_ref())
    }

    /// Notes that it decides packets, so that its tables are its own when the process ends.
    pub fn take_effect(&self) {
        if let Some(tables) = self.tables() {
            tables.take_effect();
        }
    }

    /// Reduces the debts that limits of previous generations left to what its own limits allow. It must be active, and
    /// no other generation may decide packets.
    pub fn bound_debts(&self) {
        if let Some(limits) = &self.prepared.state.limits {
            limits.bound_debts(&weir_state::now_ns);
        }
    }

    /// Whether a table follows list files. Reading them again then undoes other changes.
    pub fn follows_lists(&self, table: &str) -> bool {
        let listed = || self.policy.text().map(Text::tables_with_files).unwrap_or_default();
        self.listed.get_or_init(listed).iter().any(|name| name == table)
    }

    /// Whether it comes from a bundle.
    pub fn is_bundle(&self) -> bool {
        self.policy.is_bundle()
    }

    /// Whether this is its code.
    pub fn has_code(&self, code: &Arc<C>) -> bool {
        Arc::ptr_eq(&self.prepared.code, code)
    }

    /// The posture with these chains; `None` for the base policy.
    pub fn posture_of(&self, chains: [usize; 2]) -> Option<&str> {
        let postures = self.program().chains.iter().filter_map(|chain| chain.posture.as_deref());
        let has = |posture: &&str| self.loaded(Some(posture)).is_ok_and(|loaded| loaded.chains == chains);
        if self.loaded(None).is_ok_and(|base| base.chains == chains) { None } else { postures.into_iter().find(has) }
    }

    /// The counts of the limits of one list, or of all: the `wanted` limits that were exceeded most.
    ///
    /// # Errors
    /// There is no such list, or it does not count.
    pub fn limits(&self, wanted: usize, list: Option<&str>) -> Result<LimitsStatus, Failure> {
        let counting = Counting::of(&self.policy, list)?;
        let top = counting.top(wanted, |limiter, visit| {
            self.counted().iter().for_each(|counted| counted.each(limiter, visit));
            Ok(())
        })?;
        let total = LimitsTotal { limits: counting.limits(), exceeded: top.exceeded_limits };
        Ok(LimitsStatus { generation: self.id, limits: top.limits, total })
    }

    /// Counts of all lists since the previous call, for this generation or another with the same limits. Only one
    /// thread may call this.
    ///
    /// # Errors
    /// There is no memory to keep the counts that were read.
    pub fn limits_since(&self, wanted: usize) -> Result<Top, Failure> {
        let since = |limiter: usize, visit: &mut Visit<'_>| match self.counted() {
            Some(counted) => Ok(counted.each_since(limiter, visit).map_err(LoadError::State)?),
            None => Ok(()),
        };
        Counting::of(&self.policy, None)?.top(wanted, since)
    }

    /// Its status for `ctl status`.
    pub fn status(&self) -> GenerationStatus {
        let postures = self.program().chains.iter().step_by(2).filter_map(|chain| chain.posture.clone());
        GenerationStatus {
            id: self.id,
            policy: self.path.display().to_string(),
            postures: postures.collect(),
            rules: self.program().rules.len(),
        }
    }
}
