//! Tables and their feeds, limits, and flows.

use super::figures::{Figures, ListFiles};
use super::page::{Metric, Page};
use crate::requests::occupancy::FlowOccupancy;
use weir_control::{AdditionStats, ListName, TrackedAt, UpdatesStatus};

static ENTRIES: Metric = Metric::gauge("weir_table_entries", &["table"], "Entries of a table of the active policy.");
static MAX_ENTRIES: Metric =
    Metric::gauge("weir_table_max_entries", &["table"], "Entries that a dynamic table can have.");
static REFUSED_ENTRIES: Metric = Metric::counter(
    "weir_table_refused_entries",
    &["table"],
    "Entries that a dynamic table refused because it was full.",
);
static ADDITIONS: Metric = Metric::counter(
    "weir_rule_additions",
    &["result"],
    "Additions of rules to tables: added, updated, or lost by overflow, a full table or a protected table.",
);
static MODIFIED: Metric = Metric::gauge(
    "weir_list_file_modified_timestamp_seconds",
    &["kind", "list"],
    "Unix time at which the oldest file of a list was last written.",
);
static MISSING: Metric =
    Metric::gauge("weir_list_files_missing", &["kind", "list"], "Files of a list that are missing.");
static UPDATED: Metric = Metric::gauge(
    "weir_list_updated_timestamp_seconds",
    &["kind", "list"],
    "Unix time of the last update that changed a list since the start.",
);
static REFUSED_UPDATES: Metric = Metric::gauge(
    "weir_list_refused_updates",
    &["kind", "list"],
    "Updates of a list that were refused since it was last updated.",
);
static UPDATES: Metric = Metric::counter(
    "weir_list_updates",
    &["result"],
    "Updates of lists from their files: applied, or refused by an error or a guard rail.",
);
static LIMITS: Metric =
    Metric::gauge("weir_limits", &[], "Limits of the active policy that have counts. Lists without `log` have none.");
static EXCEEDED: Metric =
    Metric::gauge("weir_limits_exceeded", &[], "Limits that were exceeded since their bucket was assigned.");
static BUCKETS: Metric = Metric::gauge("weir_limit_buckets", &[], "Buckets that limits of loaded policies have.");
static MAX_BUCKETS: Metric = Metric::gauge("weir_limit_max_buckets", &[], "Buckets that there are.");
static ADDRESSES: Metric = Metric::gauge(
    "weir_limit_addresses",
    &[],
    "Addresses whose bucket is not full, in rates of `limit each` of loaded policies. Absent without such limits.",
);
static MAX_ADDRESSES: Metric = Metric::gauge(
    "weir_limit_max_addresses",
    &[],
    "Addresses that rates of `limit each` keep apart. Beyond, some pass less than their rate.",
);
static FLOWS: Metric = Metric::gauge(
    "weir_flows",
    &["class"],
    "Flows in the table: proven (open connections), embryonic (not open yet), unproven (sources that cannot prove their \
     address) or closing.",
);
static TRACKED: Metric = Metric::counter(
    "weir_p4_tracked_packets",
    &["by"],
    "Packets that P4 pipelines and their controllers have tracked: pipeline or controller. Absent without a controller.",
);
static MAX_FLOWS: Metric = Metric::gauge("weir_max_flows", &[], "Flows that the table can hold.");

/// The metrics of this file.
#[cfg(test)]
pub const ALL: &[&Metric] = &[
    &ENTRIES,
    &MAX_ENTRIES,
    &REFUSED_ENTRIES,
    &ADDITIONS,
    &MODIFIED,
    &MISSING,
    &UPDATED,
    &REFUSED_UPDATES,
    &UPDATES,
    &LIMITS,
    &EXCEEDED,
    &BUCKETS,
    &MAX_BUCKETS,
    &ADDRESSES,
    &MAX_ADDRESSES,
    &FLOWS,
    &MAX_FLOWS,
    &TRACKED,
];

/// Adds the metrics of this file to a page.
pub fn put(page: &mut Page, figures: &Figures) {
    let occupancy = &figures.occupancy;
    for table in &occupancy.tables {
        page.put(&ENTRIES, &[&table.table], table.entries);
        if let Some(size) = table.size {
            page.put(&MAX_ENTRIES, &[&table.table], size);
            page.put(&REFUSED_ENTRIES, &[&table.table], table.refused);
        }
    }
    let AdditionStats { added, updated, additions_overflow, table_full, protected } = figures.stats.additions;
    let results = [
        ("added", added),
        ("updated", updated),
        ("overflow", additions_overflow),
        ("table-full", table_full),
        ("protected", protected),
    ];
    results.iter().for_each(|&(result, additions)| page.put(&ADDITIONS, &[result], additions));
    lists(page, &figures.lists, &figures.status.updates, figures.now_s);
    if let Some(limits) = occupancy.limits {
        page.put(&LIMITS, &[], limits.limits);
        page.put(&EXCEEDED, &[], limits.exceeded);
    }
    if let Some([assigned, all]) = occupancy.buckets {
        page.put(&BUCKETS, &[], assigned);
        page.put(&MAX_BUCKETS, &[], all);
    }
    if let Some([in_debt, room]) = occupancy.addresses {
        page.put(&ADDRESSES, &[], in_debt);
        page.put(&MAX_ADDRESSES, &[], room);
    }
    if let Some(FlowOccupancy { proven, embryonic, unproven, closing, size }) = occupancy.flows {
        let classes = [("proven", proven), ("embryonic", embryonic), ("unproven", unproven), ("closing", closing)];
        classes.iter().for_each(|&(class, flows)| page.put(&FLOWS, &[class], flows));
        page.put(&MAX_FLOWS, &[], size);
    }
    if let Some(TrackedAt { pipeline, controller }) = figures.stats.tracked {
        page.put(&TRACKED, &["pipeline"], pipeline);
        page.put(&TRACKED, &["controller"], controller);
    }
}

fn lists(page: &mut Page, lists: &[ListFiles], updates: &UpdatesStatus, now_s: f64) {
    for ListFiles { list, modified_s, missing } in lists {
        let name = labels(list);
        if let Some(modified_s) = *modified_s {
            page.put(&MODIFIED, &name, modified_s);
        }
        page.put(&MISSING, &name, *missing);
        if let Some(update) = updates.last.iter().find(|update| update.changed.list == *list) {
            // Without the fraction, which differs from page to page.
            page.put(&UPDATED, &name, (now_s - update.ago_s).round());
        }
        let refusal = updates.refusals.iter().find(|refusal| refusal.list == *list);
        page.put(&REFUSED_UPDATES, &name, refusal.map_or(0, |refusal| refusal.times));
    }
    page.put(&UPDATES, &["applied"], updates.applied);
    page.put(&UPDATES, &["refused"], updates.refused);
}

fn labels(list: &ListName) -> [&str; 2] {
    match list {
        ListName::Table(name) => ["table", name],
        ListName::Limits(name) => ["limits", name],
    }
}
