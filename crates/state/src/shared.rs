//! The owner of shared state: one for each datapath.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weir_abi::flow::FlowNeeds;
use weir_abi::{FeatureShape, each};

use crate::feature_store::{FeatureBinding, ObservedFeatures};
use crate::features::Features;
use crate::flow_store::{FlowBinding, FlowTables};
use crate::flows::FlowTable;
use crate::limits::{Buckets, Counts, HandedAssignment, LimitNeeds, LimitStore, SavedDebts};
use crate::saved::SavedFlows;
use crate::slot_store::SlotStore;
use crate::store::{Declared, StateKind, Store};
use crate::tables::{Additions, TableStore};
use crate::tracked::{TrackedBy, TrackedCounts};
use crate::words::BUCKETS_MAX;
use crate::{StateError, UsedBy};

/// Minimum number of spare buckets in the kernel, besides the buckets of the first policy. They take 512 KiB.
const BUCKETS_SPARE_MIN: usize = 1 << 16;

/// Buckets that were handed over, until the first policy with limits.
pub(crate) struct HandedBucketMap {
    pub buckets: Buckets,
    pub counts: Counts,
    pub assignment: HandedAssignment,
}

/// All state that outlives the generations of one datapath. State of a kind is reserved for the first policy that
/// declares it, so other policies pay nothing.
pub struct SharedState {
    used_by: UsedBy,
    /// The hash seed of addresses.
    seed: u32,
    limits: OnceLock<LimitStore>,
    tables: OnceLock<Arc<TableStore>>,
    additions: OnceLock<Arc<Additions>>,
    slots: OnceLock<SlotStore>,
    tracked: OnceLock<Arc<TrackedCounts>>,
    flows: Store<FlowTables>,
    features: Store<ObservedFeatures>,
    /// Debts for limits that no generation has declared yet.
    debts: Mutex<Vec<SavedDebts>>,
    /// Buckets of the program before this one in its process, until the first policy with limits.
    handed_buckets: Mutex<Option<HandedBucketMap>>,
}

impl SharedState {
    /// Takes no memory yet. The hash seed is random, except for [`UsedBy::Replay`]: an attacker must not know which
    /// addresses share a set of a table.
    pub fn new(used_by: UsedBy) -> Self {
        let seed = match used_by {
            UsedBy::Replay(_) => each::REPLAY_SEED,
            UsedBy::Workers | UsedBy::Kernel { .. } => RandomState::new().hash_one(()) as u32,
        };
        SharedState::with_seed(used_by, seed)
    }

    /// Shared state with a known hash seed, to compare the decisions of engines.
    pub fn with_seed(used_by: UsedBy, seed: u32) -> Self {
        let (limits, tables, additions) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let flows = Store::new(FlowTables { used_by, saved: None, handed: Vec::new() });
        let features = Store::new(ObservedFeatures { used_by });
        let (slots, tracked, debts, handed_buckets) =
            (OnceLock::new(), OnceLock::new(), Mutex::default(), Mutex::default());
        SharedState { used_by, seed, limits, tables, additions, slots, tracked, flows, features, debts, handed_buckets }
    }

    /// The hash seed of addresses.
    pub(crate) fn seed(&self) -> u32 {
        self.seed
    }

    /// Runs `work` on what is known of tables of flows.
    pub(crate) fn flow_tables<R>(&self, work: impl FnOnce(&mut FlowTables) -> R) -> R {
        self.flows.maintain(|tables, _| work(tables))
    }

    /// The tables of flows of all loaded generations.
    pub(crate) fn all_flows(&self) -> Vec<Arc<FlowTable>> {
        let mut all: Vec<Arc<FlowTable>> = Vec::new();
        for table in self.flows.loaded().iter().filter_map(|binding| binding.table()) {
            if !all.iter().any(|known| Arc::ptr_eq(known, table)) {
                all.push(table.clone());
            }
        }
        all
    }

