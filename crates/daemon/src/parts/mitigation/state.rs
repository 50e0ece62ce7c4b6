//! Mitigation of a running Weir: measures windows, and carries the decisions out.

use super::events::Events;
use super::hands::{Carried, Lost};
use super::words;
use crate::generations::account::Stopped;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use weir_abi::Link;
use weir_control::{AttackOperation, AttacksChanged, SamplesStatus};
use weir_engine::live::Side;
use weir_engine::live::samples::Sample;
use weir_mitigate::action::{Action, ActionId, AttackId, Decision, Ending, Mode};
use weir_mitigate::class;
use weir_mitigate::defence::Defence;
use weir_mitigate::excerpt;
use weir_mitigate::header::{Arrival, Header};
use weir_mitigate::held::HeldBack;
use weir_mitigate::measure::observed::Observed;
use weir_mitigate::measure::sampling::{CopyCounts, Losses, Sampling};
use weir_mitigate::measure::{Directions, Way};
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;
use weir_policy::ir::eval::packet::Frame;
use weir_recording::headers;

/// Maximum number of reasons why actions were not carried out that are counted by themselves. Others are counted as
/// one.
const REASONS_MAX: usize = 32;
const OTHER_REASONS: &str = "other reasons";

/// The side from which the packet of a sample came.
fn arrival(from: Side) -> Arrival {
    match from {
        Side::Lower => Arrival::Outside,
        Side::Upper => Arrival::Inside,
    }
}

/// What the datapath says about samples at the end of a window.
pub struct Copies {
    /// Copies that were made since the start.
    pub made: u64,
    /// The N of `sample 1/N`, or why nothing is measured.
    pub one_in: Result<u32, String>,
    /// Packets from outside that did not get past the datapath since the start, if a posture is prepared.
    pub stopped: Option<Stopped>,
}

/// Mitigation with all that it knows.
pub struct State {
    pub(super) defence: Defence,
    pub(super) carried: Carried,
    pub(super) losses: Losses,
    /// Copies that were read in this window.
    pub(super) seen: u64,
    /// What did not get past the datapath until the end of the last window.
    stopped: Option<Stopped>,
    pub(super) samples: SamplesStatus,
    pub(super) not_carried_out: BTreeMap<String, u64>,
    /// What rules of ended actions have dropped.
    pub(super) dropped: HashMap<ActionId, u64>,
    pub(super) events: Events,
    /// Attacks for which the notify program was told `ban`.
    pub(super) banned: HashSet<AttackId>,
}

impl State {
    /// Nothing was seen. The seed is a secret.
    pub fn new(inside: Vec<Prefix>, settings: Settings, carried: Carried, events: Events, seed: u64) -> Self {
        let now_ns = weir_state::now_ns();
        let mut defence = Defence::new(inside, settings, seed);
        if events.exports.is_some() {
            defence.keep_excerpts(seed);
        }
        defence.begin(now_ns);
        State {
            defence,
            carried,
            losses: Losses::default(),
            seen: 0,
            stopped: None,
            samples: SamplesStatus { one_in: 1, ..SamplesStatus::default() },
            not_carried_out: BTreeMap::new(),
            dropped: HashMap::new(),
            events,
            banned: HashSet::new(),
        }
    }

    /// Takes a copy of a packet.
    pub fn see(&mut self, Sample { bytes, wire_len, from }: Sample<'_>, now_ns: u64) {
        self.seen += 1;
        let frame = Frame { bytes, wire_len, link: Link::Ethernet, time_ns: now_ns };
        if let Some(header) = headers::of_sample(frame) {
            let header = Header { arrival: Some(arrival(from)), ..header };
            self.samples.forged += u64::from(self.defence.way(&header) == Way::Forged);
            let excerpt = excerpt::Frame { bytes, wire_len, link: frame.link };
            self.defence.see(&header, Some(excerpt), now_ns);
        }
    }

    /// A card has dropped packets of sources, which have no copies.
    pub fn see_by_card(&mut self, dropped: &[(IpAddr, u64)]) {
        for &(source, packets) in dropped {
            let source = match source {
                IpAddr::V4(four) => (false, u32::from(four).into()),
                IpAddr::V6(six) => (true, six.into()),
            };
            self.defence.see_by_card(source, packets);
        }
    }

