//! Forward and drop on interfaces: each engine between two veth pairs, with more packets than it can process.
//!
//! ```text
//!   generators -> source ==veth== lower -> engine -> upper ==veth== sink
//! ```
//! There are as many generators as workers. Each runs on its own core if possible, as far as possible from the workers'
//! cores. If there are not enough cores, generators and workers share them, and the rates include the generators' cost.
//! The kernel engine decides on the generators' cores and has no workers.

use super::rulesets::Ruleset;
use super::wire::Port;
use crate::row::Row;
use rustix::time::{ClockId, clock_gettime};
use std::panic;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_daemon::generations::generation::{KernelLoader, Loader, NativeLoader};
use weir_engine::NativeCode;
use weir_engine::bundle::trust::Trust;
use weir_engine::clang::BpfObject;
use weir_engine::cpu;
use weir_engine::live::afpacket::AfPacketLane;
use weir_engine::live::afxdp::{AfXdpLane, Waiting};
use weir_engine::live::tap::Taps;
use weir_engine::live::xdp::{KernelCode, KernelPath, Ports};
use weir_engine::live::{Datapath, Interfaces, Lane, Loaded, Role, Workers};
use weir_engine::measure::Spread;
use weir_engine::traffic;
use weir_instruments::generate::Generator;

/// The engines on interfaces.
pub const ENGINES: [&str; 3] = ["xdp", "afxdp", "afpacket"];

/// Numbers of workers, and of queues of each interface.
pub const WORKERS: [usize; 2] = [1, 2];

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of turns for each number of workers.
    pub rounds: usize,
    /// Length of a turn.
    pub turn: Duration,
    /// Number of warm-up packets of a generator. Their time determines the number of packets in a turn.
    pub warm_up: u32,
}

/// The fixed time of a generator's system call.
const CALL: Duration = Duration::from_millis(20);
const PACKETS_MAX: u32 = 1 << 23;
/// Time after a turn in which engines process the packets in their queues.
const SETTLE: Duration = Duration::from_millis(30);
/// Number of sources of a generator.
const SOURCES: usize = 1 << 16;

/// The interfaces.
pub struct Wires {
    /// The interface into which generators send.
    pub source: Port,
    /// The lower interface of the engine.
    pub lower: Port,
    /// The upper interface of the engine.
    pub upper: Port,
    /// The interface at which forwarded packets arrive.
    pub sink: Port,
    /// The program of the generators.
    pub generator: BpfObject,
}

/// The counts of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Turn {
    /// Duration from the first packet to the last.
    pub seconds: f64,
    /// CPU time of the whole process: generators, workers, and the kernel on their behalf.
    pub processor_s: f64,
    pub(super) offered: u64,
    /// Packets that the engine decided.
    pub decided: u64,
    pub(super) arrived: u64,
}

/// Measures a ruleset with one engine. Returns one row for each number of workers.
///
/// # Errors
/// The engine cannot be started, or fails.
pub fn rows(engine: &str, ruleset: &Ruleset, wires: &Wires, effort: Effort, row: &Row) -> Result<Vec<Row>, Failure> {
    let code = Code::load(engine, ruleset, wires)?;
    let mut turns: [Vec<Turn>; WORKERS.len()] = Default::default();
    for _ in 0..effort.rounds {
        for (workers, turns) in WORKERS.into_iter().zip(&mut turns) {
            turns.push(turn((engine, workers), &code, ruleset, wires, effort, |_| Ok(()))?.0);
        }
    }
    let row = row.clone().of("engine", engine).of("ruleset", ruleset.name);
    let rows = WORKERS.into_iter().zip(&turns);
    Ok(rows.map(|(workers, turns)| to_row(row.clone().of("workers", &workers.to_string()), ruleset, turns)).collect())
}

/// The code of a ruleset for an engine.
pub enum Code {
    /// For workers.
    Native(Loaded<NativeCode>),
    /// For the kernel, whose programs share the taps.
    Kernel(Arc<Ports>, Loaded<KernelCode>, Arc<Taps>),
}

