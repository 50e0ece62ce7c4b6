//! `layout-choice`: compares the costs that the policy compiler expects with measured ones, and rates its choice.
//!
//! The tables are the synthetic ones of `tables`, some small ones, and all lists in the data directory (`--data`).
//! `NAME.csv` has labels, `NAME.txt` is a set, `NAME.mmdb` is read with the field `city`. A name that contains `ipv6`
//! or ends with 6 means IPv6. Keys are addresses in the table's prefixes, and random ones. All layouts of a table take
//! turns, each with its best lookup, as in `tables`.
//!
//! A row says whether the compiler chooses its layout with the built-in costs (`chosen`) or with measured costs
//! (`chosen_measured`). It has the expected size (`expected_bytes`) next to the real one. `over_best` is the ratio of
//! its cycles to the cycles of the best layout for these keys. The keys `both` are the mean of the two mixes.

use crate::data::keys::{KeyMix, Keys, Sources};
use crate::data::{Data, Dataset};
use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::{Scale, Scaled};
use crate::scenario::{Picks, Scenario};
use crate::tables::effort::{EFFORT, Effort};
use crate::tables::layouts::{Builder, Built, CONTENDERS, Lookups};
use crate::tables::race::{self, Entrant, Oracle};
use crate::tables::{EDGES, chosen, select};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use weir_command::failure::Failure;
use weir_engine::cpu;
use weir_policy::pass::choose_layouts::{CostModel, Estimate, Reason};
use weir_tables::Table;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "layout-choice",
    paper: "RFPF section IV: which scheme is the fastest depends on what the table holds",
    needs: &[Need::Clang],
    axes: &[],
    smoke_only: &[],
    picks: Picks::Cells,
    seconds: Scaled { full: 900, quick: 300, smoke: 2 },
    run,
    plot: |title, rows| plot::bars(title, "cycles_per_lookup", rows),
};

/// Small synthetic tables: name, number of prefixes, and their length.
const SMALL: [(&str, usize, u8); 5] =
    [("few6", 5, 32), ("some6", 300, 48), ("nets6", 3000, 64), ("hosts6", 3000, 128), ("few4", 5, 24)];

/// Runs the scenario.
///
/// # Errors
/// A list cannot be read, there is no clang, or a layout returns a wrong label.
pub fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let options = plan.options;
    if !options.layout.is_empty() {
        return Err(Failure::Rejected("weir: layout-choice takes no --layout: it compares all layouts".to_owned()));
    }
    let lists = lists(&options.data)?;
    let mut names: Vec<&str> = Dataset::ALL.iter().map(|dataset| dataset.name).collect();
    names.extend(SMALL.iter().map(|(name, ..)| *name));
    names.extend(lists.iter().map(|(name, _)| name.as_str()));
    names.sort_unstable();
    names.dedup();
    let mut names = select("table", &names, |name| name, &options.table)?;
    let few = EFFORT.at(plan.scale).tables;
    if options.table.is_empty() && !few.is_empty() {
        names.retain(|name| few.contains(name) || SMALL.iter().any(|(small, ..)| small == name));
    }
    let mixes = select("keys", &[KeyMix::Entries, KeyMix::Random], |mix| mix.name(), &options.keys)?;
    let lookups = Lookups::compile()?;
    cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}")))?;
    let mut rows = Vec::new();
    for name in names {
        plan.begin(name);
        let data = load(name, &lists, plan)?;
        rows.extend(compare(&data, &mixes, &lookups, plan.scale)?);
    }
    Ok(rows)
}

/// Names and paths of the lists in the directory, except for the tables of the paper.
fn lists(directory: &Path) -> Result<Vec<(String, PathBuf)>, Failure> {
    let entries = fs::read_dir(directory).map_err(|error| Failure::file(directory, error))?;
    let mut lists = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Failure::file(directory, error))?.path();
        let is_list =
            path.extension().is_some_and(|extension| ["csv", "txt", "mmdb"].iter().any(|&one| extension == one));
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if is_list && Dataset::ALL.iter().all(|dataset| dataset.name != name) {
            lists.push((name, path));
        }
    }
    lists.sort_unstable();
    Ok(lists)
}

fn load(name: &str, lists: &[(String, PathBuf)], plan: &Plan<'_>) -> Result<Data, Failure> {
    if let Some((_, path)) = lists.iter().find(|(known, _)| known == name) {
        return Ok(plan.part_of(Data::read(name, path)?));
    }
    if let Some((_, count, length)) = SMALL.iter().find(|(known, ..)| *known == name) {
        return Ok(Data::small(name, *count, *length));
    }
    let dataset = Dataset::ALL.into_iter().find(|dataset| dataset.name == name).expect("the name was selected");
    plan.load(dataset)
}

