//! What actions hit, and which of them are mistakes.

use super::Mitigator;
use crate::action::{Decision, Ending, Hit, Measure};
use crate::attack::{Attack, Record, State};
use crate::baseline::FACTOR;
use crate::behind_proxy::OPENED_NS;
use crate::held::{Excess, HeldBack};
use crate::learned::Pace;
use crate::measure::Window;
use crate::measure::counts::Counts;
use crate::retreat::{self, QUIET_PPS};
use crate::streams;
use weir_abi::PacketClass;

/// An action that hits streams in this share of its packets hits hardly anything else. The first packets of a stream
/// are not known to belong to one.
const STREAMED_SHARE: f64 = 0.8;

impl Mitigator {
    /// Exact counts come from now on, for the first time, and samples show only a part of the packets.
    pub fn begin_exactly(&mut self) {
        self.peace.begin_exactly();
    }

    /// The datapath has held packets back in the window that ends next.
    pub fn see_held_back(&mut self, held: HeldBack) {
        self.held = held;
    }

    /// Whether a SYN proxy answers SYNs, or has done so lately.
    pub(super) fn is_proxied(&mut self, now_ns: u64) -> bool {
        if self.held.cookies > 0 {
            self.cookie_ns = Some(now_ns);
        }
        self.cookie_ns.is_some_and(|cookie_ns| now_ns.saturating_sub(cookie_ns) < OPENED_NS)
    }

    /// Learns what is held back in peace.
    pub(super) fn learn_held(&mut self, window: &Window) {
        if self.attacks.is_empty() {
            let pace = if self.peace.is_beginning() { Pace::Follow } else { Pace::Slow };
            self.usually_held.learn(&self.held, window.seconds(), pace);
        }
    }

    /// What a posture holds back in a window beyond what is usual; nothing if no posture is in force.
    pub(super) fn held_excess(&self, window: &Window) -> Excess {
        let mut standing = self.attacks.iter().flat_map(Attack::standing);
        let has_posture = standing
            .any(|record| matches!(record.action.measure, Measure::Posture(_)) && record.state == State::Active);
        match has_posture {
            true => self.usually_held.excess(&self.held, window.seconds(), &self.peace.baselines),
            false => Excess::default(),
        }
    }

    /// Counts what actions hit in a window.
    pub(super) fn count_hits(&mut self, window: &Window, hits: &[Hit]) {
        let scale = window.sampling.scale();
        let held = self.held_excess(window);
        let estimate = |packets: u64| (packets as f64 * scale).round() as u64;
        for attack in &mut self.attacks {
            attack.vectors.begin_window();
            let mut held_back = Vec::new();
            let counts = window.counts_of(attack.victim).copied().unwrap_or(Counts::new(attack.victim));
            let proven = counts.proven_total();
            let is_of = |hit: &&Hit| attack.standing().any(|record| record.action.id == hit.action);
            let dropped: u64 = hits.iter().filter(is_of).map(|hit| hit.streamed).sum();
            let streamed_pps = (dropped as f64 * scale + counts.streamed_total() as f64) / window.seconds();
            let is_harmless = streams::is_harmless(&attack.victim, streamed_pps, &self.peace.baselines);
            let usual = self.peace.baselines.of(&attack.victim);
            for record in attack.standing_mut() {
                record.proven_passed += proven;
                if let (Measure::Posture(_), State::Active) = (&record.action.measure, record.state) {
                    count_held(record, held.of(record.class), window);
                    held_back.push((record.class, record.rate_pps));
                }
                let Some(hit) = hits.iter().find(|hit| hit.action == record.action.id) else { continue };
                record.packets += estimate(hit.packets) + hit.by_card;
                record.proven += estimate(hit.proven);
                record.proven_seen += hit.proven;
                record.vouched += estimate(hit.vouched);
                record.vouched_seen += hit.vouched;
                record.completed += hit.completed;
                let stopped = hit.packets.saturating_sub(hit.released);
                // Few packets have no samples. The counter is read later than the samples.
                let stopped = (stopped as f64 * scale).max(hit.counted.unwrap_or(0) as f64);
                record.rate_pps = (stopped + hit.by_card as f64) / window.seconds();
                held_back.extend(by_class(record, hit));
                let is_streamed = hit.streamed as f64 >= hit.packets as f64 * STREAMED_SHARE;
                record.harmless_windows = match hit.streamed {
                    0 => 0,
                    _ if is_streamed && is_harmless => record.harmless_windows + 1,
                    _ => 0,
                };
                // A SYN proxy also stops SYNs that never get an answer.
                let quiet_pps = match record.action.measure {
                    Measure::SynProxy(..) => QUIET_PPS.max(usual.unproven_pps(PacketClass::Syn) * FACTOR),
                    _ => QUIET_PPS,
                };
                if record.rate_pps >= quiet_pps {
                    record.last_hit_ns = window.to_ns;
                }
            }
            held_back.into_iter().for_each(|(class, pps)| attack.vectors.hold_back(class, pps));
        }
    }

    /// Undoes the actions that are mistakes.
    pub(super) fn undo_mistakes(&mut self) {
        for attack in &mut self.attacks {
            let undone = retreat::undo_mistakes(attack);
            // Sources that were hit by mistake are users of the victim.
            attack.may_be_unused &= undone.is_empty();
            self.remembered.retain(|signature| !attack.is_refused(signature));
            self.decisions.extend(undone.into_iter().map(|id| Decision::Undo(id, Ending::Collateral)));
        }
    }
}

/// The rate of an action by class, in the shares of the packets that were seen.
fn by_class(record: &Record, hit: &Hit) -> Vec<(PacketClass, f64)> {
    let seen: u64 = hit.classes.iter().sum();
    if seen == 0 {
        return vec![(record.class, record.rate_pps)];
    }
    let share = |class: PacketClass| record.rate_pps * hit.classes[class as usize] as f64 / seen as f64;
    PacketClass::ALL.map(|class| (class, share(class))).to_vec()
}

/// Counts what a posture holds back of an attack.
fn count_held(record: &mut Record, held_pps: f64, window: &Window) {
    record.rate_pps = held_pps;
    record.packets += (held_pps * window.seconds()).round() as u64;
    if held_pps > 0.0 {
        record.last_hit_ns = window.to_ns;
    }
}
