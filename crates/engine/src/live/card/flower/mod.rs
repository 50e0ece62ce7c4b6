//! A card that the kernel programs: filters of TC flower with `skip_sw` (docs/guide/card.md,
//! docs/decisions/0052-flow-tables.md).
//!
//! Each source is one filter in the driver's table. Software has no copy of that table. Weir's filters have preferences
//! of their own, and a cookie. A preference with filters of another program is refused. Filters that a killed process
//! has left are deleted by its guard and at the next start.

mod filter;
mod kernel;
mod table;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use super::netns::within;
use crate::EngineError;
use crate::live::os::device::Device;
use crate::live::os::netlink::Route;
use kernel::{PROBE_CHANGES, clean, hook, probe};

pub use filter::Place;
pub use table::FlowerTable;

/// Where the filters are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowerSpec {
    /// The network namespace of the interface. `None`: Weir's own.
    pub namespace: Option<PathBuf>,
    /// The interface.
    pub interface: String,
    /// Entries that its table has room for, at most.
    pub entries: usize,
    /// The preference of IPv4 filters. IPv6 filters have the next one.
    pub pref: u16,
}

/// The card. When it is dropped, the card has no filter of Weir.
pub struct FlowerCard {
    /// Its table.
    pub table: FlowerTable,
    /// Where its filters are, for a process that deletes them.
    pub place: Place,
    /// What passes everything when the card fails.
    pub held: HeldFilters,
    /// How the card counts, for the operator.
    pub access: String,
}

impl FlowerCard {
    /// Opens the card. Deletes the filters that an earlier process has left, and tries whether the driver takes filters
    /// for both IP versions.
    ///
    /// # Errors
    /// There is no such interface, the kernel has no flower, the driver takes no such filters, the preferences
    /// have filters of another program, or the process lacks a right (CAP_NET_ADMIN).
    pub fn open(spec: &FlowerSpec) -> Result<Self, EngineError> {
        let failed = |source| failed(&spec.interface, source);
        let (index, mut route, held) = within(spec.namespace.as_deref(), || {
            let device = Device::open(&spec.interface)?;
            let sockets = Route::open().and_then(|route| Ok((route, Route::open()?)));
            sockets.map(|(route, held)| (device.index(), route, held)).map_err(failed)
        })?;
        let place = Place { index, pref: spec.pref, owner: weir_state::now_ns() };
        hook(&mut route, place).map_err(failed)?;
        clean(&mut route, place, |_| true).map_err(failed)?;
        let begun = Instant::now();
        let counting = probe(&mut route, place, &spec.interface).map_err(failed)?;
        let update = begun.elapsed() / PROBE_CHANGES;
        let access = format!("card: {}: flower in hardware, {}", spec.interface, counting.described());
        let table = FlowerTable::new(route, place, counting, spec.entries, update);
        Ok(FlowerCard { table, place, held: HeldFilters { route: held, place }, access })
    }
}

/// Deletes all filters that a process has left, in the network namespace of this thread.
///
/// # Errors
/// The kernel refuses.
pub fn sweep(place: Place) -> io::Result<()> {
    clean(&mut Route::open()?, place, |owner| owner == place.owner)
}

/// The filters of a card, which are deleted when this is dropped.
pub struct HeldFilters {
    route: Route,
    place: Place,
}

impl Drop for HeldFilters {
    fn drop(&mut self) {
        // Without the interface there are no filters. The error has no receiver any more.
        let _failed = clean(&mut self.route, self.place, |owner| owner == self.place.owner);
    }
}

fn failed(interface: &str, source: io::Error) -> EngineError {
    EngineError::Interface { interface: interface.to_owned(), source }
}
