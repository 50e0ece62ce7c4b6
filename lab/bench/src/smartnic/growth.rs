//! What more sources cost a host: blockers with 1K and with 128K sources take turns.

use super::blockers::DROP_ALL;
use super::drops::{Effort, Stand, Turn};
use super::sources::Traffic;
use crate::row::Row;
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_instruments::generate::Generator;

/// The numbers of sources that are compared.
pub const COUNTS: [usize; 2] = [1 << 10, 1 << 17];

/// Measures the named blockers, each at two hosts.
///
/// # Errors
/// A blocker cannot be started, or does not block.
pub fn rows(
    names: &[&'static str],
    attackers: &[u32],
    generator: &mut Generator,
    effort: Effort,
) -> Result<Vec<Row>, Failure> {
    let counts = COUNTS.map(|count| count.min(attackers.len()));
    let names = names.iter().copied().filter(|name| super::blockers::sources_max(name) >= counts[1]);
    let twice: Vec<&str> = names.flat_map(|name| [name, name]).collect();
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let mut stands = Stand::open_all(&twice, folder.path(), &attackers[..counts[1]], generator)?;
    for (stand, count) in stands.iter_mut().zip(counts.into_iter().cycle()) {
        stand.block(&attackers[..count])?;
    }
    let mut rows = Vec::new();
    for traffic in Traffic::ALL {
        let packets = counts.map(|count| traffic.packets(&attackers[..count]));
        let mut turns = vec![Vec::new(); stands.len()];
        for _ in 0..effort.rounds {
            for (number, (stand, turns)) in stands.iter().zip(&mut turns).enumerate() {
                generator.set_sources(&packets[number % 2])?;
                stand.turn(generator, effort.warm_up())?;
                turns.push(stand.turn(generator, effort.packets)?);
            }
        }
        let least = stands.iter().position(|stand| stand.name == DROP_ALL).map(|at| turns[at].clone());
        for (stand, turns) in stands.chunks(2).zip(turns.chunks(2)) {
            let row = Row::default().of("part", "growth").of("traffic", traffic.name()).of("blocker", stand[0].name);
            rows.push(to_row(row, &turns[0], &turns[1], least.as_deref()));
        }
    }
    Ok(rows)
}

/// The row of a blocker with its turns with few and with many sources.
fn to_row(row: Row, few: &[Turn], many: &[Turn], least: Option<&[Turn]>) -> Row {
    let sum = |of: fn(&Turn) -> u64| few.iter().chain(many).map(of).sum::<u64>() as f64;
    let (received, passed) = (sum(|turn| turn.received), sum(|turn| turn.passed));
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("there were turns");
    let costs = |turns: &[Turn]| turns.iter().map(Turn::ns_per_packet).collect::<Vec<f64>>();
    let (few, many) = (costs(few), costs(many));
    let times = many.iter().zip(&few).map(|(many, few)| many / few);
    let mut row = row.spread("times_1k", spread(times.collect()));
    let [of_few, of_many] = [&few, &many].map(|costs| spread(costs.clone()));
    // Other machines on the core only add to a turn, so the least turns are the nearest to an undisturbed one.
    row = row.number("times_1k_of_least", of_many.min / of_few.min);
    row = row.spread("cpu_ns_per_packet_1k", of_few).spread("cpu_ns_per_packet_128k", of_many);
    if let Some(least) = least {
        let least = costs(least);
        let own = |costs: &[f64]| costs.iter().zip(&least).map(|(cost, least)| cost - least).collect::<Vec<f64>>();
        row = row.spread("own_ns_1k", spread(own(&few))).spread("own_ns_128k", spread(own(&many)));
    }
    row.number("dropped_packets", received - passed).number("passed_packets", passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn ratios_are_of_one_round() {
        let turn = |ns: u64| Turn { sent: 2000, received: 1000, spent: Duration::from_micros(ns), ..Turn::default() };
        // Everything takes twice as long in the second round.
        let [few, many, least] = [100, 130, 80].map(|ns| [turn(ns), turn(2 * ns)]);
        let row = to_row(Row::default(), &few, &many, Some(&least));
        assert_eq!((row.get("times_1k_min"), row.get("times_1k_max")), (Some(1.3), Some(1.3)));
        assert_eq!(row.get("times_1k_of_least"), Some(1.3));
        assert_eq!((row.get("own_ns_1k_min"), row.get("own_ns_128k_max")), (Some(20.0), Some(100.0)));
        assert_eq!((row.get("dropped_packets"), row.get("passed_packets")), (Some(4000.0), Some(0.0)));
    }
}
