//! `rfpf-three-tables`: the ruleset of the RFPF paper's evaluation (section IV). Every packet's source is looked up in
//! an allow list, a block list and the country table, and each match is counted.
//!
//! The paper uses eight ports of 10 Gbps. Here bursts come from memory, so that only parsing, lookups and rules are
//! measured. As in the paper, random traffic has uniformly random sources; the botnet mix has 10% random, 20% allowed
//! and 70% blocked sources. `kernel.rs` measures the same packets in the kernel.
//!
//! The lists of IPv6 and their packets are Weir's own: the paper has none.

mod kernel;

use super::data::keys::sources6;
use super::data::{Data, Dataset};
use crate::mix::{self, Mix};
use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Picks, Scenario};
use std::fs;
use std::path::{Path, PathBuf};
use weir_abi::{BURST_MAX, Family, Link, Target, Verdict};
use weir_command::failure::Failure;
use weir_engine::clang::Clang;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::{self, Spread};
use weir_engine::native::{STAGE_CLOCK, STAGES};
use weir_engine::traffic::{self, SMALL_FRAME_BYTES};
use weir_engine::{Bound, Filter, NativeCode, NativeFilter};
use weir_instruments::sources::Sources;
use weir_loading::{Policy, load};
use weir_policy::backend;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "rfpf-three-tables",
    paper: "RFPF Fig. 5-6: three lookups on the source, 67 Mpps on 6 cores of 3.6 GHz with I/O (about 320 cycles a packet)",
    needs: &[Need::Root, Need::Clang, Need::List("country.csv")],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Nothing,
    seconds: Scaled { full: 90, quick: 45, smoke: 9 },
    run,
    plot: |title, rows| plot::bars(title, "ns_per_packet", rows),
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of packets. The frames of 2^18 take 64 MB, so that they displace the lines of tables from every cache.
    packets: usize,
    /// Number of turns in native code.
    repeats: usize,
    kernel: kernel::Effort,
    /// What is looked up. The rows have the names of the block lists.
    lists: &'static [Lists],
}

/// Three lists of one family.
#[derive(Clone, Copy)]
struct Lists {
    allowed: Dataset,
    blocked: Dataset,
    country: Dataset,
}

impl Lists {
    const V4: Lists = Lists { allowed: Dataset::ALLOW_100K, blocked: Dataset::BLOCK_178K, country: Dataset::COUNTRY };
    const V4_LARGE: Lists = Lists { blocked: Dataset::BLOCK_1_1M, ..Lists::V4 };
    const V6: Lists =
        Lists { allowed: Dataset::ALLOW6_100K, blocked: Dataset::BLOCK6_178K, country: Dataset::COUNTRY6 };
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings {
        packets: 1 << 18,
        repeats: 15,
        kernel: kernel::Effort { streams: 15, cold_frames: 1 << 14 },
        lists: &[Lists::V4, Lists::V6, Lists::V4_LARGE],
    },
    quick: Settings {
        packets: 1 << 18,
        repeats: 3,
        kernel: kernel::Effort { streams: 3, cold_frames: 1 << 12 },
        lists: &[Lists::V4, Lists::V6, Lists::V4_LARGE],
    },
    smoke: Settings {
        packets: 1 << 10,
        repeats: 1,
        kernel: kernel::Effort { streams: 1, cold_frames: 64 },
        lists: &[Lists::V4, Lists::V6],
    },
};

const POLICY: &str = r#"
table allow   { type FAMILY; file "allow.txt" }
table block   { type FAMILY; file "block.txt" }
table country { type FAMILY : label; file "COUNTRY" }

upstream {
  KEY @country { LABELS } counter
  KEY @allow counter
  KEY @block counter drop
  accept
}
downstream { accept }
"#;

/// Countries whose packets are counted.
pub const COUNTRIES: &str = "HR, SI, AT";

/// The seed of the sources.
const SEED: u64 = 11;

