//! Which rules of a loaded policy a card should take, and what it takes of them: profiles by name, the split of a
//! policy with the images of its tables, and the distributor's choice with the prices of native code.
#![forbid(unsafe_code)]

pub mod card;
mod costs;
pub mod survey;

use card::{CardImages, CardTables, split_of};
use costs::NativeCosts;
use std::collections::BTreeSet;
use survey::{Survey, assumed};
use weir_card::distributor::cost::{Bill, Idle, Link, Traffic};
use weir_card::distributor::{Advised, Distributor};
use weir_card::{Profile, TableSizes};
use weir_control::CardCost;
use weir_loading::Policy;
use weir_policy::ir::RuleId;
use weir_policy::ir::eval::packet::Frame;

/// The load of the link up to which a choice is allowed.
const LOAD_MAX: f64 = 0.95;
/// The link of a plan without options.
const LINK_BITS_PER_S: f64 = 10e9;
/// Bytes of preamble, FCS and gap.
const OVERHEAD_BYTES: f64 = 24.0;

/// Chooses what a card takes of a chain, by the packets that it will see and a link of 10 Gbit/s that they fill half.
///
/// # Panics
/// The policy is a bundle.
pub fn advise<'f>(
    policy: &Policy,
    chain: usize,
    profile: &Profile,
    frames: impl IntoIterator<Item = Frame<'f>>,
) -> Advised {
    let all = split_of(policy, chain, profile, &|_| true);
    let images = CardImages::new(policy, &all);
    let mut survey = Survey::new(policy, profile, &all, &images);
    frames.into_iter().for_each(|frame| survey.see(frame));
    let mut traffic = survey.traffic();
    let link = link(LINK_BITS_PER_S);
    traffic.pps = half_of(link, &traffic);
    choose(policy, chain, profile, link, &traffic)
}

/// The rules of a chain that are worth a card if every packet has answers, reaches every rule and matches none: what
/// `weir card plan` chooses without a capture.
///
/// # Panics
/// The policy is a bundle.
pub fn worth(policy: &Policy, chain: usize, profile: &Profile) -> BTreeSet<RuleId> {
    let mut traffic = assumed(policy, chain);
    let link = link(LINK_BITS_PER_S);
    traffic.pps = half_of(link, &traffic);
    choose(policy, chain, profile, link, &traffic).choice.rules
}

/// Chooses what a card takes of a chain, by the traffic and the link.
///
/// # Panics
/// The policy is a bundle.
pub fn choose(policy: &Policy, chain: usize, profile: &Profile, link: Link, traffic: &Traffic) -> Advised {
    let of = Distributed { policy, chain, profile, sizes: &CardTables::new(policy), link, idle: Idle::NoCard };
    of.by(|distributor| distributor.choose(traffic))
}

/// What a distributor is about.
pub struct Distributed<'a> {
    /// The policy, which is no bundle.
    pub policy: &'a Policy,
    /// The chain.
    pub chain: usize,
    /// The card.
    pub profile: &'a Profile,
    /// The sizes of tables on it.
    pub sizes: &'a dyn TableSizes,
    /// The link between card and host.
    pub link: Link,
    /// What there is without offloaded rules.
    pub idle: Idle,
}

impl Distributed<'_> {
    /// Asks a distributor with the costs of native code.
    ///
    /// # Panics
    /// The policy is a bundle.
    pub fn by<T>(&self, ask: impl FnOnce(&Distributor<'_>) -> T) -> T {
        let Distributed { policy, chain, profile, sizes, link, idle } = *self;
        let lowered = &policy.text().expect("a bundle is not split").lowered;
        let costs = NativeCosts { policy };
        let (program, counters) = (&lowered.program, &lowered.counters);
        ask(&Distributor { program, counters, chain, profile, sizes, costs: &costs, link, idle })
    }
}

/// A link of so many bits a second, as plans load it.
pub fn link(bits_per_s: f64) -> Link {
    Link { bits_per_s, load_max: LOAD_MAX }
}

/// Packets a second that fill half of a link.
pub fn half_of(link: Link, traffic: &Traffic) -> f64 {
    link.bits_per_s / 2.0 / 8.0 / (traffic.frame_bytes + OVERHEAD_BYTES)
}

/// What a packet costs, for reports.
pub fn bill(bill: &Bill) -> CardCost {
    CardCost {
        cycles_per_packet: bill.cycles,
        trailer_bits: 8 * bill.trailer_bytes,
        dropped: bill.dropped,
        link_load: bill.load,
    }
}
