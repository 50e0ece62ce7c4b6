//! State that outlives generations of policies.
//!
//! A policy declares state by a name: the buckets of its limits, tables that change, slots of rules, flows and what it
//! observes. Packets or requests change it while one generation is active, and the next generation continues with it.
//!
//! | idea | meaning | type |
//! | --- | --- | --- |
//! | kind | what the state is made of, and which state a declaration can take over | [`StateKind`] |
//! | owner | holds the state of all kinds of one datapath, and the memory that it is in | [`SharedState`] |
//! | name | what a policy calls the state, the same in every generation | [`Declared::name`] |
//! | binding | the state that one generation uses; it keeps the state alive | [`Binding`] |
//!
//! A generation is bound when it is loaded, before its code is made. For each name it gets the state that a loaded
//! generation has under this name, if that state fits; the newest such generation counts. Other state is new.
//!
//! A swap of generations moves nothing and copies nothing. Generations that name the same state use the same words in
//! memory from the time the later one is loaded: the active one, those that are prepared, and the previous one. So a
//! rollback continues with the state as the packets left it. State is free again when the last generation that names
//! it is gone.

mod bound_kind;
mod bound_state;
pub mod error;
pub mod feature_store;
pub mod features;
pub mod flow_store;
pub mod flows;
mod grace;
pub mod handover;
mod kernel_map;
pub mod limits;
pub mod memory;
pub mod owner;
pub mod saved;
pub mod shared;
pub mod slot_store;
pub mod slots;
pub mod store;
pub mod tables;
pub mod tracked;
pub mod words;

pub use bound_kind::{Sharing, StateShape, Worker};
pub use bound_state::{BoundState, WorkerState};
pub use error::StateError;
pub use grace::Grace;
pub use kernel_map::{cpus, handed_section, map_number, map_of_number, mapped_array};
pub use memory::{Memory, UsedBy};
pub use shared::SharedState;
pub use store::{Binding, Declared, StateKind, Store};

/// The time of shared state on interfaces: `CLOCK_MONOTONIC`, which programs in the kernel read too.
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
