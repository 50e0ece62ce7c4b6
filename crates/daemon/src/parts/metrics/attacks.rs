//! Attacks and what is done about them: numbers by kind. No page names a victim or a source: there are as many of them
//! as attackers like, and a page has many readers. `weir ctl attacks` names them.

use super::figures::{Figures, Memory};
use super::page::{Metric, Page};
use std::collections::BTreeMap;
use weir_abi::PacketClass;
use weir_control::{AttackAction, AttackEntry, AttacksListed, EventsStatus};
use weir_mitigate::class;

static MODE: Metric =
    Metric::gauge("weir_mitigation_mode", &["mode"], "1 for the mode of mitigation: watch, propose or act.");
static PROBLEM: Metric =
    Metric::gauge("weir_mitigation_problem", &[], "1 if mitigation measures nothing now. `weir ctl attacks` says why.");
static ATTACKS: Metric = Metric::gauge("weir_attacks", &["kind"], "Attacks that last, by kind.");
static DETECTED: Metric = Metric::counter("weir_attacks_detected", &[], "Attacks that were detected.");
static UNHANDLED: Metric =
    Metric::gauge("weir_attacks_without_action", &[], "Attacks that last and against which no action is active.");
static RATE: Metric = Metric::gauge(
    "weir_attack_packets_per_second",
    &["kind"],
    "Packets a second of attacks that last, with what actions hold back.",
);
static ACTIONS: Metric = Metric::gauge(
    "weir_attack_actions",
    &["action", "state"],
    "Actions against attacks that are active, proposed or watched (mode watch). Actions `block` are blocked sources.",
);
static FAILED: Metric = Metric::counter("weir_attack_actions_failed", &[], "Actions that could not be carried out.");
static DROPPED: Metric = Metric::counter(
    "weir_attack_dropped_packets",
    &[],
    "Packets that rules of actions have dropped, counted by the datapath.",
);
static HIT: Metric = Metric::counter("weir_attack_sampled_packets", &[], "Sampled packets that actions have hit.");
static HIT_PROVEN: Metric = Metric::counter(
    "weir_attack_sampled_proven_packets",
    &[],
    "Sampled packets of proven sources that actions have hit: those who are hurt.",
);
static SAMPLES: Metric = Metric::counter("weir_samples_read", &[], "Copies of packets that mitigation has read.");
static SAMPLES_LOST: Metric =
    Metric::counter("weir_samples_lost", &[], "Copies of packets that were lost on their way to mitigation.");
static FORGED: Metric =
    Metric::counter("weir_samples_forged", &[], "Copies of packets from outside whose source is inside: forgeries.");
static WINDOWS: Metric = Metric::counter("weir_windows", &[], "Windows that mitigation has measured.");
static BLIND: Metric = Metric::counter("weir_windows_blind", &[], "Windows with too few copies to conclude anything.");
static EVENTS: Metric = Metric::counter(
    "weir_attack_events",
    &["to", "result"],
    "What was told of attacks: to the log, to the program, or as an export; done, failed or lost (the queue was full).",
);

/// The metrics of this file.
#[cfg(test)]
pub const ALL: &[&Metric] = &[
    &MODE,
    &PROBLEM,
    &ATTACKS,
    &DETECTED,
    &UNHANDLED,
    &RATE,
    &ACTIONS,
    &FAILED,
    &DROPPED,
    &HIT,
    &HIT_PROVEN,
    &SAMPLES,
    &SAMPLES_LOST,
    &FORGED,
    &WINDOWS,
    &BLIND,
    &EVENTS,
];

/// Adds the metrics of this file to a page, if there is mitigation.
pub fn put(page: &mut Page, figures: &Figures, memory: &mut Memory) {
    let Some(listed) = &figures.attacks else { return };
    for mode in ["watch", "propose", "act"] {
        page.put(&MODE, &[mode], listed.mode == mode);
    }
    page.put(&PROBLEM, &[], listed.samples.problem.is_some());
    kinds(page, listed);
    memory.last_attack = listed.attacks.iter().map(|attack| attack.attack).fold(memory.last_attack, u32::max);
    page.put(&DETECTED, &[], u64::from(memory.last_attack));
    actions(page, listed, memory);
    let samples = &listed.samples;
    page.put(&SAMPLES, &[], samples.seen);
    page.put(&SAMPLES_LOST, &[], samples.lost);
    page.put(&FORGED, &[], samples.forged);
    page.put(&WINDOWS, &[], samples.windows);
    page.put(&BLIND, &[], samples.blind_windows);
    events(page, &listed.events);
}

fn lasting(listed: &AttacksListed) -> impl Iterator<Item = &AttackEntry> {
    listed.attacks.iter().filter(|attack| !attack.is_over)
}

/// All kinds, so that an attack is an increase and not a new series.
fn kinds(page: &mut Page, listed: &AttacksListed) {
    let kinds = PacketClass::ALL.map(class::attack);
    let mut counts: BTreeMap<&str, (u64, f64)> = kinds.iter().map(|kind| (*kind, (0, 0.0))).collect();
    for attack in lasting(listed) {
        counts.entry(&attack.kind).or_default().0 += 1;
        for vector in attack.vectors.iter().filter(|vector| !vector.is_over) {
            counts.entry(&vector.kind).or_default().1 += vector.pps;
        }
    }
    for (kind, (attacks, pps)) in counts {
        page.put(&ATTACKS, &[kind], attacks);
        page.put(&RATE, &[kind], pps);
    }
}

fn actions(page: &mut Page, listed: &AttacksListed, memory: &mut Memory) {
    let is_active = |action: &AttackAction| action.state == "active";
    let unhandled = lasting(listed).filter(|attack| !attack.actions.iter().any(is_active)).count();
    page.put(&UNHANDLED, &[], unhandled);
    let all = || listed.attacks.iter().flat_map(|attack| &attack.actions);
    for action in ["drop", "limit", "block", "posture"] {
        for state in ["active", "proposed", "watched"] {
            let count = all().filter(|one| one.action == action && one.state == state).count();
            page.put(&ACTIONS, &[action, state], count);
        }
    }
    page.put(&FAILED, &[], listed.not_carried_out.values().sum::<u64>());
    let [dropped, hit, proven] = &mut memory.actions;
    // Between its end and the last look at its rule, an action has no count: what was known stays.
    let known: Vec<_> = all().map(|one| (one.number, one.dropped.unwrap_or_else(|| dropped.of(&one.number)))).collect();
    page.put(&DROPPED, &[], dropped.see(known).sum());
    page.put(&HIT, &[], hit.see(all().map(|one| (one.number, one.packets))).sum());
    page.put(&HIT_PROVEN, &[], proven.see(all().map(|one| (one.number, one.proven))).sum());
}

fn events(page: &mut Page, events: &EventsStatus) {
    let counts = [
        ("log", [events.written, events.write_failed, events.write_lost]),
        ("program", [events.called, events.call_failed, events.call_lost]),
        ("export", [events.exported, events.export_failed, events.export_lost]),
    ];
    for (to, counts) in counts {
        for (result, count) in ["done", "failed", "lost"].iter().zip(counts) {
            page.put(&EVENTS, &[to, result], count);
        }
    }
}
