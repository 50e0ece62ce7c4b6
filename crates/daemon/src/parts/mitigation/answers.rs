//! Attacks and actions, as the control protocol shows them.

use super::profile;
use super::state::State;
use weir_control::{AttackAction, AttackEntry, AttackEvidence, AttackIdle, AttackVector, AttacksListed};
use weir_mitigate::action::{AttackId, Mode};
use weir_mitigate::class;
use weir_mitigate::idle::Idle;
use weir_mitigate::vector::Vector;
use weir_mitigate::victim::Evidence;
use weir_mitigate::{Attack, Record, State as ActionState};

/// All attacks.
pub fn list(state: &State, now_ns: u64) -> AttacksListed {
    let mitigator = state.defence.mitigator();
    let mut attacks: Vec<AttackEntry> = mitigator.attacks().map(|attack| entry(state, attack, now_ns)).collect();
    attacks.sort_by_key(|attack| attack.attack);
    let mut events = state.events.status();
    events.export_lost += state.defence.excerpts_left_out();
    AttacksListed {
        mode: mitigator.mode().name().to_owned(),
        samples: state.samples.clone(),
        not_carried_out: state.not_carried_out.clone(),
        events,
        attacks,
    }
}

/// One attack, if there is one of this number.
pub fn show(state: &State, attack: AttackId, now_ns: u64) -> Option<AttackEntry> {
    state.defence.mitigator().attack(attack).map(|attack| entry(state, attack, now_ns))
}

fn entry(state: &State, attack: &Attack, now_ns: u64) -> AttackEntry {
    let current = attack.vectors.all().iter().filter(|vector| !vector.is_over).map(|vector| vector.rate_pps);
    let pps = (!attack.is_over).then(|| current.sum::<f64>());
    let profile = profile::of(attack.latest());
    let bps = pps.zip(profile.as_ref()).map(|(pps, profile)| pps * profile.mean_bytes * 8.0);
    let idle = Idle::of(attack, state.defence.mitigator().mode());
    AttackEntry {
        attack: attack.id.unwrap_or_default(),
        victim: attack.victim.to_string(),
        kind: attack.kind().to_owned(),
        age_s: seconds(attack.from_ns, now_ns),
        seen_s: seconds(attack.last_ns, now_ns),
        is_over: attack.is_over,
        peak_pps: rounded(attack.peak_pps),
        evidence: evidence(&attack.evidence),
        actions: attack.records.iter().map(|record| action(state, record, now_ns)).collect(),
        vectors: attack.vectors.all().iter().map(|one| vector(attack, one, now_ns)).collect(),
        pps: pps.map(rounded),
        bps: bps.map(f64::round),
        idle: idle.map(|Idle { why, help }| AttackIdle { why, help }),
        profile,
    }
}

fn evidence(of: &[Evidence]) -> Vec<AttackEvidence> {
    let evidence = of.iter().map(|one| AttackEvidence {
        measure: one.measure.clone(),
        value: rounded(one.value),
        usual: rounded(one.usual),
        threshold: one.threshold.map(rounded),
    });
    evidence.collect()
}

fn vector(attack: &Attack, vector: &Vector, now_ns: u64) -> AttackVector {
    // A class may have had several vectors, one after the other.
    let later = attack.vectors.all().iter().filter(|one| one.class == vector.class && one.from_ns > vector.from_ns);
    let until_ns = later.map(|one| one.from_ns).min().unwrap_or(u64::MAX);
    let own = attack
        .records
        .iter()
        .filter(|record| record.class == vector.class && (vector.from_ns..until_ns).contains(&record.since_ns));
    AttackVector {
        kind: vector.kind().to_owned(),
        age_s: seconds(vector.from_ns, now_ns),
        seen_s: seconds(vector.last_ns, now_ns),
        is_over: vector.is_over,
        pps: rounded(vector.rate_pps),
        peak_pps: rounded(vector.peak_pps),
        evidence: evidence(&vector.evidence),
        actions: own.map(|record| record.action.id).collect(),
    }
}

fn action(state: &State, record: &Record, now_ns: u64) -> AttackAction {
    let (id, trial) = (record.action.id, record.action.trial);
    let (place, dropped) = state.carried.describe(id);
    let is_watched = state.defence.mitigator().mode() == Mode::Watch;
    AttackAction {
        number: id,
        kind: class::attack(record.class).to_owned(),
        action: record.action.measure.name().to_owned(),
        rule: record.action.measure.to_string(),
        state: match record.state {
            ActionState::Proposed if is_watched => "watched",
            ActionState::Proposed => "proposed",
            ActionState::Active => "active",
            ActionState::Ended(ending) => ending.name(),
        }
        .to_owned(),
        place,
        age_s: seconds(record.since_ns, now_ns),
        dropped: dropped.or_else(|| state.dropped.get(&id).copied()),
        packets: record.packets,
        proven: record.proven,
        sample_attack: trial.attack,
        sample_attack_of: trial.attack_of,
        sample_legitimate: trial.legitimate,
        sample_legitimate_of: trial.legitimate_of,
        problem: record.problem.clone(),
        tries: record.tries,
    }
}

fn seconds(at_ns: u64, now_ns: u64) -> f64 {
    rounded(now_ns.saturating_sub(at_ns) as f64 / 1e9)
}

/// To three digits behind the point.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