    /// Buckets that were handed over and not taken yet.
    pub(crate) fn handed_buckets(&self) -> &Mutex<Option<HandedBucketMap>> {
        &self.handed_buckets
    }

    /// Lets the first generations continue with tables of flows and buckets.
    pub(crate) fn take_handed(&self, flows: Vec<Arc<FlowTable>>, buckets: Option<HandedBucketMap>) {
        self.flow_tables(|tables| tables.handed = flows);
        *self.handed_buckets.lock().unwrap_or_else(PoisonError::into_inner) = buckets;
    }

    /// Whether one policy uses the state, to decide replayed packets.
    pub fn is_replay(&self) -> bool {
        self.used_by.is_replay()
    }

    /// The state of limits, reserved at the first call.
    ///
    /// # Errors
    /// There is no memory for the buckets.
    pub fn limits(&self, needs: LimitNeeds) -> Result<&LimitStore, StateError> {
        if self.limits.get().is_none() {
            let handed = self.handed_buckets.lock().unwrap_or_else(PoisonError::into_inner).take();
            let handed = handed.filter(|handed| handed.buckets.count() >= needs.buckets);
            let (handed, continued) = match handed {
                Some(HandedBucketMap { buckets, counts, assignment }) => (Some(buckets), Some((counts, assignment))),
                None => (None, None),
            };
            let buckets = match (handed, self.used_by) {
                (Some(handed), _) => handed,
                (None, UsedBy::Replay(_)) => Buckets::reserve(needs.buckets)?,
                (None, UsedBy::Workers) => Buckets::reserve(BUCKETS_MAX)?,
                (None, UsedBy::Kernel { limits_room }) => Buckets::in_kernel(kernel_buckets(needs, limits_room))?,
            };
            let (counts, assignment) = continued.unzip();
            let store = LimitStore::counting(self.seed, buckets, counts.unwrap_or_default());
            assignment.into_iter().for_each(|assignment| store.continue_with(assignment));
            store.keep_debts(self.debts.lock().unwrap_or_else(PoisonError::into_inner).clone());
            // If another thread was faster, its store is used.
            let _other = self.limits.set(store);
        }
        Ok(self.limits.get().expect("it was set above"))
    }

    /// The state of limits, if a policy had some.
    pub fn known_limits(&self) -> Option<&LimitStore> {
        self.limits.get()
    }

    /// Keeps debts for the first generations that declare their buckets. To be called before generations are bound.
    pub fn keep_debts(&self, debts: Vec<SavedDebts>) {
        *self.debts.lock().unwrap_or_else(PoisonError::into_inner) = debts;
    }

    /// The state of tables.
    pub fn tables(&self) -> &Arc<TableStore> {
        self.tables.get_or_init(|| Arc::new(TableStore::new(self.used_by.memory())))
    }

    /// The queues of what rules add to tables. Replays have none.
    pub fn additions(&self) -> &Arc<Additions> {
        self.additions.get_or_init(|| Arc::new(Additions::new(self.tables().clone())))
    }

    /// The slots of rules. Code that reads tables reads slots, too. In a replay nothing changes them meanwhile.
    pub fn slots(&self) -> &SlotStore {
        let readers = || (!self.is_replay()).then(|| self.tables().readers().clone());
        self.slots.get_or_init(|| SlotStore::new(self.used_by.memory(), readers()))
    }

    /// What pipelines with a controller add to.
    pub fn tracked(&self) -> &Arc<TrackedCounts> {
        self.tracked.get_or_init(Arc::default)
    }

    /// What pipelines with a controller have counted. `None` if there were none.
    pub fn known_tracked(&self) -> Option<TrackedBy> {
        self.tracked.get().map(|counts| counts.read())
    }

    /// Keeps saved flows. New tables of flows begin with them until [`SharedState::end_saved_flows`].
    pub fn keep_flows(&self, flows: Option<SavedFlows>) {
        self.flows.maintain(|tables, _| tables.saved = flows);
    }

