//! What policing costs by the number of limited subnets: MoonPol Fig. 3 (all subnets of one length, 2 to 1,048,576 of them) and Table I
//! (a limit for each prefix of some countries, and of all).
//!
//! A policy that limits each source and one that only accepts take turns at the same packets in memory; what one costs beyond the other is the
//! lookup and the bucket together. Sources are random. Limits are such that no packet is over its own, as in the paper; `over` rows have
//! limits that every packet exceeds, which is what a flood meets.

use super::data::Dataset;
use super::traffic::{self, Mix};
use super::{Row, plot};
use crate::cli::BenchOptions;
use crate::failure::Failure;
use crate::policy::Policy;
use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use weir_engine::NativeFilter;
use weir_engine::memory::{self, FrameSet, Spread};

/// Packets: more sources than there are subnets would not ask for more memory.
const PACKETS: usize = 1 << 18;
/// Turns of each policy.
const ROUNDS: usize = 11;
/// Lengths of Fig. 3.
const LENGTHS: [u8; 8] = [1, 4, 8, 10, 12, 14, 16, 18];
const LONGEST: u8 = 20;
/// Limits that are never exceeded here, and that always are.
const WIDE: &str = "250mpps,1000000000";
const CLOSED: &str = "0";
/// Cycles a packet of the paper, reception and sending included, on one core of 3.2 GHz.
const PAPER: [(f64, f64); 2] = [(2.0, 432.0), (1_048_576.0, 492.0)];
/// Bytes of a bucket.
const BUCKET_BYTES: f64 = 8.0;

/// Whether a country is among those that are limited.
type Countries<'a> = &'a dyn Fn(&str) -> bool;

/// Runs the scenario.
///
/// # Errors
/// Files cannot be written, or there is no compiler.
pub fn run(options: &BenchOptions) -> Result<Vec<Row>, Failure> {
    let frames = traffic::small_packets(PACKETS, Mix::Random, 11);
    let baseline = policy("upstream { accept }\ndownstream { accept }\n", "")?;
    let mut baseline = baseline.native()?;
    let mut rows = Vec::new();
    for length in LENGTHS.into_iter().chain([LONGEST]) {
        let row = Row::default().of("figure", "3").of("limits", "wide");
        rows.push(measure(&mut baseline, &frames, &subnets(length, WIDE), row)?);
    }
    let row = Row::default().of("figure", "3").of("limits", "over");
    rows.push(measure(&mut baseline, &frames, &subnets(LONGEST, CLOSED), row)?);
    let countries = Dataset::COUNTRY.load(&options.data)?;
    let all = |of: Countries<'_>| -> String {
        let labels = countries.table.labels();
        let prefixes = countries.table.prefixes4().iter().filter(|prefix| of(&labels[prefix.label as usize - 1]));
        prefixes.map(|prefix| format!("{prefix},{WIDE}\n")).collect()
    };
    let cases: [(&str, Countries<'_>); 2] =
        [("russia+china", &|label| label == "RU" || label == "CN"), ("all-countries", &|_| true)];
    for (name, of) in cases {
        let list = all(of);
        // What is made up has no countries of these names.
        if !list.is_empty() {
            let row =
                Row::default().of("table", "I").of("limits", "wide").of("of", name).of("source", countries.source);
            rows.push(measure(&mut baseline, &frames, &list, row)?);
        }
    }
    let paper = |(subnets, cycles): (f64, f64)| {
        Row::default()
            .of("figure", "3")
            .of("engine", "paper")
            .number("subnets", subnets)
            .number("cycles_per_packet", cycles)
    };
    rows.extend(PAPER.map(paper));
    Ok(rows)
}

/// Draws the rows.
pub fn plot(title: &str, rows: &[Row]) -> String {
    plot::bars(title, "cycles_per_packet", rows)
}

/// All subnets of a length.
fn subnets(length: u8, limit: &str) -> String {
    let mut list = String::new();
    for index in 0..1u32 << length {
        let _ = writeln!(list, "{}/{length},{limit}", Ipv4Addr::from(index << (32 - length)));
    }
    list
}

fn policy(text: &str, list: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))
    };
    write("limits.csv", list)?;
    write("moonpol.weir", text)?;
    Policy::load(&Path::new(directory.path()).join("moonpol.weir"))
}

/// A policy that limits sources by the list, and one that only accepts, in turns.
fn measure(baseline: &mut NativeFilter, frames: &FrameSet, list: &str, row: Row) -> Result<Row, Failure> {
    let limited = policy(
        "limits subnets { file \"limits.csv\" }\nupstream { ip saddr limit @subnets; accept }\ndownstream { accept }\n",
        list,
    )?;
    let table_bytes: usize = limited.images()?.iter().map(|image| image.as_bytes().len()).sum();
    let mut filter = limited.native()?;
    let (mut whole, mut beyond, mut ns) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let base = memory::measure(baseline, 0, frames, 1)?;
        let cost = memory::measure(&mut filter, 0, frames, 1)?;
        whole.push(cost.cycles_per_packet.median);
        beyond.push(cost.cycles_per_packet.median - base.cycles_per_packet.median);
        ns.push(cost.ns_per_packet.median);
    }
    let spread = |samples| Spread::of(samples).expect("there were rounds");
    let ns = spread(ns);
    // The first bucket is nobody's, and one is for sources that no subnet has.
    let buckets = limited.buckets() as f64;
    Ok(row
        .of("engine", "native")
        .number("subnets", list.lines().count() as f64)
        .spread("cycles_per_packet", spread(whole))
        .spread("limit_cycles_per_packet", spread(beyond))
        .spread("ns_per_packet", ns)
        .number("mpps", 1e3 / ns.median)
        .number("table_bytes", table_bytes as f64)
        .number("bucket_bytes", buckets * BUCKET_BYTES)
        .number("bytes", table_bytes as f64 + buckets * BUCKET_BYTES))
}
