//! State that the next program in this process takes over, after an upgrade (`docs/decisions/0072-upgrades.md`).
//!
//! The tables of flows and the buckets of limits are handed over as maps of the kernel. Programs in the kernel go on
//! changing them, so nothing is lost however long the next program takes to begin. Tables of addresses are in files
//! ([`crate::saved`]).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};
use weir_abi::ABI_VERSION;

use crate::flow_store::FlowTables;
use crate::flows::FlowTable;
use crate::limits::{Buckets, HandedAssignment, LimitStore};
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
            Ok::<_, io::Error>(HandedLimits { map: keep(map)?, count, assignment })
        });
        Ok(StateHandover { abi: ABI_VERSION, seed: self.seed(), flows, limits: limits.transpose()? })
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
        if let Some(HandedLimits { map, count, assignment }) = handed.limits {
            let map = take(map)?;
            if is_same {
                if !assignment.fits(count) {
                    return Err(io::Error::other("the buckets of limits are assigned beyond their number"));
                }
                limits = Some((Buckets::handed(map, count)?, assignment));
            }
        }
        let state = match is_same {
            true => SharedState::with_seed(used_by, handed.seed),
            false => SharedState::new(used_by),
        };
        state.take_handed(tables, limits);
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
        self.known_limits().into_iter().for_each(LimitStore::end_handover);
    }
}
