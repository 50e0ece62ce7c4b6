//! `entry-counters`: what it costs to count the packets of each table entry. Every packet hits an entry: a random one,
//! the worst case for the caches; one of a few thousand, as in an attack; or always the same. Policies take turns: the
//! table in the layout that the compiler chooses without counters, in the layout of tables with counters, and with
//! counters.

use super::data::{Data, Dataset};
use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Picks, Scenario};
use std::fs;
use weir_command::failure::Failure;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::traffic::{self, SplitMix};
use weir_engine::{NativeFilter, tsc};
use weir_instruments::ring;
use weir_loading::{Policy, load};

/// Number of buffers of the ring: the default of drivers.
const RING: usize = 1024;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "entry-counters",
    paper: "no paper counts the packets of each entry; the goal is at most 10 cycles for a packet that hits",
    needs: &[Need::Clang],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Nothing,
    seconds: Scaled { full: 90, quick: 30, smoke: 5 },
    run,
    plot: |title, rows| plot::bars(title, "cycles_per_packet", rows),
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of packets of a turn.
    packets: usize,
    /// Number of turns of each policy.
    rounds: usize,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { packets: 1 << 19, rounds: 15 },
    quick: Settings { packets: 1 << 19, rounds: 3 },
    smoke: Settings { packets: 1 << 10, rounds: 1 },
};

/// The number of entries that packets hit, by name.
const KEYS: [(&str, usize); 3] = [("random", usize::MAX), ("hot", 4096), ("one", 1)];

/// The settings of the table. Differences are to the settings before.
const TABLES: [(&str, &str); 3] = [("none", ""), ("none", "layout rank-leaf; "), ("counters", "counters; ")];

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, or there is no clang.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for dataset in [Dataset::ALLOW_100K, Dataset::BLOCK_1_1M, Dataset::COUNTRY] {
        plan.begin(dataset.name);
        let data = plan.load(dataset)?;
        let row = Row::default().of("table", dataset.name).of("source", data.source).of("engine", "native");
        rows.extend(contest(
            &data,
            &row.number("entries", data.table.facts().entries as f64),
            SETTINGS.at(plan.scale),
        )?);
    }
    Ok(rows)
}

fn contest(data: &Data, row: &Row, settings: Settings) -> Result<Vec<Row>, Failure> {
    let policies = TABLES.map(|(_, settings)| policy(data, settings));
    let mut filters = Vec::new();
    let mut layouts = Vec::new();
    for policy in policies {
        let policy = policy?;
        layouts.push(policy.program.slots[0].layout.name());
        filters.push(policy.native()?);
    }
    let mut random = SplitMix::new(17);
    let mut addresses: Vec<u32> = data.table.prefixes4().iter().map(|prefix| prefix.addr).collect();
    // Entries that are hit often are not neighbours.
    for last in (1..addresses.len()).rev() {
        addresses.swap(last, random.draw() as usize % (last + 1));
    }
    let mut ring = traffic::packets_from(&[0; RING]);
    let mut rows = Vec::new();
    for (keys, count) in KEYS {
        let hit = &addresses[..count.min(addresses.len())];
        let mut turns = vec![Vec::new(); filters.len()];
        for _ in 0..settings.rounds {
            for (filter, turns) in filters.iter_mut().zip(&mut turns) {
                turns.push(cycles(filter, &mut ring, hit, settings.packets, &mut random)?);
            }
        }
        rows.extend(rows_of(&row.clone().of("keys", keys), &layouts, &turns));
    }
    Ok(rows)
}

/// The rows of one kind of keys.
fn rows_of(row: &Row, layouts: &[&str], turns: &[Vec<f64>]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, ((counters, _), &layout)) in TABLES.into_iter().zip(layouts).enumerate() {
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
    packets: usize,
    random: &mut SplitMix,
) -> Result<f64, Failure> {
    let write = |packet: &mut [u8]| {
        let entry = (random.draw() as usize) % addresses.len();
        traffic::set_source(packet, addresses[entry]);
    };
    Ok(ring::measure(filter, 0, ring, packets, write)?)
}

fn policy(data: &Data, settings: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))
    };
    let (of, file) = if data.table.labels().is_empty() { ("", "list.txt") } else { (" : label", "list.csv") };
    write(file, &data.text())?;
    let text = format!(
        "table t {{ type ipv4{of}; {settings}file \"{file}\" }}\n\
         upstream {{ ip saddr @t drop; accept }}\ndownstream {{ accept }}\n"
    );
    write("counters.weir", &text)?;
    Ok(load(&directory.path().join("counters.weir"))?)
}
