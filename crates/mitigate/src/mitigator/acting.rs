//! Actions that are carried out or proposed.

use super::{BLOCKS_MAX, LIMIT_PPS, Mitigator};
use crate::action::{Action, Decision, Ending, Measure, Mode, Trial};
use crate::attack::{Record, State};
use crate::signature::Signature;
use crate::signature::learn::{COLLATERAL_MAX, Learned};
use crate::streams;
use weir_abi::PacketClass;

/// Rules of an attack that differ in one field. Of more, those go that have had no packets for some time.
const RELATIVES_MAX: usize = 4;
const RELATIVE_NS: u64 = 2_000_000_000;

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
            let is_limit = one.usual_share > COLLATERAL_MAX || one.is_stream;
            self.make_room(at, &one.signature, is_limit);
            let measure = if one.usual_share > COLLATERAL_MAX {
                let usual = self.peace.baselines.of(&victim);
                let limit_pps = (usual.unproven_total_pps() + usual.streamed_total_pps()) * one.usual_share;
                Measure::Limit(one.signature, limit_pps.max(LIMIT_PPS))
            } else if one.is_stream {
                Measure::Limit(one.signature, self.stream_pps(at).max(LIMIT_PPS))
            } else {
                Measure::Drop(one.signature)
            };
            self.apply(at, None, measure, trial);
        }
    }

    /// What the next stream to a victim may have: half of what all streams may have without harm, and each further one
    /// half of the previous one. So however many senders there are, they have no more than that.
    fn stream_pps(&self, at: usize) -> f64 {
        let attack = &self.attacks[at];
        let limits = attack.standing().filter(|record| matches!(record.action.measure, Measure::Limit(..))).count();
        streams::harmless_pps(&attack.victim, &self.peace.baselines) / 2f64.powi(limits as i32 + 1)
    }

    /// Ends the rules of an attack whose packets a new rule covers, and the older ones of those that differ from it in
    /// one field: if an attacker changes a field, the slot would fill.
    fn make_room(&mut self, at: usize, signature: &Signature, is_limit: bool) {
        let attack = &mut self.attacks[at];
        // Proposals do not replace what is carried out.
        let acts = self.settings.mode == Mode::Act && !attack.waits;
        let now_ns = attack.last_ns;
        let is_alike = |record: &Record| match &record.action.measure {
            Measure::Drop(_) => !is_limit,
            Measure::Limit(..) => is_limit,
            Measure::Block(..) | Measure::Posture(_) | Measure::SynProxy(..) => false,
        };
        let mut relatives = Vec::new();
        for record in attack.standing_mut().filter(|record| acts || record.state == State::Proposed) {
            let Some(known) = record.action.measure.signature() else { continue };
            if is_alike(record) && signature.covers(known) && signature != known {
                record.state = State::Ended(Ending::Merged);
                self.decisions.push(Decision::Undo(record.action.id, Ending::Merged));
            } else if signature.terms().iter().any(|term| known.differs_in(signature, term.field).is_some()) {
                relatives.push((record.last_hit_ns, record.action.id));
            }
        }
        relatives.sort_unstable();
        let excess = (relatives.len() + 1).saturating_sub(RELATIVES_MAX);
        let quiet = relatives.into_iter().filter(|(last_hit_ns, _)| now_ns.saturating_sub(*last_hit_ns) >= RELATIVE_NS);
        for (_, id) in quiet.take(excess) {
            attack.record_mut(id).expect("it stands").state = State::Ended(Ending::Merged);
            self.decisions.push(Decision::Undo(id, Ending::Merged));
        }
    }

    /// Takes an action against an attack. Without a `class` it is for the class that most headers of its signature
    /// have.
    pub(super) fn apply(&mut self, at: usize, class: Option<PacketClass>, measure: Measure, trial: Trial) {
        let attack = &mut self.attacks[at];
        let Some(id) = attack.id else { return };
        let is_repeated = attack.standing().any(|record| record.action.measure == measure);
        let is_block = |measure: &Measure| matches!(measure, Measure::Block(..));
        let alike = attack.standing().filter(|record| is_block(&record.action.measure) == is_block(&measure)).count();
        if is_repeated || alike >= if is_block(&measure) { BLOCKS_MAX } else { self.settings.rules_max } {
            return;
        }
        let class = class.or_else(|| attack.class_of(measure.signature()?)).unwrap_or(attack.class);
        let class = self.vector_of(at, class);
        let attack = &mut self.attacks[at];
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
