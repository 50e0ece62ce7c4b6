//! Joins mitigation to the rest of the daemon: samples, requests, slots and protected tables.

use crate::door::{ChangeWatcher, Door};
use crate::generations::automatic::{Holder, Why};
use crate::generations::controller::Controller;
use crate::generations::generation::{Generation, Loader, LoaderCode};
use crate::options::RunOptions;
use crate::parts::feeds::Contents;
use crate::parts::mitigation::events::Events;
use crate::parts::mitigation::exporting::{ExportSettings, Exports};
use crate::parts::mitigation::hands::{Carried, Hands, Places};
use crate::parts::mitigation::observed::Observer;
use crate::parts::mitigation::options::{MitigationOptions, ModeName};
use crate::parts::mitigation::sampled;
use crate::parts::mitigation::state::{Copies, State};
use crate::parts::mitigation::{Mitigation, Surroundings};
use crate::parts::part::{Part, Running};
use crate::requests::slots::Renewal;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Weak};
use weir_command::failure::Failure;
use weir_control::{Reply, Request, Stats};
use weir_engine::live::Datapath;
use weir_engine::live::samples::SampleReader;
use weir_mitigate::action::Prepared;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_policy::slot_rule;
use weir_recording::export::PolicyParts;
use weir_state::SharedState;
use weir_tables::Table;

/// The reader of samples, if mitigation is on.
///
/// # Errors
/// Its ring cannot be created.
pub fn reader(options: &RunOptions) -> Result<Option<Arc<SampleReader>>, Failure> {
    if options.mitigation.mitigate.is_none() {
        return Ok(None);
    }
    let reader = match options.engine.runs_in_kernel() {
        true => SampleReader::create_ring()?,
        false => SampleReader::create_queue(),
    };
    Ok(Some(Arc::new(reader)))
}

/// Mitigation, from its options to its end.
pub struct MitigationPart<'o> {
    given: &'o MitigationOptions,
    mode: ModeName,
    reader: Arc<SampleReader>,
    mitigation: Option<Mitigation>,
    /// What the program before this one in its process has handed over.
    handed: Option<Vec<u8>>,
}

impl<'o> MitigationPart<'o> {
    /// The part, if there is a mode, and so a reader of samples.
    pub fn of(options: &'o RunOptions, reader: Option<Arc<SampleReader>>) -> Option<Self> {
        let given = &options.mitigation;
        Some(MitigationPart { given, mode: given.mitigate?, reader: reader?, mitigation: None, handed: None })
    }
}

