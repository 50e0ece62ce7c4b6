//! Generations and trials, interfaces and their losses, and cards.

use super::figures::Figures;
use super::page::{Metric, Page};
use weir_control::{CardReport, CardStatus, HybridStatus, InterfaceStats, LinkState, Status, TxDropped};

static GENERATION: Metric = Metric::gauge("weir_generation", &[], "The number of the active generation.");
static GENERATIONS: Metric = Metric::gauge("weir_generations_loaded", &[], "Generations that are loaded.");
static POLICY: Metric = Metric::gauge(
    "weir_policy_info",
    &["policy", "posture", "automatic"],
    "Always 1: the file of the active policy, its posture (empty for the base policy), and whether mitigation has \
     activated it.",
);
static ACTIVATIONS: Metric = Metric::counter("weir_activations", &[], "Activations of generations and postures.");
static ACTIVATING: Metric = Metric::gauge(
    "weir_activation_pending_seconds",
    &[],
    "Seconds since the start of an activation that is in progress; 0 if there is none.",
);
static MIXED: Metric =
    Metric::gauge("weir_parts_with_other_policy", &[], "Workers or interfaces that do not use the active policy.");
static TRIAL: Metric =
    Metric::gauge("weir_trial", &[], "1 if the active policy is on trial and waits for `weir ctl confirm`.");
static TRIAL_LEFT: Metric =
    Metric::gauge("weir_trial_left_seconds", &[], "Seconds left to confirm the active policy. Absent without a trial.");
static STATE_PROBLEM: Metric =
    Metric::gauge("weir_state_problem", &[], "1 if state is not saved now, with --state. `weir ctl status` says why.");
static STATE_UNREAD: Metric =
    Metric::gauge("weir_state_unread_files", &[], "Files of saved state that could not be used at the start.");
static UP: Metric = Metric::gauge("weir_interface_up", &["interface", "side"], "1 if an interface can carry packets.");
static RX_PACKETS: Metric =
    Metric::counter("weir_interface_receive_packets", &["interface", "side"], "Packets that were received.");
static RX_BYTES: Metric =
    Metric::counter("weir_interface_receive_bytes", &["interface", "side"], "Bytes of the received packets.");
static TX_PACKETS: Metric =
    Metric::counter("weir_interface_transmit_packets", &["interface", "side"], "Packets that were sent.");
static TX_BYTES: Metric =
    Metric::counter("weir_interface_transmit_bytes", &["interface", "side"], "Bytes of the sent packets.");
static RX_LOST: Metric = Metric::counter(
    "weir_interface_receive_lost_packets",
    &["interface", "side", "reason"],
    "Packets that were lost before a rule saw them: missed (the receive queue was full; absent where that is not \
     counted) or too-long.",
);
static TX_LOST: Metric = Metric::counter(
    "weir_interface_transmit_lost_packets",
    &["interface", "side", "reason"],
    "Accepted packets that could not be sent, by reason (docs/reference/interfaces.md).",
);
static CARD_PACKETS: Metric = Metric::counter(
    "weir_card_dropped_packets",
    &[],
    "Packets that a card has dropped. `weir_packets_total` has them too.",
);
static CARD_BYTES: Metric =
    Metric::counter("weir_card_dropped_bytes", &[], "Bytes of the packets that a card has dropped.");
static CARD_PROBLEM: Metric = Metric::gauge(
    "weir_card_problem",
    &[],
    "1 if the card does not answer, or drops nothing by one of its tables. `weir ctl card` says why.",
);
static CARD_ALONE: Metric = Metric::gauge(
    "weir_card_alone",
    &[],
    "1 if the software decides alone, although a card that answers rules is there.",
);
static CARD_CHANGES: Metric =
    Metric::counter("weir_card_configurations", &[], "Configurations of a card that answers rules.");
static CARD_REOPENED: Metric = Metric::counter(
    "weir_card_reopened",
    &[],
    "How often a card that answers rules had lost its configuration and was opened again.",
);
static CARD_ENTRIES: Metric = Metric::gauge("weir_card_entries", &["place"], "Entries in a place of the card.");
static CARD_MAX_ENTRIES: Metric =
    Metric::gauge("weir_card_max_entries", &["place"], "Entries that a place of the card can have.");
static CARD_UPDATES: Metric =
    Metric::counter("weir_card_updates", &["place", "result"], "Changes of a place of the card: done or refused.");