    /// Takes exact counts of protected addresses.
    pub fn observe(&mut self, observed: Observed) {
        self.defence.observe(observed);
    }

    /// Sets the sources that are never blocked.
    pub fn protect(&mut self, protected: Vec<Prefix>) {
        self.defence.mitigator_mut().protect(protected);
    }

    /// Ends a window. `waiting` copies were not read yet.
    pub fn end_window(&mut self, copies: Copies, waiting: u64, now_ns: u64) {
        let seen = std::mem::take(&mut self.seen);
        let (one_in, problem) = match copies.one_in {
            Ok(one_in) => (one_in, None),
            Err(problem) => (self.samples.one_in, Some(problem)),
        };
        let measured = self.losses.end_window(one_in, CopyCounts { made: copies.made, seen, waiting });
        let sampling = if problem.is_some() { Sampling::NOTHING } else { measured };
        if problem != self.samples.problem {
            problem.iter().for_each(|problem| warning!("weir: mitigation: {problem}"));
        }
        let samples = &mut self.samples;
        (samples.one_in, samples.problem) = (one_in, problem);
        samples.seen += seen;
        samples.lost = self.losses.lost();
        samples.windows += 1;
        samples.blind_windows += u64::from(sampling.is_blind());
        self.see_held_back(copies.stopped);
        for decision in self.defence.end_window(now_ns, sampling) {
            self.decided(decision, now_ns);
        }
        self.note_directions();
        self.renew(now_ns);
        self.defence.begin_window();
        self.export(now_ns);
        self.forget();
    }

    /// What actions hold back, and no sample shows, is attack too.
    fn see_held_back(&mut self, stopped: Option<Stopped>) {
        if let (Some(now), Some(before)) = (stopped, self.stopped) {
            let (cookies, dropped) =
                (now.cookies.saturating_sub(before.cookies), now.dropped.saturating_sub(before.dropped));
            self.defence.see_held_back(HeldBack { cookies, dropped });
        }
        self.stopped = stopped;
        for (id, packets) in self.carried.take_dropped() {
            self.defence.see_by_rule(id, packets);
        }
    }

    /// Says which directions are seen, whenever that changes.
    fn note_directions(&mut self) {
        let directions = self.defence.extractor().directions();
        self.samples.unjudged = self.defence.mitigator().unjudged();
        if self.samples.directions == directions.name() {
            return;
        }
        directions.name().clone_into(&mut self.samples.directions);
        match directions {
            Directions::Unknown => {}
            Directions::One => {
                eprintln!("weir: mitigation: only one direction is seen, so a missing answer is no evidence")
            }
            Directions::Both => eprintln!("weir: mitigation: both directions are seen"),
        }
    }

    /// Exports the attacks whose excerpts are complete.
    fn export(&mut self, now_ns: u64) {
        for excerpt in self.defence.take_excerpts() {
            let attack = self.defence.mitigator().attack(excerpt.attack);
            if let (Some(attack), Some(exports)) = (attack, &self.events.exports) {
                exports.put(attack, excerpt, now_ns);
            }
        }
    }

