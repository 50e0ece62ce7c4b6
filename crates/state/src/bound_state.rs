//! The state that a program is bound to. Engines know it as a whole: every kind is a [`BoundKind`].

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weir_abi::Burst;
use weir_tables::live::Readers;

use crate::bound_kind::{BoundKind, StateShape, Worker};
use crate::feature_store::FeatureBinding;
use crate::features::FeatureWriter;
use crate::flow_store::FlowBinding;
use crate::limits::Limits;
use crate::slot_store::SlotBinding;
use crate::tables::LiveTables;

/// The state that a program is bound to, one field for each kind. By default it has none. A clone shares it.
#[derive(Clone, Default)]
pub struct BoundState {
    /// The data of limiters, if the program has any.
    pub limits: Option<Limits>,
    /// The tables that can change, if there are any.
    pub tables: Option<LiveTables>,
    /// The flows, if the program tracks.
    pub flows: Arc<FlowBinding>,
    /// The slots of rules.
    pub slots: Arc<SlotBinding>,
    /// What is observed, if the program observes.
    pub features: Arc<FeatureBinding>,
}

impl BoundState {
    fn kinds(&self) -> [&dyn BoundKind; 5] {
        let BoundState { limits, tables, flows, slots, features } = self;
        [limits, tables, &**flows, &**slots, &**features]
    }

    /// Refuses the state of another program.
    ///
    /// # Errors
    /// What differs first.
    pub fn check(&self, expected: &StateShape) -> Result<(), String> {
        self.kinds().into_iter().try_for_each(|kind| kind.check(expected))
    }

    /// The maps that programs of all generations in the kernel share, with their names in an object.
    pub fn maps(&self) -> Vec<(String, BorrowedFd<'_>)> {
        self.kinds().into_iter().flat_map(BoundKind::maps).collect()
    }

    /// Fills all buckets at the time of the first packet. No program charges them meanwhile.
    pub fn fill(&self, now_ns: u64) {
        self.kinds().into_iter().for_each(|kind| kind.fill(now_ns));
    }

    /// The registry for workers that read tables and slots; `None` if nothing changes while they read.
    pub fn readers(&self) -> Option<&Readers> {
        let of_slots = || self.slots.slots().next()?.readers();
        self.tables.as_ref().map(|tables| &tables.readers).or_else(of_slots)
    }

    /// What the code of a worker finds in its bursts, while this state lives.
    ///
    /// # Errors
    /// The process has no address space left.
    pub fn of_worker(&self, worker: Worker) -> io::Result<WorkerState> {
        let mut burst = Burst::default();
        let memory = self.kinds().into_iter().map(|kind| kind.point(worker, &mut burst)).collect::<io::Result<_>>()?;
        let features = self.features.features().map(|features| features.writer(worker.number)).transpose()?;
        let needs_times = self.kinds().into_iter().any(BoundKind::needs_times);
        Ok(WorkerState { burst, features, needs_times, _memory: memory })
    }
}

/// What the code of one worker finds of the state in a burst: pointers that are valid while the state and this live.
pub struct WorkerState {
    /// What is the same in each burst.
    burst: Burst,
    /// Where features are counted. `None` if the program does not observe.
    features: Option<FeatureWriter>,
    needs_times: bool,
    /// The worker's own part.
    _memory: Vec<Box<dyn Any>>,
}

// SAFETY: only compiled code uses the pointers in `burst`, and the worker calls it. `_memory` has vectors of such
// pointers and shared counters (`point` of each kind), `features` a writer whose words are atomic. None of them is
// bound to a thread.
unsafe impl Send for WorkerState {}
// SAFETY: as above.
unsafe impl Sync for WorkerState {}

impl WorkerState {
    /// Whether the program needs the reception times of packets.
    pub fn needs_times(&self) -> bool {
        self.needs_times
    }

    /// Begins a burst: the state that its code uses until [`WorkerState::end`].
    #[inline]
    pub fn begin(&self) -> Burst {
        match &self.features {
            Some(writer) => Burst { features: writer.begin(), ..self.burst },
            None => self.burst,
        }
    }

    /// Ends the burst.
    #[inline]
    pub fn end(&self) {
        self.features.iter().for_each(FeatureWriter::end);
    }
}
