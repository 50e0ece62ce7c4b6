//! Runs a program as native code in this process.

mod library;
mod pipeline;
mod sealed;

use std::ffi::c_void;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use weir_abi::flow::{Flow, FlowKey};
use weir_abi::slot::SlotCounter;
use weir_abi::{AdditionCounts, BURST_MAX, Burst, Counter, EntryCounts, Rewrite, Verdict, burst};
pub use weir_state::Sharing;
use weir_state::features::{Features, Snapshot};
use weir_state::flows::FlowTable;
use weir_state::limits::LimitCount;
use weir_state::tables::{ByRules, Published};
use weir_state::{Worker, WorkerState};
use weir_tables::live::Reader;

use crate::additions::{self, AdditionBuffer};
use crate::clang::NativeObject;
use crate::counters::CounterBlock;
use crate::sealed::{Answered, AnsweredFn};
use crate::{Bound, EngineError, Filter, FrameBurst, ProgramShape, TrackedBy, filter, kernels};
use library::{check_version, front, loader_message, memory_file};
pub use pipeline::Controller;
use pipeline::{P4Program, Pipeline};

/// `void weir_<chain>(const struct weir_burst *)`.
type ChainFn = unsafe extern "C" fn(*const Burst);

/// Pointers to images, by slot.
#[derive(Clone)]
struct ImagePointers(Vec<*const u8>);

// SAFETY: only `NativeFilter::decide` reads them. They point into images that the code of the filter owns, or that its
// reader protects for the burst.
unsafe impl Send for ImagePointers {}
// SAFETY: as above.
unsafe impl Sync for ImagePointers {}

/// What decides packets, inside of a shared object.
enum Code {
    /// A function for each chain.
    Chains(Vec<ChainFn>),
    /// A P4 program, from which each filter makes a pipeline.
    P4(P4Program),
}

/// A loaded shared object and its tables, which the filters of all workers share.
pub struct NativeCode {
    code: Code,
    tables: ImagePointers,
    /// Number of counters of each filter.
    counters: usize,
    /// Maximum number of additions that one packet makes.
    additions_max: usize,
    /// Whether chains change packets.
    rewrites: bool,
    /// The chain that reads a card's answers, and the bytes that it reads behind each packet.
    answered: Option<(usize, usize)>,
    /// What compares the seals of a burst, if the program reads answers.
    front: Option<AnsweredFn>,
    /// The state of the program. It has the memory that `tables` points into.
    bound: Bound,
    /// The library that `code` points into.
    library: Library,
    /// The file of the library. Its path contains the number of this descriptor, and the loader identifies libraries by
    /// path. If another policy got the same number, the loader would return this code for it. The file therefore stays
    /// open.
    _file: OwnedFd,
}

// SAFETY: the pointers point into images and code that this value owns and that nothing writes. Compiled chains keep no
// state except the arguments of each call.
unsafe impl Send for NativeCode {}
// SAFETY: as above. Chains write the stage clock, but only benchmarks with a single filter use it.
unsafe impl Sync for NativeCode {}

/// Decides bursts by native code and counts them. One worker owns it.
pub struct NativeFilter {
    /// What decides in place of the chains of the code, if the code is a P4 program. It is dropped before the code.
    pipeline: Option<Pipeline>,
    code: Arc<NativeCode>,
    /// The images of the current burst, by slot.
    tables: ImagePointers,
    /// Announces that the images of the previous burst are not read any more. `None` if no table can change.
    reader: Option<Reader>,
    counters: CounterBlock,
    /// What rules add to tables. `None` if tables change by requests only.
    additions: Option<AdditionBuffer>,
    /// What leaves in place of the packets of the last burst. Empty if the program changes no packets.
    rewrites: Vec<Rewrite>,
    /// The state of the program, as the worker uses it. `code` keeps what it points to.
    state: WorkerState,
    /// Whether the buckets are still to be filled at the time of the first burst.
    fills_buckets: bool,
    /// What has been added to the counts that pipelines share.
    tracked: TrackedBy,
}

/// The stages of a burst that are timed in code compiled with [`STAGE_CLOCK`].
pub const STAGES: [&str; 3] = ["parse", "lookup", "rules"];

/// This line before generated C enables the measurement of each stage. It costs a few cycles per burst.
pub const STAGE_CLOCK: &str = "#define WEIR_STAGE_CLOCK\n";

impl NativeCode {
    /// Number of reasons that verdicts may have, or more.
    pub(crate) fn reasons(&self) -> usize {
        self.counters
    }

    /// Refuses to compile P4 programs if this program cannot run them.
    ///
    /// # Errors
    /// It was built without DPDK.
    pub fn check_p4() -> Result<(), EngineError> {
        if cfg!(feature = "dpdk") { Ok(()) } else { Err(EngineError::NoP4) }
    }

