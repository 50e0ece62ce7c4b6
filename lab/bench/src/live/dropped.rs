//! The cost of a dropped packet: contenders take turns at one veth pair, with one generator.
//!
//! ```text
//!   one thread, one core:   generator -> near ==veth== far -> contender drops
//! ```
//! The generator makes 64 packets, then the far end decides them, in the same thread on one core. The cost of a packet
//! is the CPU time divided by the number of received packets, including the generator's share. All packets come from
//! blocked sources, in random order. Rows include the packets that the veth lost or that a contender let pass, because
//! a cost without drops would be meaningless.

use super::contender::Contender;
use super::spent::{Core, Spent};
use super::wire::Port;
use crate::row::Row;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_instruments::generate::Generator;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of turns of each contender.
    pub rounds: usize,
    /// CPU time of a turn, without its warm-up.
    pub turn: Duration,
    /// The fewest packets of a turn. 2^17 make the time of the system call negligible.
    pub packets_min: u32,
}

/// The warm-up has this fraction of the packets of a turn: one quarter.
const WARM_UP_PART: u32 = 4;
/// The most packets of a turn, which bounds the time of slow contenders.
const PACKETS_MAX: u32 = 1 << 21;
/// The contender that drops without looking at packets, and Weir.
pub const DROP_ALL: &str = "xdp-drop-all";
pub const WEIR: &str = "weir-xdp";

/// The counts of a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    sent: u64,
    received: u64,
    passed: u64,
    spent: Spent,
    /// Time per packet as measured by the kernel.
    kernel: Duration,
}

impl Turn {
    fn ns_per_packet(&self) -> f64 {
        self.spent.processor.as_secs_f64() * 1e9 / self.received.saturating_sub(self.passed) as f64
    }
}

/// Lets all contenders take turns at the `far` end of a pair, into which the generator sends. Returns a row for each.
///
/// # Errors
/// A contender cannot be started, or drops nothing.
pub fn race(
    contenders: &mut [Box<dyn Contender>],
    generator: &mut Generator,
    far: &Port,
    core: &Core,
    effort: Effort,
    row: &Row,
) -> Result<Vec<Row>, Failure> {
    let mut packets = Vec::new();
    for contender in contenders.iter_mut() {
        let first = turn(&mut **contender, generator, far, core, effort.packets_min)?;
        packets.push(packets_of_turn(first.ns_per_packet(), effort));
    }
    let mut turns: Vec<Vec<Turn>> = vec![Vec::new(); contenders.len()];
    for _ in 0..effort.rounds {
        for ((contender, turns), &packets) in contenders.iter_mut().zip(&mut turns).zip(&packets) {
            turns.push(turn(&mut **contender, generator, far, core, packets)?);
        }
    }
    let names: Vec<&str> = contenders.iter().map(|contender| contender.name()).collect();
    Ok(names
        .iter()
        .zip(&turns)
        .map(|(name, own)| to_row(row.clone().of("engine", name), &names, &turns, own))
        .collect())
}

fn packets_of_turn(ns_per_packet: f64, effort: Effort) -> u32 {
    let packets = effort.turn.as_nanos() as f64 / ns_per_packet;
    (packets.clamp(effort.packets_min.into(), PACKETS_MAX.into()) as u32).next_multiple_of(64)
}

fn turn(
    contender: &mut dyn Contender,
    generator: &mut Generator,
    far: &Port,
    core: &Core,
    packets: u32,
) -> Result<Turn, Failure> {
    contender.enter(far)?;
    let ran = run(generator, far, core, packets);
    let passed = contender.leave()?;
    let turn = Turn { passed, ..ran? };
    if turn.received <= turn.passed {
        return Err(Failure::Runtime(format!("{} dropped nothing of {} packets", contender.name(), turn.sent)));
    }
    Ok(turn)
}

fn run(generator: &mut Generator, far: &Port, core: &Core, packets: u32) -> Result<Turn, Failure> {
    generator.send(packets / WARM_UP_PART)?;
    let before = far.count()?;
    let (kernel, spent) = core.spend(|| generator.send(packets))?;
    let received = far.count()?.received - before.received;
    Ok(Turn { sent: packets.into(), received, passed: 0, spent, kernel })
}

