//! What changes of a live table cost: the time from the call that inserts or removes a prefix until lookups see it.
//!
//! The table is changed as `weir_tables::live` does, in place where its layout can. A call ends with the store that makes the
//! change seen, and the lookup that follows each call, which is not timed, must see it. What is inserted lies where the
//! table's prefixes lie: an address beside one that is there, or a longer prefix inside one.

use crate::row::Row;
use crate::tables::layouts::Builder;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;
use weir::failure::Failure;
use weir_abi::{Family, Layout};
use weir_engine::measure::Spread;
use weir_engine::traffic::SplitMix;
use weir_tables::{Kind, LiveError, LiveTable, Readers, Table};

/// Prefixes that are inserted, and removed again.
const CHANGES: usize = 1000;
/// Candidates that are drawn for them.
const DRAWS: usize = 16 * CHANGES;
/// Layouts that are built anew for each change have fewer, to take about this long.
const SECONDS_MAX: f64 = 1.0;
/// A prefix is inserted beside another within so many of its length, or longer by up to so many bits.
const NEIGHBOURS: u64 = 256;
const LONGER_BITS: u64 = 4;

/// Adds `insert_us` and `remove_us` with their spread (`_min`, `_p99`, `_max`) to a layout's row, `live_bytes`, and of how many `changes` the image was
/// `built_anew` for. Layouts that no policy gets, and those that cannot hold the table, have none of it.
///
/// # Errors
/// A lookup does not see a change.
pub fn add(row: Row, builder: Builder, table: &Table) -> Result<Row, Failure> {
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
    for Wish { addr, len, label } in wishes(table, layout) {
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
            return Err(Failure::Runtime(format!("bench tables: {} does not see {addr}/{len} change", layout.name())));
        }
    }
    let burst = reader.start_burst();
    let row = row.number("live_bytes", image.open(&burst).bytes() as f64);
    let row = row.number("changes", 2.0 * inserts.len() as f64).number("built_anew", live.built_anew() as f64);
    Ok(times(times(row, "insert_us", inserts), "remove_us", removals))
}

/// The median, least and most, and what 99 of 100 do not exceed: the most is often the scheduler's.
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

/// A prefix that the table does not hold, nor any inside it.
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

/// The same prefixes in every run.
fn wishes(table: &Table, layout: Layout) -> Vec<Wish> {
    let sorted: Vec<(u128, u8)> = match table.family() {
        Family::Ipv4 => table.prefixes4().iter().map(|prefix| (u128::from(prefix.addr) << 96, prefix.len)).collect(),
        Family::Ipv6 => table.prefixes6().iter().map(|prefix| (prefix.addr, prefix.len)).collect(),
    };
    if sorted.is_empty() {
        return Vec::new();
    }
    let bits = table.family().bits();
    let exact = matches!(layout, Layout::ExactSet | Layout::ExactSets | Layout::ExactSet6);
    let mut random = SplitMix::new(1);
    let mut wish = || {
        let (addr, len) = sorted[random.below(sorted.len() as u64) as usize];
        let (addr, len) = match exact || len == bits {
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
    (0..DRAWS).filter_map(|_| wish()).take(CHANGES).collect()
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
            let row = add(Row::default(), Builder::Layout(layout), &table).unwrap();
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
        let scheme = Builder::Scheme(weir_tables::scheme::Scheme::SailL);
        assert!(add(Row::default(), scheme, &table).unwrap().get("insert_us").is_none());
        let refused = Builder::Layout(Layout::ExactSet);
        assert!(add(Row::default(), refused, &table).unwrap().get("insert_us").is_none());
    }
}