    /// Loads a shared object of [`crate::clang`]. `name` is for messages.
    pub fn load(
        name: &str,
        object: &NativeObject,
        program: &ProgramShape,
        bound: Bound,
    ) -> Result<Arc<Self>, EngineError> {
        program.check(&bound)?;
        let refuse = |problem: String| EngineError::Native { object: name.to_owned(), problem };
        let (library, file) = open(name, object)?;
        check_version(name, &library)?;
        let code = match P4Program::find(&library) {
            Some(program) => {
                // What DPDK refuses is an error here, not when a worker starts.
                Pipeline::build(name, program, bound.controller)?;
                Code::P4(program)
            }
            None => Code::Chains(chains(name, &library, program)?),
        };
        let tables = ImagePointers(bound.images.iter().map(|image| image.as_bytes().as_ptr()).collect());
        let mut bound = bound;
        bound.state.tables.take_if(|tables| tables.images.iter().all(Option::is_none));
        let (counters, additions_max, rewrites) = (program.counters(), program.additions, program.rewrites);
        let (answered, front) = (program.answered, front(name, &library, program)?);
        let reserved = bound.state.of_worker(Worker { number: 0, sharing: Sharing::Alone });
        reserved.map_err(|error| refuse(format!("has no memory for the state of a worker: {error}")))?;
        Ok(Arc::new(NativeCode {
            code,
            tables,
            counters,
            additions_max,
            rewrites,
            answered,
            front,
            bound,
            library,
            _file: file,
        }))
    }

    /// Refuses answers if they do not belong to the chain that reads them.
    pub(crate) fn check_answered(&self, answered: Option<Answered>) -> Result<(), EngineError> {
        let given = answered.map(|Answered { chain, configured }| (chain, usize::from(configured.body)));
        match given.is_none() || given == self.answered {
            true => Ok(()),
            false => Err(EngineError::Native {
                object: "a policy".to_owned(),
                problem: format!("reads answers {:?} (chain, bytes), the card gives {given:?}", self.answered),
            }),
        }
    }

    /// A filter with its own counters, which start at 0. Filters with the same number of a worker run on one thread and
    /// count entries together.
    ///
    /// # Panics
    /// Panics if the process has no address space or memory left.
    pub fn filter(self: &Arc<Self>, sharing: Sharing, worker: usize) -> NativeFilter {
        let state = &self.bound.state;
        let reader = state.readers().map(|readers| readers.register().expect("there are few filters"));
        let (tables, counters) = (self.tables.clone(), CounterBlock::new(self.counters));
        let by_rules = state.tables.as_ref().map_or(&ByRules::Never, |tables| &tables.by_rules);
        let additions = AdditionBuffer::new(self.additions_max, by_rules);
        let rewrites = if self.rewrites { vec![Rewrite::default(); BURST_MAX] } else { vec![] };
        let state = state.of_worker(Worker { number: worker, sharing });
        let state = state.expect("the first worker found address space");
        let pipeline = match self.code {
            Code::Chains(_) => None,
            Code::P4(program) => {
                let pipeline = Pipeline::build("pipeline", program, self.bound.controller);
                Some(pipeline.expect("the first one was built"))
            }
        };
        let (code, fills_buckets, tracked) = (self.clone(), false, TrackedBy::default());
        NativeFilter { pipeline, code, tables, reader, counters, additions, rewrites, state, fills_buckets, tracked }
    }
}

/// The functions of the chains.
fn chains(name: &str, library: &Library, program: &ProgramShape) -> Result<Vec<ChainFn>, EngineError> {
    let function = |chain: &String| {
        let symbol = format!("weir_{chain}");
        let problem = || format!("has no function {symbol}");
        // SAFETY: the ABI version was checked, and in this version every `weir_<chain>` has this type.
        let function = unsafe { library.get::<ChainFn>(symbol.as_bytes()) };
        let missing = |_| EngineError::Native { object: name.to_owned(), problem: problem() };
        function.map(|function| *function).map_err(missing)
    };
    program.chains.iter().map(function).collect()
}

/// Maps a shared object and returns the library with its file. The file must stay open as long as the library is used.
///
/// # Errors
/// The dynamic loader refuses the object.
pub fn open(name: &str, object: &NativeObject) -> Result<(Library, OwnedFd), EngineError> {
    let refuse = |problem: String| EngineError::Native { object: name.to_owned(), problem };
    let file = memory_file(object.bytes())
        .map_err(|error| refuse(format!("cannot be put into memory: {error}")).caused_by(&error))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: our own compiler made the object, or it comes from a bundle whose code `Bundle::native` checked.
    // `elf::check_native` makes sure that the object of a bundle has no initialisers.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        let failed = refuse(loader_message(&error));
        // The dynamic loader gives no error number. It opens one descriptor, as this does.
        match file.try_clone() {
            Ok(_) => failed,
            Err(cause) => failed.caused_by(&cause),
        }
    });
    let library = library?;
    kernels::choose_in(&library);
    Ok((library, file))
}