    /// From now on, new tables of flows begin empty. Returns what was found while saved flows were restored.
    pub fn end_saved_flows(&self) -> Vec<String> {
        let saved = self.flows.maintain(|tables, _| tables.saved.take());
        saved.map(|saved| saved.take_notices()).unwrap_or_default()
    }

    /// Binds a generation to the table of flows that it needs, if it tracks. Policies with another size have another
    /// table. A new table has the saved flows that have not expired.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn bind_flows(&self, needs: Option<FlowNeeds>) -> Result<Arc<FlowBinding>, StateError> {
        self.flows.bind(declared("flows", needs), 0)
    }

    /// The table of flows of loaded generations with this size.
    pub fn flows(&self, needs: &FlowNeeds) -> Option<Arc<FlowTable>> {
        let fits = |table: &&Arc<FlowTable>| FlowTables::fits(needs, table);
        self.flows.loaded().iter().find_map(|binding| binding.table().filter(fits).cloned())
    }

    /// Binds a generation to what it observes, if it does. Policies with another shape have sheets of their own.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn bind_features(&self, shape: Option<FeatureShape>) -> Result<Arc<FeatureBinding>, StateError> {
        self.features.bind(declared("observed", shape), 0)
    }

    /// What all loaded generations observe.
    pub fn observed(&self) -> Vec<Arc<Features>> {
        self.features.with_objects(|loaded| {
            let mut all: Vec<Arc<Features>> = Vec::new();
            for features in loaded {
                if !all.iter().any(|known| Arc::ptr_eq(known, features)) {
                    all.push(features.clone());
                }
            }
            all
        })
    }

    /// Updates state that no packet has used for long. It must be called every few minutes.
    pub fn refresh(&self, now_ns: u64) {
        if let Some(limits) = self.limits.get() {
            limits.refresh(now_ns);
        }
        if let Some(slots) = self.slots.get() {
            slots.refresh(now_ns);
        }
        self.flows.with_objects(|loaded| loaded.for_each(|table| table.refresh(now_ns)));
    }
}

/// The declaration of state that a policy has once or not at all.
fn declared<D>(name: &str, declaration: Option<D>) -> Vec<Declared<D>> {
    declaration.into_iter().map(|declaration| Declared { name: name.to_owned(), declaration }).collect()
}

/// Number of buckets to reserve in the kernel. By default lists may grow by a quarter, or an address table may get
/// another limit, while older generations are still loaded. The first bucket is never assigned.
fn kernel_buckets(LimitNeeds { buckets, largest_address_table }: LimitNeeds, room: Option<usize>) -> usize {
    match room {
        Some(room) => buckets.max(room + 1),
        None => {
            let spare = (buckets / 4).max(BUCKETS_SPARE_MIN).max(largest_address_table);
            (buckets + spare).min(BUCKETS_MAX.max(buckets))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_reserves_for_lists_that_grow() {
        let reserved = |buckets: usize, largest_address_table: usize, room: Option<usize>| {
            kernel_buckets(LimitNeeds { buckets, largest_address_table }, room)
        };
        assert_eq!(reserved(11, 0, None), 11 + BUCKETS_SPARE_MIN);
        assert_eq!(reserved(1 << 20, 0, None), (1 << 20) + (1 << 18));
        assert_eq!(reserved(1 << 20, 1 << 20, None), 2 << 20, "a table of addresses may get another limit");
        assert_eq!(reserved(BUCKETS_MAX, 0, None), BUCKETS_MAX);
        assert_eq!((reserved(11, 0, Some(100)), reserved(1000, 0, Some(100))), (101, 1000));
    }

    #[test]
    fn only_replays_have_a_known_seed() {
        let seed = |used_by: UsedBy| SharedState::new(used_by).seed;
        assert_eq!(seed(UsedBy::Replay(crate::Memory::Process)), each::REPLAY_SEED);
        let seeds = [(); 4].map(|()| seed(UsedBy::Workers));
        assert!(seeds.iter().any(|&one| one != seeds[0]), "four of 32 bits are not all the same");
    }
}
