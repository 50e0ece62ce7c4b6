//! Joins the card to the rest of the daemon: its options, the active policy, and the changes that it watches over.

use crate::door::ChangeWatcher;
use crate::generations::generation::{Generation, Loader, LoaderCode};
use crate::interfaces::claim::{ClaimTarget, Claimant, Claims, PortKind};
use crate::options::RunOptions;
use crate::parts::card::options::{CardKind, GivenCard, GivenDropping};
use crate::parts::card::policy::{Deciding, Policy, offloaded};
use crate::parts::card::sweeper::Sweeper;
use crate::parts::card::{Card, Opened, Properties};
use crate::parts::part::{Part, Running};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_control::{CardReport, Changes, Reply, Request, Stats, TABLE_ENTRIES_MAX, TableOperation};
use weir_engine::live::card::flower::{FlowerCard, FlowerSpec};
use weir_engine::live::card::{CardSpec, WireCard, within};

/// Packets that a CPU drops in a second, if the operator does not say it.
const CPU_PPS: f64 = 1e6;

/// The card, from its options to its end.
pub struct CardPart<'o> {
    options: &'o RunOptions,
    given: &'o GivenDropping,
    /// An open card, until it is used.
    opened: Option<Opened>,
    claims: Option<Claims>,
    card: Option<Card>,
}

impl<'o> CardPart<'o> {
    /// The part, if a card that drops sources is given.
    ///
    /// # Errors
    /// The options of cards do not fit each other.
    pub fn of(options: &'o RunOptions) -> Result<Option<Self>, Failure> {
        options.card.check().map_err(|problem| Failure::Rejected(format!("weir: {problem}")))?;
        Ok(match &options.card.card {
            Some(GivenCard::Dropping(given)) => {
                Some(CardPart { options, given, opened: None, claims: None, card: None })
            }
            Some(GivenCard::Hybrid(_)) | None => None,
        })
    }

    /// The properties for the operator.
    fn properties(&self) -> Properties {
        let CardPart { options, given, .. } = self;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Properties {
            name: given.to_string(),
            interface: format!("card:{}", given.interface()),
            placement: given.placement,
            tables: options.card.card_table.clone(),
            period: options.card.card_period,
            software_pps: options.card.card_load.map_or(CPU_PPS * cpus as f64, |pps| pps as f64),
        }
    }
}

impl<L: Loader> Part<L> for CardPart<'_> {
    /// Refuses a policy under which a card must not drop by the tables.
    fn check(&self, first: &Generation<LoaderCode<L>>) -> Result<(), Failure> {
        let refused = |problem: String| Failure::Rejected(format!("weir: --card-table: {problem}"));
        let tables = &self.options.card.card_table;
        tables.iter().try_for_each(|table| offloaded(first.program(), None, table).map(drop).map_err(refused))
    }

    /// Opens the card for this Weir alone, unless it is a port of the engine.
    fn open(&mut self, own: &[ClaimTarget], _: &L) -> Result<(), Failure> {
        match &self.given.kind {
            CardKind::Wire(wire) => {
                let (opened, claims) = open_wire(own, wire)?;
                (self.opened, self.claims) = (Some(opened), claims);
            }
            CardKind::Flower(flower) => {
                let (opened, claims) = open_flower(self.options, flower)?;
                (self.opened, self.claims) = (Some(opened), claims);
            }
            CardKind::RteFlow { port, .. } => {
                if !self.options.engine.uses_dpdk() || !self.options.lower.contains(port) {
                    let problem = format!("rte-flow:port={port}: it is not a port of `--engine dpdk --lower`");
                    return Err(Failure::Rejected(format!("weir: --card: {problem}")));
                }
            }
        }
        Ok(())
    }

    fn engine_opened(&mut self) -> Result<(), Failure> {
        if let CardKind::RteFlow { port, entries } = &self.given.kind {
            self.opened = Some(open_port(port, *entries)?);
        }
        Ok(())
    }

    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let opened = self.opened.take().expect("`open` or `engine_opened` has opened it");
        let door = &running.door;
        let (controller, loader) = (door.controller.clone(), door.loader.clone());
        let now = move || {
            let (activation, generation, posture) = controller.deciding();
            let policy: Arc<dyn Policy> = Arc::new(Deciding { loader: loader.clone(), generation, posture });
            (activation, policy)
        };
        let card = Card::start(opened, self.properties(), Box::new(now))?;
        door.join(Arc::new(card.clone()));
        self.card = Some(card);
        Ok(())
    }

    fn end(&mut self, _: &Running<'_, L>) {
        self.card.iter().for_each(Card::end);
        self.claims = None;
    }
}