impl NativeFilter {
    /// Loads code like [`NativeCode::load`], for one filter that alone charges its buckets. They are full at the time
    /// of its first burst.
    pub fn load(name: &str, object: &NativeObject, program: &ProgramShape, bound: Bound) -> Result<Self, EngineError> {
        Ok(Self::alone(&NativeCode::load(name, object, program, bound)?))
    }

    /// The only filter of some code, as [`NativeFilter::load`] makes it.
    pub fn alone(code: &Arc<NativeCode>) -> Self {
        NativeFilter { fills_buckets: true, ..code.filter(Sharing::Alone, 0) }
    }

    /// Whether it needs the reception times of packets.
    pub(crate) fn needs_times(&self) -> bool {
        self.state.needs_times()
    }

    /// Releases the tables of the previous burst. Without this a filter that decides nothing for long keeps memory of
    /// tables that change.
    pub(crate) fn rest(&mut self) {
        if let Some(reader) = &mut self.reader {
            reader.rest();
        }
    }

    /// What leaves in place of the packets of the last burst that were changed, by index. Empty if the program changes
    /// no packets.
    pub fn rewrites(&self) -> &[Rewrite] {
        &self.rewrites
    }

    /// The flows, if the program tracks.
    pub fn flow_table(&self) -> Option<&Arc<FlowTable>> {
        self.code.bound.state.flows.table()
    }

    /// What is observed, if the program observes.
    pub fn features(&self) -> Option<&Arc<Features>> {
        self.code.bound.state.features.features()
    }

    /// Its counters, which can be read while it counts.
    pub fn counter_block(&self) -> CounterBlock {
        self.counters.clone()
    }

    /// TSC cycles spent in each of [`STAGES`] since loading, or `None` if the code was compiled without
    /// [`STAGE_CLOCK`].
    pub fn stage_cycles(&self) -> Option<[u64; STAGES.len()]> {
        // SAFETY: only the address of the symbol is used here.
        let symbol = unsafe { self.code.library.get::<*const c_void>(b"weir_stage_cycles") }.ok()?;
        // SAFETY: datapath/core/env_native.h defines the symbol as `uint64_t[STAGES]`. Only chains write it, and they
        // need `&mut self`.
        Some(unsafe { symbol.into_raw().cast::<[u64; STAGES.len()]>().read() })
    }
}

impl Filter for NativeFilter {
    fn name(&self) -> &str {
        if self.pipeline.is_some() { "p4" } else { "native" }
    }

    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        self.decide_from(chain, burst, 0, &mut verdicts[..burst.len()])
    }

    fn rewritten(&self, burst: &FrameBurst<'_>, verdicts: &[Verdict], visit: &mut dyn FnMut(usize, &[u8], u32)) {
        for ((index, verdict), rewrite) in verdicts.iter().enumerate().zip(&self.rewrites) {
            if verdict.rewritten() {
                visit(index, &rewrite.packet(burst.bytes(index)), rewrite.len);
            }
        }
    }

    fn counters(&self) -> Vec<Counter> {
        self.counters.read()
    }

    fn addition_counts(&self) -> AdditionCounts {
        self.additions.as_ref().map(AdditionBuffer::counts).unwrap_or_default()
    }

    fn entry_counts(&self, slot: usize, visit: &mut dyn FnMut(IpAddr, u8, EntryCounts)) {
        if let Some(Some(image)) = self.code.bound.state.tables.as_ref().and_then(|live| live.counted.get(slot)) {
            image.hits(0, visit);
        }
    }

    fn tracked_by(&self) -> Option<TrackedBy> {
        self.code.bound.controller.and(self.pipeline.as_ref()).map(Pipeline::tracked_by)
    }

    fn slot_counts(&self, slot: usize) -> Vec<SlotCounter> {
        self.code.bound.state.slots.object(slot).slot.list().iter().map(|rule| rule.counts).collect()
    }

    fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.flow_table().iter().for_each(|table| table.each(visit));
    }

    fn take_features(&mut self) -> Result<Option<Snapshot>, EngineError> {
        filter::taken(self.features())
    }

    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount)) {
        if let Some(counted) = self.code.bound.state.limits.as_ref().and_then(|limits| limits.counted.as_ref()) {
            counted.each(limiter, visit);
        }
    }
}