    fn decided(&mut self, decision: Decision, now_ns: u64) {
        match decision {
            Decision::Detected { attack, victim, .. } => {
                let found = self.defence.mitigator().attack(attack);
                let kind = found.map_or("attack", |attack| attack.kind());
                let severity = found.map(|attack| words::severity(&attack.evidence)).unwrap_or_default();
                warning!([Attack: attack] "weir: attack {attack}: {kind} on {victim}{severity}");
                self.tell_began(attack);
            }
            Decision::VectorBegan { attack, class } => {
                let victim = self.defence.mitigator().attack(attack).map(|attack| attack.victim.to_string());
                warning!([Attack: attack] "weir: attack {attack}: also {} on {}", class::attack(class), victim.unwrap_or_default());
                self.tell_vector("vector-began", attack, class);
            }
            Decision::VectorEnded { attack, class } => {
                notice!([Attack: attack] "weir: attack {attack}: {} is over", class::attack(class));
                self.tell_vector("vector-ended", attack, class);
            }
            Decision::Apply(action) => _ = self.apply(action, now_ns),
            Decision::Propose(action) => {
                let (attack, measure) = (action.attack, &action.measure);
                match self.defence.mitigator().mode() {
                    Mode::Watch => self.tell_action("action-watched", action.id),
                    Mode::Propose | Mode::Act => {
                        let proposed = words::proposed(measure);
                        notice!([Attack: attack, Action: action.id, Rule: measure] "weir: attack {attack}: waits for accept: {proposed}");
                        self.tell_action("action-proposed", action.id);
                    }
                }
            }
            Decision::Undo(id, ending) => self.undo(id, ending, now_ns),
            Decision::Ended(attack) => {
                notice!([Attack: attack] "weir: attack {attack}: over");
                self.tell_over(attack);
            }
        }
    }

    /// Carries out an action. Returns why it could not.
    fn apply(&mut self, action: Action, now_ns: u64) -> Option<String> {
        let (attack, id) = (action.attack, action.id);
        match self.carried.apply(&action, now_ns) {
            Ok(()) => {
                let done = words::done(&action.measure);
                notice!([Attack: attack, Action: id, Rule: action.measure] "weir: attack {attack}: {done}");
                self.defence.enforce(action, now_ns);
                self.tell_taken(attack, id);
                None
            }
            Err(problem) => {
                self.fail(action.id, problem.clone());
                Some(problem)
            }
        }
    }

    /// Carries out an action again whose rule or posture was not handed over.
    pub(super) fn put_again(&mut self, action: Action, now_ns: u64) {
        if let Err(problem) = self.carried.apply(&action, now_ns) {
            self.defence.lift(action.id, now_ns);
            self.fail(action.id, problem);
        }
    }

    /// Counts an action that could not be carried out. Only the first for a reason is logged.
    fn fail(&mut self, id: ActionId, problem: String) {
        let is_room = self.not_carried_out.len() < REASONS_MAX || self.not_carried_out.contains_key(&problem);
        let reason = if is_room { problem.as_str() } else { OTHER_REASONS };
        let count = self.not_carried_out.entry(reason.to_owned()).or_default();
        *count += 1;
        if *count == 1 {
            error!("weir: mitigation: not carried out: {problem}");
        }
        self.defence.mitigator_mut().failed(id, problem);
        self.tell_ended(id, Ending::Failed);
    }

    /// Stops carrying out an action that has ended. Actions that only waited have nothing to undo.
    fn undo(&mut self, id: ActionId, ending: Ending, now_ns: u64) {
        self.defence.lift(id, now_ns);
        if !self.carried.ids().contains(&id) {
            return;
        }
        self.note_dropped(id);
        let (action, ended) = (self.action_in_words(id), words::ended(ending, self.dropped.get(&id)));
        notice!([Action: id] "weir: {action}: {ended}");
        if let Err(problem) = self.carried.undo(id, now_ns) {
            error!("weir: mitigation: {action} ends by its timeout: {problem}");
        }
        self.tell_ended(id, ending);
    }

    /// An action with its attack, as log lines name it: `attack 1: blocked source 192.0.2.13`.
    fn action_in_words(&self, id: ActionId) -> String {
        let mut attacks = self.defence.mitigator().attacks();
        let found = attacks.find_map(|attack| {
            let record = attack.records.iter().find(|record| record.action.id == id)?;
            Some(format!("attack {}: {}", attack.id.unwrap_or_default(), words::named(&record.action.measure)))
        });
        found.unwrap_or_else(|| format!("action {id}"))
    }

    fn note_dropped(&mut self, id: ActionId) {
        if let (_, Some(dropped)) = self.carried.describe(id) {
            self.dropped.insert(id, dropped);
        }
    }

