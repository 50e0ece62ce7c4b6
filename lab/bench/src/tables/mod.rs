//! `tables`: every table of the RFPF paper in every layout of Weir and in other schemes (section II, Table 1; section
//! IV, Fig. 4).
//!
//! Each table and layout has a row. It contains the columns of Table 1 (N, L, delta, mu, phi, rho, M) and the build
//! time from prefixes in memory. Further rows contain the cycles per lookup for each key mix. A layout that cannot
//! contain a table has a row with the limit, which the paper writes as (NC).
//!
//! Lookups are C that is compiled like policies and called with 64 of 2^20 keys. Their labels are stored. All layouts
//! of a table take turns on one pinned core, so that their ratios are valid on a shared machine. Each turn starts with
//! caches that the same keys have warmed. Figures are medians over the rounds. Before the measurement, the labels of
//! every layout are compared with the reference.

pub mod agree;
mod chart;
pub mod choice;
mod chosen;
mod effort;
mod facts;
mod layouts;
mod race;
mod rte_fib;
mod three;
mod updates;

#[cfg(test)]
mod tests;

use crate::data::keys::{KeyMix, Keys, REAL, Sources};
use crate::data::{Data, Dataset};
use crate::need::Need;
use crate::options::Options;
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::{Scale, Scaled};
use crate::scenario::{Axis, Member, Picks, Scenario};
pub use chart::draw as plot;
use effort::EFFORT;
use layouts::{Builder, CONTENDERS, Contender, Find, Lookups};
use race::{Entrant, Oracle, REFERENCE_ONE_IN};
use rte_fib::Peer;
use std::rc::Rc;
use std::time::Instant;
use weir_command::failure::Failure;
use weir_engine::cpu;
use weir_engine::measure::Spread;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "tables",
    paper: "RFPF Table 1: size of each table in each lookup scheme (D16X4R: 2.41 MB for 178k addresses, 9.40 MB for 1.1M)",
    needs: &[Need::Clang],
    axes: &[PEERS],
    smoke_only: &[],
    picks: Picks::Cells,
    seconds: Scaled { full: 900, quick: 300, smoke: 4 },
    run,
    plot,
};

/// Other systems that take part. A row says why a table has no figures of them.
const PEERS: Axis = Axis { name: "peer", members: &[Member::with("rte-fib", &[Need::Dpdk])] };

/// Number of prefixes whose ends are looked up before the measurement.
const EDGES: usize = 1 << 14;

/// Runs the scenario.
///
/// # Errors
/// An option has an unknown name, a list cannot be read, there is no clang, or a layout returns a wrong label.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let effort = EFFORT.at(plan.scale);
    let (selection, lookups, mut peer) = prepare(plan)?;
    let sources = Sources::load(plan)?;
    if sources.real.is_empty() && selection.mixes.contains(&KeyMix::Real) {
        let missing = Failure::Runtime(format!("no {REAL} in {}", plan.options.data.display()));
        plan.leave_out("keys real", &missing);
    }
    let mut rows = Vec::new();
    for dataset in &selection.datasets {
        plan.begin(dataset.name);
        let data = plan.load(*dataset)?;
        let mut sources = sources.clone();
        if dataset.name == Dataset::BLOCK_1_1M.name {
            // The botnet's blocked sources come from the same list.
            sources.blocked = data.addresses();
        }
        let entrants = enter(&data, &selection, &lookups, &mut peer, &mut rows)?;
        let oracle = Oracle::new(&data.table)?;
        let edges = Keys::edges(&data, EDGES);
        race::check(&data, &entrants, &edges, &oracle.labels(&edges, 1)?)?;
        for &mix in &selection.mixes {
            let Some(keys) = Keys::of(mix, &data, &sources, effort.keys) else { continue };
            race::check(&data, &entrants, &keys, &oracle.labels(&keys, REFERENCE_ONE_IN)?)?;
            rows.extend(race::run(&data, mix, &entrants, &keys, effort.rounds));
        }
    }
    for &table in &selection.threes {
        plan.begin(table.name);
        rows.extend(three::run(plan, table, &selection.mixes, &selection.layouts, &sources, &lookups, &mut peer)?);
    }
    Ok(rows)
}

/// Parses the options, compiles the lookups and pins the thread to a core.
fn prepare(plan: &Plan<'_>) -> Result<(Selection, Lookups, Peer), Failure> {
    let selection = Selection::of(plan.options)?;
    let lookups = Lookups::compile()?;
    let core = cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}")))?;
    Ok((selection, lookups, Peer::on(core)))
}

/// The tables, key mixes and layouts that the options select.
struct Selection {
    datasets: Vec<Dataset>,
    threes: Vec<three::Three>,
    mixes: Vec<KeyMix>,
    layouts: Vec<&'static str>,
    scale: Scale,
}

