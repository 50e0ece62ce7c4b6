//! Tables of flows as a kind of shared state. Generations share a table if theirs have the same number of buckets.

use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::rand::{GetRandomFlags, getrandom};
use weir_abi::flow::{FlowNeeds, FlowSecrets, buckets};
use weir_abi::{Burst, burst};

use crate::bound_kind::{BoundKind, StateShape, Worker, expect};
use crate::flows::FlowTable;
use crate::saved::{Clocks, SavedFlows};
use crate::store::{Binding, Request, StateKind};
use crate::{StateError, UsedBy};

/// Names of the maps of the head and of the buckets of a table, and of what is kept of proxied flows.
const HEAD: &str = ".bss.flow_head";
const BUCKETS: &str = "weir_flows";
const PROXIED: &str = "weir_proxied";

/// Tables of flows as a kind of shared state.
pub struct FlowTables {
    /// The code that uses the tables.
    pub used_by: UsedBy,
    /// Flows for each new table, until a table is saved.
    pub saved: Option<SavedFlows>,
    /// Tables of the program before this one in its process, until generations are bound to them.
    pub handed: Vec<Arc<FlowTable>>,
}

/// The table of flows that a generation uses, if it tracks.
pub type FlowBinding = Binding<FlowTables>;

impl FlowBinding {
    /// The table; `None` if the generation does not track.
    pub fn table(&self) -> Option<&Arc<FlowTable>> {
        self.objects().next()
    }
}

impl StateKind for FlowTables {
    type Declaration = FlowNeeds;
    type Object = Arc<FlowTable>;

    fn fits(needs: &FlowNeeds, table: &Arc<FlowTable>) -> bool {
        table.buckets() == buckets(needs.size)
    }

    fn bind(
        &mut self,
        requests: Vec<Request<'_, Self>>,
        _: &mut dyn Iterator<Item = &Arc<FlowTable>>,
        _: u64,
    ) -> Result<Vec<Arc<FlowTable>>, StateError> {
        requests.into_iter().map(|request| self.table(request)).collect()
    }
}

impl FlowTables {
    /// A loaded table, or a new one with the saved flows that have not expired.
    fn table(&self, request: Request<'_, Self>) -> Result<Arc<FlowTable>, StateError> {
        let needs = request.declaration;
        let handed = self.handed.iter().find(|table| Self::fits(&needs, table));
        let (known, secrets) = (request.earlier.first().copied().or(handed), || self.secrets());
        let new = || FlowTable::new(self.used_by.memory(), needs.size, secrets()?);
        let table = known.map_or_else(new, |table| Ok(table.clone()))?;
        if needs.proxied {
            table.keep_proxied()?;
        }
        if let Some(saved) = self.saved.as_ref().filter(|_| known.is_none()) {
            saved.restore(&table, &needs, Clocks::now());
        }
        Ok(table)
    }

    /// The secrets of a new table: from the system, except in replays.
    fn secrets(&self) -> Result<FlowSecrets, StateError> {
        if self.used_by.is_replay() {
            return Ok(FlowSecrets::REPLAY);
        }
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
}

impl BoundKind for FlowBinding {
    fn check(&self, expected: &StateShape) -> Result<(), String> {
        let table = self.table();
        if expected.proxied && table.is_none_or(|table| table.proxied().is_null()) {
            return Err("flows: no room for proxied ones".to_owned());
        }
        let found = table.map(|table| table.buckets());
        expect("buckets of flows", found, expected.flows.map(buckets))
    }

    fn maps(&self) -> Vec<(String, BorrowedFd<'_>)> {
        let Some(table) = self.table() else { return Vec::new() };
        let maps = table.maps().map(|(head, buckets)| [(HEAD, head), (BUCKETS, buckets)]);
        let proxied = table.proxied_map().map(|map| (PROXIED, map));
        maps.into_iter().flatten().chain(proxied).map(|(name, map)| (name.to_owned(), map)).collect()
    }

    fn point(&self, worker: Worker, burst: &mut Burst) -> io::Result<Box<dyn Any>> {
        if let Some(table) = self.table() {
            let (head, buckets) = table.as_ptrs();
            burst.flows = burst::Flows { head, buckets, shared: worker.shared(), proxied: table.proxied() };
        }
        Ok(Box::new(()))
    }

    fn needs_times(&self) -> bool {
        self.table().is_some()
    }
}
