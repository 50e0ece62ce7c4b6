//! Actions that are carried out or proposed.

use super::{BLOCKS_MAX, LIMIT_PPS, Mitigator};
use crate::action::{Action, Decision, Measure, Mode, Trial};
use crate::attack::{Record, State};
use crate::signature::learn::{COLLATERAL_MAX, Learned};
use weir_abi::PacketClass;

impl Mitigator {
    pub(super) fn act(&mut self, at: usize, learned: Vec<Learned>) {
        for one in learned {
            let trial = Trial {
                attack: one.covered,
                attack_of: one.of,
                legitimate: one.legitimate,
                legitimate_of: one.legitimate_of,
            };
            let victim = self.attacks[at].victim;
            let measure = if one.usual_share > COLLATERAL_MAX {
                let usual = self.peace.baselines.of(&victim);
                let limit_pps = (usual.unproven_total_pps() + usual.streamed_total_pps()) * one.usual_share;
                Measure::Limit(one.signature, limit_pps.max(LIMIT_PPS))
            } else {
                Measure::Drop(one.signature)
            };
            self.apply(at, None, measure, trial);
        }
    }

    /// Takes an action against an attack. Without a `class` it is for the class that most headers of its signature have.
    pub(super) fn apply(&mut self, at: usize, class: Option<PacketClass>, measure: Measure, trial: Trial) {
        let attack = &mut self.attacks[at];
        let class = class.or_else(|| attack.class_of(measure.signature()?)).unwrap_or(attack.class);
        let Some(id) = attack.id else { return };
        let is_repeated = attack.standing().any(|record| record.action.measure == measure);
        let is_block = |measure: &Measure| matches!(measure, Measure::Block(..));
        let alike = attack.standing().filter(|record| is_block(&record.action.measure) == is_block(&measure)).count();
        if is_repeated || alike >= if is_block(&measure) { BLOCKS_MAX } else { self.settings.rules_max } {
            return;
        }
        let action = Action { id: self.next_action, attack: id, measure, trial };
        self.next_action += 1;
        let acts = self.settings.mode == Mode::Act && !attack.waits;
        let state = if acts { State::Active } else { State::Proposed };
        attack.records.push(Record::new(action.clone(), class, state, attack.last_ns));
        attack.bound_records();
        self.decisions.push(match state {
            State::Active => Decision::Apply(action),
            State::Proposed | State::Ended(_) => Decision::Propose(action),
        });
    }
}
