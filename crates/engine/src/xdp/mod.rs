//! Runs the programs of a policy in the kernel on frames.
//!
//! Tables are the values of mmap-able array maps, one per table, which the code addresses directly
//! (docs/decisions/0002-bpf-tables.md). They are filled through the mapping after loading, so that an image is copied
//! once. Frames are decided by BPF_PROG_TEST_RUN, with one system call each. This is not a fast path: it shows that the
//! kernel decides like user space. Nothing is pinned, and bpffs is not needed.

mod cost;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod needs;
pub mod plain;
mod replay;
mod rewritten;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use libbpf_rs::Object;
use memmap2::MmapRaw;
use weir_abi::flow::{Flow, FlowKey};
use weir_abi::kernel::{CPU_ANSWERS_BYTES, Mode};
use weir_abi::slot::SlotCounter;
use weir_abi::{AdditionCounts, Counter, EntryCounts, Verdict};
use weir_state::BoundState;
use weir_state::features::{Features, Snapshot};
use weir_state::flows::FlowTable;
use weir_state::limits::{Buckets, LimitBinding, LimitCount, LimiterCounts};
use weir_state::tables::{AdditionRings, ByRules, Replay as TableReplay, SelectedHalves};

pub use cost::VerifierCost;
pub use load::{failed, find, map};

use crate::clang::BpfObject;
use crate::{Bound, EngineError, Filter, FrameBurst, ProgramShape, filter};
use cost::cost;
use load::{
    ANSWERS, COUNTERS, LOSSES, LoadedSizes, Plan, SAMPLES, addition_rings, buckets, counted, fill_tables, is_front,
    join_parts, load_object, program_name,
};
use replay::Replay;
use rewritten::Rewritten;

/// A program loaded into the kernel, with its tables and counters.
pub struct XdpFilter {
    object: Object,
    /// Names of the programs, one per chain.
    programs: Vec<String>,
    counters: MmapRaw,
    counter_count: usize,
    /// The buckets that are still to be filled, at the time of the first frame.
    unfilled: Option<(Buckets, Arc<LimitBinding>)>,
    counted: Option<LimiterCounts>,
    /// What rules add to tables. `None` if tables do not change.
    additions: Option<Additions>,
    state: BoundState,
    /// Whether the buckets of slots are still to be filled.
    fills_slots: bool,
    /// What leaves in place of packets, if the program changes any.
    rewritten: Option<Rewritten>,
    /// Where the chain that reads a card's answers finds them.
    answers: Option<MmapRaw>,
    replay: Replay,
    costs: Vec<VerifierCost>,
    load_took: Duration,
    /// Follows tables that change.
    _halves: Arc<SelectedHalves>,
}

/// The additions of a replay.
struct Additions {
    /// The queue of the programs; `None` if no rule adds.
    rings: Option<AdditionRings>,
    tables: TableReplay,
}

impl XdpFilter {
    /// Loads an object that [`crate::clang`] made for this data. `name` is for messages. Buckets in the kernel
    /// ([`Buckets::in_kernel`]) are shared with other programs.
    pub fn load(name: &str, object: &BpfObject, program: &ProgramShape, bound: &Bound) -> Result<Self, EngineError> {
        let limits = bound.state.limits.as_ref();
        program.check(bound)?;
        let start = Instant::now();
        let shared = bound.state.maps();
        let plan = Plan {
            mode: Mode::default(),
            lengths: &[],
            sizes: Some(LoadedSizes::of(bound)),
            shared: &shared,
            program: &|name| !name.starts_with(LOSSES) && !is_front(name),
            // Linux before 6.8 verifies the functions of taps although nothing calls them.
            map: &|name| name != SAMPLES,
        };
        let object = load_object(name, object, &plan)?;
        join_parts(&object)?;
        let _halves = fill_tables(&object, bound)?;
        // Buckets that are shared with other programs are full already.
        let own = limits.filter(|limits| limits.maps().is_empty());
        let buckets = own.map(|limits| buckets(&object, limits)).transpose()?;
        let counted = limits.map_or(Ok(None), |limits| counted(&object, limits))?;
        let additions = match bound.state.tables.as_ref().map(|tables| &tables.by_rules) {
            Some(ByRules::Replayed(replayed)) => {
                let rings = (program.state.adders > 0).then(|| addition_rings(&object, 1)).transpose()?;
                Some(Additions { rings, tables: TableReplay::new(replayed.clone()) })
            }
            _ => None,
        };
        let rewritten = program.rewrites.then(|| Rewritten::of(&object)).transpose()?;
        let counters = map(&object, COUNTERS, program.counters() * size_of::<Counter>())?;
        let answers = program.answered.map(|_| map(&object, ANSWERS, CPU_ANSWERS_BYTES)).transpose()?;
        let programs: Vec<String> = program.chains.iter().map(|chain| program_name(chain)).collect();
        let costs = program.chains.iter().map(|chain| cost(&object, chain));
        let costs = costs.collect::<Result<_, _>>()?;
        let (counter_count, replay, load_took) = (program.counters(), Replay::new(), start.elapsed());
        let unfilled = buckets.zip(own.map(|limits| limits.binding.clone()));
        Ok(XdpFilter {
            object,
            programs,
            counters,
            counter_count,
            unfilled,
            counted,
            additions,
            state: bound.state.clone(),
            fills_slots: true,
            rewritten,
            answers,
            replay,
            costs,
            load_took,
            _halves,
        })
    }

