//! Copies of packets for captures, exports and the shadow, and what the shadow decides.

use super::figures::Figures;
use super::page::{Metric, Page};

static OPEN: Metric = Metric::gauge("weir_taps_open", &[], "Captures, exports and shadows that get copies of packets.");
static COPIES: Metric = Metric::counter("weir_tap_copies", &[], "Copies of packets that were made for them.");
static LOST: Metric = Metric::counter(
    "weir_tap_missing_copies",
    &["reason"],
    "Copies that were not made: budget (more than the tap gets in a second) or reader (it was too slow).",
);
static JUDGED: Metric = Metric::counter(
    "weir_shadow_judged_packets",
    &[],
    "Packets that the shadow has judged. Begins anew with each shadow, as all counters of shadows. Absent without one.",
);
static DECIDED: Metric = Metric::counter(
    "weir_shadow_decided_packets",
    &[],
    "Packets that the active policy has decided since the shadow was loaded.",
);
static UNJUDGED: Metric = Metric::counter(
    "weir_shadow_lost_packets",
    &[],
    "Packets that the shadow should have judged and was too slow for.",
);
static CHANGED: Metric = Metric::counter(
    "weir_shadow_changed_packets",
    &["change"],
    "Packets that the shadow decides otherwise: newly-passed, newly-dropped, or other.",
);
static FAILED: Metric = Metric::gauge("weir_shadow_failed", &[], "1 if the shadow has failed and judges no more.");

/// The metrics of this file.
#[cfg(test)]
pub const ALL: &[&Metric] = &[&OPEN, &COPIES, &LOST, &JUDGED, &DECIDED, &UNJUDGED, &CHANGED, &FAILED];

/// Adds the metrics of this file to a page.
pub fn put(page: &mut Page, figures: &Figures) {
    let (open, counts) = figures.taps;
    page.put(&OPEN, &[], open);
    page.put(&COPIES, &[], counts.copied);
    page.put(&LOST, &["budget"], counts.over);
    page.put(&LOST, &["reader"], counts.lost);
    let Some(shadow) = &figures.shadow else { return };
    let comparison = &shadow.comparison;
    page.put(&JUDGED, &[], comparison.packets);
    page.put(&DECIDED, &[], shadow.decided);
    page.put(&UNJUDGED, &[], shadow.lost);
    let other = comparison.changed.saturating_sub(comparison.newly_passed + comparison.newly_dropped);
    let changes =
        [("newly-passed", comparison.newly_passed), ("newly-dropped", comparison.newly_dropped), ("other", other)];
    changes.iter().for_each(|&(change, packets)| page.put(&CHANGED, &[change], packets));
    page.put(&FAILED, &[], shadow.failed.is_some());
}