/// The metrics of this file.
#[cfg(test)]
pub const ALL: &[&Metric] = &[
    &GENERATION,
    &GENERATIONS,
    &POLICY,
    &ACTIVATIONS,
    &ACTIVATING,
    &MIXED,
    &TRIAL,
    &TRIAL_LEFT,
    &STATE_PROBLEM,
    &STATE_UNREAD,
    &UP,
    &RX_PACKETS,
    &RX_BYTES,
    &TX_PACKETS,
    &TX_BYTES,
    &RX_LOST,
    &TX_LOST,
    &CARD_PACKETS,
    &CARD_BYTES,
    &CARD_PROBLEM,
    &CARD_ALONE,
    &CARD_CHANGES,
    &CARD_REOPENED,
    &CARD_ENTRIES,
    &CARD_MAX_ENTRIES,
    &CARD_UPDATES,
];

/// Adds the metrics of this file to a page.
pub fn put(page: &mut Page, figures: &Figures) {
    generations(page, &figures.status);
    for one in &figures.status.interfaces {
        page.put(&UP, &[&one.interface, &one.side], one.state == LinkState::Up);
    }
    figures.stats.interfaces.iter().for_each(|one| interface(page, one));
    if let Some(card) = &figures.stats.card {
        page.put(&CARD_PACKETS, &[], card.upstream.total.dropped);
        page.put(&CARD_BYTES, &[], card.upstream.total.bytes);
    }
    match &figures.card {
        Some(CardReport::Tables(card)) => tables_of(page, card),
        Some(CardReport::Hybrid(card)) => hybrid(page, card),
        None => {}
    }
}

fn generations(page: &mut Page, status: &Status) {
    let active = status.generations.iter().find(|one| one.id == status.generation);
    page.put(&GENERATION, &[], status.generation);
    page.put(&GENERATIONS, &[], status.generations.len());
    let (policy, posture) = (active.map_or("", |one| &one.policy), status.posture.as_deref().unwrap_or_default());
    let automatic = if status.automatic.is_some() { "true" } else { "false" };
    page.put(&POLICY, &[policy, posture, automatic], true);
    page.put(&ACTIVATIONS, &[], status.activations);
    page.put(&ACTIVATING, &[], status.activating.as_ref().map_or(0.0, |activating| activating.since_s));
    page.put(&MIXED, &[], status.mixed.len());
    page.put(&TRIAL, &[], status.confirm_left_s.is_some());
    if let Some(left_s) = status.confirm_left_s {
        page.put(&TRIAL_LEFT, &[], left_s);
    }
    if let Some(state) = &status.state {
        page.put(&STATE_PROBLEM, &[], state.error.is_some());
        page.put(&STATE_UNREAD, &[], state.unread.len());
    }
}

fn interface(page: &mut Page, stats: &InterfaceStats) {
    let name = [stats.interface.as_str(), stats.side.as_str()];
    page.put(&RX_PACKETS, &name, stats.rx_packets);
    page.put(&RX_BYTES, &name, stats.rx_bytes);
    page.put(&TX_PACKETS, &name, stats.tx_packets);
    page.put(&TX_BYTES, &name, stats.tx_bytes);
    let of = |reason| [name[0], name[1], reason];
    if let Some(missed) = stats.rx_missed {
        page.put(&RX_LOST, &of("missed"), missed);
    }
    page.put(&RX_LOST, &of("too-long"), stats.rx_too_long);
    let TxDropped { tx_full, link_down, tx_too_long, tx_unsupported, tx_error, no_divert } = stats.tx_dropped;
    let reasons = [
        ("tx-full", tx_full),
        ("link-down", link_down),
        ("tx-too-long", tx_too_long),
        ("tx-unsupported", tx_unsupported),
        ("tx-error", tx_error),
        ("no-divert", no_divert),
    ];
    reasons.iter().for_each(|&(reason, packets)| page.put(&TX_LOST, &of(reason), packets));
}

fn tables_of(page: &mut Page, card: &CardStatus) {
    page.put(&CARD_PROBLEM, &[], card.tables.iter().any(|table| table.problem.is_some()));
    for place in &card.places {
        page.put(&CARD_ENTRIES, &[&place.place], place.entries);
        page.put(&CARD_MAX_ENTRIES, &[&place.place], place.capacity);
        page.put(&CARD_UPDATES, &[&place.place, "done"], place.updates);
        page.put(&CARD_UPDATES, &[&place.place, "refused"], place.refused);
    }
}

fn hybrid(page: &mut Page, card: &HybridStatus) {
    page.put(&CARD_PROBLEM, &[], card.problem.is_some());
    page.put(&CARD_ALONE, &[], card.alone.is_some());
    page.put(&CARD_CHANGES, &[], card.changes);
    page.put(&CARD_REOPENED, &[], card.reopened);
}
