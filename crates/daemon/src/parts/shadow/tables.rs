//! The dynamic tables of a shadow. They begin with the entries that the active policy's tables of the same name and type
//! have, with their deadlines, and get the changes that are made there since then. Changes by rules are left out,
//! because the shadow's own rules add to its tables.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_command::failure::Failure;
use weir_engine::NativeFilter;
use weir_loading::{Policy, TablesBeside};
use weir_state::now_ns;
use weir_state::tables::{SavedTable, TableBinding, TableFollower, TableStore};

/// The tables of a shadow.
pub struct ShadowTables {
    own: TablesBeside,
    follower: Arc<TableFollower>,
    /// Names of the tables that began with entries of the active policy.
    pub continued: Vec<String>,
    /// Changes that its tables could not take.
    refused: u64,
}

/// Loads the code of a shadow with its tables.
///
/// # Errors
/// It cannot be compiled or loaded.
pub fn begin(
    policy: &Policy,
    store: &TableStore,
    active: Option<&TableBinding>,
) -> Result<(NativeFilter, ShadowTables), Failure> {
    let dynamic = policy.dynamic_tables();
    // A change that is made from here on is followed, and may be in the entries too. Making it twice is no harm.
    let follower = store.follow(dynamic.clone());
    let (from_ns, to_ns) = (now_ns(), since_1970());
    let continued: Vec<SavedTable> = match dynamic.is_empty() {
        true => Vec::new(),
        false => store.save(active, || ()).into_iter().filter(|table| dynamic.contains(&table.key)).collect(),
    };
    let names = continued.iter().map(|table| table.key.name.clone()).collect();
    let continued = continued.into_iter().map(|table| table.at_clock(from_ns, to_ns)).collect();
    let (filter, own, notices) = policy.native_beside(continued)?;
    notices.iter().for_each(|notice| eprintln!("weir: the shadow: {notice}"));
    Ok((filter, ShadowTables { own, follower, continued: names, refused: 0 }))
}

impl ShadowTables {
    /// Makes the changes that were made in the active policy's tables. To be called by the thread that judges.
    pub fn follow(&mut self) {
        while let Some(change) = self.follower.next() {
            self.refused += u64::from(self.own.apply(&change, since_1970()).is_err());
        }
    }

    /// Changes that its tables do not have.
    pub fn missed(&self) -> u64 {
        self.refused + self.follower.missed()
    }
}

/// The time of packets: ns since 1970.
fn since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}
