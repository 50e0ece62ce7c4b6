//! The CPU time of a forwarded packet of established flows: forwarders take turns between two veth pairs, with one
//! generator.
//!
//! The generator makes 64 packets, and the kernel has them forwarded and dropped behind the forwarder in the same
//! thread before it makes the next. So the CPU time of the thread covers all work, and a turn in which packets are
//! dropped in front of the forwarder measures the generator's share. Differences to that turn of the same round are
//! what forwarding costs.

use super::rules;
use super::segments::clients;
use super::wires::{DROP_ALL, SETTLE, Wires};
use crate::live::forwarder::KernelPolicy;
use crate::live::generating_core;
use crate::live::spent::{Core, Spent};
use crate::live::wire;
use crate::row::Row;
use std::time::Duration;
use weir_command::failure::Failure;
use weir_engine::live::programs::attach::Attached;
use weir_engine::measure::Spread;
use weir_engine::traffic::SMALL_FRAME_BYTES;
use weir_instruments::generate::Generator;

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Numbers of connections.
    pub connections: &'static [usize],
    /// Number of turns of each forwarder.
    pub rounds: usize,
    /// CPU time of a turn, without its warm-up.
    pub turn: Duration,
    /// The fewest packets of a turn.
    pub packets_min: u32,
}

/// The warm-up has this fraction of the packets of a turn: one quarter.
const WARM_UP_PART: u32 = 4;
/// The most packets of a turn.
const PACKETS_MAX: u32 = 1 << 21;
/// Share of the packets that a turn may lose.
const LOST_MAX: f64 = 0.001;
/// Packets that any turn may lose: one queue of a virtual interface.
const LOST_AT_ONCE: f64 = 256.0;

/// The forwarders, in the order of their turns.
const GENERATOR: usize = 0;
const KERNEL: usize = 1;
const CONNTRACK: usize = 2;
const XDP: usize = 3;
const XDP_TRACKING: usize = 4;
const NAMES: [&str; 5] = ["none: dropped at once", "kernel", "kernel with conntrack", "xdp", "xdp with tracking"];

/// What forwards.
enum Forwarder {
    /// Nothing: packets are dropped when they arrive.
    Nothing(Option<Attached>),
    Kernel,
    Conntrack,
    Xdp(Box<KernelPolicy>),
}

