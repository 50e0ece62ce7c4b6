//! `agree`: compares every layout with the slow reference, for ten million keys per table. The keys are both ends of
//! every prefix and their outer neighbours, filled up with random and botnet keys. A single wrong label fails the
//! scenario.

use crate::data::keys::{KeyMix, Keys};
use crate::data::{Data, Dataset};
use crate::options::Options;
use crate::row::Row;
use crate::tables::race::{self, Oracle};
use crate::tables::{enter, prepare};
use weir::failure::Failure;

/// Number of keys per table. There are more if the table has more prefixes.
const KEYS: usize = 10_000_000;
/// Number of keys that are looked up together.
const PART: usize = 1 << 20;

/// Runs the scenario.
///
/// # Errors
/// The errors of `tables`; in particular, a layout returns a wrong label.
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

/// The blocked sources of the botnet mix: the addresses of the table.
fn blocked(data: &Data) -> Vec<u32> {
    if data.table.family() == weir_abi::Family::Ipv4 { data.addresses() } else { vec![] }
}
