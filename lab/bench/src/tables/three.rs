//! `three-tables`: looks up each key in an allow list, a block list and the country table, like the filter of the RFPF
//! paper.
//!
//! Bursts of 64 keys go through one table after the other. `cycles_per_lookup` and `cycles_per_packet` are equal here:
//! the cycles of all three lookups. D16X4R looks up single keys, as in the paper, and rte_fib bursts. `chosen` are the
//! images that the compiler chooses for the three tables, each with its best lookup.

use crate::data::keys::{KeyMix, Keys};
use crate::data::{Data, Dataset};
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::Scale;
use crate::tables::chosen;
use crate::tables::effort::{EFFORT, Effort};
use crate::tables::layouts::{Built, CONTENDERS, Find, Lookups, Way, best_way};
use crate::tables::race::{self, Oracle, REFERENCE_ONE_IN};
use crate::tables::rte_fib::Peer;
use weir_abi::{BURST_MAX, Family};
use weir_command::failure::Failure;
use weir_instruments::lookup::{Bytes, Lookup4};
use weir_tables::Table;

/// Names of the tables, and their block lists.
pub const TABLES: [(&str, Dataset); 2] =
    [("three-tables-178k", Dataset::BLOCK_178K), ("three-tables-1.1m", Dataset::BLOCK_1_1M)];

/// The layouts that are compared.
pub const LAYOUTS: [&str; 3] = ["d16x4r", "rte-fib", "chosen"];

/// The lookups of one contender in the three tables.
struct Entrant {
    layout: &'static str,
    mode: String,
    picked: Option<String>,
    bytes: usize,
    steps: Vec<Step>,
}

/// One lookup of an entrant.
struct Step {
    /// Indices of the tables in the image. In an image of several tables, each has one bit of the label.
    tables: Vec<usize>,
    find: StepFind,
}

enum StepFind {
    Built(Lookup4, Built),
    /// The timed lookup, and the one that returns labels.
    Own(Lookup4, Lookup4),
}

impl Step {
    fn timed(&self, keys: &[u32], labels: &mut [u32]) {
        match &self.find {
            StepFind::Built(find, built) => find.burst(built.bytes(), keys, labels),
            StepFind::Own(find, _) => find.burst(Bytes::Own, keys, labels),
        }
    }

    /// The labels of one of its tables.
    fn labels(&self, table: usize, keys: &[u32]) -> Vec<u32> {
        let mut labels = vec![u32::MAX; keys.len()];
        match &self.find {
            StepFind::Built(find, built) => find.run(built.bytes(), keys, &mut labels),
            StepFind::Own(_, find) => find.run(Bytes::Own, keys, &mut labels),
        }
        if self.tables.len() > 1 {
            let bit = self.tables.iter().position(|&member| member == table).expect("asked for one of its tables");
            labels.iter_mut().for_each(|label| *label = *label >> bit & 1);
        }
        labels
    }
}

