//! State that the next program in this process takes over, after an upgrade (`docs/decisions/0072-upgrades.md`).
//!
//! The tables of flows, the buckets and counts of limits, and the rules of slots are handed over as maps of the kernel.
//! Programs in the kernel go on changing them, so nothing is lost however long the next program takes to begin. Tables
//! of addresses are in files ([`crate::saved`]).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};
use weir_abi::{ABI_VERSION, AdditionCounts};

use crate::flow_store::FlowTables;
use crate::flows::FlowTable;
use crate::limits::{Buckets, Counts, HandedAssignment, LimitStore};
use crate::shared::HandedBucketMap;
use crate::slots::HandedRules;
use crate::tracked::TrackedBy;
use crate::{SharedState, UsedBy};

/// Keeps a descriptor open for the next program. Returns its number.
pub type Keep<'a> = &'a mut dyn FnMut(BorrowedFd<'_>) -> io::Result<i32>;
/// Takes a descriptor that was kept open, once.
pub type Take<'a> = &'a mut dyn FnMut(i32) -> io::Result<OwnedFd>;

/// What is handed over. Descriptors are numbers of this process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StateHandover {
    abi: u32,
    seed: u32,
    flows: Vec<HandedFlows>,
    limits: Option<HandedLimits>,
    slots: Vec<HandedSlot>,
    /// What rules have added to tables: new, updated, lost, refused by full tables, and by protected ones.
    additions: [u64; 5],
    /// Packets that P4 pipelines and their controllers have tracked, if there were any.
    #[serde(default)]
    tracked: Option<[u64; 2]>,
}

/// A slot with its rules.
#[derive(Debug, Serialize, Deserialize)]
struct HandedSlot {
    name: String,
    /// `None` for the memory of workers, which ends with their program.
    map: Option<i32>,
    rules: HandedRules,
}

/// A table of flows.
#[derive(Debug, Serialize, Deserialize)]
struct HandedFlows {
    head: i32,
    buckets: i32,
    proxied: Option<i32>,
    count: u32,
}

/// The buckets of limits.
#[derive(Debug, Serialize, Deserialize)]
struct HandedLimits {
    map: i32,
    /// The counts of packets beside the buckets, if any policy had them: that exceeded their limits, and that passed.
    counts: [Option<i32>; 2],
    count: usize,
    assignment: HandedAssignment,
}

impl SharedState {
    /// Hands over what is in maps of the kernel.
    ///
    /// # Errors
    /// A descriptor cannot be kept.
    pub fn hand_over(&self, keep: Keep<'_>) -> io::Result<StateHandover> {
        let mut flows = Vec::new();
        for table in self.all_flows() {
            let Some((head, buckets)) = table.maps() else { continue };
            let proxied = table.proxied_map().map(&mut *keep).transpose()?;
            flows.push(HandedFlows { head: keep(head)?, buckets: keep(buckets)?, proxied, count: table.buckets() });
        }
        let limits = self.known_limits().and_then(|limits| Some((limits, limits.buckets().map()?)));
        let limits = limits.map(|(limits, map)| {
            let (count, assignment) = (limits.buckets().count(), limits.assignment());
            let counts = limits.counts().maps().map(|map| map.map(&mut *keep).transpose());
            let [exceeded, passed] = counts;
            Ok::<_, io::Error>(HandedLimits { map: keep(map)?, counts: [exceeded?, passed?], count, assignment })
        });
        let limits = limits.transpose()?;
        let mut slots = Vec::new();
        for (name, slot) in self.slots().all() {
            let map = slot.map().map(&mut *keep).transpose()?;
            slots.push(HandedSlot { name, map, rules: slot.hand_over() });
        }
        let AdditionCounts { added, updated, overflow, table_full, protected } = self.additions().counts();
        let additions = [added, updated, overflow, table_full, protected];
        let tracked = self.known_tracked().map(|TrackedBy { pipeline, controller }| [pipeline, controller]);
        Ok(StateHandover { abi: ABI_VERSION, seed: self.seed(), flows, limits, slots, additions, tracked })
    }

    /// State that continues with what was handed over. State of another layout begins anew, and what is handed over is
    /// closed.
    ///
    /// # Errors
    /// A descriptor is not what it should be.
    pub fn continuing(used_by: UsedBy, handed: StateHandover, take: Take<'_>) -> io::Result<Self> {
        let is_same = handed.abi == ABI_VERSION;
        let mut tables = Vec::new();
        for HandedFlows { head, buckets, proxied, count } in handed.flows {
            let (maps, proxied) = ([take(head)?, take(buckets)?], proxied.map(&mut *take).transpose()?);
            if is_same {
                tables.push(FlowTable::handed(maps, proxied, count)?);
            }
        }
        let mut limits = None;
        if let Some(HandedLimits { map, counts, count, assignment }) = handed.limits {
            let map = take(map)?;
            let [exceeded, passed] = counts.map(|map| map.map(&mut *take).transpose());
            if is_same {
                if !assignment.fits(count) {
                    return Err(io::Error::other("the buckets of limits are assigned beyond their number"));
                }
                let counts = Counts::handed([exceeded?, passed?], count)?;
                limits = Some(HandedBucketMap { buckets: Buckets::handed(map, count)?, counts, assignment });
            }
        }
        let mut slots = Vec::new();
        for HandedSlot { name, map, rules } in handed.slots {
            slots.push((name, map.map(&mut *take).transpose()?, rules));
        }
        let state = match is_same {
            true => SharedState::with_seed(used_by, handed.seed),
            false => SharedState::new(used_by),
        };
        let [added, updated, overflow, table_full, protected] = handed.additions;
        state.additions().continue_with(AdditionCounts { added, updated, overflow, table_full, protected });
        if let Some([pipeline, controller]) = handed.tracked {
            state.tracked().add(TrackedBy { pipeline, controller });
        }
        state.take_handed(tables, limits);
        if is_same {
            state.slots().continue_with(slots, crate::now_ns())?;
        }
        Ok(state)
    }

    /// Number of tables of flows that were handed over and that a generation has taken.
    pub fn handed_flows(&self) -> usize {
        self.flow_tables(|FlowTables { handed, .. }| handed.iter().filter(|table| Arc::strong_count(table) > 1).count())
    }

    /// Closes what was handed over and what no generation has taken. From now on new state begins empty.
    pub fn end_handover(&self) {
        self.flow_tables(|tables| tables.handed.clear());
        *self.handed_buckets().lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.tables().end_handover();
        self.slots().end_handover();
        self.known_limits().into_iter().for_each(LimitStore::end_handover);
    }
}