impl NativeFilter {
    /// Decides packets of a burst, from the one with the index `from`. The verdicts are theirs.
    fn decide_from(
        &mut self,
        chain: usize,
        burst: &FrameBurst<'_>,
        from: usize,
        mut verdicts: &mut [Verdict],
    ) -> Result<(), EngineError> {
        let mut rest = *burst;
        while !rest.is_empty() {
            let now = self.begin_tick(&rest)?;
            let (first, others) = verdicts.split_at_mut(now);
            self.decide_at_once(chain, &rest.first(now), from + burst.len() - rest.len(), first);
            (rest, verdicts) = (rest.after(now), others);
        }
        Ok(())
    }

    /// In a replay, applies the additions of earlier ticks. Returns the number of packets in the tick of the first one;
    /// outside of a replay all.
    fn begin_tick(&mut self, burst: &FrameBurst<'_>) -> Result<usize, EngineError> {
        let Some(replay) = self.additions.as_mut().and_then(AdditionBuffer::replay) else { return Ok(burst.len()) };
        let (tick, count) = additions::first_tick(replay, burst);
        // The previous burst is over, so its images may be freed.
        if let Some(reader) = &mut self.reader {
            reader.rest();
        }
        replay.advance(tick).map_err(additions::failed)?;
        Ok(count)
    }

    /// Decides packets of a burst, from the one with the index `from`, in one call. The verdicts are theirs.
    fn decide_at_once(&mut self, chain: usize, burst: &FrameBurst<'_>, from: usize, verdicts: &mut [Verdict]) {
        assert_eq!(verdicts.len(), burst.len(), "a verdict for each packet");
        let read = self.code.answered.filter(|(answered, _)| *answered == chain).map_or(0, |(_, body)| body);
        assert!(burst.bytes_behind() >= read, "the chain reads answers behind the packets");
        if std::mem::take(&mut self.fills_buckets) && !burst.is_empty() {
            self.code.bound.state.fill(burst.time_ns(0));
        }
        let bursts = self.reader.as_mut().map(Reader::start_burst);
        if let (Some(burst), Some(live)) = (&bursts, &self.code.bound.state.tables) {
            for (table, image) in self.tables.0.iter_mut().zip(&live.images) {
                if let Some(Published::Pointer(image)) = image {
                    *table = image.open(burst).as_ptr();
                }
            }
        }
        let arguments = Burst {
            frames: burst.frames().as_ptr(),
            verdicts: verdicts.as_mut_ptr().cast(),
            count: burst.len() as u32,
            link: burst.link() as u32,
            times: burst.times(),
            tables: burst::Tables { images: self.tables.0.as_ptr() },
            counters: burst::Counters { reasons: self.counters.as_ptr() },
            additions: self.additions.as_mut().map(AdditionBuffer::as_c).unwrap_or_default(),
            rewrites: match self.rewrites.get_mut(from..) {
                Some([]) | None => burst::Rewrites::default(),
                Some(packets) => burst::Rewrites { packets: packets.as_mut_ptr() },
            },
            ..self.state.begin()
        };
        // SAFETY: `FrameBurst` guarantees that the frames are readable, and as many bytes behind them as the chain
        // reads. `verdicts` has room for all of them, and a verdict is a transparent u32. `tables` are checked images
        // in slot order; those that can change are valid until the reader starts another burst or rests. `counters` has
        // one counter for every reason of the program. `times` has one time for each frame, or none. The state of
        // limits (`LimitStore::bind`, `LimiterCounts::new`) guarantees that the tickets in the tables name existing
        // buckets and counts. `additions` has room for `ProgramShape::additions` records of each packet. `entries` has
        // counters and labels for every number that lookups return (`EntryCounters`), and only this worker writes these
        // counters. `flows` is a table if the program tracks (`ProgramShape::check`); other workers use it only if it
        // is `shared`. `rewrites` has room for each packet of the burst, or is null if the program changes none.
        // `slots` are the slots of the program (`ProgramShape::check`), and the records that they select do not change
        // before the reader starts another burst or rests. `features` is a sheet of the program's shape
        // (`ProgramShape::check`), which only this worker writes until `end`.
        unsafe {
            match (&mut self.pipeline, &self.code.code) {
                (Some(pipeline), _) => pipeline.decide(chain, &arguments),
                (None, Code::Chains(chains)) => chains[chain](&arguments),
                (None, Code::P4(_)) => unreachable!("each filter of a P4 program has a pipeline"),
            }
        }
        self.state.end();
        self.share_tracked();
        if let Some(additions) = &mut self.additions {
            additions.take();
        }
    }

    /// Adds what the last burst has tracked to the counts that pipelines share.
    fn share_tracked(&mut self) {
        if let (Some(shared), Some(by)) = (&self.code.bound.tracked, self.tracked_by()) {
            shared.add(by.since(std::mem::replace(&mut self.tracked, by)));
        }
    }
}