impl Code {
    /// Compiles and loads a ruleset.
    ///
    /// # Errors
    /// clang or the kernel rejects it.
    pub fn load(engine: &str, ruleset: &Ruleset, wires: &Wires) -> Result<Self, Failure> {
        let chains = [0, 1];
        if engine != "xdp" {
            return Ok(Code::Native(Loaded::plain(
                NativeLoader::new(Trust::default()).load(&ruleset.policy)?.code,
                chains,
            )));
        }
        let taps = Taps::of_kernel()?;
        let ports = Arc::new(Ports::of(&interfaces(wires))?.with_taps(taps.clone()));
        let code = KernelLoader::new(ports.clone(), None, Trust::default()).load(&ruleset.policy)?.code;
        Ok(Code::Kernel(ports, Loaded::plain(code, chains), taps))
    }

    /// Starts the engine, as `weir run` does. Also returns its taps, which are closed.
    fn start(&self, engine: &str, workers: usize, wires: &Wires) -> Result<(Running, Arc<Taps>), Failure> {
        let policy = match self {
            Code::Native(policy) => policy,
            Code::Kernel(ports, policy, taps) => {
                return Ok((Running::Kernel(KernelPath::start(ports.clone(), policy, None)?), taps.clone()));
            }
        };
        let taps = Taps::of_workers();
        let lanes = match engine {
            "afxdp" => boxed(AfXdpLane::open(&interfaces(wires), workers, Waiting::Sleep)?),
            _ => boxed(AfPacketLane::open(&interfaces(wires), workers)?),
        };
        Ok((Running::Workers(Workers::start_with(lanes, policy, None, taps.clone())?), taps))
    }
}

fn boxed<L: Lane + 'static>(lanes: Vec<L>) -> Vec<Box<dyn Lane>> {
    lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect()
}

fn interfaces(wires: &Wires) -> Interfaces {
    let one = |port: &Port| vec![port.name.to_owned()];
    Interfaces { lower: one(&wires.lower), upper: one(&wires.upper), divert: None }
}

/// A running engine.
enum Running {
    Workers(Workers),
    Kernel(KernelPath),
}

impl Running {
    /// Number of decided packets from the lower side.
    fn decided(&self) -> u64 {
        let ports = match self {
            Running::Workers(workers) => workers.ports(),
            Running::Kernel(path) => path.ports(),
        };
        ports.iter().filter(|port| port.role == Role::Lower).map(|port| port.reading.rx_packets).sum()
    }

    fn stop(self) -> Result<(), Failure> {
        match &self {
            Running::Workers(workers) => workers.stop()?,
            Running::Kernel(path) => path.stop()?,
        }
        Ok(())
    }
}

/// Measures a turn. `watch` opens taps, and what it returns lives until the turn is counted.
///
/// # Errors
/// The engine cannot be started, or fails.
pub fn turn<T>(
    (engine, workers): (&str, usize),
    code: &Code,
    ruleset: &Ruleset,
    wires: &Wires,
    effort: Effort,
    watch: impl FnOnce(&Arc<Taps>) -> Result<T, Failure>,
) -> Result<(Turn, T), Failure> {
    let (running, taps) = code.start(engine, workers, wires)?;
    let watched = watch(&taps)?;
    let counted = under_load(workers, ruleset, wires, &running, effort);
    running.stop()?;
    Ok((counted?, watched))
}

/// Counters and the CPU time of the process at one moment.
struct Reading {
    processor: Duration,
    offered: u64,
    decided: u64,
    arrived: u64,
}

impl Reading {
    fn now(running: &Running, wires: &Wires) -> Result<Self, Failure> {
        let processor = clock_gettime(ClockId::ProcessCPUTime);
        Ok(Reading {
            processor: Duration::new(processor.tv_sec.unsigned_abs(), processor.tv_nsec.unsigned_abs() as u32),
            offered: wires.source.count()?.sent,
            decided: running.decided(),
            arrived: wires.sink.count()?.received,
        })
    }
}

