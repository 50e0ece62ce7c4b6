//! The interface to what enforces policies between interfaces: workers in user space ([`crate::live::Workers`]) or
//! programs in the kernel ([`crate::live::xdp::KernelPath`]).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_abi::Counter;

use crate::EngineError;
use crate::live::lane::{PortNature, PortReading, Role};
use crate::live::os::inherited::{Inherited, Kept};
use crate::live::programs::attach::{HeldLink, Mode};
use crate::live::tap::PolicyNames;
use crate::live::xdp::HandedCounts;
use crate::sealed::{Answered, CardPort};

/// A policy in the form of a datapath, with the chain for packets from each side, lower first.
#[derive(Debug)]
pub struct Loaded<C> {
    /// The code, with its tables.
    pub code: Arc<C>,
    /// Indices of the upstream and downstream chains.
    pub chains: [usize; 2],
    /// The chain that decides packets from the lower side with the answers of a card, instead of the upstream chain.
    pub answered: Option<Answered>,
    /// The names of its rules, for copies of packets.
    pub names: Arc<PolicyNames>,
}

impl<C> Loaded<C> {
    /// A policy that reads no card's answers, and whose rules have no names.
    pub fn plain(code: Arc<C>, chains: [usize; 2]) -> Self {
        Loaded { code, chains, answered: None, names: Arc::default() }
    }
}

impl<C> Clone for Loaded<C> {
    fn clone(&self) -> Self {
        Loaded { code: self.code.clone(), chains: self.chains, answered: self.answered, names: self.names.clone() }
    }
}

/// Counters of each worker, by the side on which packets arrived, lower first. Each array is indexed by
/// [`weir_abi::Reason`].
pub type Counts = Vec<[Vec<Counter>; 2]>;

/// The counts of one policy.
#[derive(Debug)]
pub struct Reading<C> {
    /// Its code.
    pub code: Arc<C>,
    /// Counts since its activation.
    pub counts: Counts,
}

/// The counts of all policies that decide packets, or whose counts were not taken yet.
#[derive(Debug)]
pub struct Readings<C> {
    /// Of the policy that was activated last.
    pub active: Reading<C>,
    /// Of previous policies, and of one that is being activated or failed to activate.
    pub others: Vec<Reading<C>>,
}

/// A part of a datapath that uses another policy than the one activated last.
#[derive(Debug)]
pub struct Stray<C> {
    /// A worker or an interface.
    pub part: String,
    /// The policy that it uses.
    pub policy: Loaded<C>,
}

/// Counts of one worker's queues of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// The number of the worker, from 0.
    pub worker: usize,
    /// The current name of the interface.
    pub interface: String,
    /// The role of the interface.
    pub role: Role,
    /// What the port is.
    pub nature: PortNature,
    /// Whether it has a link, if it uses no interface of the kernel.
    pub has_link: bool,
    /// Counts since the start.
    pub reading: PortReading,
    /// Whether packets without room in a receive queue are counted.
    pub knows_missed: bool,
}

/// A link of a program to an interface that is handed over. Descriptors are numbers of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedLink {
    link: i32,
    promiscuous: Option<i32>,
    mode: Option<Mode>,
}

impl HandedLink {
    /// Keeps the descriptors of a link.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(in crate::live) fn keep(
        (link, promiscuous): (BorrowedFd<'_>, Option<BorrowedFd<'_>>),
        mode: Option<Mode>,
        kept: &mut Kept,
    ) -> io::Result<Self> {
        let promiscuous = promiscuous.map(|socket| kept.keep(socket)).transpose()?;
        Ok(HandedLink { link: kept.keep(link)?, promiscuous, mode })
    }

    /// Takes the descriptors of a link that was handed over.
    ///
    /// # Errors
    /// They were not handed over.
    pub fn take(self, inherited: &mut Inherited) -> io::Result<HeldLink> {
        let HandedLink { link, promiscuous, mode } = self;
        let promiscuous = promiscuous.map(|number| inherited.take(number)).transpose()?;
        Ok(HeldLink { link: inherited.take(link)?, promiscuous, mode })
    }
}

/// What decides packets, for the next program in this process.
pub struct HandedPath<C> {
    /// The links of programs, in the order of the ports.
    pub links: Vec<HandedLink>,
    /// Last readings, of the active policy first, and what continues to count.
    pub counts: Vec<(Reading<C>, HandedCounts)>,
    /// The ports at the same time.
    pub ports: Vec<PortStatus>,
    /// What drivers had counted of packets without room.
    pub missed: Vec<Option<u64>>,
}

/// A datapath between interfaces, which enforces a policy from its start until it is stopped. Only
/// [`Datapath::activate`] and [`Datapath::stop`] wait. All other methods return at once, also during those calls.
pub trait Datapath: Send + Sync {
    /// A policy, compiled and loaded for this datapath.
    type Code: Send + Sync + 'static;

    /// Changes the policy. No packet is lost or decided by both policies. One change is made at a time; another one
    /// waits.
    ///
    /// # Errors
    /// A system call failed. The previous policy decides packets again. [`Datapath::strays`] names the parts where that
    /// was not possible.
    fn activate(&self, policy: &Loaded<Self::Code>) -> Result<(), EngineError>;

    /// Says what card is in front of an interface of the lower side, by the name at the start; `None` for none. Returns
    /// when no packet is handled as before any more. Policies that are activated later keep the card.
    ///
    /// # Errors
    /// There is no such interface, there are too many configurations, or a worker hangs.
    fn set_card(&self, interface: &str, card: Option<CardPort>) -> Result<(), EngineError> {
        let _no_card = card;
        let source = io::Error::other("this engine does not read a card's answers");
        Err(EngineError::Interface { interface: interface.to_owned(), source })
    }

    /// Number of separate counter sets: one per worker, or per CPU.
    fn workers(&self) -> usize;

    /// Returns all counts that were not taken yet. Every packet is in the counts of one policy.
    fn readings(&self) -> Readings<Self::Code>;

    /// Takes the counts of policies that no longer decide packets. Each is returned once.
    fn take_final(&self) -> Vec<Reading<Self::Code>>;

    /// The counts of the policy that was activated last.
    fn counts(&self) -> Counts {
        self.readings().active.counts
    }

    /// Parts that use another policy than the one activated last, during a change or after a failed one.
    fn strays(&self) -> Vec<Stray<Self::Code>>;

    /// Counts of packets at the interfaces since the start.
    fn ports(&self) -> Vec<PortStatus>;

    /// How packets of each interface reach the datapath, in words for the operator. Empty if there is only one way.
    fn access(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the datapath has failed; [`Datapath::stop`] returns the reason.
    fn has_failed(&self) -> bool;

    /// Hands over what decides packets to the next program in this process; `None` if it ends with this one.
    ///
    /// # Errors
    /// A descriptor cannot be kept.
    fn hand_over(&self, _kept: &mut Kept) -> io::Result<Option<HandedPath<Self::Code>>> {
        Ok(None)
    }

    /// Stops the datapath and releases the interfaces. A change in progress fails.
    ///
    /// # Errors
    /// An earlier failure, or a part that does not stop.
    fn stop(&self) -> Result<(), EngineError>;
}
