//! Carries out actions through the requests that operators use too, and undoes them.
//!
//! Whatever is put in place has a timeout, so nothing stays if this process or its thread ends.

use crate::generations::automatic::{Holder, Why};
use crate::requests::slots::Renewal;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_control::{GivenEntries, Reply, Request, SlotOperation, TableOperation};
use weir_mitigate::action::{Action, ActionId, Measure};
use weir_mitigate::prefix::Prefix;

/// A rule that is not renewed for this long is removed.
pub const RULE_TIME: Duration = Duration::from_secs(60);

/// What the rest of the daemon does for mitigation. Everything passes the door that clients use too.
pub trait Hands: Send {
    /// Executes a request as for a client.
    ///
    /// # Errors
    /// It is refused, or has failed.
    fn ask(&self, request: Request) -> Result<Reply, Failure>;

    /// Makes the rule of a number in a slot expire at a time, ns.
    fn renew_rule(&self, slot: &str, number: u32, expires_ns: u64) -> Renewal;

    /// Activates a posture in front of the operator's.
    ///
    /// # Errors
    /// There is no such posture, it is active already, or it cannot be activated.
    fn take_posture(&self, holder: Holder, posture: &str) -> Result<(), Failure>;

    /// Makes an automatic posture last. Returns the generation that has it.
    ///
    /// # Errors
    /// It has ended: why, if that is known.
    fn renew_posture(&self, holder: Holder) -> Result<u64, Option<Why>>;

    /// Ends an automatic posture, if it has not ended already.
    ///
    /// # Errors
    /// The operator's posture cannot be activated.
    fn release_posture(&self, holder: Holder) -> Result<(), Failure>;
}

/// Where actions are carried out.
#[derive(Clone, Debug)]
pub struct Places {
    /// The slot for rules.
    pub slot: String,
    /// Tables for blocked sources.
    pub tables: Vec<String>,
}

/// How an action is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Placed {
    /// By a rule of the slot, which has dropped so many packets, `told` of them until the last window.
    Rule { number: u32, expires_ns: u64, dropped: u64, told: u64 },
    /// By an entry of a table. An entry that was there before is not removed.
    Entry { table: String, entry: String, is_own: bool },
    /// By an automatic posture, which this generation has. Actions of several attacks may share one, which the first of
    /// them has taken.
    Posture { name: String, holder: Holder, generation: u64 },
}

/// The actions that are carried out.
pub struct Carried {
    hands: Box<dyn Hands>,
    places: Places,
    placed: HashMap<ActionId, Placed>,
}

/// What an action has become without our doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The operator has ended it: how.
    Removed(String),
    /// The action cannot be carried out any more.
    Failed(String),
}

impl Carried {
    /// Nothing is carried out.
    pub fn new(hands: Box<dyn Hands>, places: Places) -> Self {
        Carried { hands, places, placed: HashMap::new() }
    }

    /// How actions are carried out.
    pub(super) fn placed(&self) -> &HashMap<ActionId, Placed> {
        &self.placed
    }

    /// Notes how an action is carried out already.
    pub(super) fn put(&mut self, id: ActionId, placed: Placed) {
        self.placed.insert(id, placed);
    }

    /// What the rest of the daemon does.
    pub fn hands(&self) -> &dyn Hands {
        &*self.hands
    }

    /// The slot for rules.
    pub fn slot(&self) -> &str {
        &self.places.slot
    }

    /// Carries out an action.
    ///
    /// # Errors
    /// It cannot be carried out: the reason.
    pub fn apply(&mut self, action: &Action, now_ns: u64) -> Result<(), String> {
        let placed = match &action.measure {
            Measure::Drop(_) | Measure::Limit(..) => self.put_rule(&action.measure, now_ns),
            Measure::Block((is_ipv6, address), timeout_ns) => {
                let source = Prefix::of(*is_ipv6, *address, u8::MAX);
                self.put_entry(&source, timeout_ns / 1_000_000)
            }
            Measure::Posture(name) => self.take_posture(action.id, name),
            Measure::SynProxy(..) => Err("only a recording has a simulated SYN proxy".to_owned()),
        };
        self.placed.insert(action.id, placed?);
        Ok(())
    }

    fn ask(&self, request: Request) -> Result<Reply, String> {
        self.hands.ask(request).map_err(said)
    }

    fn put_rule(&self, measure: &Measure, now_ns: u64) -> Result<Placed, String> {
        let timeout_ms = Some(RULE_TIME.as_millis() as u64);
        let operation = SlotOperation::Add { rule: measure.to_string(), timeout_ms };
        let reply = self.ask(Request::Slot { slot: self.places.slot.clone(), operation })?;
        let Reply::SlotChanged(changed) = reply else { unreachable!("a change of a slot is answered so: {reply:?}") };
        let number = changed.number.expect("a rule that was added has a number");
        Ok(Placed::Rule { number, expires_ns: now_ns + RULE_TIME.as_nanos() as u64, dropped: 0, told: 0 })
    }

    /// Adds a source to the first table of its family.
    fn put_entry(&self, source: &Prefix, timeout_ms: u64) -> Result<Placed, String> {
        let entry = source.to_string();
        let mut problem = format!("{entry}: --mitigate-table names no table for it");
        for table in &self.places.tables {
            let given = GivenEntries { timeout_ms: Some(timeout_ms), ..GivenEntries::of(&[&entry]) };
            match self.ask(Request::Table { table: table.clone(), operation: TableOperation::Add(given) }) {
                Ok(Reply::TableChanged(changed)) => {
                    return Ok(Placed::Entry { table: table.clone(), entry, is_own: changed.changed > 0 });
                }
                Ok(other) => unreachable!("a change of a table is answered otherwise: {other:?}"),
                Err(refused) => problem = refused,
            }
        }
        Err(problem)
    }

