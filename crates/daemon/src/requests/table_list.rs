//! Lists entries of a table: in the order of addresses, or the entries with the most packets.

use crate::requests::table_answers::{Counted, entry, refused};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};
use weir_abi::EntryCounts;
use weir_abi::entry::{age_s, hit_time};
use weir_command::failure::Failure;
use weir_control::{ListOrder, Listing, TABLE_ENTRIES_MAX, TableEntries, TableEntry};
use weir_state::tables::{TableBinding, TableStore, TableView};

/// How long packets are counted for a rate.
const RATE_TIME: Duration = Duration::from_secs(1);

/// Counts of all entries at one time.
struct Before {
    at: Instant,
    counts: HashMap<(IpAddr, u8), EntryCounts>,
}

/// The entries of a table that a request wants.
///
/// # Errors
/// There is no such table, or it has no counters.
pub fn list(name: &str, store: &TableStore, binding: &TableBinding, wanted: &Listing) -> Result<TableEntries, Failure> {
    let needs_counters = wanted.by.is_some() || wanted.idle_ms.is_some();
    if needs_counters && !store.read(binding, name, |table| table.has_counters()).map_err(refused)? {
        return Err(Failure::Rejected(format!(
            "weir: table {name}: it has no counters: write `counters` in it, and match it in a rule"
        )));
    }
    let before = match wanted.by {
        Some(ListOrder::Rate) => {
            let counts = store.read(binding, name, |table| {
                let now = hit_time(weir_state::now_ns());
                table.entries().filter_map(|one| Some(((one.addr, one.len), table.counts(&one, now)?))).collect()
            });
            let before = Before { at: Instant::now(), counts: counts.map_err(refused)? };
            thread::sleep(RATE_TIME);
            Some(before)
        }
        _ => None,
    };
    store.read(binding, name, |table| listed(name, table, store, wanted, before.as_ref())).map_err(refused)
}

fn listed(
    name: &str,
    table: &TableView<'_>,
    store: &TableStore,
    wanted: &Listing,
    before: Option<&Before>,
) -> TableEntries {
    let now_ns = weir_state::now_ns();
    let now = hit_time(now_ns);
    let seconds = before.map_or(1.0, |before| before.at.elapsed().as_secs_f64());
    let is_idle = |counts: Option<EntryCounts>, idle_ms: u64| {
        counts.is_some_and(|counts| age_s(counts.last, now) * 1000.0 >= idle_ms as f64)
    };
    let top = wanted.top.min(TABLE_ENTRIES_MAX);
    let from = table.entries().filter(|one| wanted.from.is_none_or(|from| one.addr >= from));
    let all = from
        .map(|one| Counted { counts: table.counts(&one, now), one })
        .filter(|found| wanted.idle_ms.is_none_or(|idle_ms| is_idle(found.counts, idle_ms)));
    let entries = match wanted.by {
        None => all.take(top).map(|found| entry(table, &found, now_ns)).collect(),
        Some(by) => {
            let weighed = all.filter_map(|found| {
                let counts = found.counts?;
                let earlier = before.and_then(|before| before.counts.get(&(found.one.addr, found.one.len)));
                // An entry that came back meanwhile counts anew.
                let earlier = earlier.filter(|earlier| earlier.packets <= counts.packets).copied().unwrap_or_default();
                let weight = match by {
                    ListOrder::Packets => counts.packets,
                    ListOrder::Rate => counts.packets - earlier.packets,
                };
                Some((weight, found, counts.bytes.saturating_sub(earlier.bytes)))
            });
            let mut weighed: Vec<_> = weighed.filter(|&(weight, ..)| weight > 0).collect();
            weighed.sort_by_key(|(weight, found, _)| (Reverse(*weight), found.one.addr, found.one.len));
            weighed.truncate(top);
            let entries = weighed.into_iter().map(|(weight, found, bytes)| {
                let per_second = |count: f64| (by == ListOrder::Rate).then_some((count / seconds).round());
                TableEntry {
                    pps: per_second(weight as f64),
                    bps: per_second(bytes as f64 * 8.0),
                    ..entry(table, &found, now_ns)
                }
            });
            entries.collect()
        }
    };
    let refused = table.size().map(|_| store.refused_by(name));
    TableEntries { table: name.to_owned(), total: table.count(), size: table.size(), refused, entries }
}
