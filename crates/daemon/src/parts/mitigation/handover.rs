//! What mitigation hands over to the next program in its process: what it knows of attacks and of peace, and what it
//! has put in place (docs/decisions/0072-upgrades.md).
//!
//! Rules, entries and postures stay in force meanwhile. They are handed over with the state of the policies. What is
//! not there any more is put in place again.

use super::events::Events;
use super::hands::{Carried, Placed, RULE_TIME};
use super::state::State;
use crate::requests::slots::Renewal;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use weir_control::SamplesStatus;
use weir_mitigate::action::{Action, ActionId, AttackId};
use weir_mitigate::defence::Defence;
use weir_mitigate::measure::sampling::Losses;
use weir_mitigate::mitigator::Settings;
use weir_mitigate::prefix::Prefix;

/// All of it. Fields are stored by name.
#[derive(Serialize, Deserialize)]
struct Handed<D> {
    defence: D,
    placed: HashMap<ActionId, Placed>,
    losses: Losses,
    seen: u64,
    samples: SamplesStatus,
    not_carried_out: BTreeMap<String, u64>,
    dropped: HashMap<ActionId, u64>,
    banned: HashSet<AttackId>,
}

impl State {
    /// What the next program continues with. Nothing may change afterwards.
    pub fn hand_over(&self) -> Result<Vec<u8>, String> {
        let handed = Handed {
            defence: &self.defence,
            placed: self.carried.placed().clone(),
            losses: self.losses.clone(),
            seen: self.seen,
            samples: self.samples.clone(),
            not_carried_out: self.not_carried_out.clone(),
            dropped: self.dropped.clone(),
            banned: self.banned.clone(),
        };
        rmp_serde::to_vec_named(&handed).map_err(|error| error.to_string())
    }

    /// Goes on with what the program before this one has handed over. What its actions have put in place stays, and is
    /// put in place again if it is not there.
    ///
    /// # Errors
    /// It cannot be read. The error has why, and the arguments for another state.
    pub fn continued(
        handed: &[u8],
        inside: Vec<Prefix>,
        settings: Settings,
        (carried, events): (Carried, Events),
        seed: u64,
    ) -> Result<Self, Box<(String, Carried, Events)>> {
        let Handed::<Defence> { defence, placed, losses, seen, samples, not_carried_out, dropped, banned } =
            match rmp_serde::from_slice(handed) {
                Ok(handed) => handed,
                Err(error) => return Err(Box::new((error.to_string(), carried, events))),
            };
        let now_ns = weir_state::now_ns();
        let mut state = State::new(Vec::new(), Settings::default(), carried, events, seed);
        state.defence = defence.continued(inside, settings);
        if state.events.exports.is_some() {
            state.defence.keep_excerpts(seed);
        }
        (state.losses, state.seen, state.samples) = (losses, seen, samples);
        (state.not_carried_out, state.dropped, state.banned) = (not_carried_out, dropped, banned);
        let missing = state.carried.continue_with(placed, now_ns);
        let again: Vec<Action> = missing.into_iter().filter_map(|id| state.action(id)).collect();
        for action in again {
            state.put_again(action, now_ns);
        }
        Ok(state)
    }

    fn action(&self, id: ActionId) -> Option<Action> {
        let mut records = self.defence.mitigator().attacks().flat_map(|attack| &attack.records);
        records.find(|record| record.action.id == id).map(|record| record.action.clone())
    }
}

impl Carried {
    /// Goes on with actions that are carried out. Returns those whose rule or posture is not there any more.
    fn continue_with(&mut self, placed: HashMap<ActionId, Placed>, now_ns: u64) -> Vec<ActionId> {
        let mut missing = Vec::new();
        for (id, placed) in placed {
            let is_there = match &placed {
                Placed::Rule { number, .. } => {
                    let until_ns = now_ns + RULE_TIME.as_nanos() as u64;
                    self.hands().renew_rule(self.slot(), *number, until_ns) != Renewal::Gone
                }
                Placed::Posture { holder, .. } => self.hands().renew_posture(*holder).is_ok(),
                // It ends by its own timeout, and the tables were handed over.
                Placed::Entry { .. } => true,
            };
            match is_there {
                true => self.put(id, placed),
                false => missing.push(id),
            }
        }
        missing.sort_unstable();
        missing
    }
}
