//! `entry-counters`: what it costs to count the packets of each table entry. Every packet hits an entry: a random one,
//! the worst case for the caches; one of a few thousand, as in an attack; or always the same. Policies take turns: the
//! table in the layout that the compiler chooses without counters, in the layout of tables with counters, and with
//! counters.

use super::data::Dataset;
use crate::options::Options;
use crate::row::Row;
use std::fmt::Write;
use std::fs;
use weir::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::{self, Spread};
use weir_engine::traffic::{self, SplitMix};
use weir_engine::{NativeFilter, tsc};
use weir_loading::{Policy, load};
use weir_tables::Table;

/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;
/// Number of packets of a turn.
const PACKETS: usize = 1 << 19;
/// Number of turns of each policy.
const ROUNDS: usize = 15;

/// The number of entries that packets hit, by name.
const KEYS: [(&str, usize); 3] = [("random", usize::MAX), ("hot", 4096), ("one", 1)];

/// The settings of the table. Differences are to the settings before.
const SETTINGS: [(&str, &str); 3] = [("none", ""), ("none", "layout rank-leaf; "), ("counters", "counters; ")];

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, or there is no clang.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for dataset in [Dataset::ALLOW_100K, Dataset::BLOCK_1_1M, Dataset::COUNTRY] {
        let data = dataset.load(&options.data)?;
        let row = Row::default().of("table", dataset.name).of("source", data.source).of("engine", "native");
        rows.extend(contest(&data.table, &row.number("entries", data.table.facts().entries as f64))?);
    }
    Ok(rows)
}

fn contest(table: &Table, row: &Row) -> Result<Vec<Row>, Failure> {
    let policies = SETTINGS.map(|(_, settings)| policy(table, settings));
    let mut filters = Vec::new();
    let mut layouts = Vec::new();
    for policy in policies {
        let policy = policy?;
        layouts.push(policy.program.slots[0].layout.name());
        filters.push(policy.native()?);
    }
    let mut random = SplitMix::new(17);
    let mut addresses: Vec<u32> = table.prefixes4().iter().map(|prefix| prefix.addr).collect();
    // Entries that are hit often are not neighbours.
    for last in (1..addresses.len()).rev() {
        addresses.swap(last, random.draw() as usize % (last + 1));
    }
    let mut ring = traffic::packets_from(&[0; RING]);
    let mut rows = Vec::new();
    for (keys, count) in KEYS {
        let hit = &addresses[..count.min(addresses.len())];
        let mut turns = vec![Vec::new(); filters.len()];
        for _ in 0..ROUNDS {
            for (filter, turns) in filters.iter_mut().zip(&mut turns) {
                turns.push(cycles(filter, &mut ring, hit, &mut random)?);
            }
        }
        rows.extend(rows_of(&row.clone().of("keys", keys), &layouts, &turns));
    }
    Ok(rows)
}

/// The rows of one kind of keys.
fn rows_of(row: &Row, layouts: &[&str], turns: &[Vec<f64>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, ((counters, _), &layout)) in SETTINGS.into_iter().zip(layouts).enumerate() {
        let cycles = Spread::of(turns[index].clone()).expect("each had its turns");
        let mut row = row.clone().of("layout", layout).of("counters", counters).spread("cycles_per_packet", cycles);
        row = row.spread("ns_per_packet", cycles.scaled(1e9 / tsc::frequency_hz()));
        if let Some(before) = index.checked_sub(1) {
            let more = turns[index].iter().zip(&turns[before]).map(|(own, before)| own - before);
            row = row.spread("more_cycles_per_packet", Spread::of(more.collect()).expect("each had its turns"));
        }
        rows.push(row);
    }
    rows
}

/// Average cost of a packet in cycles. Each packet comes from one of the addresses, chosen at random.
fn cycles(
    filter: &mut NativeFilter,
    ring: &mut FrameSet,
    addresses: &[u32],
    random: &mut SplitMix,
) -> Result<f64, Failure> {
    let write = |packet: &mut [u8]| {
        let entry = (random.draw() as usize) % addresses.len();
        traffic::set_source(packet, addresses[entry]);
    };
    Ok(measure::measure_ring(filter, 0, ring, PACKETS, write)?)
}

fn policy(table: &Table, settings: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))
    };
    let mut list = String::new();
    for prefix in table.prefixes4() {
        let _ = match table.labels().get(prefix.label as usize - 1) {
            Some(label) => writeln!(list, "{prefix},{label}"),
            None => writeln!(list, "{prefix}"),
        };
    }
    let (of, file) = if table.labels().is_empty() { ("", "list.txt") } else { (" : label", "list.csv") };
    write(file, &list)?;
    let text = format!(
        "table t {{ type ipv4{of}; {settings}file \"{file}\" }}\n\
         upstream {{ ip saddr @t drop; accept }}\ndownstream {{ accept }}\n"
    );
    write("counters.weir", &text)?;
    Ok(load(&directory.path().join("counters.weir"))?)
}
