//! Joins a card that answers rules to the rest of the daemon: its options, the controller, and the changes that it
//! watches over.

use crate::door::ChangeWatcher;
use crate::generations::controller::Controller;
use crate::generations::generation::Loader;
use crate::interfaces::claim::ClaimTarget;
use crate::interfaces::dpdk;
use crate::options::RunOptions;
use crate::parts::card::options::{CardRules, GivenCard, GivenHybrid};
use crate::parts::hybrid::link::CardLink;
use crate::parts::hybrid::splitter::Splitter;
use crate::parts::hybrid::{HybridCard, following};
use crate::parts::part::{Part, Running};
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_control::{CardReport, Changes, Reply, Request, Stats};
use weir_engine::live::Datapath;
use weir_planning::card::profile;

/// The card, from its options to its end.
pub struct HybridPart<'o> {
    options: &'o RunOptions,
    given: &'o GivenHybrid,
    /// The datapath's name of the card's interface.
    port: String,
    /// The open card, until it is used.
    link: Option<CardLink>,
}

fn given(options: &RunOptions) -> Option<&GivenHybrid> {
    match &options.card.card {
        Some(GivenCard::Hybrid(given)) => Some(given),
        Some(GivenCard::Dropping(_)) | None => None,
    }
}

/// The datapath's name of the card's interface.
fn port(options: &RunOptions, given: &GivenHybrid) -> Result<String, Failure> {
    let refuse = |problem: &str| Err(Failure::Rejected(format!("weir: --card hybrid: {problem}")));
    match (&given.interface, options.lower.as_slice()) {
        _ if !options.host.is_empty() => refuse("a card in front of --host is not supported"),
        (Some(name), lower) if lower.contains(name) => Ok(name.clone()),
        (Some(name), _) => refuse(&format!("interface={name}: it is not one of --lower")),
        (None, [only]) => Ok(only.clone()),
        (None, _) => refuse("interface=IF is missing: there are several lower interfaces"),
    }
}

/// What splits policies, if there is a card.
///
/// # Errors
/// The profile cannot be read.
pub fn splitter(options: &RunOptions) -> Result<Option<Arc<Splitter>>, Failure> {
    let splitter =
        |given: &GivenHybrid| Ok(Arc::new(Splitter { profile: profile(&given.profile)?, rules: given.rules }));
    given(options).map(splitter).transpose()
}

impl<'o> HybridPart<'o> {
    /// The part, if a card that answers rules is given.
    ///
    /// # Errors
    /// Options do not fit.
    pub fn of(options: &'o RunOptions) -> Result<Option<Self>, Failure> {
        let Some(given) = given(options) else { return Ok(None) };
        let port = port(options, given)?;
        if given.rules == CardRules::Follow && options.lower.len() > 1 {
            let problem =
                "rules=follow: there are several lower interfaces, and rules have one counter for all of them";
            return Err(Failure::Rejected(format!("weir: --card hybrid: {problem}")));
        }
        Ok(Some(HybridPart { options, given, port, link: None }))
    }

    /// The kernel's name of the card's interface.
    fn interface(&self) -> Result<String, Failure> {
        let HybridPart { options, port, .. } = self;
        match options.engine {
            engine if engine.uses_dpdk() => dpdk::interface_behind(options, port).ok_or_else(|| {
                let problem = "control frames need an interface of the kernel: a port such as net_af_packet";
                Failure::Rejected(format!("weir: --card hybrid: {port}: {problem}"))
            }),
            _ => Ok(port.clone()),
        }
    }
}

impl<L: Loader> Part<L> for HybridPart<'_> {
    /// Opens the card. It passes frames as they are from now on.
    fn open(&mut self, _: &[ClaimTarget], loader: &L) -> Result<(), Failure> {
        let splitter = loader.splitter().expect("a loader for a hybrid card has a splitter");
        self.link = Some(CardLink::open(&self.interface()?, &splitter.profile)?);
        Ok(())
    }

    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let (door, link) = (&running.door, self.link.take().expect("`open` comes before `start`"));
        let (controller, loader) = (&door.controller, &door.loader);
        let profile = loader.splitter().expect("a loader for a hybrid card has a splitter").profile.clone();
        let own = loader.clone();
        let contents = move |tables: &_, name: &str| own.shared().tables().contents(tables, name).ok();
        let card = HybridCard::new(link, profile, self.port.clone(), Box::new(contents));
        controller.join_card(card.clone())?;
        door.join(Arc::new(Watcher(controller.clone(), card.clone())));
        let controller = Arc::downgrade(controller);
        card.keep(move || {
            controller.upgrade().map_or(Ok(()), |controller| Failure::catch(|| controller.reopen_card()))
        })?;
        match self.given.rules {
            CardRules::Follow => {
                let link = weir_planning::link(self.given.link_bits as f64);
                following::start(Arc::downgrade(door), card, link)
            }
            CardRules::All | CardRules::Plan | CardRules::None => Ok(()),
        }
    }

    /// Leaves the card. It passes frames as they are.
    fn end(&mut self, running: &Running<'_, L>) {
        if let Err(failure) = running.door.controller.leave_card() {
            warning!("{}; it keeps its configuration: frames from it have trailers", failure.message());
        }
    }
}

/// A table that the card has is decided by the software alone
/// before it changes.
struct Watcher<D: Datapath>(Arc<Controller<D>>, HybridCard);

impl<D: Datapath> ChangeWatcher for Watcher<D> {
    fn before(&self, changes: Changes<'_>) -> Result<(), Failure> {
        match changes {
            Changes::Table(table) => self.0.decide_without(table),
            // A new generation has its own part of the card, also if lists change that the card has.
            Changes::Nothing | Changes::Policy | Changes::Lists | Changes::Slot(_) | Changes::Flows => Ok(()),
        }
    }

    fn add_to(&self, stats: Stats) -> Stats {
        self.1.add_to(stats)
    }

    fn answer(&self, request: &Request, software: &dyn Fn() -> Stats) -> Option<Result<Reply, Failure>> {
        match request {
            Request::Card { .. } => Some(Ok(CardReport::Hybrid(self.1.status(software(), &self.0.active())).into())),
            _ => None,
        }
    }
}
