//! The owner of shared state: one for each datapath.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use rustix::rand::{GetRandomFlags, getrandom};
use weir_abi::features::REPLAY_SEED;
use weir_abi::flow::{FlowNeeds, FlowSecrets, buckets};
use weir_abi::{FeatureShape, each};

use crate::features::Features;
use crate::flows::FlowTable;
use crate::limits::{Buckets, LimitNeeds, LimitStore, SavedDebts};
use crate::saved::{Clocks, SavedFlows};
use crate::slot_store::SlotStore;
use crate::tables::{Additions, TableStore};
use crate::words::BUCKETS_MAX;
use crate::{Memory, StateError};

/// The code that uses shared state. It says where the state is, and how much is reserved.
#[derive(Clone, Copy, Debug)]
pub enum UsedBy {
    /// Exactly one policy in this process, with a fixed hash seed: runs on captures repeat to the bit.
    OnePolicy,
    /// Workers of this process, with all policies to come. Untouched pages take no memory, so as much as possible is
    /// reserved.
    Workers,
    /// Programs in the kernel.
    Kernel {
        /// Number of limits to reserve. Without it, as many as the first policy has, and a quarter more.
        limits_room: Option<usize>,
    },
}

impl UsedBy {
    /// Where the state is.
    pub fn memory(self) -> Memory {
        match self {
            UsedBy::OnePolicy | UsedBy::Workers => Memory::Process,
            UsedBy::Kernel { .. } => Memory::Kernel,
        }
    }
}

/// Minimum number of spare buckets in the kernel, besides the buckets of the first policy. They take 512 KiB.
const BUCKETS_SPARE_MIN: usize = 1 << 16;

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
    /// The tables of flows that some generation uses.
    flows: Mutex<Vec<Weak<FlowTable>>>,
    /// What is observed, of each shape that some generation uses.
    features: Mutex<Vec<Weak<Features>>>,
    /// Flows for each new table, until a table is saved.
    saved_flows: Mutex<Option<SavedFlows>>,
    /// Debts for limits that no generation has declared yet.
    debts: Mutex<Vec<SavedDebts>>,
}

impl SharedState {
    /// Takes no memory yet. The hash seed is random, except for [`UsedBy::OnePolicy`]: an attacker must not know which
    /// addresses share a set of a table.
    pub fn new(used_by: UsedBy) -> Self {
        let seed = match used_by {
            UsedBy::OnePolicy => each::REPLAY_SEED,
            UsedBy::Workers | UsedBy::Kernel { .. } => RandomState::new().hash_one(()) as u32,
        };
        SharedState::with_seed(used_by, seed)
    }

    /// Shared state with a known hash seed, to compare the decisions of engines.
    pub fn with_seed(used_by: UsedBy, seed: u32) -> Self {
        let (limits, tables, additions) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let slots = OnceLock::new();
        let (flows, saved_flows, debts) = (Mutex::default(), Mutex::default(), Mutex::default());
        let features = Mutex::default();
        SharedState { used_by, seed, limits, tables, additions, slots, flows, features, saved_flows, debts }
    }

