//! Policies that stand ready: compiled and loaded for the datapath, to be activated at once.

use crate::failure::Failure;
use crate::limit_counts::{Counting, Top, Visit};
use crate::report;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use weir_control::{GenerationStatus, LimitsStatus, LimitsTotal};
use weir_engine::bundle::trust::Trust;
use weir_engine::cpu::Cpu;
use weir_engine::limits::counts::Counted;
use weir_engine::limits::pool::Pool;
use weir_engine::limits::{self, BUCKETS_MAX, Buckets};
use weir_engine::live::xdp::{KernelCode, KernelPath, Ports};
use weir_engine::live::{Datapath, Loaded, Workers};
use weir_engine::{EngineError, NativeCode};
use weir_loading::{Policy, PolicyFile};
use weir_policy::ir::{Direction, Program};

/// How a policy gets into the form that a datapath takes.
pub trait Loader: Clone + Send + Sync + 'static {
    /// The datapath.
    type Datapath: Datapath + 'static;

    /// Compiles and loads a policy; what runs is not touched.
    ///
    /// # Errors
    /// The compiler, the loader or the kernel refuses it.
    fn load(&self, policy: &Policy) -> Result<Prepared<<Self::Datapath as Datapath>::Code>, Failure>;

    /// Whose bundles it takes.
    fn trust(&self) -> &Trust;

    /// Brings buckets that nobody charges to the present: to be done every few minutes.
    fn refresh(&self);
}

/// A policy as its loader leaves it.
pub struct Prepared<C> {
    /// For the datapath.
    pub code: Arc<C>,
    /// What its limiters count, if they do.
    pub counted: Option<Counted>,
}

/// Buckets of all generations, made when the first policy with limits comes.
#[derive(Clone, Default)]
struct SharedPool(Arc<OnceLock<Pool>>);

impl SharedPool {
    fn refresh(&self) {
        if let Some(pool) = self.0.get() {
            pool.refresh(limits::now_ns());
        }
    }

    /// The pool, with room for `policy` in buckets that `reserve` sets aside; `None` if it has no limits.
    fn of(
        &self,
        policy: &Policy,
        reserve: impl FnOnce(usize) -> Result<Buckets, EngineError>,
    ) -> Result<Option<&Pool>, Failure> {
        if policy.program.limiters.is_empty() {
            return Ok(None);
        }
        if self.0.get().is_none() {
            // Nobody outside may know which addresses share a set of a table.
            let seed = RandomState::new().hash_one(()) as u32;
            let pool = Pool::new(seed, reserve(policy.buckets())?);
            // Who was faster has as good a one.
            let _other = self.0.set(pool);
        }
        Ok(self.0.get())
    }
}

/// Native code, for workers.
#[derive(Clone, Default)]
pub struct NativeLoader {
    trust: Trust,
    pool: SharedPool,
}

impl NativeLoader {
    /// The same, for bundles that are trusted.
    pub fn trusting(self, trust: Trust) -> Self {
        NativeLoader { trust, ..self }
    }
}

impl Loader for NativeLoader {
    type Datapath = Workers;

    fn load(&self, policy: &Policy) -> Result<Prepared<NativeCode>, Failure> {
        // What is not touched takes no memory.
        let pool = self.pool.of(policy, |_| Buckets::reserve(BUCKETS_MAX))?;
        let data = policy.data(pool)?;
        let counted = data.counted();
        Ok(Prepared { code: policy.compile_native(Cpu::Native)?.load(data)?, counted })
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn refresh(&self) {
        self.pool.refresh();
    }
}

/// Programs for the kernel that know the interfaces.
#[derive(Clone)]
pub struct KernelLoader {
    trust: Trust,
    ports: Arc<Ports>,
    /// Limits that there is to be room for.
    room: Option<usize>,
    pool: SharedPool,
}

impl KernelLoader {
    /// For these interfaces, with room for so many limits.
    pub fn new(ports: Arc<Ports>, room: Option<usize>) -> Self {
        KernelLoader { trust: Trust::default(), ports, room, pool: SharedPool::default() }
    }

    /// The same, for bundles that are trusted.
    pub fn trusting(self, trust: Trust) -> Self {
        KernelLoader { trust, ..self }
    }
}

impl Loader for KernelLoader {
    type Datapath = KernelPath;

