//! The parts of the daemon: what a running Weir does besides moving packets.
//!
//! A part is a file or a folder here with a type that is a [`Part`]. [`all`] names it, and its options are beside it. A
//! part whose options may contradict each other is named in [`check`] too.

pub mod card;
mod carry;
pub mod export;
mod feature_turns;
pub mod feeds;
pub mod flow_room;
pub mod hybrid;
mod limits_log;
mod links;
mod log_file;
pub mod metrics;
pub mod mitigation;
pub mod part;
mod saving;
mod service;
mod shadow;
mod table_ticks;
mod trials;
mod upkeep;

use crate::generations::generation::Loader;
use crate::options::RunOptions;
use crate::upgrade::{UpgradePart, Upgrades};
use part::{Part, Parts};
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_engine::live::samples::SampleReader;
use weir_state::saved::Restored;

/// Refuses options of parts that do not fit each other, before anything is taken.
///
/// # Errors
/// The reason.
pub fn check(options: &RunOptions) -> Result<(), Failure> {
    hybrid::HybridPart::of(options)?;
    card::CardPart::of(options)?;
    export::ExportPart::of(options)?;
    options.metrics.check()
}

/// The parts that the options ask for. They start in this order: a part uses only those before it.
///
/// # Errors
/// Options do not fit, or a file cannot be opened.
pub fn all<'o, L: Loader>(
    options: &'o RunOptions,
    samples: Option<Arc<SampleReader>>,
    upgrades: &Arc<Upgrades>,
    restored: Option<Restored>,
) -> Result<Parts<'o, L>, Failure> {
    fn part<'o, L: Loader>(part: impl Part<L> + 'o) -> Option<Box<dyn Part<L> + 'o>> {
        Some(Box::new(part))
    }
    let parts = [
        hybrid::HybridPart::of(options)?.and_then(part),
        limits_log::LimitsLog::open(options)?.and_then(part),
        match options.state_folder.as_deref() {
            Some(folder) => part(saving::Saving::of(folder, restored)),
            None => restored.map(saving::Unsaved::new).and_then(part),
        },
        part(UpgradePart(upgrades.clone())),
        part(trials::Trials),
        part(feeds::Feeds),
        card::CardPart::of(options)?.and_then(part),
        mitigation::MitigationPart::of(options, samples).and_then(part),
        export::ExportPart::of(options)?.and_then(part),
        carry::Carrying::of(options).and_then(part),
        metrics::Metrics::listen(options)?.and_then(part),
        part(upkeep::Upkeep::default()),
        part(table_ticks::TableTicks::default()),
        part(feature_turns::FeatureTurns::default()),
        part(flow_room::RoomWatch::default()),
        part(links::Links::default()),
        part(shadow::Shadow::default()),
        part(service::Service::new()),
    ];
    Ok(Parts::of(parts.into_iter().flatten().collect()))
}
