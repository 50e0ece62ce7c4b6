//! Joins the card to the rest of the daemon: its options, the active policy, and the changes that it watches over.

use crate::cli::{CardKind, GivenCard, GivenDropping, LiveEngine, RunOptions};
use crate::failure::Failure;
use crate::run::card::policy::{Deciding, Policy, offloaded};
use crate::run::card::sweeper::Sweeper;
use crate::run::card::{Card, Opened, Properties};
use crate::run::claim::{ClaimTarget, Claimant, Claims, PortKind};
use crate::run::door::{Door, Part};
use crate::run::generation::Loader;
use std::sync::Arc;
use std::time::Duration;
use weir_control::{CardReport, Changes, Reply, Request, Stats, TABLE_ENTRIES_MAX, TableOperation};
use weir_engine::live::Datapath;
use weir_engine::live::card::flower::{FlowerCard, FlowerSpec};
use weir_engine::live::card::{CardSpec, WireCard, within};
use weir_policy::ir::Program;

/// Packets that a CPU drops in a second, if the operator does not say it.
const CPU_PPS: f64 = 1e6;

/// The card that drops sources, if there is one.
fn given(options: &RunOptions) -> Option<&GivenDropping> {
    match &options.card.card {
        Some(GivenCard::Dropping(given)) => Some(given),
        Some(GivenCard::Hybrid(_)) | None => None,
    }
}

/// Opens the card, if there is one, for this Weir alone, which has claimed `own`. Nothing of Weir's is attached to the
/// interfaces yet.
///
/// # Errors
/// It cannot be used, or another Weir uses it.
pub fn open(options: &RunOptions, own: &[ClaimTarget]) -> Result<Option<(Opened, Option<Claims>)>, Failure> {
    let Some(GivenDropping { kind, .. }) = given(options) else { return Ok(None) };
    match kind {
        CardKind::Wire(wire) => open_wire(own, wire).map(Some),
        CardKind::Flower(flower) => open_flower(options, flower).map(Some),
        CardKind::RteFlow { port, .. } => {
            if options.engine != LiveEngine::Dpdk || !options.lower.contains(port) {
                let problem = format!("rte-flow:port={port}: it is not a port of `--engine dpdk --lower`");
                return Err(Failure::Rejected(format!("weir: --card: {problem}")));
            }
            Ok(None)
        }
    }
}

/// Opens the card, if it is a port that the engine has opened.
///
/// # Errors
/// Its driver takes no flows.
#[cfg(feature = "dpdk")]
pub fn open_port(options: &RunOptions) -> Result<Option<Opened>, Failure> {
    let Some(GivenDropping { kind: CardKind::RteFlow { port, entries }, .. }) = given(options) else { return Ok(None) };
    Ok(Some(Opened::of_port(weir_engine::live::dpdk::FlowTable::open(port, *entries)?)))
}

/// There are no such ports: the engine was refused.
#[cfg(not(feature = "dpdk"))]
pub fn open_port(_: &RunOptions) -> Result<Option<Opened>, Failure> {
    Ok(None)
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

/// Refuses a policy under which a card must not drop by the tables.
///
/// # Errors
/// The reason.
pub fn check(options: &RunOptions, program: &Program) -> Result<(), Failure> {
    let refused = |problem: String| Failure::Rejected(format!("weir: --card-table: {problem}"));
    options.card.card_table.iter().try_for_each(|table| offloaded(program, None, table).map(drop).map_err(refused))
}

/// Starts to use the card.
///
/// # Errors
/// The thread cannot be started.
pub fn start<L: Loader>(options: &RunOptions, opened: Opened, door: &Door<L>) -> Result<Card, Failure>
where
    <L::Datapath as Datapath>::Code: Send + Sync,
{
    let given = given(options).expect("a card was opened");
    let (controller, loader) = (door.controller.clone(), door.loader.clone());
    let now = move || {
        let (activation, generation, posture) = controller.deciding();
        let policy: Arc<dyn Policy> = Arc::new(Deciding { loader: loader.clone(), generation, posture });
        (activation, policy)
    };
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let properties = Properties {
        name: given.to_string(),
        interface: format!("card:{}", given.interface()),
        placement: given.placement,
        tables: options.card.card_table.clone(),
        period: options.card.card_period,
        software_pps: options.card.card_load.map_or(CPU_PPS * cpus as f64, |pps| pps as f64),
    };
    let card = Card::start(opened, properties, Box::new(now))?;
    door.join(Arc::new(card.clone()));
    Ok(card)
}

/// A card as a part of the daemon: answers come when it has followed what they change.
impl Part for Card {
    fn after(&self, changes: Changes<'_>) {
        match changes {
            Changes::Table(table) => self.follow_table(table),
            Changes::Policy | Changes::Lists => self.follow(),
            Changes::Nothing | Changes::Slot(_) | Changes::Flows => {}
        }
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
