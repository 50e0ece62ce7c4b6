//! `three-tables`: looks up each key in an allow list, a block list and the country table, like the filter of the RFPF
//! paper.
//!
//! Bursts of 64 keys go through one table after the other. `cycles_per_lookup` and `cycles_per_packet` are equal here:
//! the cycles of all three lookups. D16X4R looks up single keys, as in the paper, and rte_fib bursts. `chosen` are the
//! images that the compiler chooses for the three tables, each with its best lookup. IPv6 has only these.

use crate::data::keys::{KeyMix, Keys, Sources};
use crate::data::{Data, Dataset};
use crate::plan::Plan;
use crate::row::Row;
use crate::scale::Scale;
use crate::tables::chosen;
use crate::tables::effort::{EFFORT, Effort};
use crate::tables::layouts::{Built, CONTENDERS, Find, Lookups, best_way};
use crate::tables::race::{self, Oracle, REFERENCE_ONE_IN};
use crate::tables::rte_fib::Peer;
use std::ops::Range;
use std::rc::Rc;
use weir_abi::{BURST_MAX, Family};
use weir_command::failure::Failure;
use weir_instruments::lookup::Bytes;
use weir_tables::Table;

/// Three tables of one family.
#[derive(Clone, Copy, Debug)]
pub struct Three {
    /// The name in rows.
    pub name: &'static str,
    /// Allow list, block list and countries.
    tables: [Dataset; 3],
}

/// What is measured.
pub const TABLES: [Three; 3] = [
    Three { name: "three-tables-178k", tables: [Dataset::ALLOW_100K, Dataset::BLOCK_178K, Dataset::COUNTRY] },
    Three { name: "three-tables-1.1m", tables: [Dataset::ALLOW_100K, Dataset::BLOCK_1_1M, Dataset::COUNTRY] },
    Three { name: "three-tables6-178k", tables: [Dataset::ALLOW6_100K, Dataset::BLOCK6_178K, Dataset::COUNTRY6] },
];

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
    Built(Find, Rc<Built>),
    /// The timed lookup, and the one that returns labels.
    Own(Find, Find),
}

impl Step {
    fn timed(&self, keys: &Keys, burst: Range<usize>, labels: &mut [u32]) {
        match &self.find {
            StepFind::Built(find, built) => find.burst(built.bytes(), keys, burst, labels),
            StepFind::Own(find, _) => find.burst(Bytes::Own, keys, burst, labels),
        }
    }

    /// The labels of one of its tables.
    fn labels(&self, table: usize, keys: &Keys) -> Vec<u32> {
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
    three: Three,
    mixes: &[KeyMix],
    layouts: &[&'static str],
    sources: &Sources,
    lookups: &Lookups,
    peer: &mut Peer,
) -> Result<Vec<Row>, Failure> {
    let data: Vec<Data> = three.tables.iter().map(|table| plan.load(*table)).collect::<Result<_, _>>()?;
    let (mut rows, mut entrants) = (Vec::new(), Vec::new());
    let suits = |layout: &&&str| three.tables[0].family == Family::Ipv4 || **layout == "chosen";
    for &layout in LAYOUTS.iter().filter(|layout| layouts.contains(layout)).filter(suits) {
        let found = match layout {
            "rte-fib" => peers(&data, peer)?,
            "chosen" => Ok(chosen(&data, lookups, plan.scale)?),
            _ => d16x4r(&data, lookups)?.map(|one| vec![one]),
        };
        match found {
            Ok(found) => entrants.extend(found),
            Err(limit) => rows.push(Row::default().of("table", three.name).of("layout", layout).of("limit", &limit)),
        }
    }
    let oracles: Vec<Oracle> = data.iter().map(|data| Oracle::new(&data.table)).collect::<Result<_, _>>()?;
    let Effort { keys: count, rounds, .. } = EFFORT.at(plan.scale);
    let mut sources = sources.clone();
    if let [allowed, blocked, _] = data.as_slice()
        && blocked.table.family() == Family::Ipv4
    {
        (sources.allowed, sources.blocked) = (allowed.addresses(), blocked.addresses());
    }
    for &mix in mixes {
        let Some(keys) = Keys::of(mix, &data[1], &sources, count) else { continue };
        for (index, oracle) in oracles.iter().enumerate() {
            check(three.name, index, &entrants, &keys, &oracle.labels(&keys, REFERENCE_ONE_IN)?)?;
        }
        rows.extend(race(three.name, mix, &data, &entrants, &keys, rounds));
    }
    Ok(rows)
}

/// The images that the compiler chooses for the tables, each with its best lookup. There is an entrant for each mode of
/// the lookups.
fn chosen(data: &[Data], lookups: &Lookups, scale: Scale) -> Result<Vec<Entrant>, Failure> {
    let tables: Vec<&Table> = data.iter().map(|data| &data.table).collect();
    let mut entrants: Vec<Entrant> = Vec::new();
    let (mut picked, mut bytes) = (Vec::new(), 0);
    for image in chosen::images(&tables, chosen::model(scale))? {
        let members: Vec<usize> = image.tables().iter().map(|id| usize::from(id.0)).collect();
        let built = match members.as_slice() {
            &[one] => tables[one].build(image.layout),
            several => weir_tables::fused(&several.iter().map(|&one| tables[one]).collect::<Vec<_>>()),
        };
        let built = built.map_err(|error| Failure::Runtime(format!("bench tables: {error}")))?;
        let built = Rc::new(Built::Image(built));
        picked.push(image.layout.name());
        bytes += built.size();
        for (number, (mode, find)) in lookups.modes(best_way(image.layout), tables[0].family())?.into_iter().enumerate()
        {
            let step = Step { tables: members.clone(), find: StepFind::Built(find, built.clone()) };
            match entrants.get_mut(number) {
                Some(entrant) => entrant.steps.push(step),
                None => entrants.push(Entrant { layout: "chosen", mode, picked: None, bytes: 0, steps: vec![step] }),
            }
        }
    }
    for entrant in &mut entrants {
        (entrant.picked, entrant.bytes) = (Some(picked.join(", ")), bytes);
    }
    Ok(entrants)
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
        let find = StepFind::Built(lookups.find(way, Family::Ipv4)?, Rc::new(built));
        entrant.steps.push(Step { tables: vec![index], find });
    }
    Ok(Ok(entrant))
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
                Step { tables: vec![table], find: StepFind::Own(Find::V4(timed.clone()), Find::V4(checked.clone())) }
            })
            .collect(),
    };
    Ok(Ok((0..modes).map(entrant).collect()))
}

fn check(name: &str, table: usize, entrants: &[Entrant], keys: &Keys, expected: &[u32]) -> Result<(), Failure> {
    for entrant in entrants {
        let step = entrant.steps.iter().find(|step| step.tables.contains(&table)).expect("an entrant has all tables");
        let labels = step.labels(table, keys);
        race::compare(&format!("{} ({}) of {name}", entrant.layout, entrant.mode), keys, &labels, expected)?;
    }
    Ok(())
}

fn race(name: &str, mix: KeyMix, data: &[Data], entrants: &[Entrant], keys: &Keys, rounds: usize) -> Vec<Row> {
    let mut labels = vec![[0; BURST_MAX]; 3];
    let spreads = race::turns(entrants, keys, rounds, |entrant, keys| {
        for from in (0..keys.len()).step_by(BURST_MAX) {
            for (step, labels) in entrant.steps.iter().zip(&mut labels) {
                step.timed(keys, from..keys.len().min(from + BURST_MAX), labels);
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
