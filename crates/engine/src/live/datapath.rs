//! What enforces policies between interfaces: workers in user space ([`crate::live::Workers`]) or programs in the kernel
//! ([`crate::live::xdp::KernelPath`]), changed and read alike.

use std::sync::Arc;

use weir_abi::Counter;

use crate::EngineError;
use crate::live::lane::{PortReading, Role};

/// A policy in the form that a datapath takes, and the chain for packets from each side, lower first.
#[derive(Debug)]
pub struct Loaded<C> {
    /// The code, with its tables.
    pub code: Arc<C>,
    /// Upstream, downstream.
    pub chains: [usize; 2],
}

impl<C> Clone for Loaded<C> {
    fn clone(&self) -> Self {
        Loaded { code: self.code.clone(), chains: self.chains }
    }
}

/// Counters of each worker, by the side that packets came from, lower first; each array is indexed by [`weir_abi::Reason`].
pub type Counts = Vec<[Vec<Counter>; 2]>;

/// What became of packets at an interface's queues that one worker has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// The worker, from 0.
    pub worker: usize,
    /// The interface, by the name that it has now.
    pub interface: String,
    /// Where it is.
    pub role: Role,
    /// Since the start.
    pub reading: PortReading,
    /// Whether anybody counts the packets that it had no room for.
    pub knows_missed: bool,
}

/// Interfaces with a policy between them, from the start until it is stopped.
pub trait Datapath: Send {
    /// A policy, compiled and loaded for this datapath.
    type Code: Send + Sync + 'static;

    /// Changes to another policy, without a packet lost or judged by both. Returns what was counted since the last change, or the start; every
    /// packet is in the counts of one stay in office.
    ///
    /// # Errors
    /// Something failed outside; the policy before may still decide, in part.
    fn activate(&mut self, policy: &Loaded<Self::Code>) -> Result<Counts, EngineError>;

    /// How many count, each for itself: workers, or CPUs.
    fn workers(&self) -> usize;

    /// What was counted since the last change, or the start.
    fn counts(&self) -> Counts;

    /// What became of packets at the interfaces, since the start.
    fn ports(&self) -> Vec<PortStatus>;

    /// How packets of each interface reach it, in words for the operator; nothing where there is only one way.
    fn access(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it has failed; [`Datapath::stop`] says why.
    fn has_failed(&self) -> bool;

    /// Stops it and lets go of the interfaces.
    ///
    /// # Errors
    /// What failed before.
    fn stop(&mut self) -> Result<(), EngineError>;
}