    fn take_posture(&self, id: ActionId, name: &str) -> Result<Placed, String> {
        let held = self.placed.values().find_map(|placed| match placed {
            Placed::Posture { name: taken, holder, .. } if taken == name => Some(*holder),
            _ => None,
        });
        let holder = held.unwrap_or(id);
        if held.is_none() {
            self.hands.take_posture(holder, name).map_err(said)?;
        }
        // It may have ended since, which the next window notices.
        let generation = self.hands.renew_posture(holder).unwrap_or_default();
        Ok(Placed::Posture { name: name.to_owned(), holder, generation })
    }

    /// Whether an action that is carried out needs the posture of a holder.
    fn is_held(&self, of: Holder) -> bool {
        self.placed.values().any(|placed| matches!(placed, Placed::Posture { holder, .. } if *holder == of))
    }

    /// What rules have dropped since the last call.
    pub fn take_dropped(&mut self) -> Vec<(ActionId, u64)> {
        let more = self.placed.iter_mut().filter_map(|(id, placed)| match placed {
            Placed::Rule { dropped, told, .. } => {
                let before = std::mem::replace(told, *dropped);
                Some((*id, dropped.saturating_sub(before)))
            }
            Placed::Entry { .. } | Placed::Posture { .. } => None,
        });
        more.collect()
    }

    /// Undoes an action. A change that another client has undone or changed since stays as it is.
    ///
    /// # Errors
    /// It cannot be undone: the reason. It ends by its timeout then.
    pub fn undo(&mut self, id: ActionId, now_ns: u64) -> Result<(), String> {
        let Some(placed) = self.placed.remove(&id) else { return Ok(()) };
        match placed {
            Placed::Rule { number, .. } => {
                let until_ns = now_ns + RULE_TIME.as_nanos() as u64;
                if self.hands.renew_rule(&self.places.slot, number, until_ns) != Renewal::Gone {
                    let (slot, operation) = (self.places.slot.clone(), SlotOperation::Del { number });
                    self.ask(Request::Slot { slot, operation })?;
                }
            }
            Placed::Entry { is_own: false, .. } => {}
            Placed::Entry { table, entry, .. } => {
                let operation = TableOperation::Del(GivenEntries::of(&[&entry]));
                self.ask(Request::Table { table, operation })?;
            }
            Placed::Posture { holder, .. } if self.is_held(holder) => {}
            Placed::Posture { holder, .. } => self.hands.release_posture(holder).map_err(said)?,
        }
        Ok(())
    }

    /// Renews what expires, and returns the actions that are not carried out any more.
    pub fn renew(&mut self, now_ns: u64) -> Vec<(ActionId, Lost)> {
        let mut lost = Vec::new();
        let slot = &self.places.slot;
        for (id, placed) in &mut self.placed {
            let (number, expires_ns, dropped) = match placed {
                Placed::Rule { number, expires_ns, dropped, .. } => (number, expires_ns, dropped),
                Placed::Posture { holder, generation, .. } => {
                    match self.hands.renew_posture(*holder) {
                        Ok(now) => *generation = now,
                        Err(why) => lost.push((*id, ended(why))),
                    }
                    continue;
                }
                Placed::Entry { .. } => continue,
            };
            let was_late = now_ns >= *expires_ns;
            let until_ns = now_ns + RULE_TIME.as_nanos() as u64;
            match self.hands.renew_rule(slot, *number, until_ns) {
                Renewal::Stands(count) => (*dropped, *expires_ns) = (count, until_ns),
                Renewal::Gone if was_late => lost.push((*id, Lost::Failed("its rule has expired".to_owned()))),
                Renewal::Gone => lost.push((*id, Lost::Removed("was removed from its slot".to_owned()))),
                Renewal::NoSlot => {
                    lost.push((*id, Lost::Failed(format!("the active policy has no slot `{slot}` any more"))));
                }
            }
        }
        lost.iter().for_each(|(id, _)| _ = self.placed.remove(id));
        lost
    }

    /// The actions that are carried out.
    pub fn ids(&self) -> Vec<ActionId> {
        self.placed.keys().copied().collect()
    }

    /// Where an action is carried out, and how many packets its rule has dropped.
    pub fn describe(&self, id: ActionId) -> (Option<String>, Option<u64>) {
        match self.placed.get(&id) {
            None => (None, None),
            Some(Placed::Rule { number, dropped, .. }) => {
                (Some(format!("slot {}, rule {number}", self.places.slot)), Some(*dropped))
            }
            Some(Placed::Entry { table, .. }) => (Some(format!("table {table}")), None),
            Some(Placed::Posture { generation, .. }) => (Some(format!("generation {generation}")), None),
        }
    }
}

/// What a failure says, for a list of problems.
fn said(failure: Failure) -> String {
    failure.to_string().trim_start_matches("weir: ").to_owned()
}

/// What becomes of an action whose posture has ended.
fn ended(why: Option<Why>) -> Lost {
    match why {
        Some(why) if why.is_operators() => Lost::Removed(format!("has lost its posture: {why}")),
        Some(why) => Lost::Failed(format!("its posture has ended: {why}")),
        None => Lost::Failed("its posture has ended".to_owned()),
    }
}

#[cfg(test)]
#[path = "hands/tests.rs"]
mod tests;