    /// The state of limits, reserved at the first call.
    ///
    /// # Errors
    /// There is no memory for the buckets.
    pub fn limits(&self, needs: LimitNeeds) -> Result<&LimitStore, StateError> {
        if self.limits.get().is_none() {
            let buckets = match self.used_by {
                UsedBy::OnePolicy => Buckets::reserve(needs.buckets)?,
                UsedBy::Workers => Buckets::reserve(BUCKETS_MAX)?,
                UsedBy::Kernel { limits_room } => Buckets::in_kernel(kernel_buckets(needs, limits_room))?,
            };
            let store = LimitStore::new(self.seed, buckets);
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

    /// The state of tables, if they can change. A single policy needs no state.
    pub fn tables(&self) -> Option<&TableStore> {
        if let UsedBy::OnePolicy = self.used_by {
            return None;
        }
        Some(self.tables.get_or_init(|| Arc::new(TableStore::new(self.used_by.memory()))))
    }

    /// The queues of what rules add to tables, if tables can change.
    pub fn additions(&self) -> Option<&Arc<Additions>> {
        self.tables()?;
        let store = self.tables.get().expect("tables() has made it");
        Some(self.additions.get_or_init(|| Arc::new(Additions::new(store.clone()))))
    }

    /// The slots of rules, if tables can change. Code that reads tables reads slots, too.
    pub fn slots(&self) -> Option<&SlotStore> {
        let readers = self.tables()?.readers().clone();
        Some(self.slots.get_or_init(|| SlotStore::new(self.used_by.memory(), readers)))
    }

    /// Keeps saved flows. New tables of flows begin with them until [`SharedState::end_saved_flows`].
    pub fn keep_flows(&self, flows: Option<SavedFlows>) {
        *self.saved_flows() = flows;
    }

    /// From now on, new tables of flows begin empty. Returns what was found while saved flows were restored.
    pub fn end_saved_flows(&self) -> Vec<String> {
        self.saved_flows().take().map(|saved| saved.take_notices()).unwrap_or_default()
    }

    fn saved_flows(&self) -> MutexGuard<'_, Option<SavedFlows>> {
        self.saved_flows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table of flows for policies with this size. Policies with another size have another table. A new table has
    /// the saved flows that have not expired.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn flows(&self, needs: &FlowNeeds) -> Result<Arc<FlowTable>, StateError> {
        let mut tables = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        tables.retain(|table| table.strong_count() > 0);
        let known = tables.iter().filter_map(Weak::upgrade).find(|table| table.buckets() == buckets(needs.size));
        if let Some(known) = known {
            if needs.proxied {
                known.keep_proxied()?;
            }
            return Ok(known);
        }
        let secrets = match self.used_by {
            UsedBy::OnePolicy => FlowSecrets::REPLAY,
            UsedBy::Workers | UsedBy::Kernel { .. } => drawn_secrets()?,
        };
        let table = FlowTable::new(self.used_by.memory(), needs.size, secrets)?;
        if needs.proxied {
            table.keep_proxied()?;
        }
        if let Some(saved) = &*self.saved_flows() {
            saved.restore(&table, needs, Clocks::now());
        }
        tables.push(Arc::downgrade(&table));
        Ok(table)
    }

    /// What policies with this shape observe. Policies with another shape have sheets of their own.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn features(&self, shape: FeatureShape) -> Result<Arc<Features>, StateError> {
        let mut all = self.features.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|features| features.strong_count() > 0);
        if let Some(known) = all.iter().filter_map(Weak::upgrade).find(|features| *features.shape() == shape) {
            return Ok(known);
        }
        let seed = match self.used_by {
            UsedBy::OnePolicy => REPLAY_SEED,
            UsedBy::Workers | UsedBy::Kernel { .. } => RandomState::new().hash_one(()),
        };
        let features = match self.used_by.memory() {
            Memory::Process => Features::of_process(shape, seed),
            Memory::Kernel => {
                let cpus = crate::cpus().map_err(|error| StateError::Features { problem: error.to_string() })?;
                Features::of_kernel(shape, seed, cpus)?
            }
        };
        all.push(Arc::downgrade(&features));
        Ok(features)
    }

    /// What all loaded policies observe.
    pub fn observed(&self) -> Vec<Arc<Features>> {
        let all = self.features.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Updates state that no packet has used for long. It must be called every few minutes.
    pub fn refresh(&self, now_ns: u64) {
        if let Some(limits) = self.limits.get() {
            limits.refresh(now_ns);
        }
        if let Some(slots) = self.slots.get() {
            slots.refresh(now_ns);
        }
        let tables = self.flows.lock().unwrap_or_else(PoisonError::into_inner);
        tables.iter().filter_map(Weak::upgrade).for_each(|table| table.refresh(now_ns));
    }
}

/// Secrets from the system.
fn drawn_secrets() -> Result<FlowSecrets, StateError> {
    let mut bytes = [0; 3 * size_of::<u64>()];
    let mut drawn = 0;
    while drawn < bytes.len() {
        let now = getrandom(&mut bytes[drawn..], GetRandomFlags::empty());
        drawn += now.map_err(|errno| StateError::Secrets { source: errno.into() })?;
    }
    let (words, _) = bytes.as_chunks::<8>();
    let [seed, first, second] = [0, 1, 2].map(|index| u64::from_ne_bytes(words[index]));
    Ok(FlowSecrets { seed, cookies: [first, second] })
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
        assert_eq!(seed(UsedBy::OnePolicy), each::REPLAY_SEED);
        let seeds = [(); 4].map(|()| seed(UsedBy::Workers));
        assert!(seeds.iter().any(|&one| one != seeds[0]), "four of 32 bits are not all the same");
    }
}
