//! Fig. 2a and 2b: what it costs a host to drop the packets of more and more sources.
//!
//! Each blocker has a host of its own. Hosts take turns: the generator sends as fast as it can, and the host receives
//! what its core has time for, as from a card whose queue is full. The cost of a packet is the CPU time of the host's
//! receiver, divided by the packets that it received.

use super::blocker::Blocker;
use super::blockers::{self, DROP_ALL};
use super::door::Door;
use super::sources::Traffic;
use crate::row::Row;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_instruments::generate::Generator;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of turns of each host with each number of sources.
    pub rounds: usize,
    /// Packets that are sent in a turn as fast as possible.
    pub packets: u32,
    /// Packets that are sent in a turn at a pace.
    pub paced: u32,
    /// Packets that are sent in a turn until a card has chosen its entries.
    pub settling: u32,
    /// How long clients request pages under each attack.
    pub during: Duration,
    /// Numbers of sources, ascending, as in the paper's figures.
    pub counts: &'static [usize],
    /// Rates of the attack on a web server in packets per second; 0 first. The generator's core gives no more than a
    /// few million.
    pub rates: &'static [u64],
}

impl Effort {
    /// Packets that warm up the caches before a turn.
    pub fn warm_up(self) -> u32 {
        self.packets / 4
    }
}

/// Number of packets that check that a host without blocked sources passes them.
const PASSED: u32 = 1 << 10;

/// Names of the generator's ends of the wires.
pub const NEAR: [&str; 18] = [
    "g0", "g1", "g2", "g3", "g4", "g5", "g6", "g7", "g8", "g9", "g10", "g11", "g12", "g13", "g14", "g15", "g16", "g17",
];

/// A host with what blocks at it.
pub struct Stand {
    /// The name of its blocker.
    pub name: &'static str,
    pub door: Door,
    pub blocker: Box<dyn Blocker>,
}

impl Stand {
    /// Makes hosts, and starts what blocks at them. Each is checked with packets that nothing blocks.
    ///
    /// # Errors
    /// Something cannot be started.
    pub fn open_all(
        names: &[&'static str],
        folder: &Path,
        room: &[u32],
        generator: &mut Generator,
    ) -> Result<Vec<Self>, Failure> {
        assert!(names.len() <= NEAR.len(), "a host without a name would be left out");
        let open = |(name, near): (&&'static str, &'static str)| Stand::open(name, near, folder, room, generator);
        names.iter().zip(NEAR).map(open).collect()
    }

    /// Opens one host.
    ///
    /// # Errors
    /// See [`Stand::open_all`].
    pub fn open(
        name: &'static str,
        near: &'static str,
        folder: &Path,
        room: &[u32],
        generator: &mut Generator,
    ) -> Result<Self, Failure> {
        let door = if blockers::has_card(name) { Door::with_card(near)? } else { Door::open(near)? };
        let folder = folder.join(near);
        std::fs::create_dir(&folder).map_err(|error| Failure::file(&folder, error))?;
        let blocker = blockers::start(name, &door, &folder, room)?;
        let mut stand = Stand { name, door, blocker };
        stand.block(&[])?;
        let Turn { received, passed, .. } = stand.turn(generator, PASSED)?;
        if received == 0 || passed != received {
            return Err(Failure::Runtime(format!("{name} blocks nobody, but {passed} of {received} packets passed")));
        }
        Ok(stand)
    }

    /// Blocks these sources and no others.
    pub fn block(&mut self, sources: &[u32]) -> Result<(), Failure> {
        self.blocker.block(&self.door, sources)
    }

    /// Sends packets to the host.
    pub fn turn(&self, generator: &mut Generator, packets: u32) -> Result<Turn, Failure> {
        let before = self.door.count()?;
        generator.leave_through(self.door.near.index);
        let each = generator.send(packets)?;
        let after = self.door.count()?;
        Ok(Turn {
            sent: packets.into(),
            each,
            received: after.received - before.received,
            passed: after.passed - before.passed,
            spent: after.spent - before.spent,
            woken: after.woken - before.woken,
        })
    }
}

/// Hosts that take turns, each with another blocker, and the addresses that they block.
pub struct Stands<'a> {
    stands: Vec<Stand>,
    attackers: &'a [u32],
    counts: &'static [usize],
    /// Where blockers have their files.
    _folder: TempDir,
}

