//! Fig. 3: the CPU time of the host by number of sources, at a constant attack; and what a card leaves over of it.
//!
//! The generator sends at a pace that a host with XDP sustains. So nothing is lost on the way, unless a host is too
//! slow: then its core is busy all the time. The rate at which a core is full follows from the CPU time, also for a
//! host whose card drops most of the attack.

use super::blockers;
use super::drops::{Effort, Stand, Stands, Turn};
use super::sources::{self, Traffic};
use crate::row::Row;
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_instruments::generate::Generator;

/// Packets that are sent per second, in millions, and the time between two packets in ns.
const OFFERED_MPPS: f64 = 1.0;
const PACE_NS: u64 = 1000;
/// The smallest part of the packets that is sent alone: the generator's slowest pace is 10 µs.
const LEFT_OVER_MIN: f64 = 0.1;
/// Most turns of a host: a pace makes them long.
const ROUNDS_MAX: usize = 3;
/// Turns until a card has chosen its entries: its part differs no more than this in so many turns, or there were
/// enough.
const SETTLED_TURNS: usize = 6;
const SETTLED_TURNS_MAX: usize = 24;
const SETTLED_SHARE: f64 = 0.03;

/// Measures the named blockers with each number of sources and each distribution.
///
/// # Errors
/// A blocker cannot be started, or does not block.
pub fn rows(
    names: &[&'static str],
    attackers: &[u32],
    generator: &mut Generator,
    effort: Effort,
) -> Result<Vec<Row>, Failure> {
    let mut stands = Stands::open(names, attackers, generator, effort.counts)?;
    generator.set_pace(PACE_NS)?;
    let mut rows = Vec::new();
    for sources in stands.sources() {
        let taking = stands.blocking(sources)?;
        for traffic in Traffic::ALL {
            let packets = traffic.packets(sources);
            generator.set_sources(&packets)?;
            for stand in taking.iter().filter(|stand| stand.door.has_card()) {
                settle(stand, generator, effort)?;
            }
            let mut turns = vec![Vec::new(); taking.len()];
            for _ in 0..effort.rounds.min(ROUNDS_MAX) {
                for (stand, turns) in taking.iter().zip(&mut turns) {
                    turns.push(stand.turn(generator, effort.paced)?);
                }
            }
            let row = Row::default().of("part", "load").of("traffic", traffic.name());
            let row = row.of("sources", &sources.len().to_string()).number("offered_mpps", OFFERED_MPPS);
            let alone = taking.iter().position(|stand| stand.name == blockers::ALONE);
            for (stand, turns_of) in taking.iter().zip(&turns) {
                let alone = alone.map(|at| &turns[at][..]).filter(|_| stand.door.has_card());
                rows.push(to_row(row.clone().of("blocker", stand.name), turns_of, alone));
            }
            if let Some(at) = alone {
                let left = left_over_turns(taking[at], &packets, generator, effort)?;
                if !left.is_empty() {
                    rows.push(to_row(row.of("blocker", blockers::LEFT_OVER), &left, Some(&turns[at])));
                }
            }
        }
    }
    generator.set_pace(0)?;
    Ok(rows)
}

/// Turns of the host without a card. It receives only the packets that a card would leave over, in the time of all
/// packets. So the wire does not disturb this measurement: on the wire, card and host return their frames to one pool
/// and wait for each other. Empty if nearly nothing is left.
fn left_over_turns(
    stand: &Stand,
    packets: &[u32],
    generator: &mut Generator,
    effort: Effort,
) -> Result<Vec<Turn>, Failure> {
    let left = sources::left_over(packets, blockers::CARD_ENTRIES);
    let share = left.len() as f64 / packets.len() as f64;
    if share < LEFT_OVER_MIN {
        return Ok(Vec::new());
    }
    generator.set_sources(&left)?;
    generator.set_pace((PACE_NS as f64 / share) as u64)?;
    let sent = f64::from(effort.paced) * share;
    let turn = |_| {
        let turn = stand.turn(generator, sent as u32)?;
        Ok(Turn { sent: effort.paced.into(), each: turn.each.mul_f64(share), ..turn })
    };
    let turns = (0..effort.rounds.min(ROUNDS_MAX)).map(turn).collect::<Result<_, Failure>>()?;
    generator.set_pace(PACE_NS)?;
    Ok(turns)
}

/// Sends until the card drops a nearly constant part of the attack. Sources of the same rate may still change places.
pub fn settle(stand: &Stand, generator: &mut Generator, effort: Effort) -> Result<(), Failure> {
    let mut left = Vec::new();
    for _ in 0..SETTLED_TURNS_MAX {
        left.push(stand.turn(generator, effort.settling)?.left_share());
        let last = left.last_chunk::<SETTLED_TURNS>();
        let range = last.and_then(|last| Spread::of(last.to_vec()));
        if range.is_some_and(|range| range.max - range.min < SETTLED_SHARE) {
            break;
        }
    }
    Ok(())
}

/// The row of a host. `alone` are the turns of the same host without its card, in the same rounds.
fn to_row(row: Row, turns: &[Turn], alone: Option<&[Turn]>) -> Row {
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("there were turns");
    let percent = |turn: &Turn| 100.0 * turn.spent.as_secs_f64() / turn.sending_s();
    let shares: Vec<f64> = turns.iter().map(Turn::left_share).collect();
    let mut row = row
        .spread("host_cpu_percent", spread(turns.iter().map(percent).collect()))
        .spread("reached_share", spread(shares.clone()));
    let woken = turns.iter().map(|turn| turn.woken as f64 / turn.sending_s());
    row = row.spread("woken_per_s", spread(woken.collect()));
    let full = turns.iter().map(|turn| turn.sent as f64 / turn.spent.as_secs_f64() / 1e6);
    let full = full.filter(|mpps| mpps.is_finite()).collect();
    if let Some(full) = Spread::of(full) {
        row = row.spread("mpps_per_core", full);
    }
    if let Some(alone) = alone {
        // Of a card that leaves over everything: 1.
        let times = turns.iter().zip(alone).zip(&shares).filter(|(_, share)| **share > 0.0);
        let times = times.map(|((own, alone), share)| percent(own) / (percent(alone) * share));
        if let Some(times) = Spread::of(times.collect()) {
            row = row.spread("times_part_left_over", times);
        }
    }
    let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum::<u64>() as f64;
    row.number("passed_share", sum(|turn| turn.passed) / sum(|turn| turn.received).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_card_that_leaves_over_half_halves_the_time() {
        let turn = |received, us| Turn {
            sent: 1000,
            received,
            passed: 0,
            spent: Duration::from_micros(us),
            each: Duration::from_micros(1),
            woken: received / 5,
        };
        let row = to_row(Row::default(), &[turn(500, 100)], Some(&[turn(1000, 200)]));
        assert_eq!((row.get("host_cpu_percent"), row.get("times_part_left_over")), (Some(10.0), Some(1.0)));
        assert_eq!((row.get("reached_share"), row.get("mpps_per_core")), (Some(0.5), Some(10.0)));
        // Nothing is left over: no rate fills the host's core.
        let none = to_row(Row::default(), &[turn(0, 0)], Some(&[turn(1000, 200)]));
        assert_eq!((none.get("mpps_per_core"), none.get("times_part_left_over")), (None, None));
    }
}