/// The name of the policy's file.
pub const POLICY_FILE: &str = "three.weir";

/// Runs the scenario.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let mut rows = Vec::new();
    for lists in settings.lists {
        plan.begin(lists.blocked.name);
        let (allowed, blocked) = (plan.load(lists.allowed)?, plan.load(lists.blocked)?);
        let directory =
            tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        let (country, labels) = countries(plan, lists.country, directory.path())?;
        let policy = write_policy(directory.path(), (&country, &labels), &allowed, &blocked)?;
        for keys in ["random", "botnet"] {
            let row = || Row::default().of("policy", lists.blocked.name).of("keys", keys);
            let listed = (keys == "botnet").then_some((&allowed, &blocked));
            rows.extend(match lists.country.family {
                Family::Ipv4 => {
                    let sources = sources4(settings.packets, listed);
                    engines(&policy, Sources::V4(&sources), &traffic::packets_from(&sources), settings, row)?
                }
                Family::Ipv6 => {
                    let sources = sources6(settings.packets, listed, SEED);
                    engines(&policy, Sources::V6(&sources), &traffic::packets6_from(&sources), settings, row)?
                }
            });
        }
    }
    Ok(rows)
}

/// The file of the countries, and three of them. A made-up list numbers its countries.
fn countries(plan: &Plan<'_>, dataset: Dataset, directory: &Path) -> Result<(PathBuf, String), Failure> {
    if dataset.family == Family::Ipv4 {
        return Ok((plan.file(dataset, directory)?, COUNTRIES.to_owned()));
    }
    let data = plan.load(dataset)?;
    let labels: Vec<&str> = data.table.labels().iter().take(3).map(AsRef::as_ref).collect();
    Ok((write(directory, "country6.csv", &data.text())?, labels.join(", ")))
}

fn sources4(count: usize, listed: Option<(&Data, &Data)>) -> Vec<u32> {
    match listed.map(|(allowed, blocked)| (allowed.addresses(), blocked.addresses())) {
        None => mix::sources(count, Mix::Random, SEED),
        Some((allowed, blocked)) => mix::sources(count, Mix::Botnet { allowed: &allowed, blocked: &blocked }, SEED),
    }
}

/// Measures the policy on each engine. The frames have these sources.
fn engines(
    policy: &Policy,
    sources: Sources<'_>,
    frames: &FrameSet,
    settings: Settings,
    row: impl Fn() -> Row,
) -> Result<Vec<Row>, Failure> {
    let bytes: usize = policy.images()?.iter().map(|image| image.as_bytes().len()).sum();
    let native = native(policy, frames, settings.repeats, row().of("engine", "native"))?;
    let mut rows = vec![native.number("bytes", bytes as f64)];
    if NativeCode::check_p4().is_ok() {
        rows.push(p4(policy, frames, settings.repeats, row().of("engine", "p4"))?);
    }
    rows.push(kernel::run(policy, sources, frames, settings.kernel, row().of("engine", "xdp"))?);
    Ok(rows)
}

/// Writes the policy and its lists of one family into a directory, and loads it. The path of the countries
/// must be absolute. Packets from those with `labels` are counted.
///
/// # Errors
/// A file cannot be written or read.
pub fn write_policy(
    directory: &Path,
    (country, labels): (&Path, &str),
    allowed: &Data,
    blocked: &Data,
) -> Result<Policy, Failure> {
    let (family, key) = match allowed.table.family() {
        Family::Ipv4 => ("ipv4", "ip saddr"),
        Family::Ipv6 => ("ipv6", "ip6 saddr"),
    };
    let text = POLICY.replace("FAMILY", family).replace("KEY", key).replace("LABELS", labels);
    write(directory, "allow.txt", &allowed.text())?;
    write(directory, "block.txt", &blocked.text())?;
    Ok(load(&write(directory, POLICY_FILE, &text.replace("COUNTRY", &country.display().to_string()))?)?)
}