impl<L: Loader> Part<L> for MitigationPart<'_> {
    /// Refuses a policy that does not sample, or not where that is needed.
    fn check(&self, first: &Generation<LoaderCode<L>>) -> Result<(), Failure> {
        let MitigationOptions { mitigate_slot, mitigate_table, .. } = self.given;
        let one_in = sampled::one_in(first.program(), None, mitigate_slot, mitigate_table);
        one_in.map(drop).map_err(|problem| Failure::Rejected(format!("weir: --mitigate: {problem}")))
    }

    fn start(&mut self, running: &Running<'_, L>) -> Result<(), Failure> {
        let door = &running.door;
        let (controller, loader) = (&door.controller, &door.loader);
        let given = self.given;
        let mode = self.mode.into();
        let places = Places { slot: given.mitigate_slot.clone(), tables: given.mitigate_table.clone() };
        let hold_ns = given.mitigate_hold.as_nanos() as u64;
        let usual = Settings::default();
        let active = controller.active();
        let slot = active.program().rule_slots.iter().find(|slot| slot.name == given.mitigate_slot);
        let rules_max = slot.map_or(usual.rules_max, |slot| usual.rules_max.min(slot.size.into()));
        let prepared = given.mitigate_posture.clone().map_or(Prepared::Nothing, Prepared::Posture);
        let settings = Settings { mode, prepared, hold_ns, rules_max, ..usual };
        let inside = given.inside.iter().map(|inside| inside.prefix()).collect();
        let surroundings = Surroundings {
            copies: {
                let (controller, places, has_posture) =
                    (controller.clone(), places.clone(), given.mitigate_posture.is_some());
                Box::new(move || copies(&controller, &places, has_posture))
            },
            protected: {
                let (controller, loader) = (controller.clone(), loader.clone());
                Box::new(move || protected(&controller.active(), loader.shared()))
            },
            by_card: {
                let door = Arc::downgrade(door);
                Box::new(move || door.upgrade().map(|door| door.take_dropped()).unwrap_or_default())
            },
            observed: {
                let (controller, loader, mut observer) = (controller.clone(), loader.clone(), Observer::default());
                Box::new(move || {
                    let shape = controller.active().program().observe.as_ref()?.shape();
                    let all = loader.shared().observed();
                    let features = all.iter().find(|features| *features.shape() == shape)?;
                    observer.next(features)
                })
            },
        };
        let carried = Carried::new(Box::new(Hand(Arc::downgrade(door))), places);
        let mut events = Events::start(given.mitigate_log.as_deref(), given.mitigate_notify.as_deref())?;
        events.exports = exports(given, controller, loader)?;
        let state = match self.handed.take() {
            None => State::new(inside, settings, carried, events, seed()),
            Some(handed) => State::continued(&handed, inside, settings.clone(), (carried, events), seed())
                .unwrap_or_else(|failed| {
                    let (why, carried, events) = *failed;
                    warning!("weir: mitigation begins anew, because what was handed over cannot be read: {why}");
                    State::new(
                        given.inside.iter().map(|inside| inside.prefix()).collect(),
                        settings,
                        carried,
                        events,
                        seed(),
                    )
                }),
        };
        let mitigation = Mitigation::start(state, self.reader.clone(), surroundings)?;
        door.join(Arc::new(mitigation.clone()));
        self.mitigation = Some(mitigation);
        Ok(())
    }

    fn name(&self) -> &'static str {
        "mitigation"
    }

    fn hand_over(&mut self) -> Option<Vec<u8>> {
        let handed = self.mitigation.as_ref()?.hand_over();
        handed.inspect_err(|why| warning!("weir: mitigation will begin anew: {why}")).ok()
    }

    fn go_on(&mut self) {
        self.mitigation.iter().for_each(Mitigation::go_on);
    }

    fn continue_with(&mut self, handed: Vec<u8>) {
        self.handed = Some(handed);
    }

    fn end(&mut self, _: &Running<'_, L>) {
        self.mitigation.iter().for_each(Mitigation::end);
    }
}

/// Mitigation's way into the daemon: the door that clients use too.
pub struct Hand<L: Loader>(pub Weak<Door<L>>);

impl<L: Loader> Hand<L> {
    fn through<T>(&self, pass: impl FnOnce(&Door<L>) -> Result<T, Failure>) -> Result<T, Failure> {
        let door = self.0.upgrade().ok_or_else(|| Failure::Runtime("weir: it is about to end".to_owned()))?;
        Failure::catch(|| pass(&door))
    }
}

impl<L: Loader> Hands for Hand<L> {
    fn ask(&self, request: Request) -> Result<Reply, Failure> {
        self.through(|door| door.request(request))
    }

    fn renew_rule(&self, slot: &str, number: u32, expires_ns: u64) -> Renewal {
        self.0.upgrade().map_or(Renewal::NoSlot, |door| door.renew_rule(slot, number, expires_ns))
    }

    fn take_posture(&self, holder: Holder, posture: &str) -> Result<(), Failure> {
        self.through(|door| door.take_posture(holder, posture))
    }

    fn renew_posture(&self, holder: Holder) -> Result<u64, Option<Why>> {
        self.0.upgrade().ok_or(None)?.renew_posture(holder)
    }