    /// Fills all buckets at the time of the first frame.
    fn fill_buckets(&mut self, burst: &FrameBurst<'_>) {
        if !burst.is_empty() && std::mem::take(&mut self.fills_slots) {
            self.state.slots.slots().for_each(|slot| slot.fill(burst.time_ns(0)));
        }
        if let Some((buckets, binding)) = self.unfilled.take_if(|_| !burst.is_empty()) {
            binding.fill(&buckets, burst.time_ns(0));
        }
    }

    /// The verifier's cost, one entry per chain.
    pub fn verifier_costs(&self) -> &[VerifierCost] {
        &self.costs
    }

    /// The time for verification and compilation in the kernel, and for filling the tables.
    pub fn load_took(&self) -> Duration {
        self.load_took
    }

    /// Decides frame `index` of `burst` `repeat` times in the kernel. Returns the kernel's average time in whole ns.
    /// Every decision is counted. With more than one repeat, the kernel waits some milliseconds before and after, which
    /// the result excludes.
    ///
    /// # Panics
    /// If there is no such chain or frame.
    pub fn time_frame(
        &mut self,
        chain: usize,
        burst: &FrameBurst<'_>,
        index: usize,
        repeat: u32,
    ) -> Result<Duration, EngineError> {
        let name = self.programs[chain].clone();
        self.time_program(&name, burst, index, repeat)
    }

    /// Runs a program of the object like [`XdpFilter::time_frame`]. It need not be a chain of the policy.
    ///
    /// # Errors
    /// There is no such program, or the kernel refuses to run it.
    ///
    /// # Panics
    /// If there is no such frame.
    pub fn time_program(
        &mut self,
        name: &str,
        burst: &FrameBurst<'_>,
        index: usize,
        repeat: u32,
    ) -> Result<Duration, EngineError> {
        self.fill_buckets(burst);
        let program = find(&self.object, name)?;
        let ran = self.replay.run(&program, burst, index, repeat.max(1)).map_err(|problem| failed(name, problem))?;
        Ok(ran.took)
    }

    /// The object in the kernel.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

impl Additions {
    /// Applies the additions of earlier ticks before a packet.
    fn begin_tick(&mut self, time_ns: u64) -> Result<(), EngineError> {
        let tick = self.tables.tick_of(time_ns);
        self.tables.advance(tick).map_err(crate::additions::failed)
    }

    /// Takes what a packet has added.
    fn take(&mut self) {
        if let Some(rings) = &self.rings {
            rings.take(|addition| self.tables.add(&[addition]));
        }
    }
}

impl XdpFilter {
    /// What is observed, if the program observes.
    pub fn features(&self) -> Option<&Arc<Features>> {
        self.state.features.features()
    }

    /// The flows, if the program tracks.
    pub fn flow_table(&self) -> Option<&Arc<FlowTable>> {
        self.state.flows.table()
    }
}

impl Filter for XdpFilter {
    fn name(&self) -> &str {
        "xdp"
    }

    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        self.fill_buckets(burst);
        let name = &self.programs[chain];
        let program = find(&self.object, name)?;
        self.rewritten.iter_mut().for_each(Rewritten::clear);
        for (index, verdict) in verdicts[..burst.len()].iter_mut().enumerate() {
            if let Some(additions) = &mut self.additions {
                additions.begin_tick(burst.time_ns(index))?;
            }
            if let Some(answers) = &self.answers {
                let body = burst.behind(index);
                assert!(body.len() <= CPU_ANSWERS_BYTES, "a card sends no longer body");
                // SAFETY: the mapping is that long (checked by `load`), and no program runs meanwhile.
                unsafe { answers.as_mut_ptr().copy_from_nonoverlapping(body.as_ptr(), body.len()) };
            }
            *verdict = self.replay.run(&program, burst, index, 1).map_err(|problem| failed(name, problem))?.verdict;
            if let Some(additions) = &mut self.additions {
                additions.take();
            }
            if let Some(rewritten) = &mut self.rewritten {
                rewritten.take(burst, index, *verdict);
            }
        }
        Ok(())
    }

    fn rewritten(&self, _: &FrameBurst<'_>, _: &[Verdict], visit: &mut dyn FnMut(usize, &[u8], u32)) {
        self.rewritten.iter().for_each(|rewritten| rewritten.each(visit));
    }

    fn counters(&self) -> Vec<Counter> {
        let counters = self.counters.as_ptr().cast::<Counter>();
        // SAFETY: the mapping holds at least `counter_count` counters (checked by `load`) and is aligned to a page. The
        // kernel writes them only inside `decide` and `time_frame`, which need `&mut self`. The read is volatile
        // because the compiler cannot see those writes.
        (0..self.counter_count).map(|index| unsafe { counters.add(index).read_volatile() }).collect()
    }

    fn addition_counts(&self) -> AdditionCounts {
        self.additions.as_ref().map(|additions| additions.tables.counts()).unwrap_or_default()
    }

    fn entry_counts(&self, slot: usize, visit: &mut dyn FnMut(IpAddr, u8, EntryCounts)) {
        if let Some(Some(image)) = self.state.tables.as_ref().and_then(|live| live.counted.get(slot)) {
            image.hits(0, visit);
        }
    }

    fn slot_counts(&self, slot: usize) -> Vec<SlotCounter> {
        self.state.slots.object(slot).slot.list().iter().map(|rule| rule.counts).collect()
    }

    fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.flow_table().iter().for_each(|table| table.each(visit));
    }

    fn take_features(&mut self) -> Result<Option<Snapshot>, EngineError> {
        filter::taken(self.features())
    }

    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount)) {
        if let Some(counted) = &self.counted {
            counted.each(limiter, visit);
        }
    }
}