    fn load(&self, policy: &Policy) -> Result<Prepared<KernelCode>, Failure> {
        // The kernel's memory is taken whole: unless said otherwise, lists may grow by a quarter, or a table of addresses get another limit,
        // while older ones still stand ready. One bucket is nobody's.
        let spare = BUCKETS_SPARE_MIN.max(policy.largest_table_of_addresses());
        let usual = |needed: usize| (needed + (needed / 4).max(spare)).min(BUCKETS_MAX.max(needed));
        let reserve = |needed| Buckets::in_kernel(self.room.map_or_else(|| usual(needed), |room| needed.max(room + 1)));
        let pool = self.pool.of(policy, reserve)?;
        let data = policy.data(pool)?;
        let code = policy.kernel(&data, &self.ports)?;
        Ok(Prepared { code, counted: data.counted() })
    }

    fn trust(&self) -> &Trust {
        &self.trust
    }

    fn refresh(&self) {
        self.pool.refresh();
    }
}

/// Buckets that the kernel sets aside at least beside those that the first policy needs: 512 KiB.
const BUCKETS_SPARE_MIN: usize = 1 << 16;

/// A policy that was compiled and loaded, and can be activated at once. `C` is its code.
pub struct Generation<C> {
    /// Its number, from 1.
    pub id: u64,
    path: PathBuf,
    policy: Policy,
    prepared: Prepared<C>,
}

impl<C> Generation<C> {
    /// Reads, checks, compiles and loads a policy. What runs is not touched.
    ///
    /// # Errors
    /// The policy is wrong, or cannot be compiled or loaded.
    pub fn prepare<L: Loader<Datapath: Datapath<Code = C>>>(path: &Path, loader: &L) -> Result<Self, Failure> {
        let policy = PolicyFile::open(path)?.read(loader.trust())?;
        report::say_warnings(&policy);
        let prepared = loader.load(&policy)?;
        Ok(Generation { id: 0, path: path.to_owned(), policy, prepared })
    }

    /// What it means.
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
        Ok(Loaded {
            code: self.prepared.code.clone(),
            chains: [chain(Direction::Upstream)?, chain(Direction::Downstream)?],
        })
    }

    /// Whether this is its code.
    pub fn has_code(&self, code: &Arc<C>) -> bool {
        Arc::ptr_eq(&self.prepared.code, code)
    }

    /// The posture that has these chains; none if it is the base policy.
    pub fn posture_of(&self, chains: [usize; 2]) -> Option<&str> {
        let postures = self.program().chains.iter().filter_map(|chain| chain.posture.as_deref());
        let has = |posture: &&str| self.loaded(Some(posture)).is_ok_and(|loaded| loaded.chains == chains);
        if self.loaded(None).is_ok_and(|base| base.chains == chains) { None } else { postures.into_iter().find(has) }
    }

    /// What was counted for its limits, of the list of that name or all: those that were exceeded most, at most `wanted`.
    ///
    /// # Errors
    /// There is no such list, or it counts nothing.
    pub fn limits(&self, wanted: usize, list: Option<&str>) -> Result<LimitsStatus, Failure> {
        let counting = Counting::of(&self.policy, list)?;
        let top = counting.top(wanted, |limiter, visit| {
            self.prepared.counted.iter().for_each(|counted| counted.each(limiter, visit));
            Ok(())
        })?;
        let total = LimitsTotal { limits: counting.limits(), exceeded: top.exceeded_limits };
        Ok(LimitsStatus { generation: self.id, limits: top.limits, total })
    }

    /// As [`Generation::limits`] of all lists, since whoever asked last, of this generation or another that has the same limits. One thread asks.
    ///
    /// # Errors
    /// There is no memory to remember what was read.
    pub fn limits_since(&self, wanted: usize) -> Result<Top, Failure> {
        let since = |limiter: usize, visit: &mut Visit<'_>| match &self.prepared.counted {
            Some(counted) => Ok(counted.each_since(limiter, visit)?),
            None => Ok(()),
        };
        Counting::of(&self.policy, None)?.top(wanted, since)
    }

    /// What `ctl status` says of it.
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