/// The row of a contender. `own` are its turns, which are also in `turns`.
fn to_row(row: Row, names: &[&str], turns: &[Vec<Turn>], own: &[Turn]) -> Row {
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("there were turns");
    let sum = own.iter().fold(Turn::default(), |sum, turn| Turn {
        sent: sum.sent + turn.sent,
        received: sum.received + turn.received,
        passed: sum.passed + turn.passed,
        spent: sum.spent.plus(turn.spent),
        kernel: sum.kernel + turn.kernel,
    });
    let costs_of = |turns: &[Turn]| turns.iter().map(Turn::ns_per_packet).collect::<Vec<f64>>();
    let least = |costs: &[f64]| costs.iter().copied().fold(f64::INFINITY, f64::min);
    let costs = costs_of(own);
    let wall = sum.spent.wall.as_secs_f64();
    let mut row = row.spread("cpu_ns_per_packet", spread(costs.clone()));
    // Ratios are per round, because a disturbance of the machine affects neighbouring turns alike.
    for (field, other) in [("times_drop_all", DROP_ALL), ("times_weir", WEIR)] {
        let Some(other) = names.iter().position(|name| *name == other) else { continue };
        let others = costs_of(&turns[other]);
        let times = costs.iter().zip(&others).map(|(cost, other)| cost / other);
        row = row.spread(field, spread(times.collect()));
        row = row.number(&format!("{field}_of_least"), least(&costs) / least(&others));
    }
    row.number("kernel_ns_per_packet", sum.kernel.as_nanos() as f64 / own.len() as f64)
        .number("wall_ns_per_packet", wall * 1e9 / sum.received as f64)
        .number("packets_sent", sum.sent as f64)
        .number("packets_received", sum.received as f64)
        .number("lost_share", share(sum.sent.abs_diff(sum.received), sum.sent))
        .number("passed_share", share(sum.passed, sum.received))
        .number("ksoftirqd_share", sum.spent.softirqs.as_secs_f64() / sum.spent.processor.as_secs_f64())
        .number("core_busy_share", sum.spent.busy_s / wall)
        .number("other_cores_busy_share", sum.spent.others_busy_s / wall)
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn_of(ns: u64, received: u64, passed: u64) -> Turn {
        let processor = Duration::from_nanos(ns * 1000);
        let spent = Spent { wall: 2 * processor, processor, busy_s: processor.as_secs_f64(), ..Spent::default() };
        Turn { sent: 1000, received, passed, spent, kernel: Duration::from_nanos(ns) }
    }

    #[test]
    fn only_judged_packets_share_the_time() {
        assert_eq!(turn_of(100, 1000, 0).ns_per_packet(), 100.0);
        assert_eq!(turn_of(100, 500, 0).ns_per_packet(), 200.0);
        assert_eq!(turn_of(100, 1000, 750).ns_per_packet(), 400.0);
    }

    #[test]
    fn ratios_are_of_turns_that_follow_each_other() {
        let names = [DROP_ALL, WEIR, "other"];
        // Everything takes three times as long in the second round.
        let turns = [100, 120, 480].map(|ns| vec![turn_of(ns, 1000, 0), turn_of(3 * ns, 1000, 0)]).to_vec();
        let row = to_row(Row::default(), &names, &turns, &turns[2]);
        assert_eq!(row.get("times_weir_min"), Some(4.0));
        assert_eq!(row.get("times_weir_max"), Some(4.0));
        assert_eq!((row.get("times_drop_all"), row.get("times_drop_all_of_least")), (Some(4.8), Some(4.8)));
        assert_eq!((row.get("cpu_ns_per_packet_min"), row.get("cpu_ns_per_packet_max")), (Some(480.0), Some(1440.0)));
        assert_eq!((row.get("lost_share"), row.get("core_busy_share")), (Some(0.0), Some(0.5)));
        // One contender is disturbed in the first round, the other one in the second.
        let turns = [[100, 300], [800, 400]].map(|costs| costs.map(|ns| turn_of(ns, 1000, 0)).to_vec());
        let disturbed = to_row(Row::default(), &[DROP_ALL, "other"], &turns, &turns[1]);
        assert_eq!(
            (disturbed.get("times_drop_all_max"), disturbed.get("times_drop_all_of_least")),
            (Some(8.0), Some(4.0))
        );
        let turns = vec![turns[1].clone()];
        let alone = to_row(Row::default(), &names[2..], &turns, &turns[0]);
        assert_eq!(alone.get("times_weir"), None);
    }

    #[test]
    fn losses_are_told() {
        let turns = vec![vec![turn_of(100, 900, 9)]];
        let row = to_row(Row::default(), &["one"], &turns, &turns[0]);
        assert_eq!((row.get("lost_share"), row.get("passed_share")), (Some(0.1), Some(0.01)));
    }

    #[test]
    fn a_turn_has_enough_packets_and_not_too_many() {
        let effort = Effort { rounds: 1, turn: Duration::from_millis(100), packets_min: 1 << 17 };
        assert_eq!(packets_of_turn(1.0, effort), PACKETS_MAX);
        assert_eq!(packets_of_turn(200.0, effort), 500_032);
        assert_eq!(packets_of_turn(1e9, effort), 1 << 17);
    }
}
