//! Which events are told about attacks and actions, and when the notify program is called.
//!
//! `ban` follows the first action that is carried out against an attack, `unban` its end. All else that is worth
//! telling is `attack_details`. So a program that blocks on `ban` never blocks while Weir only watches.

use super::events::{Call, Event, EventAction, EventVector};
use super::state::State;
use weir_abi::PacketClass;
use weir_mitigate::action::{ActionId, AttackId, Ending};
use weir_mitigate::class;
use weir_mitigate::{Attack, Record, State as ActionState};
use weir_recording::export::details;

impl State {
    /// An attack was detected.
    pub(super) fn tell_began(&self, attack: AttackId) {
        self.tell("attack-began", attack, None);
        self.call("attack_details", attack);
    }

    /// A further vector of an attack has begun, or a vector has ended before its attack.
    pub(super) fn tell_vector(&self, event: &'static str, id: AttackId, class: PacketClass) {
        let Some(attack) = self.defence.mitigator().attack(id) else { return };
        let of_class = attack.vectors.all().iter().rfind(|vector| vector.class == class);
        let vector = of_class.map(|vector| EventVector { kind: vector.kind(), pps: vector.peak_pps.round() as u64 });
        let (victim, kind, pps) = (attack.victim.to_string(), attack.kind(), pps(attack));
        self.events.tell(|| Event { vector, ..Event::now(event, id, victim, kind, pps) });
        self.call("attack_details", id);
    }

    /// Something happened to an action.
    pub(super) fn tell_action(&self, event: &'static str, id: ActionId) {
        if let Some((attack, action)) = self.event_action(id) {
            self.tell(event, attack, Some(action));
        }
    }

    /// An action is carried out.
    pub(super) fn tell_taken(&mut self, attack: AttackId, id: ActionId) {
        self.tell_action("action-taken", id);
        let action = if self.banned.insert(attack) { "ban" } else { "attack_details" };
        self.call(action, attack);
    }

    /// An action is carried out no more.
    pub(super) fn tell_ended(&self, id: ActionId, ending: Ending) {
        let event = match ending {
            Ending::Quiet | Ending::Merged | Ending::Timeout | Ending::Stopped => "action-released",
            Ending::Collateral | Ending::Removed | Ending::Dismissed => "action-undone",
            Ending::Failed => "action-failed",
        };
        self.tell_action(event, id);
    }

    /// An attack is over.
    pub(super) fn tell_over(&mut self, attack: AttackId) {
        self.tell("attack-ended", attack, None);
        self.unban(attack);
    }

    /// Nothing is carried out against an attack any more.
    pub(super) fn unban(&mut self, attack: AttackId) {
        if self.banned.remove(&attack) {
            self.call("unban", attack);
        }
    }

    fn tell(&self, event: &'static str, id: AttackId, action: Option<EventAction>) {
        let Some(attack) = self.defence.mitigator().attack(id) else { return };
        let (victim, kind, pps) = (attack.victim.to_string(), attack.kind(), pps(attack));
        self.events.tell(|| Event { action, ..Event::now(event, id, victim, kind, pps) });
    }

    fn call(&self, action: &'static str, id: AttackId) {
        let Some(attack) = self.defence.mitigator().attack(id) else { return };
        self.events.call(|| Call {
            victim: attack.victim.to_string(),
            pps: pps(attack),
            action,
            details: details(attack),
        });
    }

    fn event_action(&self, id: ActionId) -> Option<(AttackId, EventAction)> {
        let mitigator = self.defence.mitigator();
        let records = mitigator.attacks().flat_map(|attack| attack.records.iter().map(move |record| (attack, record)));
        let (attack, record) = records.into_iter().find(|(_, record)| record.action.id == id)?;
        let action = EventAction {
            number: id,
            kind: class::attack(record.class),
            action: record.action.measure.name(),
            rule: record.action.measure.to_string(),
            ending: ending(record),
            problem: record.problem.clone(),
        };
        Some((attack.id?, action))
    }
}

fn ending(record: &Record) -> Option<&'static str> {
    match record.state {
        ActionState::Ended(ending) => Some(ending.name()),
        ActionState::Proposed | ActionState::Active => None,
    }
}

fn pps(attack: &Attack) -> u64 {
    attack.peak_pps.round() as u64
}
