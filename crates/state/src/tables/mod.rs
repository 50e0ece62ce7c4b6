//! Tables of policies, a kind of shared state.
//!
//! A program looks up images. An image is of one table, or of several fused sets. Until its first change an image is
//! constant: the one that the policy was loaded with. A change then rebuilds it with room for more, and later changes
//! are made in place where the layout allows it ([`weir_tables::live`]).
//!
//! ```text
//!   generation 2 ──binding──> image of bad + admin ──┬─ table "bad"       changes by name reach every
//!   generation 1 ──binding──> image of bad ──────────┴─ table "bad"       image that has the table
//! ```
//! Generations share an image if they have the same tables in it, with the same layout and the same entries in the
//! policy. A list that has other entries when a generation is loaded is a new image without the changes. Until then
//! changes by hand and by rules reach all loaded generations, also through images that they do not share. A new list
//! reaches those that had the same list before ([`TableStore::replace_lists`]).
//!
//! Locks, in the order in which a thread takes them:
//!
//! | lock | guards | is held |
//! | --- | --- | --- |
//! | `TableStore::binding` | the set of loaded images, against other loads | while a generation is bound |
//! | the turn of a table (`turns`) | the order of its changes in all images | during a change of the table, a batch of its expiry, its copy for a snapshot, and while a generation that has it is bound |
//! | `kind` of the store | which generation has which state | while a generation is bound or released |
//! | `bindings` of the store | the list of loaded generations | to read or extend the list |
//! | `contents` of an image, then `expiry`, `listed` | its entries and deadlines | while the image is changed or read |
//!
//! A change of a large table may take half a second, and in the kernel the wait for a grace period comes on top. Only
//! changes of this table, and requests that read its image, wait for it. The image is the table itself, or the sets
//! that are fused with it. Expiry never waits: it skips a table while it is being changed. That change, or the next
//! tick, removes the expired entries.

mod addition_ring;
mod additions;
mod bound_tables;
mod change;
mod entry_counters;
mod expiring;
mod expiry;
mod fit;
mod followed;
mod image;
mod kernel;
mod lasting;
mod lists;
mod patience;
mod published;
mod replacement;
mod table_error;
mod table_images;
mod table_store;
mod turns;
mod wheel;

pub use addition_ring::AdditionRings;
pub use additions::{Adders, Additions, ListedEntries, ProtectedTable, Replay, ReplayedTables, TableAdder};
pub use bound_tables::{ByRules, ENTRIES, LABELS, LiveTables, TABLE};
pub use change::{NotTaken, TableChange, Visibility};
pub use entry_counters::{CounterRun, EntryCounters, EntryMaps};
pub use expiring::EXPIRE_BATCH;
pub use followed::{FollowedChange, TableFollower};
pub use image::{DynamicBounds, ImageDeclared, Member, TableImage};
pub use kernel::{KernelImage, SelectedHalves};
pub use lasting::SavedTable;
pub use lists::NotReplaced;
pub use published::Published;
pub use table_error::TableError;
pub use table_images::{TableBinding, TableImages};
pub use table_store::{Changed, TableStore, TableView};
pub use wheel::{TICK_NS, TIMEOUT_MS_MAX};