impl Selection {
    fn of(options: &Options) -> Result<Self, Failure> {
        let mut layouts: Vec<&str> = CONTENDERS.iter().map(|contender| contender.name).collect();
        layouts.dedup();
        let tables: Vec<&str> =
            Dataset::ALL.iter().map(|one| one.name).chain(three::TABLES.map(|three| three.name)).collect();
        let tables = select("table", &tables, |name| name, &options.table)?;
        let few = EFFORT.at(options.scale()).tables;
        let is_measured = |name: &str| !options.table.is_empty() || few.is_empty() || few.contains(&name);
        let tables: Vec<&str> = tables.into_iter().filter(|name| is_measured(name)).collect();
        Ok(Selection {
            datasets: Dataset::ALL.into_iter().filter(|dataset| tables.contains(&dataset.name)).collect(),
            threes: three::TABLES.into_iter().filter(|three| tables.contains(&three.name)).collect(),
            mixes: select("keys", &KeyMix::ALL, |mix| mix.name(), &options.keys)?,
            layouts: select("layout", &layouts, |name| name, &options.layout)?,
            scale: options.scale(),
        })
    }
}

/// The elements of `all` whose names are among `names`, or all elements if `names` is empty.
fn select<'n, T: Copy>(
    what: &str,
    all: &[T],
    name: impl Fn(T) -> &'n str,
    names: &[String],
) -> Result<Vec<T>, Failure> {
    if let Some(unknown) = names.iter().find(|wanted| all.iter().all(|&one| name(one) != **wanted)) {
        let known: Vec<&str> = all.iter().map(|&one| name(one)).collect();
        return Err(Failure::Rejected(format!("weir: --{what} {unknown}: unknown; known are {}", known.join(", "))));
    }
    Ok(all.iter().copied().filter(|&one| names.is_empty() || names.iter().any(|wanted| wanted == name(one))).collect())
}

/// Builds the table in each layout and adds its row of Table 1. Returns the entrants whose layout can contain it.
fn enter(
    data: &Data,
    selection: &Selection,
    lookups: &Lookups,
    peer: &mut Peer,
    rows: &mut Vec<Row>,
) -> Result<Vec<Entrant>, Failure> {
    let family = data.table.family();
    let mut entrants: Vec<Entrant> = Vec::new();
    let suits = |contender: &&Contender| contender.family == family && selection.layouts.contains(&contender.name);
    for contender in CONTENDERS.iter().filter(suits) {
        let row = Row::default().of("table", &data.name).of("source", data.source).of("layout", contender.name);
        let row = facts::table(row, data);
        if contender.builder == Builder::RteFib {
            entrants.extend(enter_peer(data, peer, row, rows)?);
            continue;
        }
        let (builder, ways) = contender.resolve(&data.table, selection.scale)?;
        let is_chosen = contender.builder == Builder::Chosen;
        let expected = if is_chosen { chosen::expected_cycles(&data.table, selection.scale)? } else { None };
        let row = match expected {
            Some(cycles) => row.of("picked", builder.name()).number("expected_cycles", cycles),
            None => row,
        };
        let (built, build_s) = match race::build(builder, &data.table) {
            Ok(timed) => timed,
            Err(limit) => {
                rows.push(row.of("limit", &limit));
                continue;
            }
        };
        let row = facts::layout(row, data, &built).spread("build_s", build_s);
        rows.push(updates::add(row, builder, &data.table, EFFORT.at(selection.scale).changes)?);
        let (bytes, built) = (built.size(), Rc::new(built));
        for way in ways {
            for (mode, find) in lookups.modes(&way, family)? {
                let built = Some(built.clone());
                entrants.push(Entrant { layout: contender.name, mode, find, find_labels: None, built, bytes, build_s });
            }
        }
    }
    Ok(entrants)
}

/// Fills DPDK's table in the same way. This takes a second and is done only once.
fn enter_peer(data: &Data, peer: &mut Peer, row: Row, rows: &mut Vec<Row>) -> Result<Vec<Entrant>, Failure> {
    let fib = peer.get();
    let start = Instant::now();
    let filled = match fib {
        Ok(fib) => fib.fill(0, &data.table)?,
        Err(missing) => Err(missing),
    };
    let build_s = Spread::of(vec![start.elapsed().as_secs_f64()]).expect("one sample");
    let filled = match filled {
        Ok(filled) => filled,
        Err(limit) => {
            rows.push(row.of("limit", &limit));
            return Ok(vec![]);
        }
    };
    rows.push(row.number("bytes", filled.bytes as f64).spread("build_s", build_s));
    let entrant = |(mode, timed, labels)| Entrant {
        layout: "rte-fib",
        mode: format!("burst, {mode}"),
        find: Find::V4(timed),
        find_labels: Some(Find::V4(labels)),
        built: None,
        bytes: filled.bytes,
        build_s,
    };
    Ok(filled.lookups.into_iter().map(entrant).collect())
}
