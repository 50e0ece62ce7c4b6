//! `entry-timeouts`: what packets pay for timeouts. A table of 1.1 million addresses has none, or each address has one:
//! of ten minutes, so that 1,900 a second expire and come back 50 ms later, or of a minute, ten times as many. Filters
//! take turns, in user space and in the kernel. Each packet comes from a random one of these addresses.

mod steady;

use crate::data::{Dataset, list};
use crate::live::memory_engine::thread_time;
use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Picks, Scenario};
use crate::stream;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use steady::{Steady, Timeouts};
use weir_abi::{BURST_MAX, Target, Verdict};
use weir_command::failure::Failure;
use weir_engine::Filter as _;
use weir_engine::cpu::Cpu;
use weir_engine::live::xdp::ProgramReader;
use weir_engine::measure::Spread;
use weir_engine::native::Sharing;
use weir_engine::traffic::{self, SplitMix};
use weir_loading::{Policy, load};
use weir_state::{SharedState, UsedBy};

/// The layouts whose tables change entry by entry.
const LAYOUTS: [&str; 2] = ["exact-set", "rank-leaf"];

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "entry-timeouts",
    paper: "no paper lets a million entries expire; the goal is that packets take at most 5% longer",
    needs: &[Need::Root, Need::Clang],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Nothing,
    seconds: Scaled { full: 180, quick: 40, smoke: 6 },
    run,
    plot: |title, rows| plot::bars(title, "ns_per_packet", rows),
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of packets, each from its own source, that are decided again and again.
    packets: usize,
    /// Number of turns of each filter.
    rounds: usize,
    /// Length of a turn. Short turns meet the same noise of other users.
    turn: Duration,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { packets: 1 << 16, rounds: 151, turn: Duration::from_millis(50) },
    quick: Settings { packets: 1 << 16, rounds: 21, turn: Duration::from_millis(50) },
    smoke: Settings { packets: 1 << 10, rounds: 1, turn: Duration::from_millis(20) },
};

/// The timeouts of the turns, and the speed at which a timeout of ten minutes passes. The first filter has no timeouts.
/// The turns after it are of another one, at first without time passing: the difference is what the place of a table in
/// memory costs.
const TIMEOUTS: [(&str, u64); 4] = [("none", 0), ("idle", 0), ("ten minutes", 1), ("a minute", 10)];

/// Runs the scenario.
///
/// # Errors
/// There is no clang, or the process may not load BPF programs.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let data = plan.load(Dataset::BLOCK_1_1M)?;
    let addresses = shuffled(data.addresses());
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    put(&folder.path().join("list.txt"), &list(&addresses))?;
    let row = Row::default().of("table", &data.name).of("source", data.source);
    let row = row.number("entries", addresses.len() as f64);
    let mut rows = Vec::new();
    for layout in LAYOUTS {
        let path = folder.path().join(format!("{layout}.weir"));
        put(&path, &text(layout, addresses.len()))?;
        let policy = load(&path)?;
        for (engine, filter) in [("native", native as MakeFilter), ("xdp", kernel)] {
            plan.begin(&format!("{engine}, {layout}"));
            let make = || filter(&policy, &addresses, settings.packets);
            rows.extend(contest([make()?, make()?], settings, &row.clone().of("engine", engine).of("layout", layout))?);
        }
    }
    Ok(rows)
}

/// A filter with the table.
struct Filter {
    entries: Steady,
    /// Decides all packets.
    decide: Box<dyn FnMut() -> Result<(), Failure>>,
}

type MakeFilter = fn(&Policy, &[u32], usize) -> Result<Filter, Failure>;

fn native(policy: &Policy, addresses: &[u32], packets: usize) -> Result<Filter, Failure> {
    let shared = Arc::new(SharedState::new(UsedBy::Workers));
    let data = policy.bind(Some(&shared))?;
    let entries = Steady::new(shared, &data, addresses);
    let mut filter = policy.compile_native(Cpu::Native)?.load(data)?.filter(Sharing::Alone, 0);
    let frames = traffic::packets_from(&addresses[..packets]);
    let mut verdicts = [Verdict(0); BURST_MAX];
    let decide = move || Ok(frames.bursts().try_for_each(|burst| filter.decide(0, &burst, &mut verdicts))?);
    Ok(Filter { entries, decide: Box::new(decide) })
}