/// Runs `generators` generators at the same time and counts.
fn under_load(
    generators: usize,
    ruleset: &Ruleset,
    wires: &Wires,
    running: &Running,
    effort: Effort,
) -> Result<Turn, Failure> {
    thread::scope(|scope| {
        let (tell, warm) = channel();
        let (begin, threads): (Vec<Sender<()>>, Vec<_>) = (0..generators)
            .map(|number| {
                let (begin, begun) = channel();
                let tell = tell.clone();
                (begin, scope.spawn(move || generate(number, ruleset, wires, effort, (&tell, &begun))))
            })
            .unzip();
        drop(tell);
        // If a generator failed, fewer messages arrive.
        let all_warm = warm.iter().take(generators).count() == generators;
        let before = Reading::now(running, wires)?;
        let start = Instant::now();
        for begin in begin.iter().filter(|_| all_warm) {
            let _failed_since = begin.send(());
        }
        drop(begin);
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let seconds = (start.elapsed().saturating_sub(CALL)).as_secs_f64();
        for ended in ended {
            ended.unwrap_or_else(|panicked| panic::resume_unwind(panicked))?;
        }
        thread::sleep(SETTLE);
        let after = Reading::now(running, wires)?;
        Ok(Turn {
            seconds,
            processor_s: (after.processor - before.processor).as_secs_f64(),
            offered: after.offered - before.offered,
            decided: after.decided - before.decided,
            arrived: after.arrived - before.arrived,
        })
    })
}

/// Warms up and reports it to `tell`. Then sends the packets of a turn after a message from `begun`, or ends if its
/// sender was dropped.
fn generate(
    number: usize,
    ruleset: &Ruleset,
    wires: &Wires,
    effort: Effort,
    (tell, begun): (&Sender<()>, &Receiver<()>),
) -> Result<(), Failure> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    // A container may not be allowed to use the core. Then the thread stays unpinned.
    let _not_allowed = cpu::pin_to(cores - 1 - number % cores);
    let sources = ruleset.sources(SOURCES, 31 + number as u64);
    let mut generator = Generator::load(&wires.generator, wires.source.index, &traffic::small_packet(0), &sources)?;
    let start = Instant::now();
    generator.send(effort.warm_up)?;
    let packets = packets_of_turn(start.elapsed().saturating_sub(CALL) / effort.warm_up, effort);
    // The receiver is gone if another generator failed.
    let _nobody = tell.send(());
    if begun.recv().is_ok() {
        generator.send(packets)?;
    }
    Ok(())
}

fn packets_of_turn(a_packet: Duration, effort: Effort) -> u32 {
    let packets = effort.turn.as_nanos() / a_packet.as_nanos().max(1);
    u32::try_from(packets).unwrap_or(u32::MAX).clamp(effort.warm_up, PACKETS_MAX)
}

fn to_row(row: Row, ruleset: &Ruleset, turns: &[Turn]) -> Row {
    let spread =
        |figure: &dyn Fn(&Turn) -> f64| Spread::of(turns.iter().map(figure).collect()).expect("there were turns");
    let done = |turn: &Turn| if ruleset.forwards() { turn.arrived } else { turn.decided };
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    row.spread("mpps", spread(&|turn| done(turn) as f64 / turn.seconds / 1e6))
        .spread("cpu_ns_per_packet", spread(&|turn| turn.processor_s * 1e9 / done(turn).max(1) as f64))
        .number("offered_mpps", spread(&|turn| turn.offered as f64 / turn.seconds / 1e6).median)
        .number("unjudged_share", spread(&|turn| 1.0 - share(turn.decided, turn.offered)).median)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Turn =
        Turn { seconds: 0.5, processor_s: 1.0, offered: 4_000_000, decided: 1_000_000, arrived: 500_000 };

    #[test]
    fn what_is_forwarded_counts_where_it_arrives() {
        let forward = to_row(Row::default(), &Ruleset::forward().expect("files can be written"), &[TURN]);
        let drop = to_row(Row::default(), &Ruleset::drop().expect("files can be written"), &[TURN]);
        assert_eq!((forward.get("mpps"), forward.get("cpu_ns_per_packet")), (Some(1.0), Some(2000.0)));
        assert_eq!((drop.get("mpps"), drop.get("cpu_ns_per_packet")), (Some(2.0), Some(1000.0)));
        assert_eq!((drop.get("offered_mpps"), drop.get("unjudged_share")), (Some(8.0), Some(0.75)));
    }

    #[test]
    fn slow_engines_get_fewer_packets() {
        let effort = Effort { rounds: 1, turn: Duration::from_millis(500), warm_up: 1 << 17 };
        assert_eq!(packets_of_turn(Duration::from_nanos(500), effort), 1_000_000);
        assert_eq!(packets_of_turn(Duration::ZERO, effort), PACKETS_MAX);
        assert_eq!(packets_of_turn(Duration::from_millis(1), effort), 1 << 17);
    }
}
