//! What operators and the outside world do to actions: accept, dismiss, remove, or fail to carry out.

use super::{Mitigator, PAUSE_MAX, Settings};
use crate::action::{Action, ActionId, AttackId, Ending, Measure, Mode};
use crate::attack::{Attack, State};
use crate::prefix::Prefix;
use crate::protected::Protected;

impl Mitigator {
    /// How far decisions go.
    pub fn mode(&self) -> Mode {
        self.settings.mode
    }

    /// The attack with a number.
    pub fn attack(&self, id: AttackId) -> Option<&Attack> {
        self.attacks().find(|attack| attack.id == Some(id))
    }

    /// Sets the sources that are never blocked and that no signature names.
    pub fn protect(&mut self, protected: Vec<Prefix>) {
        self.protected = Protected::new(protected);
    }

    /// Goes on with other settings, in the mode that was set.
    pub(crate) fn continue_with(&mut self, settings: Settings) {
        self.settings = Settings { mode: self.settings.mode, ..settings };
    }

    /// Sets another mode. Returns the actions that are no longer carried out: all, if the mode is not `act`. Waiting
    /// actions end too, and are decided again as the mode says.
    pub fn set_mode(&mut self, mode: Mode) -> Vec<ActionId> {
        if mode == self.settings.mode {
            return Vec::new();
        }
        self.settings.mode = mode;
        let mut undone = Vec::new();
        for record in self.attacks.iter_mut().flat_map(Attack::standing_mut) {
            if record.state == State::Active && mode != Mode::Act {
                undone.push(record.action.id);
            }
            if record.state == State::Proposed || mode != Mode::Act {
                record.state = State::Ended(Ending::Stopped);
            }
        }
        undone
    }

    /// The actions of an attack that wait.
    pub fn waiting(&self, id: AttackId) -> Vec<ActionId> {
        let standing = self.attack(id).into_iter().flat_map(Attack::standing);
        standing.filter(|record| record.state == State::Proposed).map(|record| record.action.id).collect()
    }

    /// Carries out a proposed action. Its time begins now.
    pub fn accept(&mut self, id: ActionId, now_ns: u64) -> Option<Action> {
        let record = self.attacks.iter_mut().find_map(|attack| attack.record_mut(id))?;
        if record.state != State::Proposed {
            return None;
        }
        record.state = State::Active;
        (record.since_ns, record.last_hit_ns) = (now_ns, now_ns);
        Some(record.action.clone())
    }

    /// The actions of an attack that wait or are carried out.
    pub fn standing(&self, id: AttackId) -> Vec<ActionId> {
        self.attack(id).into_iter().flat_map(Attack::standing).map(|record| record.action.id).collect()
    }

    /// Ends an action that waits or is carried out. Its signature is not proposed again for this attack. After an
    /// action that was carried out, other actions wait, also in the mode `act`. The caller undoes it.
    pub fn dismiss(&mut self, id: ActionId) -> bool {
        if self.end(id, State::Proposed, Ending::Dismissed) {
            return true;
        }
        let is_active = self.end(id, State::Active, Ending::Dismissed);
        if is_active {
            self.attacks
                .iter_mut()
                .filter_map(|one| one.record_mut(id).is_some().then_some(one))
                .for_each(|one| one.waits = true);
        }
        is_active
    }

    /// Ends an action that another program has undone. Its signature is not used again for this attack, and other
    /// actions wait, also in the mode `act`.
    pub fn removed(&mut self, id: ActionId) -> bool {
        self.end(id, State::Active, Ending::Removed)
    }

    fn end(&mut self, id: ActionId, from: State, ending: Ending) -> bool {
        let Some(at) = self.attacks.iter_mut().position(|attack| attack.record_mut(id).is_some()) else { return false };
        let attack = &mut self.attacks[at];
        let record = attack.record_mut(id).expect("the attack has it");
        if record.state != from {
            return false;
        }
        record.state = State::Ended(ending);
        let refused = record.action.measure.signature().cloned();
        self.remembered.retain(|signature| !refused.as_ref().is_some_and(|refused| refused.is_like(signature)));
        attack.refused.extend(refused);
        attack.is_overruled = true;
        attack.waits |= ending == Ending::Removed;
        true
    }

    /// Ends an action that could not be carried out. It may be decided again after a pause, which grows.
    pub fn failed(&mut self, id: ActionId, problem: String) {
        let Some(at) = self.attacks.iter_mut().position(|attack| attack.record_mut(id).is_some()) else { return };
        let attack = &mut self.attacks[at];
        let record = attack.record_mut(id).expect("the attack has it");
        record.state = State::Ended(Ending::Failed);
        record.problem = Some(problem);
        let measure = record.action.measure.clone();
        // Only the last of several tries is listed.
        let is_same = |other: &Measure| *other == measure || is_same_signature(other, &measure);
        let is_earlier = |record: &crate::attack::Record| {
            record.state == State::Ended(Ending::Failed) && record.action.id != id && is_same(&record.action.measure)
        };
        let tries = attack.records.iter().filter(|record| is_earlier(record)).map(|record| record.tries).max();
        attack.records.retain(|record| !is_earlier(record));
        let tries = tries.unwrap_or(0) + 1;
        attack.record_mut(id).expect("it is not earlier than itself").tries = tries;
        attack.pause = (1 << tries.min(8)).min(PAUSE_MAX);
    }
}

/// Whether two measures have the same signature, at whatever rate.
fn is_same_signature(one: &Measure, other: &Measure) -> bool {
    one.signature().is_some() && one.signature() == other.signature()
}

#[cfg(test)]
mod tests {
    use crate::action::{Action, Decision, Ending, Measure, Mode, Trial};
    use crate::attack::{Attack, Record, State};
    use crate::measure::sampling::Sampling;
    use crate::measure::{Extractor, WINDOW_NS};
    use crate::mitigator::{Mitigator, Settings};
    use crate::prefix::Prefix;
    use crate::signature::Signature;
    use weir_abi::PacketClass;

    #[test]
    fn a_posture_in_which_nothing_is_seen_ends_and_rules_stay() {
        let mut mitigator = Mitigator::new(Settings { mode: Mode::Act, ..Settings::default() }, 1);
        let victim = Prefix::of(false, 0xc000_0201, 32);
        let mut attack = Attack::new(victim, PacketClass::Udp, 0);
        attack.id = Some(1);
        let rule = Measure::Drop(Signature::new(victim, Vec::new()));
        for (id, measure) in (1..).zip([rule, Measure::Posture("high".to_owned())]) {
            let action = Action { id, attack: 1, measure, trial: Trial::default() };
            attack.records.push(Record::new(action, PacketClass::Udp, State::Active, 0));
        }
        mitigator.attacks.push(attack);
        let (mut extractor, mut ended) = (Extractor::new(Vec::new(), 1, 0), Vec::new());
        for number in 1..=4 * 120 {
            let mut window = extractor.close(number * WINDOW_NS);
            window.estimate(Sampling::NOTHING);
            ended.extend(mitigator.decide(&window, &[], &|_| false));
        }
        assert_eq!(ended, [Decision::Undo(2, Ending::Quiet)]);
    }
}