fn kernel(policy: &Policy, addresses: &[u32], packets: usize) -> Result<Filter, Failure> {
    let shared = Arc::new(SharedState::new(UsedBy::Kernel { limits_room: None }));
    let data = policy.bind(Some(&shared))?;
    let reader = ProgramReader::start(shared.tables().readers())?;
    let entries = Steady::new(shared, &data, addresses);
    let artifact = policy.artifact()?;
    let mut filter = stream::load(artifact.source(Target::Bpf), &artifact.shape, &data)?;
    let frames = traffic::packets_from(&[0]);
    let sources = addresses[..packets].to_vec();
    let decide = move || {
        // The program's table and its reader live as long as the program.
        let _used = (&reader, &data);
        stream::decide(&mut filter, 0, &frames.burst(0), 0, &sources)?;
        Ok(())
    };
    Ok(Filter { entries, decide: Box::new(decide) })
}

/// Nanoseconds of CPU time per packet.
fn turn(settings: Settings, decide: &mut dyn FnMut() -> Result<(), Failure>) -> Result<f64, Failure> {
    let (start, before, mut packets) = (Instant::now(), thread_time(), 0);
    while packets == 0 || start.elapsed() < settings.turn {
        decide()?;
        packets += settings.packets;
    }
    Ok((thread_time() - before).as_secs_f64() * 1e9 / packets as f64)
}

/// Compares a filter without timeouts with one whose entries have some.
fn contest([mut without, mut with]: [Filter; 2], settings: Settings, row: &Row) -> Result<Vec<Row>, Failure> {
    without.entries.set_all(Timeouts::None)?;
    with.entries.set_all(Timeouts::Spread)?;
    let mut turns = TIMEOUTS.map(|_| Vec::new());
    let mut expired = TIMEOUTS.map(|_| (0, Duration::ZERO));
    for _ in 0..settings.rounds {
        turns[0].push(turn(settings, &mut without.decide)?);
        for (index, (_, speed)) in TIMEOUTS.into_iter().enumerate().skip(1) {
            let (before, start) = (with.entries.returned(), Instant::now());
            turns[index].push(match speed {
                0 => turn(settings, &mut with.decide)?,
                _ => with.entries.during(speed, || turn(settings, &mut with.decide))?,
            });
            expired[index].0 += with.entries.returned() - before;
            expired[index].1 += start.elapsed();
        }
    }
    let per_s = |(expired, time): (usize, Duration)| expired as f64 / time.as_secs_f64().max(f64::EPSILON);
    Ok(rows_of(row, &turns, expired.map(per_s)))
}

fn rows_of(row: &Row, turns: &[Vec<f64>; TIMEOUTS.len()], expired_per_s: [f64; TIMEOUTS.len()]) -> Vec<Row> {
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("each had its turns");
    let to_row = |(index, (timeouts, _)): (usize, (&str, u64))| {
        let own = &turns[index];
        let row = row.clone().of("timeouts", timeouts).spread("ns_per_packet", spread(own.clone()));
        let row = row.number("expired_per_s", expired_per_s[index]);
        let times = |base: &[f64]| spread(own.iter().zip(base).map(|(own, base)| own / base).collect());
        ["times_none", "times_idle"]
            .into_iter()
            .take(index)
            .zip(turns)
            .fold(row, |row, (field, base)| row.spread(field, times(base)))
    };
    TIMEOUTS.into_iter().enumerate().map(to_row).collect()
}

/// Neighbours do not expire together, and packets do not come from neighbours.
fn shuffled(mut addresses: Vec<u32>) -> Vec<u32> {
    let mut random = SplitMix::new(17);
    (1..addresses.len()).rev().for_each(|last| addresses.swap(last, random.below(last as u64 + 1) as usize));
    addresses
}

fn text(layout: &str, entries: usize) -> String {
    format!(
        "table t {{ type ipv4; dynamic; size {entries}; layout {layout}; file \"list.txt\" }}\n\
         upstream {{ ip saddr @t drop; accept }}\ndownstream {{ accept }}\n"
    )
}

fn put(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_compared_one_by_one() {
        let mut turns = TIMEOUTS.map(|_| vec![10.0, 20.0, 40.0]);
        turns[1] = vec![10.0, 10.0, 40.0];
        turns[3] = vec![11.0, 20.0, 42.0];
        let rows = rows_of(&Row::default(), &turns, [0.0, 0.0, 3.0, 15.0]);
        assert_eq!((rows[0].get("ns_per_packet"), rows[0].text("timeouts")), (Some(20.0), Some("none")));
        assert_eq!((rows[1].get("times_none"), rows[1].get("times_idle")), (Some(1.0), None));
        assert_eq!((rows[3].get("times_none"), rows[3].get("times_none_max")), (Some(1.05), Some(1.1)));
        assert_eq!((rows[3].get("times_idle"), rows[3].get("expired_per_s")), (Some(1.1), Some(15.0)));
    }
}