/// Measures one of [`TABLES`].
///
/// # Errors
/// A list cannot be read, or a layout returns a wrong label.
pub fn run(
    plan: &Plan<'_>,
    (name, blocked): (&'static str, Dataset),
    mixes: &[KeyMix],
    layouts: &[&'static str],
    lookups: &Lookups,
    peer: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let mut data = Vec::new();
    for dataset in [Dataset::ALLOW_100K, blocked, Dataset::COUNTRY] {
        data.push(plan.load(dataset)?);
    }
    let mut rows = Vec::new();
    let mut entrants = Vec::new();
    for &layout in LAYOUTS.iter().filter(|layout| layouts.contains(layout)) {
        let found = match layout {
            "rte-fib" => peers(&data, peer)?,
            "chosen" => Ok(vec![chosen(&data, lookups, plan.scale)?]),
            _ => d16x4r(&data, lookups)?.map(|one| vec![one]),
        };
        match found {
            Ok(found) => entrants.extend(found),
            Err(limit) => rows.push(Row::default().of("table", name).of("layout", layout).of("limit", &limit)),
        }
    }
    let oracles: Vec<Oracle> = data.iter().map(|data| Oracle::new(&data.table)).collect::<Result<_, _>>()?;
    let Effort { keys: count, rounds, .. } = EFFORT.at(plan.scale);
    for &mix in mixes {
        let keys = Keys::of(mix, &data[1], &data[0].addresses(), &data[1].addresses(), count);
        for (index, oracle) in oracles.iter().enumerate() {
            check(name, index, &entrants, &keys, &oracle.labels(&keys, REFERENCE_ONE_IN)?)?;
        }
        rows.extend(race(name, mix, &data, &entrants, &keys, rounds));
    }
    Ok(rows)
}

/// The images that the compiler chooses for the tables, each with its best lookup.
fn chosen(data: &[Data], lookups: &Lookups, scale: Scale) -> Result<Entrant, Failure> {
    let tables: Vec<&Table> = data.iter().map(|data| &data.table).collect();
    let mut entrant = Entrant { layout: "chosen", mode: String::new(), picked: None, bytes: 0, steps: Vec::new() };
    let (mut modes, mut picked) = (Vec::new(), Vec::new());
    for image in chosen::images(&tables, chosen::model(scale))? {
        let members: Vec<usize> = image.tables().iter().map(|id| usize::from(id.0)).collect();
        let built = match members.as_slice() {
            &[one] => tables[one].build(image.layout),
            several => weir_tables::exact_sets(&several.iter().map(|&one| tables[one]).collect::<Vec<_>>()),
        };
        let built = Built::Image(built.map_err(|error| Failure::Runtime(format!("bench tables: {error}")))?);
        let way = best_way(image.layout);
        modes.push(way.mode);
        picked.push(image.layout.name());
        entrant.bytes += built.size();
        entrant.steps.push(Step { tables: members, find: StepFind::Built(lookup4(lookups, way)?, built) });
    }
    modes.dedup();
    entrant.mode = modes.join(", ");
    entrant.picked = Some(picked.join(", "));
    Ok(entrant)
}

/// D16X4R with single keys, or the reason why it cannot contain a table.
fn d16x4r(data: &[Data], lookups: &Lookups) -> Result<Result<Entrant, String>, Failure> {
    let contender = CONTENDERS.iter().find(|contender| contender.name == "d16x4r").expect("it is a contender");
    let way = contender.ways.first().expect("a contender has a lookup");
    let mode = way.mode.to_owned();
    let mut entrant = Entrant { layout: "d16x4r", mode, picked: None, bytes: 0, steps: Vec::new() };
    for (index, data) in data.iter().enumerate() {
        let built = match contender.builder.build(&data.table) {
            Ok(built) => built,
            Err(limit) => return Ok(Err(limit)),
        };
        entrant.bytes += built.size();
        entrant.steps.push(Step { tables: vec![index], find: StepFind::Built(lookup4(lookups, way)?, built) });
    }
    Ok(Ok(entrant))
}

fn lookup4(lookups: &Lookups, way: &Way) -> Result<Lookup4, Failure> {
    match lookups.find(way, Family::Ipv4)? {
        Find::V4(find) => Ok(find),
        Find::V6(_) => unreachable!("compiler bug: asked for IPv4"),
    }
}

fn peers(data: &[Data], peer: &mut Peer) -> Result<Result<Vec<Entrant>, String>, Failure> {
    let fib = match peer.get() {
        Ok(fib) => fib,
        Err(missing) => return Ok(Err(missing)),
    };
    let mut filled = Vec::new();
    for (slot, data) in (0..).zip(data) {
        match fib.fill(slot, &data.table)? {
            Ok(one) => filled.push(one),
            Err(limit) => return Ok(Err(limit)),
        }
    }
    let bytes = filled.iter().map(|filled| filled.bytes).sum();
    let modes = filled.iter().map(|filled| filled.lookups.len()).min().unwrap_or(0);
    let entrant = |index: usize| Entrant {
        layout: "rte-fib",
        mode: format!("burst, {}", filled[0].lookups[index].0),
        picked: None,
        bytes,
        steps: filled
            .iter()
            .enumerate()
            .map(|(table, filled)| {
                let (_, timed, checked) = &filled.lookups[index];
                Step { tables: vec![table], find: StepFind::Own(timed.clone(), checked.clone()) }
            })
            .collect(),
    };
    Ok(Ok((0..modes).map(entrant).collect()))
}

fn check(name: &str, table: usize, entrants: &[Entrant], keys: &Keys, expected: &[u32]) -> Result<(), Failure> {
    let Keys::V4(addresses) = keys else { unreachable!("compiler bug: IPv6 keys for IPv4 tables") };
    for entrant in entrants {
        let step = entrant.steps.iter().find(|step| step.tables.contains(&table)).expect("an entrant has all tables");
        let labels = step.labels(table, addresses);
        race::compare(&format!("{} ({}) of {name}", entrant.layout, entrant.mode), keys, &labels, expected)?;
    }
    Ok(())
}

fn race(name: &str, mix: KeyMix, data: &[Data], entrants: &[Entrant], keys: &Keys, rounds: usize) -> Vec<Row> {
    let mut labels = vec![[0; BURST_MAX]; 3];
    let spreads = race::turns(entrants, keys, rounds, |entrant, keys| {
        let Keys::V4(addresses) = keys else { unreachable!("compiler bug: IPv6 keys for IPv4 tables") };
        for burst in addresses.chunks(BURST_MAX) {
            for (step, labels) in entrant.steps.iter().zip(&mut labels) {
                step.timed(burst, labels);
            }
        }
    });
    let sources: Vec<&str> = data.iter().map(|data| data.source).collect();
    let row = |(entrant, spread): (&Entrant, _)| {
        let row = Row::default()
            .of("table", name)
            .of("source", &sources.join(", "))
            .of("layout", entrant.layout)
            .of("keys", mix.name())
            .of("mode", &entrant.mode);
        let row = match &entrant.picked {
            Some(picked) => row.of("picked", picked),
            None => row,
        };
        row.spread("cycles_per_lookup", spread)
            .spread("cycles_per_packet", spread)
            .number("bytes", entrant.bytes as f64)
    };
    entrants.iter().zip(spreads).map(row).collect()
}