impl<'a> Stands<'a> {
    /// Opens a host for each name. They have room for as many of these sources as are measured.
    ///
    /// # Errors
    /// A blocker cannot be started.
    pub fn open(
        names: &[&'static str],
        attackers: &'a [u32],
        generator: &mut Generator,
        counts: &'static [usize],
    ) -> Result<Self, Failure> {
        let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        let most = counts[counts.len() - 1].min(attackers.len());
        let attackers = &attackers[..most];
        generator.set_sources(attackers)?;
        let stands = Stand::open_all(names, folder.path(), attackers, generator)?;
        Ok(Stands { stands, attackers, counts, _folder: folder })
    }

    /// The sources of each measurement, from few to many.
    pub fn sources(&self) -> impl Iterator<Item = &'a [u32]> + use<'a> {
        let attackers = self.attackers;
        self.counts.iter().copied().filter(|&count| count <= attackers.len()).map(|count| &attackers[..count])
    }

    /// The hosts that can block so many sources, and block them now.
    ///
    /// # Errors
    /// A blocker refuses them.
    pub fn blocking(&mut self, sources: &[u32]) -> Result<Vec<&mut Stand>, Failure> {
        let able = |stand: &&mut Stand| sources.len() <= blockers::sources_max(stand.name);
        let mut taking: Vec<&mut Stand> = self.stands.iter_mut().filter(able).collect();
        taking.iter_mut().try_for_each(|stand| stand.block(sources))?;
        Ok(taking)
    }
}

/// A turn of a host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turn {
    /// Packets that the generator sent.
    pub sent: u64,
    /// Packets that the host's interface received.
    pub received: u64,
    /// Packets that nothing dropped.
    pub passed: u64,
    /// CPU time of the host's receiver.
    pub spent: Duration,
    /// How often the host's receiver began to run.
    pub woken: u64,
    /// Average time from one packet to the next.
    pub each: Duration,
}

impl Turn {
    /// Seconds in which the packets were sent.
    pub fn sending_s(&self) -> f64 {
        self.each.as_secs_f64() * self.sent as f64
    }

    /// The part of the packets that reached the host.
    pub fn left_share(&self) -> f64 {
        self.received as f64 / self.sent as f64
    }

    /// Nanoseconds of the host's CPU time for a packet that it dropped.
    pub fn ns_per_packet(&self) -> f64 {
        self.spent.as_secs_f64() * 1e9 / self.received.saturating_sub(self.passed).max(1) as f64
    }
}

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
    let mut rows = Vec::new();
    for sources in stands.sources() {
        let taking = stands.blocking(sources)?;
        for traffic in Traffic::ALL {
            generator.set_sources(&traffic.packets(sources))?;
            let mut turns = vec![Vec::new(); taking.len()];
            for _ in 0..effort.rounds {
                for (stand, turns) in taking.iter().zip(&mut turns) {
                    stand.turn(generator, effort.warm_up())?;
                    turns.push(stand.turn(generator, effort.packets)?);
                }
            }
            let row = Row::default().of("part", "drops").of("traffic", traffic.name());
            let row = row.of("sources", &sources.len().to_string());
            let least = taking.iter().position(|stand| stand.name == DROP_ALL).map(|at| turns[at].clone());
            for (stand, turns) in taking.iter().zip(&turns) {
                rows.push(to_row(row.clone().of("blocker", stand.name), turns, least.as_deref()));
            }
        }
    }
    Ok(rows)
}

/// The row of a host. `least` are the turns of the host that drops everything, in the same rounds.
fn to_row(row: Row, turns: &[Turn], least: Option<&[Turn]>) -> Row {
    let spread = |samples: Vec<f64>| Spread::of(samples).expect("there were turns");
    let costs: Vec<f64> = turns.iter().map(Turn::ns_per_packet).collect();
    let mut row = row.spread("cpu_ns_per_packet", spread(costs.clone()));
    row = row.spread("mpps_per_core", spread(costs.iter().map(|cost| 1e3 / cost).collect()));
    if let Some(least) = least {
        let more = costs.iter().zip(least).map(|(cost, least)| cost - least.ns_per_packet());
        row = row.spread("more_ns_than_drop_all", spread(more.collect()));
    }
    let sum = |of: fn(&Turn) -> u64| turns.iter().map(of).sum::<u64>() as f64;
    let received = sum(|turn| turn.received);
    row.number("packets", received)
        .number("reached_share", received / sum(|turn| turn.sent))
        .number("passed_share", sum(|turn| turn.passed) / received.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_of_dropped_packets_and_differences_of_one_round() {
        let turn = |ns: u64, passed| Turn {
            sent: 4000,
            received: 1000,
            passed,
            spent: Duration::from_micros(ns),
            ..Turn::default()
        };
        // Everything takes twice as long in the second round.
        let (least, own) = ([turn(50, 0), turn(100, 0)], [turn(80, 0), turn(160, 0)]);
        let row = to_row(Row::default(), &own, Some(&least));
        assert_eq!((row.get("cpu_ns_per_packet_min"), row.get("cpu_ns_per_packet_max")), (Some(80.0), Some(160.0)));
        assert_eq!((row.get("mpps_per_core_max"), row.get("more_ns_than_drop_all_min")), (Some(12.5), Some(30.0)));
        assert_eq!((row.get("reached_share"), row.get("passed_share")), (Some(0.25), Some(0.0)));
        let row = to_row(Row::default(), &[turn(80, 500)], None);
        assert_eq!((row.get("cpu_ns_per_packet"), row.get("passed_share")), (Some(160.0), Some(0.5)));
        assert_eq!(row.get("more_ns_than_drop_all"), None);
    }
}
