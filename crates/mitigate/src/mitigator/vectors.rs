//! The vectors of attacks: when they begin, what is known of them, and when they end.

use super::{FORGET_NS, Mitigator};
use crate::action::Decision;
use crate::baseline::Growth;
use crate::measure::Window;
use crate::victim::{Evidence, Suspect};
use weir_abi::PacketClass;

impl Mitigator {
    /// Measures each class of each attack: what passes, and what actions hold back.
    pub(super) fn measure_vectors(&mut self, window: &Window, suspects: &[Suspect], growth: &Growth) {
        let baselines = &self.peace.baselines;
        for attack in &mut self.attacks {
            let (victim, vectors) = (attack.victim, &mut attack.vectors);
            let (usual, counts) = (baselines.of(&victim), window.counts_of(victim));
            for class in PacketClass::ALL {
                let at = class as usize;
                let passing_pps = counts.map_or(0, |counts| counts.unproven[at]) as f64 / window.seconds();
                let is_exact = counts.is_some_and(|counts| counts.is_exact[at]);
                let least_pps = if is_exact { 0.0 } else { window.least_pps() };
                let threshold_pps = baselines.threshold_pps(&victim, class, growth.of(&victim)).max(least_pps);
                vectors.measure(class, passing_pps, usual.unproven_pps(class), threshold_pps);
            }
            let parts = suspects.iter().filter(|part| part.prefix != victim && victim.covers(&part.prefix));
            parts.for_each(|part| vectors.measure_part(part.class, &part.evidence));
        }
    }

    /// Another vector of an attack begins, unless it lasts already.
    pub(super) fn join(&mut self, at: usize, class: PacketClass, evidence: &[Evidence]) {
        let attack = &mut self.attacks[at];
        let Some(id) = attack.id else { return };
        let now_ns = attack.last_ns;
        if attack.vectors.begin(class, evidence.to_vec(), now_ns) {
            // What is learned of one vector says nothing about another.
            attack.pause = 0;
            self.decisions.push(Decision::VectorBegan { attack: id, class });
        } else {
            attack.vectors.support(class, evidence);
        }
    }

    /// The vector that an action of a class is for. A class without a vector begins one if it has excess. Otherwise the
    /// action is for the vector with the highest rate.
    pub(super) fn vector_of(&mut self, at: usize, class: PacketClass) -> PacketClass {
        let attack = &self.attacks[at];
        if attack.vectors.current(class).is_some() {
            return class;
        }
        if let Some(evidence) = attack.vectors.excess_of(class).cloned() {
            self.join(at, class, &[evidence]);
            return class;
        }
        let current = attack.vectors.all().iter().filter(|vector| !vector.is_over);
        let main = current.max_by(|one, other| one.rate_pps.total_cmp(&other.rate_pps));
        main.map_or(class, |vector| vector.class)
    }

    /// Notes the rates of a window, after its decisions.
    pub(super) fn follow_vectors(&mut self, now_ns: u64) {
        for attack in &mut self.attacks {
            let Some(id) = attack.id else { continue };
            let needed: Vec<PacketClass> = attack.standing().map(|record| record.class).collect();
            for class in attack.vectors.follow(now_ns) {
                attack.pause = 0;
                self.decisions.push(Decision::VectorBegan { attack: id, class });
            }
            for class in attack.vectors.retire(now_ns, FORGET_NS, |class| needed.contains(&class)) {
                self.decisions.push(Decision::VectorEnded { attack: id, class });
            }
        }
    }
}
