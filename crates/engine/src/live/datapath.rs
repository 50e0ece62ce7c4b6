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

/// What was counted by a policy.
#[derive(Debug)]
pub struct Reading<C> {
    /// Its code.
    pub code: Arc<C>,
    /// Since it was activated.
    pub counts: Counts,
}

/// What was counted by all policies that decide packets, or whose counts were not taken yet.
#[derive(Debug)]
pub struct Readings<C> {
    /// By the policy that was activated last.
    pub active: Reading<C>,
    /// By those before it, and by one that is about to be activated or could not be.
    pub others: Vec<Reading<C>>,
}

/// A part of a datapath that decides by another policy than the one that was activated last.
#[derive(Debug)]
pub struct Stray<C> {
    /// A worker or an interface.
    pub part: String,
    /// What it decides by.
    pub policy: Loaded<C>,
}

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

/// Interfaces with a policy between them, from the start until it is stopped. Everything but [`Datapath::activate`] and [`Datapath::stop`]
/// returns at once, also while these wait.
pub trait Datapath: Send + Sync {
    /// A policy, compiled and loaded for this datapath.
    type Code: Send + Sync + 'static;

    /// Changes to another policy, without a packet lost or judged by both. One change at a time; another waits.
    ///
    /// # Errors
    /// Something failed outside. Packets are decided by the policy before again; [`Datapath::strays`] names the parts where that was not
    /// possible.
    fn activate(&self, policy: &Loaded<Self::Code>) -> Result<(), EngineError>;

    /// How many count, each for itself: workers, or CPUs.
    fn workers(&self) -> usize;

    /// What was counted and was not taken yet. Every packet is in the counts of one policy.
    fn readings(&self) -> Readings<Self::Code>;

    /// Takes the counts of policies that decide nothing any more: each is returned once.
    fn take_final(&self) -> Vec<Reading<Self::Code>>;

    /// What was counted by the policy that was activated last.
    fn counts(&self) -> Counts {
        self.readings().active.counts
    }

    /// Parts that decide by another policy than the one that was activated last: while a change is under way, or after one failed.
    fn strays(&self) -> Vec<Stray<Self::Code>>;

    /// What became of packets at the interfaces, since the start.
    fn ports(&self) -> Vec<PortStatus>;

    /// How packets of each interface reach it, in words for the operator; nothing where there is only one way.
    fn access(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether it has failed; [`Datapath::stop`] says why.
    fn has_failed(&self) -> bool;

    /// Stops it and lets go of the interfaces. A change that is under way fails.
    ///
    /// # Errors
    /// What failed before, or a part that does not stop.
    fn stop(&self) -> Result<(), EngineError>;
}