/// Opens a card that is a port of the engine.
///
/// # Errors
/// Its driver takes no flows.
#[cfg(feature = "dpdk")]
fn open_port(port: &str, entries: usize) -> Result<Opened, Failure> {
    Ok(Opened::of_port(weir_engine::live::dpdk::FlowTable::open(port, entries)?))
}

/// Refuses a card that is a port of the engine.
#[cfg(not(feature = "dpdk"))]
fn open_port(port: &str, _: usize) -> Result<Opened, Failure> {
    Err(Failure::Rejected(format!("weir: --card: rte-flow:port={port}: this weir was built without DPDK")))
}

/// The filters of a card are on an interface of Weir, or on another one.
fn open_flower(options: &RunOptions, flower: &FlowerSpec) -> Result<(Opened, Option<Claims>), Failure> {
    let mut own = options.lower.iter().chain(&options.upper).chain(&options.host);
    let is_own = flower.namespace.is_none() && own.any(|interface| *interface == flower.interface);
    let claims = || {
        let targets = ClaimTarget::of([&flower.interface].into_iter(), PortKind::Kernel)?;
        Claims::take(&targets, Claimant::Weir, Duration::ZERO)
    };
    let claims = if is_own { None } else { Some(within(flower.namespace.as_deref(), claims)?) };
    let card = FlowerCard::open(flower)?;
    let sweeper = within(flower.namespace.as_deref(), || Sweeper::start(card.place))?;
    eprintln!("weir: {}", card.access);
    Ok((Opened::of_flower(card, sweeper), claims))
}

/// Between the wire's interfaces is the card, and they are not Weir's own.
fn open_wire(own: &[ClaimTarget], wire: &CardSpec) -> Result<(Opened, Option<Claims>), Failure> {
    let claims = within(wire.namespace.as_deref(), || {
        let targets = ClaimTarget::of([&wire.outer, &wire.inner].into_iter(), PortKind::Kernel)?;
        ClaimTarget::refuse_shared(&targets, own)?;
        Claims::take(&targets, Claimant::Weir, Duration::ZERO)
    })?;
    let card = WireCard::open(wire)?;
    card.access.iter().for_each(|access| eprintln!("weir: {access}"));
    Ok((Opened::of_wire(card), Some(claims)))
}

/// Answers come when the card has followed what they change.
impl ChangeWatcher for Card {
    fn after(&self, changes: Changes<'_>) {
        match changes {
            Changes::Table(table) => self.follow_table(table),
            Changes::Policy | Changes::Lists => self.follow(),
            Changes::Nothing | Changes::Slot(_) | Changes::Flows => {}
        }
    }

    fn take_dropped(&self) -> Vec<(IpAddr, u64)> {
        Card::take_dropped(self)
    }

    fn add_to(&self, stats: Stats) -> Stats {
        Card::add_to(self, stats)
    }

    fn answer(&self, request: &Request, software: &dyn Fn() -> Stats) -> Option<Result<Reply, Failure>> {
        match request {
            Request::Card { top } => {
                let status = self.status(software(), (*top).min(TABLE_ENTRIES_MAX));
                Some(Ok(CardReport::Tables(status).into()))
            }
            // The answer has the counters of entries, including the counters of the card.
            Request::Table { operation: TableOperation::List(_) | TableOperation::Get { .. }, .. } => {
                self.look();
                None
            }
            _ => None,
        }
    }
}
