//! State on disk: dynamic tables, the debts of limits and flows, so that they outlive the process.
//!
//! ```text
//!   a change ──appends──> ChangeLog ──every 0.2 s──> tables-7.journal            a thread of its own writes
//!   all tables ─────────── when the journal is large ──> tables-8.snapshot       and begins tables-8.journal
//!   start: the newest snapshot that is whole, then the journals since then
//! ```
//! The debts of limits change with every packet. Another thread writes them anew each second, or less often if that
//! takes long. A third thread goes over the table of flows and writes what has changed.
//!
//! A change never waits: it appends some bytes to memory. Records say what an entry is afterwards, so a journal may
//! contain changes that its snapshot has already. The previous snapshot and the journals since then are kept too, in
//! case the newest snapshot is damaged.
//!
//! Journals with consecutive numbers have every change. A number is left out where changes were lost, and a reader
//! stops there. Files that it cannot use get another name and are never removed.

mod cursor;
pub mod debts;
mod flow_reader;
mod flow_record;
mod flow_saver;
mod folder;
mod frame;
pub mod handover;
pub mod log;
pub mod record;
pub mod restore;
pub mod saver;
mod state_file;

pub use debts::DebtSaver;
pub use flow_reader::SavedFlows;
pub use flow_saver::FlowSaver;
pub use folder::{Folder, FolderError};
pub use log::{ChangeLog, Clocks};
pub use restore::{Restored, restore};
pub use saver::Saver;