/// The expected costs of each layout with a cost model.
fn expected(table: &Table, model: &CostModel) -> Result<Vec<Estimate>, Failure> {
    let images = chosen::images(&[table], model)?;
    match images.into_iter().next().map(|image| image.reason) {
        Some(Reason::Cheapest(estimates)) => Ok(estimates),
        other => Err(Failure::Runtime(format!("bench layout-choice: the compiler makes no choice: {other:?}"))),
    }
}

/// Measures all layouts. Returns a row for each layout and key mix.
fn compare(data: &Data, mixes: &[KeyMix], lookups: &Lookups, scale: Scale) -> Result<Vec<Row>, Failure> {
    let Effort { keys: count, rounds, .. } = EFFORT.at(scale);
    let built_in = expected(&data.table, &CostModel::default())?;
    let measured = expected(&data.table, chosen::model(scale))?;
    let entrants =
        built_in.iter().map(|estimate| enter(data, *estimate, lookups)).collect::<Result<Vec<_>, Failure>>()?;
    let edges = Keys::edges(data, EDGES);
    race::check(data, &entrants, &edges, &Oracle::new(&data.table)?.labels(&edges, 1)?)?;
    let mut of_mixes: Vec<Vec<Row>> = Vec::new();
    for &mix in mixes {
        let keys = Keys::of(mix, data, &Sources::default(), count).expect("these mixes are possible for both families");
        of_mixes.push(race::run(data, mix, &entrants, &keys, rounds));
    }
    if let [entries, random] = of_mixes.as_slice() {
        let mean = |(one, other): (&Row, &Row)| {
            let cycles = |row: &Row| row.get("cycles_per_lookup").unwrap_or(f64::NAN);
            let row = Row::default().of("table", &data.name).of("source", data.source);
            let row = row.of("layout", one.text("layout").unwrap_or_default()).of("keys", "both");
            row.number("cycles_per_lookup", (cycles(one) + cycles(other)) / 2.0)
        };
        of_mixes.push(entries.iter().zip(random).map(mean).collect());
    }
    Ok(of_mixes.into_iter().flat_map(|rows| rated(rows, &built_in, &measured, data)).collect())
}

fn enter(data: &Data, estimate: Estimate, lookups: &Lookups) -> Result<Entrant, Failure> {
    let name = estimate.layout.name();
    let contender = CONTENDERS.iter().find(|contender| contender.name == name).expect("all our layouts are contenders");
    let builder = Builder::Layout(estimate.layout);
    let built = race::build(builder, &data.table);
    let (built, build_s) = built.map_err(|error| Failure::Runtime(format!("bench layout-choice: {error}")))?;
    // The last lookup is the best. For D16X4R, the scheme of the same name has it.
    let way = contender.ways.last().expect("a layout has a lookup");
    let bytes = match &built {
        Built::Image(image) => image.as_bytes().len(),
        Built::Scheme(_) => built.size(),
    };
    let find = lookups.find(way, data.table.family())?;
    let mode = way.mode.to_owned();
    Ok(Entrant { layout: contender.name, mode, find, find_labels: None, built: Some(Rc::new(built)), bytes, build_s })
}

/// Adds the expected costs and the ratio to the best layout to the rows of one key mix.
fn rated(rows: Vec<Row>, built_in: &[Estimate], measured: &[Estimate], data: &Data) -> Vec<Row> {
    let cycles = rows.iter().filter_map(|row| row.get("cycles_per_lookup"));
    let best = cycles.fold(f64::INFINITY, f64::min);
    let is_first = |estimates: &[Estimate], layout: &str| {
        let first = estimates.first().is_some_and(|estimate| estimate.layout.name() == layout);
        if first { "yes" } else { "no" }
    };
    let mut rated = Vec::with_capacity(rows.len());
    for row in rows {
        let layout = row.text("layout").unwrap_or_default().to_owned();
        let over_best = row.get("cycles_per_lookup").unwrap_or(f64::NAN) / best;
        let of = |estimates: &[Estimate]| estimates.iter().find(|estimate| estimate.layout.name() == layout).copied();
        let row = row.of("chosen", is_first(built_in, &layout)).of("chosen_measured", is_first(measured, &layout));
        let mut row = row.number("over_best", over_best).number("prefixes", data.table.facts().entries as f64);
        if let (Some(expected), Some(by_measured)) = (of(built_in), of(measured)) {
            row = row.number("expected_bytes", expected.bytes as f64).number("expected_cycles", expected.cycles);
            row = row.number("expected_cycles_measured", by_measured.cycles);
        }
        rated.push(row);
    }
    rated
}
