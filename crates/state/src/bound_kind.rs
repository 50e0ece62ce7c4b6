//! What engines ask of each kind of state that a program is bound to.

use std::any::Any;
use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

use weir_abi::{Burst, FeatureShape};

/// The state that a program was compiled for. The default is none. Crates that make one set the kinds that they know,
/// so that another kind is a field here and nothing elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateShape {
    /// Number of limiters.
    pub limiters: usize,
    /// Number of adders.
    pub adders: usize,
    /// Number of flows that its table holds; `None` if it does not track.
    pub flows: Option<u32>,
    /// Whether flows may be proxied.
    pub proxied: bool,
    /// Number of slots of rules.
    pub slots: usize,
    /// What is counted of the packets that pass; `None` if nothing is.
    pub features: Option<FeatureShape>,
}

/// Refuses what differs from what a program expects.
pub(crate) fn expect<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, the program expects {expected:?}")),
    }
}

/// The number of workers that use the state of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One worker, which needs no atomic operations.
    Alone,
    /// Several workers.
    Shared,
}

/// A worker, as the state of its program knows it.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Its number. Filters with the same number run on one thread.
    pub number: usize,
    /// Whether others use the same state.
    pub sharing: Sharing,
}

impl Worker {
    /// Whether others use the same state, as C takes it.
    pub(crate) fn shared(self) -> u64 {
        (self.sharing == Sharing::Shared).into()
    }
}

/// A kind of state as a program is bound to it.
pub(crate) trait BoundKind {
    /// Refuses the state of another program.
    fn check(&self, expected: &StateShape) -> Result<(), String>;

    /// The maps that programs of all generations in the kernel share, with their names in an object.
    fn maps(&self) -> Vec<(String, BorrowedFd<'_>)>;

    /// Sets what the code of a worker finds in each burst. The pointers are valid while the state and the result live.
    ///
    /// # Errors
    /// There is no memory for the worker's own part.
    fn point(&self, _worker: Worker, _burst: &mut Burst) -> io::Result<Box<dyn Any>> {
        Ok(Box::new(()))
    }

    /// Whether programs need the reception times of packets.
    fn needs_times(&self) -> bool {
        false
    }

    /// Fills all buckets at the time of the first packet. No program charges them meanwhile.
    fn fill(&self, _now_ns: u64) {}
}
