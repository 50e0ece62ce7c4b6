//! The wire-side card: a stand-in for a SmartNIC, on the far end of the wire (docs/guide/card.md,
//! datapath/engine/wire_card.h).
//!
//! ```text
//!   a network namespace                     Weir's
//!   wire --- outer ==== card ==== inner --------- lower
//! ```
//! The card passes packets between two interfaces, and drops the packets of its entries. It reaches them through the
//! network namespace, whichever that is. Like a real card it goes on without Weir: it then has no entries and passes
//! everything. Cards that the kernel programs are in `flower`.

mod driver_table;
pub mod flower;
mod netns;
mod program;
mod room;
mod spec;
mod table;

use std::sync::Arc;
use std::time::Duration;

use crate::EngineError;
use crate::live::xdp::prepare_grace;

pub use driver_table::DriverTable;
pub use netns::within;
pub use room::Room;
pub use spec::CardSpec;
pub use table::{CardTable, Entry, Refused};

/// The card. When it is dropped, or the process ends, the card passes every packet.
pub struct WireCard {
    /// The hardware table.
    pub table: Option<CardTable>,
    /// What the card's CPU drops.
    pub cpu: Option<CardTable>,
    /// How the card passes packets, for the operator.
    pub access: Vec<String>,
    _drop_switch: program::DropSwitch,
}

impl WireCard {
    /// Opens the card: its interfaces pass packets from now on, if they did not before.
    ///
    /// Whether its programs run in the drivers is decided now, by what the neighbours accept. So a card is opened
    /// before Weir attaches anything, and goes on passing packets when Weir has ended.
    ///
    /// # Errors
    /// There is no such namespace or interface, an interface has a program of another user, there is no clang, or the
    /// process lacks the right to change the namespace (CAP_SYS_ADMIN).
    pub fn open(spec: &CardSpec) -> Result<Self, EngineError> {
        let loaded = program::load(spec)?;
        let grace = Arc::new(prepare_grace()?);
        let (access, counters) = (loaded.access, Arc::new(loaded.counters));
        let mut first = 0;
        let mut place = |map, entries: usize, update| {
            let own = first..first + entries;
            first += entries;
            (entries > 0).then(|| CardTable::new(map, own, update, counters.clone(), grace.clone()))
        };
        let table = place(loaded.table, spec.entries, spec.update);
        let cpu = place(loaded.cpu, spec.cpu_entries, Duration::ZERO);
        Ok(WireCard { table, cpu, access, _drop_switch: loaded.drop_switch })
    }
}
