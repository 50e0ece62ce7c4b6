//! Writes what the next program in this process reads first, after an upgrade: to a folder of its own, at once.

use std::io;
use std::sync::{Arc, OnceLock};

use weir_abi::flow::Timeouts;

use super::debts;
use super::flow_saver::FlowSaver;
use super::folder::{Folder, Numbered};
use super::log::Clocks;
use super::saver::{NEW_SNAPSHOT, SnapshotFile};
use crate::SharedState;
use crate::flows::FlowTable;
use crate::tables::TableBinding;

/// Writes dynamic tables, as the active generation has them, and the debts of limits. With `flows`, it writes them too:
/// a table, and the timeouts of the active policy.
///
/// # Errors
/// The folder cannot be written.
pub fn write(
    folder: Folder,
    shared: &SharedState,
    active: Option<&TableBinding>,
    flows: Option<(&Arc<FlowTable>, &Timeouts)>,
) -> io::Result<()> {
    const FIRST: u64 = 1;
    let clocks = Clocks::now();
    let file = folder.create(NEW_SNAPSHOT)?;
    let tables = shared.tables().save(active, || {});
    let mut snapshot = SnapshotFile::create(file, FIRST, clocks)?;
    for table in &tables {
        snapshot.write(table, |_| Ok(()))?;
    }
    snapshot.end()?;
    folder.publish(NEW_SNAPSHOT, &Numbered::Snapshot.file(FIRST))?;
    let in_debt = shared.known_limits().map(|limits| limits.debts(clocks.now_ns)).unwrap_or_default();
    debts::write(&folder, &in_debt, clocks)?;
    let opened = Arc::new(OnceLock::new());
    let _is_first = opened.set(folder);
    FlowSaver::new(opened).complete(flows)
}