    fn release_posture(&self, holder: Holder) -> Result<(), Failure> {
        self.through(|door| door.release_posture(holder))
    }
}

/// Mitigation answers requests about attacks.
impl ChangeWatcher for Mitigation {
    fn answer(&self, request: &Request, _: &dyn Fn() -> Stats) -> Option<Result<Reply, Failure>> {
        match request {
            Request::Attacks { operation } => Some(self.perform(operation)),
            _ => None,
        }
    }
}

fn exports<L: Loader>(
    given: &MitigationOptions,
    controller: &Arc<Controller<L::Datapath>>,
    loader: &L,
) -> Result<Option<Exports>, Failure> {
    let Some(folder) = given.mitigate_export.clone() else { return Ok(None) };
    let settings = ExportSettings {
        folder,
        most: given.mitigate_export_max,
        inside: given.inside.clone(),
        slot: given.mitigate_slot.clone(),
        source_tables: given.mitigate_table.clone(),
    };
    let (controller, loader) = (controller.clone(), loader.clone());
    let policy = move || policy_parts(&controller.active(), controller.status().posture, loader.shared());
    Exports::start(settings, Box::new(policy)).map(Some)
}

/// The active policy with what its tables and slots contain now.
fn policy_parts<C>(active: &Generation<C>, posture: Option<String>, shared: &SharedState) -> PolicyParts {
    let declared = active.declared();
    let contents = Contents::new(declared, active.tables().map(|binding| (&**shared.tables(), binding)));
    let tables = declared.all().iter().enumerate();
    // Tables whose contents were lost are missing, which the export says.
    let tables = tables.filter_map(|(index, table)| Some((table.name.clone(), contents.table(index).ok()?)));
    let slots = active.slots().named();
    let rules = slots.flat_map(|(name, bound)| {
        bound.slot.list().into_iter().map(move |listed| (name.to_owned(), slot_rule::text(&listed.record)))
    });
    PolicyParts {
        sources: active.text().map(|text| text.sources.clone()),
        bundle: active.text().is_none().then(|| active.path().to_owned()),
        tables: tables.collect(),
        limits: active.limit_lists().to_vec(),
        slot_rules: rules.collect(),
        posture,
    }
}

/// A number that attackers do not know.
fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Counters are read only if a posture may hide packets.
fn copies<D: Datapath>(controller: &Controller<D>, places: &Places, has_posture: bool) -> Copies {
    let (active, status) = (controller.active(), controller.status());
    // The posture may belong to a later generation, if one is activated meanwhile; the next window has its own.
    let one_in = sampled::one_in(active.program(), status.posture.as_deref(), &places.slot, &places.tables);
    Copies { made: controller.sampled(), one_in, stopped: has_posture.then(|| controller.stopped()) }
}

/// The prefixes of the tables that others `protect`.
fn protected<C>(active: &Generation<C>, shared: &SharedState) -> Vec<Prefix> {
    let declared = active.declared();
    let names = declared.all().iter().flat_map(|table| &table.updates.protected);
    let indices: BTreeSet<usize> = names.map(|table| usize::from(table.0)).collect();
    let contents = Contents::new(declared, active.tables().map(|binding| (&**shared.tables(), binding)));
    let mut prefixes = Vec::new();
    for index in indices {
        // Lost entries count as entries of the policy until the table is read again.
        let table = contents.table(index).unwrap_or_else(|_| declared.all()[index].entries.clone());
        prefixes.extend(prefixes_of(&table));
    }
    prefixes
}

fn prefixes_of(table: &Table) -> Vec<Prefix> {
    match table.family() {
        weir_abi::Family::Ipv4 => {
            table.prefixes4().iter().map(|one| Prefix::of(false, one.addr.into(), one.len)).collect()
        }
        weir_abi::Family::Ipv6 => table.prefixes6().iter().map(|one| Prefix::of(true, one.addr, one.len)).collect(),
    }
}
