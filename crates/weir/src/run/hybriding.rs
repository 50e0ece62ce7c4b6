//! Joins a card that answers rules to the rest of the daemon: its options, the controller, and the changes that it
//! watches over.

use crate::card::profile;
use crate::card_plan;
use crate::cli::{CardRules, GivenCard, GivenHybrid, LiveEngine, RunOptions};
use crate::failure::Failure;
use crate::run::controller::Controller;
use crate::run::door::{Door, Part};
use crate::run::dpdk;
use crate::run::generation::Loader;
use crate::run::hybrid::HybridCard;
use crate::run::hybrid::following;
use crate::run::hybrid::link::CardLink;
use crate::run::hybrid::splitter::Splitter;
use std::sync::Arc;
use weir_control::{CardReport, Changes, Reply, Request, Stats};
use weir_engine::live::Datapath;

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

/// Refuses options that do not fit.
///
/// # Errors
/// The reason.
pub fn check(options: &RunOptions) -> Result<(), Failure> {
    let Some(given) = given(options) else { return Ok(()) };
    port(options, given)?;
    if given.rules == CardRules::Follow && options.lower.len() > 1 {
        let problem = "rules=follow: there are several lower interfaces, and rules have one counter for all of them";
        return Err(Failure::Rejected(format!("weir: --card hybrid: {problem}")));
    }
    Ok(())
}

/// Starts to follow traffic, if that is wanted.
///
/// # Errors
/// The thread cannot be started.
pub fn follow<L: Loader>(options: &RunOptions, door: &Arc<Door<L>>) -> Result<(), Failure> {
    let (Some(given), Some(card)) = (given(options), door.controller.card()) else { return Ok(()) };
    if given.rules != CardRules::Follow {
        return Ok(());
    }
    let link = card_plan::link(given.link_bits as f64);
    following::start(Arc::downgrade(door), card.clone(), link)
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

/// Opens the card, if there is one. It passes frames as they are from now on.
///
/// # Errors
/// It does not answer, or its port is no interface of the kernel.
pub fn open(options: &RunOptions, splitter: Option<&Splitter>) -> Result<Option<CardLink>, Failure> {
    let (Some(given), Some(splitter)) = (given(options), splitter) else { return Ok(None) };
    let port = port(options, given)?;
    let interface = match options.engine {
        LiveEngine::Dpdk => dpdk::interface_behind(options, &port).ok_or_else(|| {
            let problem = "control frames need an interface of the kernel: a port such as net_af_packet";
            Failure::Rejected(format!("weir: --card hybrid: {port}: {problem}"))
        })?,
        _ => port,
    };
    CardLink::open(&interface, &splitter.profile).map(Some)
}

/// Starts to use the card.
///
/// # Errors
/// The card or the datapath refuses.
pub fn start<L: Loader>(options: &RunOptions, link: CardLink, door: &Door<L>) -> Result<(), Failure> {
    let given = given(options).expect("a card was opened");
    let (controller, loader) = (&door.controller, &door.loader);
    let profile = loader.splitter().expect("a card was opened").profile.clone();
    let own = loader.clone();
    let contents = move |tables: &_, name: &str| own.shared().tables().contents(tables, name).ok();
    let card = HybridCard::new(link, profile, port(options, given)?, Box::new(contents));
    controller.join_card(card.clone())?;
    door.join(Arc::new(HybridPart(controller.clone(), card.clone())));
    let controller = Arc::downgrade(controller);
    card.keep(move || controller.upgrade().map_or(Ok(()), |controller| Failure::catch(|| controller.reopen_card())))
}

/// Leaves the card. It passes frames as they are.
pub fn end<D: Datapath>(controller: &Controller<D>) {
    if let Err(failure) = controller.leave_card() {
        eprintln!("{}; it keeps its configuration: frames from it have trailers", failure.message());
    }
}

/// A card that answers rules, as a part of the daemon. A table that the card has is decided by the software alone
/// before it changes.
struct HybridPart<D: Datapath>(Arc<Controller<D>>, HybridCard);

impl<D: Datapath> Part for HybridPart<D> {
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