fn write(directory: &Path, name: &str, text: &str) -> Result<PathBuf, Failure> {
    let path = directory.join(name);
    fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    Ok(path)
}

/// Measures the cycles per packet, and the share of each stage in a second build with the stage clock. The first run
/// warms up.
fn native(policy: &Policy, frames: &FrameSet, repeats: usize, row: Row) -> Result<Row, Failure> {
    let mut filter = policy.native()?;
    let cost = measure::measure(&mut filter, 0, frames, repeats)?;
    let mut row = row.spread("cycles_per_packet", cost.cycles_per_packet).spread("ns_per_packet", cost.ns_per_packet);
    let mpps = 1e3 / cost.ns_per_packet.median;
    row = row.number("mpps", mpps);

    for (stage, cycles) in STAGES.iter().zip(stage_cycles(policy, Target::Native, frames, repeats)?) {
        row = row.number(&format!("{stage}_cycles_per_packet"), cycles);
    }
    Ok(row)
}

/// Measures the policy as P4, as [`native`] does. Lookups and counters are extern objects, with the stage clock. A policy
/// without lookups has the ports and the parser. Its packets of one byte leave the parser at once, and so have the ports
/// only. The rest is the instructions of the rules.
fn p4(policy: &Policy, frames: &FrameSet, repeats: usize, row: Row) -> Result<Row, Failure> {
    let mut filter = policy.p4(None)?;
    let cost = measure::measure(&mut filter, 0, frames, repeats)?;
    let [_, lookup, counters] = stage_cycles(policy, Target::P4, frames, repeats)?;
    let mut parser = kernel::plain(kernel::PARSE)?.p4(None)?;
    let stubs = FrameSet::new(Link::Ethernet, (0..frames.len()).map(|_| (&[0_u8][..], SMALL_FRAME_BYTES as u32)));
    let ports = measure::measure(&mut parser, 0, &stubs, repeats)?.cycles_per_packet.median;
    let parse = measure::measure(&mut parser, 0, frames, repeats)?.cycles_per_packet.median - ports;
    let rules = cost.cycles_per_packet.median - ports - parse - lookup - counters;
    let row = row.spread("cycles_per_packet", cost.cycles_per_packet).spread("ns_per_packet", cost.ns_per_packet);
    let row = row.number("mpps", 1e3 / cost.ns_per_packet.median).number("ports_cycles_per_packet", ports);
    let row = row.number("parse_cycles_per_packet", parse).number("lookup_cycles_per_packet", lookup);
    Ok(row.number("counters_cycles_per_packet", counters).number("rules_cycles_per_packet", rules))
}

/// The cycles of each stage of a packet, in a build with the stage clock.
fn stage_cycles(
    policy: &Policy,
    target: Target,
    frames: &FrameSet,
    repeats: usize,
) -> Result<[f64; STAGES.len()], Failure> {
    let artifact = policy.artifact()?;
    let c = format!("{STAGE_CLOCK}{}", backend::emit(&policy.program, target));
    let object = Clang::find()?.native(&artifact.name, &c, Cpu::Native)?.object;
    let mut clocked = NativeFilter::load(&artifact.name, &object, &artifact.shape, Bound::of_images(policy.images()?))?;
    let mut verdicts = [Verdict(0); BURST_MAX];
    let mut samples: [Vec<f64>; STAGES.len()] = Default::default();
    let mut before = clocked.stage_cycles().expect("compiled with the clock");
    for _ in 0..=repeats {
        for burst in frames.bursts() {
            clocked.decide(0, &burst, &mut verdicts)?;
        }
        let after = clocked.stage_cycles().expect("compiled with the clock");
        for (stage, samples) in samples.iter_mut().enumerate() {
            samples.push((after[stage] - before[stage]) as f64 / frames.len() as f64);
        }
        before = after;
    }
    Ok(samples.map(|mut samples| {
        samples.remove(0);
        Spread::of(samples).expect("there are repeats").median
    }))
}
