//! The cost of changes to a live table: the time from the call that inserts or removes a prefix until lookups see the
//! change.
//!
//! Changes use `weir_tables::live`, in place if the layout supports it. The last store of a call makes the change
//! visible. An untimed lookup after each call checks that. New prefixes are near existing ones: a neighbouring address,
//! or a longer prefix inside one.

use crate::row::Row;
use crate::tables::layouts::Builder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;
use weir_abi::{Family, Layout};
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_engine::traffic::SplitMix;
use weir_tables::{Kind, LiveError, LiveTable, Readers, Table, host_lengths};

/// Number of candidates for a prefix that is inserted and removed.
const DRAWS: usize = 16;
/// Maximum duration in seconds. Layouts that are rebuilt for each change therefore have fewer changes.
const SECONDS_MAX: f64 = 1.0;
/// Distance of a new neighbour, and additional length of a prefix inside another one.
const NEIGHBOURS: u64 = 256;
const LONGER_BITS: u64 = 4;

/// Makes up to `changes` changes and adds their fields to a layout's row: `insert_us` and `remove_us` with their spread
/// (`_min`, `_p99`, `_max`), `live_bytes`, the number of `changes`, and how many of them rebuilt the image
/// (`built_anew`). Schemes, and layouts that cannot contain the table, get none of these fields.
///
/// # Errors
/// A lookup does not see a change.
pub fn add(row: Row, builder: Builder, table: &Table, changes: usize) -> Result<Row, Failure> {
    let Builder::Layout(layout) = builder else { return Ok(row) };
    let readers = Readers::new();
    let Ok(mut live) = LiveTable::new(&readers, table, layout) else { return Ok(row) };
    let failed = |error: LiveError| Failure::Runtime(format!("bench tables: changing {}: {error}", layout.name()));
    let mut reader = readers.register().ok_or_else(|| Failure::Runtime("bench tables: too many readers".to_owned()))?;
    let image = live.image();
    let mut find = |addr: IpAddr| {
        let burst = reader.start_burst();
        let view = image.open(&burst);
        match addr {
            IpAddr::V4(addr) => view.find4(addr.into()),
            IpAddr::V6(addr) => view.find6(addr.into()),
        }
    };
    let (mut inserts, mut removals) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    for Wish { addr, len, label } in wishes(table, layout, changes) {
        if begun.elapsed().as_secs_f64() > SECONDS_MAX {
            break;
        }
        let before = find(addr);
        let start = Instant::now();
        live.insert(addr, len, name(table, label)).map_err(failed)?;
        inserts.push(start.elapsed().as_secs_f64() * 1e6);
        let between = find(addr);
        let start = Instant::now();
        live.remove(addr, len).map_err(failed)?;
        removals.push(start.elapsed().as_secs_f64() * 1e6);
        if (between, find(addr)) != (label, before) {
            return Err(Failure::Runtime(format!(
                "bench tables: a lookup in {} does not see the change of {addr}/{len}",
                layout.name()
            )));
        }
    }
    let burst = reader.start_burst();
    let row = row.number("live_bytes", image.open(&burst).bytes() as f64);
    let row = row.number("changes", 2.0 * inserts.len() as f64).number("built_anew", live.built_anew() as f64);
    Ok(times(times(row, "insert_us", inserts), "remove_us", removals))
}

/// Adds median, minimum, maximum and the 99th percentile. The maximum often comes from the scheduler.
fn times(row: Row, field: &str, mut samples: Vec<f64>) -> Row {
    samples.sort_by(f64::total_cmp);
    let row = match samples.get(samples.len() * 99 / 100) {
        Some(&p99) => row.number(&format!("{field}_p99"), p99),
        None => row,
    };
    match Spread::of(samples) {
        Some(spread) => row.spread(field, spread),
        None => row,
    }
}

/// A prefix that can be inserted: neither it nor a longer prefix inside it is in the table.
struct Wish {
    addr: IpAddr,
    len: u8,
    label: u32,
}

fn name(table: &Table, label: u32) -> Option<&str> {
    match table.kind() {
        Kind::Set => None,
        Kind::Labels => Some(&table.labels()[label as usize - 1]),
    }
}

/// The prefixes to insert, the same in every run.
fn wishes(table: &Table, layout: Layout, count: usize) -> Vec<Wish> {
    let sorted: Vec<(u128, u8)> = match table.family() {
        Family::Ipv4 => table.prefixes4().iter().map(|prefix| (u128::from(prefix.addr) << 96, prefix.len)).collect(),
        Family::Ipv6 => table.prefixes6().iter().map(|prefix| (prefix.addr, prefix.len)).collect(),
    };
    if sorted.is_empty() {
        return Vec::new();
    }
    let bits = table.family().bits();
    let exact = matches!(layout, Layout::ExactSet | Layout::ExactSets | Layout::ExactSet6 | Layout::ExactSets6);
    let mut random = SplitMix::new(1);
    let mut wish = || {
        let (addr, len) = sorted[random.below(sorted.len() as u64) as usize];
        let (addr, len) = match exact || len == bits || host_lengths(layout).contains(&len) {
            true => (addr ^ u128::from(random.below(NEIGHBOURS)) << (128 - u32::from(len)), len),
            false => {
                let longer = (len + 1 + random.below(LONGER_BITS) as u8).min(bits);
                (addr | u128::from(random.draw()) << 64 >> len, longer)
            }
        };
        let below = u128::MAX.checked_shr(len.into()).unwrap_or(0);
        let first = addr & !below;
        let next = sorted.partition_point(|&prefix| prefix < (first, len));
        let is_free = sorted.get(next).is_none_or(|&(addr, _)| addr > first | below);
        let label = 1 + random.below(table.labels().len().max(1) as u64) as u32;
        let addr = match table.family() {
            Family::Ipv4 => Ipv4Addr::from((first >> 96) as u32).into(),
            Family::Ipv6 => Ipv6Addr::from(first).into(),
        };
        is_free.then_some(Wish { addr, len, label })
    };
    (0..DRAWS * count).filter_map(|_| wish()).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dataset;
    use std::path::Path;

    #[test]
    fn changes_of_live_tables_are_timed() {
        for (dataset, layout) in [
            (Dataset::PRIVATE, Layout::RankLeaf),
            (Dataset::ALLOW_100K, Layout::ExactSet),
            (Dataset::COUNTRY6, Layout::Range6),
        ] {
            let table = dataset.load(Path::new("/nonexistent")).unwrap().table;
            let row = add(Row::default(), Builder::Layout(layout), &table, 1000).unwrap();
            for field in ["insert_us", "insert_us_p99", "remove_us", "live_bytes"] {
                assert!(row.get(field).is_some_and(|figure| figure > 0.0), "{}: {field}", layout.name());
            }
            let (changes, built_anew) = (row.get("changes").unwrap(), row.get("built_anew").unwrap());
            let anew = if layout == Layout::Range6 { built_anew == changes } else { built_anew < changes / 4.0 };
            assert!(changes > 0.0 && anew, "{}: {built_anew} of {changes}", layout.name());
        }
    }

    #[test]
    fn what_is_not_for_policies_has_no_changes() {
        let table = Dataset::PRIVATE.load(Path::new("/nonexistent")).unwrap().table;
        let scheme = Builder::Scheme(weir_schemes::Scheme::SailL);
        assert!(add(Row::default(), scheme, &table, 1000).unwrap().get("insert_us").is_none());
        let refused = Builder::Layout(Layout::ExactSet);
        assert!(add(Row::default(), refused, &table, 1000).unwrap().get("insert_us").is_none());
    }
}
