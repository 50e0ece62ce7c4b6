//! How full tables, buckets and flows are. Entries of tables are not read. The counters of limits are, the words of
//! `limit each`, and the tags of the table of flows, whose numbers the policy bounds.

use crate::generations::generation::Generation;
use weir_control::LimitsTotal;
use weir_state::SharedState;

/// How full the state of a generation is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Occupancy {
    /// Its tables.
    pub tables: Vec<TableOccupancy>,
    /// Buckets that limits of loaded generations have, and buckets that there are; `None` without limits.
    pub buckets: Option<[usize; 2]>,
    /// Addresses in debt at rates of `limit each`, and addresses for which these have room; `None` without such limits.
    pub addresses: Option<[usize; 2]>,
    /// Counts of limits; `None` if no list counts.
    pub limits: Option<LimitsTotal>,
    /// Flows of each class, and the flows that the table can hold; `None` if the generation does not track.
    pub flows: Option<FlowOccupancy>,
}

/// How full a table is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOccupancy {
    /// Its name.
    pub table: String,
    /// Number of entries.
    pub entries: usize,
    /// Maximum number of entries, if the table is dynamic.
    pub size: Option<usize>,
    /// Entries that the table refused since the start because it was full.
    pub refused: u64,
}

/// How full the table of flows is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowOccupancy {
    /// Flows whose sender has proven its address.
    pub proven: u64,
    /// Connections that are not open yet.
    pub embryonic: u64,
    /// Flows whose sender cannot prove its address.
    pub unproven: u64,
    /// Connections that close.
    pub closing: u64,
    /// Flows that the table can hold.
    pub size: u64,
}

/// The occupancy of the active generation.
pub fn of<C>(active: &Generation<C>, shared: &SharedState) -> Occupancy {
    Occupancy {
        tables: tables(active, shared),
        buckets: shared.known_limits().map(|limits| [limits.assigned(), limits.buckets().count()]),
        addresses: shared.known_limits().and_then(|limits| limits.addresses(weir_state::now_ns())),
        limits: active.limits(0, None).ok().map(|limits| limits.total),
        flows: flows(active, shared),
    }
}

fn tables<C>(active: &Generation<C>, shared: &SharedState) -> Vec<TableOccupancy> {
    let Some(binding) = active.tables() else { return Vec::new() };
    let store = shared.tables();
    let table = |name: &String| {
        // A table that no rule looks up has no image.
        let (entries, size) = store.read(binding, name, |table| (table.count(), table.size())).ok()?;
        Some(TableOccupancy { table: name.clone(), entries, size, refused: store.refused_by(name) })
    };
    active.declared().all().iter().filter_map(|declared| table(&declared.name)).collect()
}

fn flows<C>(active: &Generation<C>, shared: &SharedState) -> Option<FlowOccupancy> {
    let table = shared.flows(&active.program().flow_needs()?)?;
    let [proven, embryonic, unproven, closing] = table.classes();
    Some(FlowOccupancy { proven, embryonic, unproven, closing, size: table.slot_count() as u64 })
}
