//! When actions end: mistakes, actions that have nothing to do, and those whose time is over.

use crate::action::{Action, ActionId, Ending, Measure};
use crate::attack::{Attack, Record, State};
use crate::release::{Blocked, release};
use crate::signature::{Field, Signature};

const SECOND_NS: u64 = 1_000_000_000;
/// An action that hits fewer packets a second is quiet.
pub const QUIET_PPS: f64 = 10.0;
/// A signature that names a source, and a block of a source, ends after this time. If it was a mistake, the source is
/// back after half of the longest allowed outage of a minute.
pub const SOURCE_NS: u64 = 30 * SECOND_NS;
/// A blocked source has this long to show its rate.
const RATE_NS: u64 = SECOND_NS;
/// Packets of proven sources that an action must hit before it counts as a mistake, and their share of all packets that
/// it hits. An attacker meets a sequence number by chance in 1 of 2^14 packets.
const MISTAKES_MIN: u64 = 8;
const MISTAKES_SHARE: f64 = 0.01;
/// The share for packets that answers vouch for. An attacker can forge these. So a rule is a mistake only at a share
/// that would cost the attacker a quarter of the flood, sent in turn with answers.
const VOUCHED_SHARE: f64 = 0.25;
/// Or their share of all packets of proven sources to the victim since the action began.
const HARM_SHARE: f64 = 0.005;
/// The longest time of a posture is 64 times the usual one.
const DOUBLINGS_MAX: u32 = 6;
/// Windows in a row, a second, after which a rule that hits only streams of harmless rates is released.
const HARMLESS_WINDOWS: u32 = 4;

/// Ends the actions of an attack that hit packets of proven sources. Blocks hit them on purpose.
pub fn undo_mistakes(attack: &mut Attack) -> Vec<ActionId> {
    let is_mistake = |record: &Record| {
        let is_block = matches!(record.action.measure, Measure::Block(..));
        let proven = record.proven as f64;
        let is_blunt = proven >= record.packets as f64 * MISTAKES_SHARE;
        let is_harmful = proven >= (record.proven_passed + record.proven) as f64 * HARM_SHARE;
        let is_vouched = record.vouched_seen >= MISTAKES_MIN
            && (record.vouched + record.proven) as f64 >= record.packets as f64 * VOUCHED_SHARE;
        !is_block && (record.proven_seen >= MISTAKES_MIN && (is_blunt || is_harmful) || is_vouched)
    };
    let mistakes = attack.standing_mut().filter(|record| is_mistake(record));
    let undone: Vec<Action> = mistakes
        .map(|record| {
            record.state = State::Ended(Ending::Collateral);
            record.action.clone()
        })
        .collect();
    attack.refused.extend(undone.iter().filter_map(|action| action.measure.signature()).cloned());
    undone.into_iter().map(|action| action.id).collect()
}

/// Blocked sources of all attacks that the rate monitor releases. Nothing measures the rate of a source whose block
/// waits.
pub fn slow_sources(attacks: &[Attack], normal_max_pps: f64) -> Vec<ActionId> {
    let standing = attacks.iter().flat_map(Attack::standing);
    let is_blocked =
        |record: &&Record| record.state == State::Active && matches!(record.action.measure, Measure::Block(..));
    let blocked = standing.filter(is_blocked);
    let rate = |record: &Record| Blocked { key: record.action.id, rate_pps: record.rate_pps };
    release(blocked.map(rate).collect(), normal_max_pps)
}

/// Ends the actions of an attack that are quiet for `hold_ns`, or whose time is over. `slow` are the sources to
/// release. Streams of harmless rates are released too: if they become a load, the rule comes back. If an attack has
/// come back after a posture, the posture stays twice as long each time.
pub fn retire(attack: &mut Attack, slow: &[ActionId], now_ns: u64, hold_ns: u64) -> Vec<(Action, Ending)> {
    let mut ended = Vec::new();
    let posture_ns = hold_ns.saturating_mul(1 << attack.lifted.min(DOUBLINGS_MAX));
    for record in attack.standing_mut() {
        let age_ns = now_ns.saturating_sub(record.since_ns);
        let is_posture = matches!(record.action.measure, Measure::Posture(_));
        let hold_ns = if is_posture { posture_ns } else { hold_ns };
        let is_slow = slow.contains(&record.action.id) && age_ns >= RATE_NS;
        // What waits does no harm, and ends with its packets.
        let is_active = record.state == State::Active;
        let ending = if is_active && names_source(&record.action.measure) && age_ns >= SOURCE_NS {
            Ending::Timeout
        } else if is_slow || is_harmless(record) || now_ns.saturating_sub(record.last_hit_ns) >= hold_ns {
            Ending::Quiet
        } else {
            continue;
        };
        record.state = State::Ended(ending);
        ended.push((record.action.clone(), ending));
    }
    ended
}

fn is_harmless(record: &Record) -> bool {
    record.harmless_windows >= HARMLESS_WINDOWS && record.action.measure.signature().is_some()
}

fn names_source(measure: &Measure) -> bool {
    let names = |signature: &Signature| signature.terms().iter().any(|term| term.field == Field::Saddr);
    matches!(measure, Measure::Block(..)) || measure.signature().is_some_and(names)
}

#[cfg(test)]
mod tests {
    use super::{MISTAKES_MIN, RATE_NS, retire, undo_mistakes};
    use crate::action::{Action, Ending, Measure, Trial};
    use crate::attack::{Attack, Record, State};
    use crate::prefix::Prefix;
    use crate::signature::Signature;
    use weir_abi::PacketClass;

    /// An attack with one standing action, whose record is changed.
    fn attack(measure: Measure, change: impl FnOnce(&mut Record)) -> Attack {
        let mut attack = Attack::new(victim(), PacketClass::Udp, 0);
        let action = Action { id: 1, attack: 1, measure, trial: Trial::default() };
        let mut record = Record::new(action, PacketClass::Udp, State::Active, 0);
        change(&mut record);
        attack.records.push(record);
        attack
    }

    fn victim() -> Prefix {
        Prefix::of(false, 0xc000_0201, 32)
    }

    #[test]
    fn an_action_is_a_mistake_from_eight_proven_packets_on() {
        let undone = |proven: u64| {
            let measure = Measure::Drop(Signature::new(victim(), Vec::new()));
            let hit = |record: &mut Record| (record.packets, record.proven, record.proven_seen) = (800, proven, proven);
            undo_mistakes(&mut attack(measure, hit))
        };
        assert_eq!([undone(MISTAKES_MIN - 1), undone(MISTAKES_MIN)], [vec![], vec![1]]);
    }

    #[test]
    fn a_blocked_source_is_not_released_before_it_shows_its_rate() {
        let ended = |now_ns: u64| {
            let mut attack = attack(Measure::Block((false, 1), 0), |_| {});
            retire(&mut attack, &[1], now_ns, u64::MAX).into_iter().map(|(_, ending)| ending).collect::<Vec<_>>()
        };
        assert_eq!([ended(RATE_NS - 1), ended(RATE_NS)], [vec![], vec![Ending::Quiet]]);
    }
}
