//! `tables`: every table of the RFPF paper in every layout, Weir's and the others' (section II, Table 1; section IV, Fig. 4).
//!
//! For each table: what Table 1 says of each layout (N, L, delta, mu, phi, rho, M), how long it took to build from prefixes in
//! memory, and the cycles a lookup for each mix of keys. A layout that cannot hold a table has a row with the limit, the paper's
//! (NC). Lookups are C, compiled as policies are, called with 64 keys at a time out of 2^20; labels are written out. All
//! layouts of a table take turns, on one pinned core, so that their ratios hold even where the machine is shared; each figure is
//! the median over the rounds. Before anything is timed, every layout must give the reference's answers.

mod chosen;
mod facts;
mod layouts;
mod race;

use crate::bench::Row;
use crate::bench::data::keys::{KEYS, KeyMix, Keys};
use crate::bench::data::{Data, Dataset};
use crate::cli::BenchOptions;
use crate::failure::Failure;
use layouts::{Built, CONTENDERS, Contender, Find, Lookups};
use race::{Entrant, Oracle};
use std::rc::Rc;
use weir_engine::cpu;

/// Prefixes whose ends are looked up before anything is timed.
const EDGES: usize = 1 << 14;
/// The reference is asked for one key in so many, since it is slow; a layout that it agrees with for all of them.
const REFERENCE_ONE_IN: usize = 16;

/// Runs the scenario.
///
/// # Errors
/// An option names what there is not, a list cannot be read, there is no clang, or a layout answers wrongly.
pub fn run(options: &BenchOptions) -> Result<Vec<Row>, Failure> {
    let selection = Selection::of(options)?;
    let lookups = Lookups::compile()?;
    cpu::pin().map_err(|error| Failure::Runtime(format!("pinning to a core: {error}")))?;
    let allowed = Dataset::ALLOW_100K.load(&options.data)?.addresses();
    let blocked = Dataset::BLOCK_178K.load(&options.data)?.addresses();
    let mut rows = Vec::new();
    for dataset in &selection.datasets {
        let data = dataset.load(&options.data)?;
        // Who is attacked by the larger list's bots blocks the larger list.
        let own = (dataset.name == Dataset::BLOCK_1_1M.name).then(|| data.addresses());
        let entrants = enter(&data, &selection, &lookups, &mut rows)?;
        let oracle = Oracle::new(&data.table)?;
        let edges = Keys::edges(&data, EDGES);
        race::check(&data, &entrants, &edges, &oracle.labels(&edges, 1)?)?;
        for &mix in &selection.mixes {
            let keys = Keys::of(mix, &data, &allowed, own.as_deref().unwrap_or(&blocked), KEYS);
            race::check(&data, &entrants, &keys, &oracle.labels(&keys, REFERENCE_ONE_IN)?)?;
            rows.extend(race::run(&data, mix, &entrants, &keys));
        }
    }
    Ok(rows)
}

/// What the options leave of the scenario.
struct Selection {
    datasets: Vec<Dataset>,
    mixes: Vec<KeyMix>,
    layouts: Vec<&'static str>,
}

impl Selection {
    fn of(options: &BenchOptions) -> Result<Self, Failure> {
        let mut layouts: Vec<&str> = CONTENDERS.iter().map(|contender| contender.name).collect();
        layouts.dedup();
        Ok(Selection {
            datasets: select("table", &Dataset::ALL, |dataset| dataset.name, &options.table)?,
            mixes: select("keys", &KeyMix::ALL, |mix| mix.name(), &options.keys)?,
            layouts: select("layout", &layouts, |name| name, &options.layout)?,
        })
    }
}

/// Those whose name is among `names`, or all if there are none.
fn select<T: Copy>(
    what: &str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>, Failure> {
    if let Some(unknown) = names.iter().find(|wanted| all.iter().all(|&one| name(one) != **wanted)) {
        let known: Vec<&str> = all.iter().map(|&one| name(one)).collect();
        return Err(Failure::Rejected(format!("weir: --{what} {unknown}: there are {}", known.join(", "))));
    }
    Ok(all.iter().copied().filter(|&one| names.is_empty() || names.iter().any(|wanted| wanted == name(one))).collect())
}

/// Builds the table in each layout and fills its row of Table 1; those that hold it enter the race.
fn enter(data: &Data, selection: &Selection, lookups: &Lookups, rows: &mut Vec<Row>) -> Result<Vec<Entrant>, Failure> {
    let family = data.table.family();
    let mut entrants: Vec<Entrant> = Vec::new();
    let suits = |contender: &&Contender| contender.family == family && selection.layouts.contains(&contender.name);
    for contender in CONTENDERS.iter().filter(suits) {
        let (builder, ways) = contender.resolve(&data.table)?;
        let row = Row::default().of("table", data.name).of("source", data.source).of("layout", contender.name);
        let row = if contender.builder == builder { row } else { row.of("picked", ways_name(builder)) };
        let (built, build_s) = match race::build(builder, &data.table) {
            Ok(timed) => timed,
            Err(limit) => {
                rows.push(facts::table(row.of("limit", &limit), data));
                continue;
            }
        };
        let built: Rc<Built> = Rc::new(built);
        rows.push(facts::layout(facts::table(row, data), data, &built).spread("build_s", build_s));
        for way in ways {
            let find: Find = lookups.find(&way, family)?;
            entrants.push(Entrant { layout: contender.name, mode: way.mode, find, built: built.clone(), build_s });
        }
    }
    Ok(entrants)
}

fn ways_name(builder: layouts::Builder) -> &'static str {
    match builder {
        layouts::Builder::Layout(layout) => layout.name(),
        layouts::Builder::Scheme(scheme) => scheme.name(),
        layouts::Builder::Chosen => "chosen",
    }
}