impl Forwarder {
    fn enter(&mut self, wires: &Wires) -> Result<(), Failure> {
        match self {
            Forwarder::Nothing(drops) => {
                *drops = Some(wires.programs.attach(DROP_ALL, wires.lower.name, wires.lower.index)?);
            }
            Forwarder::Kernel => {}
            Forwarder::Conntrack => {
                wire::call("nft", "-f -", rules::CONNTRACK)?;
            }
            Forwarder::Xdp(policy) => policy.enter()?,
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Failure> {
        match self {
            Forwarder::Nothing(drops) => *drops = None,
            Forwarder::Kernel => {}
            Forwarder::Conntrack => {
                wire::call("nft", "delete table ip weir", "")?;
            }
            Forwarder::Xdp(policy) => drop(policy.leave()?),
        }
        Ok(())
    }
}

/// A turn: packets that were handled, and the time.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    sent: u64,
    done: u64,
    spent: Spent,
}

impl Turn {
    fn ns_per_packet(&self) -> f64 {
        self.spent.processor.as_secs_f64() * 1e9 / self.done.max(1) as f64
    }
}

/// Measures each number of connections in a namespace of its own.
///
/// # Errors
/// The process may not make network namespaces, something that is needed is missing, or packets were lost.
pub fn rows(effort: Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for &connections in effort.connections {
        rows.extend(wire::in_namespace(|| race(connections, effort))?);
    }
    Ok(rows)
}

fn race(connections: usize, effort: Effort) -> Result<Vec<Row>, Failure> {
    let core = Core::new(generating_core()?);
    let wires = Wires::open()?;
    wires.route()?;
    rules::set_conntrack()?;
    let clients = clients(connections);
    let mut generator = wires.generator(&clients, SMALL_FRAME_BYTES)?;
    let xdp = |text: &str| {
        Ok::<_, Failure>(Forwarder::Xdp(Box::new(KernelPolicy::load(&wires.lower, &wires.upper, &[("f.weir", text)])?)))
    };
    let mut forwarders = [
        Forwarder::Nothing(None),
        Forwarder::Kernel,
        Forwarder::Conntrack,
        xdp(rules::STATELESS)?,
        xdp(&rules::tracking(connections))?,
    ];
    let mut packets = Vec::new();
    for (number, forwarder) in forwarders.iter_mut().enumerate() {
        forwarder.enter(&wires)?;
        if number != GENERATOR {
            wires.open_flows(&clients, SETTLE)?;
        }
        let first = run(&mut generator, number, &wires, &core, effort.packets_min)?;
        packets.push(packets_of_turn(first.ns_per_packet(), effort));
        forwarder.leave()?;
    }
    let mut rounds = Vec::new();
    for _ in 0..effort.rounds {
        let mut round = [Turn::default(); NAMES.len()];
        for (number, forwarder) in forwarders.iter_mut().enumerate() {
            forwarder.enter(&wires)?;
            round[number] = run(&mut generator, number, &wires, &core, packets[number])?;
            forwarder.leave()?;
        }
        rounds.push(round);
    }
    Ok(to_rows(connections, &rounds))
}

fn packets_of_turn(ns_per_packet: f64, effort: Effort) -> u32 {
    let packets = effort.turn.as_nanos() as f64 / ns_per_packet;
    (packets.clamp(effort.packets_min.into(), PACKETS_MAX.into()) as u32).next_multiple_of(64)
}

/// Runs the generator with the forwarder of that number.
fn run(generator: &mut Generator, number: usize, wires: &Wires, core: &Core, packets: u32) -> Result<Turn, Failure> {
    let arrives = if number == GENERATOR { &wires.lower } else { &wires.sink };
    generator.send(packets / WARM_UP_PART)?;
    let before = arrives.count()?;
    let (_, spent) = core.spend(|| generator.send(packets))?;
    let done = arrives.count()?.received - before.received;
    let lost = f64::from(packets) - done as f64;
    if lost > (f64::from(packets) * LOST_MAX).max(LOST_AT_ONCE) {
        let name = NAMES[number];
        return Err(Failure::Runtime(format!("{name}: {done} of {packets} packets of established flows arrived")));
    }
    Ok(Turn { sent: packets.into(), done, spent })
}

/// A row for each forwarder. `rounds` has the turns of all.
fn to_rows(connections: usize, rounds: &[[Turn; NAMES.len()]]) -> Vec<Row> {
    let spread = |of: &dyn Fn(&[Turn; NAMES.len()]) -> f64| {
        Spread::of(rounds.iter().map(of).collect()).expect("there were rounds")
    };
    // Without the generator's share of the same round.
    let own =
        |round: &[Turn; NAMES.len()], number: usize| round[number].ns_per_packet() - round[GENERATOR].ns_per_packet();
    let row = |(number, name): (usize, &&str)| {
        let sum = rounds.iter().fold(Turn::default(), |sum, round| Turn {
            sent: sum.sent + round[number].sent,
            done: sum.done + round[number].done,
            spent: sum.spent.plus(round[number].spent),
        });
        let row = Row::default().of("part", "forwarded").of("forwarder", name);
        let mut row = row.of("connections", &connections.to_string());
        row = row.spread("cpu_ns_per_packet", spread(&|round| round[number].ns_per_packet()));
        if number != GENERATOR {
            row = row.spread("own_cpu_ns_per_packet", spread(&|round| own(round, number)));
            row = row.spread("share_of_conntrack", spread(&|round| own(round, number) / own(round, CONNTRACK)));
            let gross = |round: &[Turn; NAMES.len()]| round[number].ns_per_packet() / round[CONNTRACK].ns_per_packet();
            row = row.spread("share_of_conntrack_with_generator", spread(&gross));
        }
        if number == CONNTRACK {
            row = row.spread("added_ns_per_packet", spread(&|round| own(round, CONNTRACK) - own(round, KERNEL)));
        }
        if number == XDP_TRACKING {
            let added = |round: &[Turn; NAMES.len()]| own(round, XDP_TRACKING) - own(round, XDP);
            row = row.spread("added_ns_per_packet", spread(&added));
            let share = |round: &[Turn; NAMES.len()]| added(round) / (own(round, CONNTRACK) - own(round, KERNEL));
            row = row.spread("added_share_of_conntrack", spread(&share));
        }
        row.number("packets", sum.done as f64)
            .number("lost_share", 1.0 - sum.done as f64 / sum.sent as f64)
            .number("ksoftirqd_share", sum.spent.softirqs.as_secs_f64() / sum.spent.processor.as_secs_f64())
            .number("core_busy_share", sum.spent.busy_s / sum.spent.wall.as_secs_f64())
            .number("other_cores_busy_share", sum.spent.others_busy_s / sum.spent.wall.as_secs_f64())
    };
    NAMES.iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_forwarding_adds() {
        let turn = |ns: u64| Turn {
            sent: 1000,
            done: 1000,
            spent: Spent { wall: Duration::from_micros(ns), processor: Duration::from_micros(ns), ..Spent::default() },
        };
        // The second round is on a machine that is twice as slow.
        let round = [50, 450, 850, 150, 250];
        let rows = to_rows(4096, &[round.map(turn), round.map(|ns| turn(2 * ns))]);
        let get = |number: usize, field: &str| rows[number].get(field);
        assert_eq!(
            (get(XDP_TRACKING, "own_cpu_ns_per_packet_min"), get(XDP, "own_cpu_ns_per_packet_max")),
            (Some(200.0), Some(200.0))
        );
        assert_eq!(
            (get(XDP_TRACKING, "share_of_conntrack"), get(XDP_TRACKING, "share_of_conntrack_min")),
            (Some(0.25), Some(0.25))
        );
        assert_eq!(get(XDP_TRACKING, "added_share_of_conntrack"), Some(0.25));
        assert_eq!(
            (get(CONNTRACK, "added_ns_per_packet_min"), get(GENERATOR, "own_cpu_ns_per_packet")),
            (Some(400.0), None)
        );
    }
}
