//! When actions and attacks end.

use super::{AWAITED_MAX, FORGET_NS, Mitigator, OVER_MAX, REMEMBERED_MAX};
use crate::action::{Decision, Ending, Measure};
use crate::attack::{Record, State};
use crate::measure::Window;
use crate::retreat;
use weir_abi::PacketClass;

impl Mitigator {
    /// Nothing was seen, which says nothing about peace: no rule becomes quiet, and no attack ends. A posture does
    /// unless counters say what it holds back, because it may be the reason that nothing is seen.
    pub(super) fn hold(&mut self, window: &Window) {
        let excess = self.held_excess(window);
        for attack in &mut self.attacks {
            attack.last_ns = window.to_ns;
            attack.vectors.hold(window.to_ns);
            for record in attack.standing_mut() {
                if !is_posture(record) || excess.of(record.class) > 0.0 {
                    record.last_hit_ns = window.to_ns;
                }
            }
        }
    }

    /// A victim has excess of a class that is seen, whatever its posture does. So the posture for the class stays, and
    /// one that waits. Segments of connections say nothing: behind a SYN proxy, customers may seem to have no proof.
    /// What the posture drops of a flood of them is counted.
    pub(super) fn keep_posture(&mut self, at: usize, class: PacketClass, now_ns: u64) {
        let is_of_class = |record: &Record| record.class == class && class != PacketClass::Tcp;
        let is_kept =
            |record: &&mut Record| is_posture(record) && (record.state == State::Proposed || is_of_class(record));
        self.attacks[at].standing_mut().filter(is_kept).for_each(|record| record.last_hit_ns = now_ns);
    }

    /// Ends actions that are quiet or whose time is over, and attacks without actions.
    pub(super) fn retreat(&mut self, now_ns: u64) {
        let slow = retreat::slow_sources(&self.attacks, self.peace.source_pps());
        let has_room = self.attacks.len() <= AWAITED_MAX;
        for attack in &mut self.attacks {
            let last_hit_ns = attack.standing().map(|record| record.last_hit_ns).max().unwrap_or(0);
            attack.last_ns = attack.last_ns.max(last_hit_ns);
            let has_posture = attack.standing().any(|record| is_posture(record) && record.state == State::Active);
            for (action, ending) in retreat::retire(attack, &slow, now_ns, self.settings.hold_ns) {
                self.decisions.push(Decision::Undo(action.id, ending));
                match (ending, action.measure) {
                    (Ending::Quiet, Measure::Drop(signature)) => {
                        self.remembered.retain(|known| !signature.covers(known));
                        self.remembered.push(signature);
                    }
                    // It may have hidden the attack. What comes now shows whether that is over.
                    (Ending::Quiet, Measure::Posture(_)) if has_posture => {
                        attack.lifted = attack.lifted.saturating_add(1);
                        (attack.last_ns, attack.pause) = (now_ns, 0);
                    }
                    _ => {}
                }
            }
            let is_idle = now_ns.saturating_sub(attack.last_ns) >= FORGET_NS;
            let is_awaited = has_room && attack.id.is_none() && self.victims.is_pulsed(&attack.victim);
            attack.is_over = is_idle && !is_awaited && attack.standing().next().is_none();
        }
        let excess = self.remembered.len().saturating_sub(REMEMBERED_MAX);
        self.remembered.drain(..excess);
        for attack in self.attacks.extract_if(.., |attack| attack.is_over) {
            self.decisions.extend(attack.id.map(Decision::Ended));
            if let Some(mut attack) = attack.id.is_some().then_some(attack) {
                attack.vectors.end();
                self.over.push(attack);
            }
        }
        let excess = self.over.len().saturating_sub(OVER_MAX);
        self.over.drain(..excess);
    }
}

fn is_posture(record: &Record) -> bool {
    matches!(record.action.measure, Measure::Posture(_))
}