    /// Renews what expires, and ends actions that another client has undone.
    fn renew(&mut self, now_ns: u64) {
        for (id, lost) in self.carried.renew(now_ns) {
            self.defence.lift(id, now_ns);
            match lost {
                Lost::Failed(problem) => self.fail(id, problem),
                Lost::Removed(how) => {
                    let action = self.action_in_words(id);
                    notice!([Action: id] "weir: {action} {how}, and is not taken again in this attack");
                    self.defence.mitigator_mut().removed(id);
                    self.tell_ended(id, Ending::Removed);
                }
            }
        }
    }

    /// Forgets counts of actions that are not listed any more.
    fn forget(&mut self) {
        if self.dropped.is_empty() {
            return;
        }
        let attacks = self.defence.mitigator().attacks();
        let listed: Vec<ActionId> =
            attacks.flat_map(|attack| attack.records.iter().map(|record| record.action.id)).collect();
        self.dropped.retain(|id, _| listed.contains(id));
    }

    /// Decides on the actions of an attack: accepts those that wait, or dismisses these and those that are carried out.
    ///
    /// # Errors
    /// There is no such attack, it has none of these actions, or the mode does not carry out any.
    pub fn decide(&mut self, operation: &AttackOperation, now_ns: u64) -> Result<AttacksChanged, String> {
        let (attack, accepts) = match *operation {
            AttackOperation::Accept { attack } => (attack, true),
            AttackOperation::Dismiss { attack } => (attack, false),
            AttackOperation::List
            | AttackOperation::Show { .. }
            | AttackOperation::Mode { .. }
            | AttackOperation::Baseline { .. }
            | AttackOperation::SetBaseline { .. }
            | AttackOperation::ResetBaseline { .. } => unreachable!("they decide nothing about an attack"),
        };
        let decided = self.decidable(attack, accepts)?;
        let mut changed = AttacksChanged { attack, ..AttacksChanged::default() };
        for id in decided {
            let mitigator = self.defence.mitigator_mut();
            match accepts {
                true => {
                    let Some(action) = mitigator.accept(id, now_ns) else { continue };
                    changed.problems.extend(self.apply(action, now_ns));
                }
                false if !mitigator.dismiss(id) => continue,
                false if self.carried.ids().contains(&id) => {
                    self.undo(id, Ending::Dismissed, now_ns);
                    changed.undone += 1;
                }
                false => self.tell_ended(id, Ending::Dismissed),
            }
            changed.changed += 1;
        }
        Ok(changed)
    }

    /// The actions against an attack that can be accepted, or dismissed.
    fn decidable(&self, attack: AttackId, accepts: bool) -> Result<Vec<ActionId>, String> {
        let mitigator = self.defence.mitigator();
        if mitigator.mode() == Mode::Watch {
            return Err("the mode is `watch`, which carries nothing out".to_owned());
        }
        if mitigator.attack(attack).is_none() {
            return Err(format!("there is no attack {attack}"));
        }
        let (found, none) = match accepts {
            true => (mitigator.waiting(attack), "waits"),
            false => (mitigator.standing(attack), "waits or is carried out"),
        };
        if found.is_empty() { Err(format!("no action against attack {attack} {none}")) } else { Ok(found) }
    }

    /// Sets the mode. Returns how many actions were undone: all, if the mode does not act.
    pub fn set_mode(&mut self, mode: Mode, now_ns: u64) -> usize {
        let undone = self.defence.mitigator_mut().set_mode(mode);
        undone.iter().for_each(|id| self.undo(*id, Ending::Stopped, now_ns));
        if !undone.is_empty() {
            for attack in self.banned.iter().copied().collect::<Vec<_>>() {
                self.unban(attack);
            }
        }
        undone.len()
    }

    /// Undoes all actions, because the thread that measures has failed.
    pub fn abandon(&mut self, now_ns: u64) {
        self.set_mode(Mode::Watch, now_ns);
        self.carried.ids().into_iter().for_each(|id| self.undo(id, Ending::Stopped, now_ns));
    }

    /// Undoes all actions, because measurement ends.
    pub fn stop(&mut self, now_ns: u64) {
        self.defence.finish_excerpts(now_ns);
        self.export(now_ns);
        self.set_mode(Mode::Watch, now_ns);
        self.events.end();
    }
}

#[cfg(test)]
#[path = "state/tests.rs"]
mod tests;
