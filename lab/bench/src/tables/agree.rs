//! `agree`: compares every layout with the slow reference, for ten million keys per table. The keys are both ends of
//! every prefix and their outer neighbours, filled up with random and botnet keys. A single wrong label fails the
//! scenario.

use crate::data::Data;
use crate::data::keys::{KeyMix, Keys, Sources};
use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Picks, Scenario};
use crate::tables::race::{self, Oracle};
use crate::tables::{PEERS, enter, prepare};
use weir_command::failure::Failure;

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "agree",
    paper: "RFPF section IV: every scheme gives the same answers",
    needs: &[Need::Clang],
    axes: &[PEERS],
    smoke_only: &[],
    picks: Picks::Cells,
    seconds: Scaled { full: 600, quick: 120, smoke: 3 },
    run,
    plot: |title, rows| plot::bars(title, "keys_checked", rows),
};

/// Number of keys per table. There are more if the table has more prefixes.
const KEYS: Scaled<usize> = Scaled { full: 10_000_000, quick: 1_000_000, smoke: 10_000 };
/// Number of keys that are looked up together.
const PART: usize = 1 << 20;

/// Runs the scenario.
///
/// # Errors
/// The errors of `tables`; in particular, a layout returns a wrong label.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let (selection, lookups, mut peer) = prepare(plan)?;
    let mut sources = Sources::load(plan)?;
    let mut rows = Vec::new();
    for dataset in &selection.datasets {
        plan.begin(dataset.name);
        let data = plan.load(*dataset)?;
        let mut facts = Vec::new();
        let entrants = enter(&data, &selection, &lookups, &mut peer, &mut facts)?;
        let oracle = Oracle::new(&data.table)?;
        let (edges, mut checked) = (Keys::edges(&data, usize::MAX), 0);
        let mut check = |keys: &Keys| -> Result<(), Failure> {
            for part in keys.parts(PART) {
                race::check(&data, &entrants, &part, &oracle.labels(&part, 1)?)?;
                checked += part.len();
            }
            Ok(())
        };
        check(&edges)?;
        let rest = KEYS.at(plan.scale).saturating_sub(edges.len());
        sources.blocked = blocked(&data);
        for (mix, count) in [(KeyMix::Random, rest / 2), (KeyMix::Botnet, rest - rest / 2)] {
            check(&Keys::of(mix, &data, &sources, count).expect("these mixes are possible for both families"))?;
        }
        rows.extend(facts.into_iter().filter(|row| row.text("limit").is_some()));
        rows.extend(entrants.iter().map(|entrant| {
            let row = Row::default().of("table", &data.name).of("source", data.source);
            let row = row.of("layout", entrant.layout).of("mode", &entrant.mode);
            row.number("keys_checked", checked as f64).number("ends_checked", edges.len() as f64).number("wrong", 0.0)
        }));
    }
    Ok(rows)
}

/// The blocked sources of the botnet mix: the addresses of the table.
fn blocked(data: &Data) -> Vec<u32> {
    if data.table.family() == weir_abi::Family::Ipv4 { data.addresses() } else { vec![] }
}
