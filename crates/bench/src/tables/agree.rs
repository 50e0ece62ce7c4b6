//! `agree`: every layout against the slow reference, ten million keys a table: each end of every prefix and its neighbours outside, and
//! random and botnet keys up to the number. A layout that answers one key wrongly fails the scenario.

use crate::data::keys::{KeyMix, Keys};
use crate::data::{Data, Dataset};
use crate::options::Options;
use crate::row::Row;
use crate::tables::race::{self, Oracle};
use crate::tables::{enter, prepare};
use weir::failure::Failure;

/// Keys a table; more if its prefixes have more ends.
const KEYS: usize = 10_000_000;
/// Keys looked up at a time.
const PART: usize = 1 << 20;

/// Runs the scenario.
///
/// # Errors
/// As `tables`; above all, a layout answers wrongly.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let (selection, lookups, mut peer) = prepare(options)?;
    let allowed = Dataset::ALLOW_100K.load(&options.data)?.addresses();
    let mut rows = Vec::new();
    for dataset in &selection.datasets {
        let data = dataset.load(&options.data)?;
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
        let rest = KEYS.saturating_sub(edges.len());
        for (mix, count) in [(KeyMix::Random, rest / 2), (KeyMix::Botnet, rest - rest / 2)] {
            check(&Keys::of(mix, &data, &allowed, &blocked(&data), count))?;
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

/// Sources of an attack that the table is about.
fn blocked(data: &Data) -> Vec<u32> {
    if data.table.family() == weir_abi::Family::Ipv4 { data.addresses() } else { vec![] }
}
