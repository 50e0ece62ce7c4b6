//! Carries out actions through the requests that operators use too, and undoes them.
//!
//! Whatever is put in place has a timeout, so nothing stays if this process or its thread ends.

use crate::failure::Failure;
use serde_json::Value;
use std::collections::HashMap;
use std::time::Duration;
use weir_control::{GivenEntries, Request, SlotChanged, SlotOperation, TableChanged, TableOperation};
use weir_mitigate::action::{Action, ActionId, Measure};
use weir_mitigate::prefix::Prefix;

/// A rule that is not renewed for this long is removed.
pub const RULE_TIME: Duration = Duration::from_secs(60);

/// What happened to a rule since it was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It stands, and has dropped so many packets.
    Stands(u64),
    /// It is not in the slot any more.
    Gone,
    /// The active policy has no such slot.
    NoSlot,
}

/// Makes the rule of a number in a slot expire at a time, ns.
pub type Renew = dyn Fn(&str, u32, u64) -> Renewal + Send;

/// What the rest of the daemon does for mitigation.
pub struct Hands {
    /// Executes a request as for a client.
    pub ask: Box<dyn Fn(Request) -> Result<Value, Failure> + Send>,
    /// Makes a rule of a slot expire at a time.
    pub renew: Box<Renew>,
    /// The active generation and its posture.
    pub active: Box<dyn Fn() -> (u64, Option<String>) + Send>,
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
#[derive(Clone, Debug, PartialEq, Eq)]
enum Placed {
    /// By a rule of the slot.
    Rule { number: u32, expires_ns: u64, dropped: u64 },
    /// By an entry of a table. An entry that was there before is not removed.
    Entry { table: String, entry: String, is_own: bool },
    /// By a posture of a generation, in place of another one.
    Posture { generation: u64, name: String, before: Option<String> },
}

/// The actions that are carried out.
pub struct Carried {
    hands: Hands,
    places: Places,
    placed: HashMap<ActionId, Placed>,
}

/// What an action has become without our doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Somebody has removed its rule.
    Removed,
    /// It cannot be carried out any more.
    Failed(String),
}

impl Carried {
    /// Nothing is carried out.
    pub fn new(hands: Hands, places: Places) -> Self {
        Carried { hands, places, placed: HashMap::new() }
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
            Measure::Posture(name) => self.set_posture(name),
            Measure::SynProxy(..) => Err("only a recording has a simulated SYN proxy".to_owned()),
        };
        self.placed.insert(action.id, placed?);
        Ok(())
    }

    fn ask(&self, request: Request) -> Result<Value, String> {
        let said = |failure: Failure| failure.to_string().trim_start_matches("weir: ").to_owned();
        (self.hands.ask)(request).map_err(said)
    }

    fn put_rule(&self, measure: &Measure, now_ns: u64) -> Result<Placed, String> {
        let timeout_ms = Some(RULE_TIME.as_millis() as u64);
        let operation = SlotOperation::Add { rule: measure.to_string(), timeout_ms };
        let answer = self.ask(Request::Slot { slot: self.places.slot.clone(), operation })?;
        let changed: SlotChanged = serde_json::from_value(answer).expect("the answer of this process");
        let number = changed.number.expect("a rule that was added has a number");
        Ok(Placed::Rule { number, expires_ns: now_ns + RULE_TIME.as_nanos() as u64, dropped: 0 })
    }

    /// Adds a source to the first table of its family.
    fn put_entry(&self, source: &Prefix, timeout_ms: u64) -> Result<Placed, String> {
        let entry = source.to_string();
        let mut problem = format!("{entry}: --mitigate-table names no table for it");
        for table in &self.places.tables {
            let given = GivenEntries { timeout_ms: Some(timeout_ms), ..GivenEntries::of(&[&entry]) };
            match self.ask(Request::Table { table: table.clone(), operation: TableOperation::Add(given) }) {
                Ok(answer) => {
                    let changed: TableChanged = serde_json::from_value(answer).expect("the answer of this process");
                    return Ok(Placed::Entry { table: table.clone(), entry, is_own: changed.changed > 0 });
                }
                Err(refused) => problem = refused,
            }
        }
        Err(problem)
    }

    fn set_posture(&self, name: &str) -> Result<Placed, String> {
        let (generation, before) = (self.hands.active)();
        if before.as_deref() == Some(name) {
            return Err(format!("posture {name} is active already"));
        }
        self.ask(Request::Posture { name: Some(name.to_owned()) })?;
        Ok(Placed::Posture { generation, name: name.to_owned(), before })
    }

    /// Undoes an action. What somebody else has undone, or changed since, stays as it is.
    ///
    /// # Errors
    /// It cannot be undone: the reason. It ends by its timeout then.
    pub fn undo(&mut self, id: ActionId, now_ns: u64) -> Result<(), String> {
        let Some(placed) = self.placed.remove(&id) else { return Ok(()) };
        match placed {
            Placed::Rule { number, .. } => {
                let until_ns = now_ns + RULE_TIME.as_nanos() as u64;
                if (self.hands.renew)(&self.places.slot, number, until_ns) != Renewal::Gone {
                    let (slot, operation) = (self.places.slot.clone(), SlotOperation::Del { number });
                    self.ask(Request::Slot { slot, operation })?;
                }
            }
            Placed::Entry { is_own: false, .. } => {}
            Placed::Entry { table, entry, .. } => {
                let operation = TableOperation::Del(GivenEntries::of(&[&entry]));
                self.ask(Request::Table { table, operation })?;
            }
            Placed::Posture { generation, name, before } => {
                if (self.hands.active)() == (generation, Some(name)) {
                    self.ask(Request::Posture { name: before })?;
                }
            }
        }
        Ok(())
    }

    /// Renews what expires, and returns the actions that are not carried out any more.
    pub fn renew(&mut self, now_ns: u64) -> Vec<(ActionId, Lost)> {
        let mut lost = Vec::new();
        let slot = &self.places.slot;
        for (id, placed) in &mut self.placed {
            let Placed::Rule { number, expires_ns, dropped } = placed else { continue };
            let was_late = now_ns >= *expires_ns;
            let until_ns = now_ns + RULE_TIME.as_nanos() as u64;
            match (self.hands.renew)(slot, *number, until_ns) {
                Renewal::Stands(count) => (*dropped, *expires_ns) = (count, until_ns),
                Renewal::Gone if was_late => lost.push((*id, Lost::Failed("its rule has expired".to_owned()))),
                Renewal::Gone => lost.push((*id, Lost::Removed)),
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

#[cfg(test)]
#[path = "hands/tests.rs"]
mod tests;
