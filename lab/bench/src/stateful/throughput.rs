//! Throughput with packets of 88 and 1500 bytes (RFC 9411, sections 7.1 and 7.3; the paper's Fig. 5), and the CPU time
//! of a packet that crosses a user-space engine: each forwarder between two veth pairs, with established flows.
//!
//! The generator runs on the last core, a worker on the first. For throughput it sends more than forwarders can take.
//! For CPU time it sends few packets at a time and waits until all have arrived, so none is lost; a worker that sleeps
//! meanwhile takes no time. Workers on DPDK never sleep, so theirs is only measured under load.

use super::device::{NONE, SLOW, SPLIT, engine_arguments, is_proxy};
use super::rules;
use super::segments::clients;
use super::wires::{DROP_ALL, SETTLE, Wires};
use crate::live::generating_core;
use crate::live::spent::Core;
use crate::live::wire;
use crate::process::Process;
use crate::row::Row;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::measure::Spread;
use weir_engine::traffic::SMALL_FRAME_BYTES;
use weir_instruments::generate::Generator;

/// Number of established flows.
const CONNECTIONS: usize = 4096;
/// Bytes of frames.
const FRAMES: [usize; 2] = [88, 1500];
/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// Number of turns.
    pub rounds: usize,
    /// Duration of a turn.
    pub turn: Duration,
    /// How often packets are sent without loss in a turn.
    pub times: u32,
}

/// Time after which all segments that open connections have passed a controller.
const AT_CONTROLLER: Duration = Duration::from_millis(50);
/// Packets of the warm-up, whose time determines the number of packets in a turn, and the fixed time of the system
/// call.
const WARM_UP_PACKETS: u32 = 1 << 16;
const CALL: Duration = Duration::from_millis(20);
const PACKETS_MAX: u32 = 1 << 23;
/// Packets that are sent at a time without loss.
const AT_ONCE: u32 = 1 << 11;
/// Maximum time until they have arrived.
const ARRIVAL: Duration = Duration::from_millis(200);

/// Measures the devices that `wanted` names.
///
/// # Errors
/// The process may not make network namespaces, or something that a device needs is missing.
pub fn rows(wanted: &[&str], effort: Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    // The proxy lets established flows pass like conntrack alone, and a slow controller sees none of their packets.
    for name in wanted.iter().filter(|name| !is_proxy(name) && **name != SLOW) {
        let policies: &[&str] = match *name {
            NONE => &["no"],
            "conntrack" | SPLIT => &["yes"],
            _ => &["no", "yes"],
        };
        for tracking in policies {
            rows.extend(wire::in_namespace(|| of_device(name, tracking, effort))?);
        }
    }
    if wanted.contains(&NONE) {
        rows.push(wire::in_namespace(|| dropped_at_once(effort))?);
    }
    Ok(rows)
}

fn of_device(name: &str, tracking: &str, effort: Effort) -> Result<Vec<Row>, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let wires = Wires::open()?;
    let process = start(name, tracking, &wires, folder.path())?;
    let clients = clients(CONNECTIONS);
    wires.open_flows(&clients, if name == SPLIT { AT_CONTROLLER } else { SETTLE })?;
    let core = generating_core()?;
    let row = |part: &str| Row::default().of("part", part).of("device", name).of("tracking", tracking);
    let mut rows = Vec::new();
    if let (Some(process), true) = (&process, ["afxdp", "afpacket"].contains(&name)) {
        let mut generator = wires.generator(&clients, SMALL_FRAME_BYTES)?;
        let turns = (0..=effort.rounds).map(|_| paced(&mut generator, &wires, core, Some(process), effort.times));
        let turns = turns.collect::<Result<Vec<_>, Failure>>()?;
        rows.push(paced_row(row("paced"), &turns[1..]));
    }
    for bytes in FRAMES {
        let mut generator = wires.generator(&clients, bytes)?;
        let turns = (0..=effort.rounds).map(|_| flooded(&mut generator, &wires, process.as_ref(), effort.turn));
        let turns = turns.collect::<Result<Vec<_>, Failure>>()?;
        rows.push(flooded_row(row("throughput").of("frame_bytes", &bytes.to_string()), bytes, &turns[1..]));
    }
    Ok(rows)
}

/// What the generator's packets cost when they are dropped in front of the device, as many at a time.
fn dropped_at_once(effort: Effort) -> Result<Row, Failure> {
    let wires = Wires::open()?;
    let _drops = wires.programs.attach(DROP_ALL, wires.lower.name, wires.lower.index)?;
    let core = generating_core()?;
    let mut generator = wires.generator(&clients(CONNECTIONS), SMALL_FRAME_BYTES)?;
    let turns = (0..=effort.rounds)
        .map(|_| paced(&mut generator, &wires, core, None, effort.times))
        .collect::<Result<Vec<_>, Failure>>()?;
    Ok(paced_row(Row::default().of("part", "paced").of("device", "none: dropped at once"), &turns[1..]))
}

/// Starts a device. Kernels forward without a process.
fn start(name: &str, tracking: &str, wires: &Wires, folder: &Path) -> Result<Option<Process>, Failure> {
    match name {
        NONE => wires.route().map(|()| None),
        "conntrack" => {
            wires.route()?;
            rules::set_conntrack()?;
            wire::call("nft", "-f -", rules::CONNTRACK).map(|_| None)
        }
        engine => {
            let policy = folder.join("forward.weir");
            let text = if tracking == "yes" { rules::tracking(CONNECTIONS) } else { rules::STATELESS.to_owned() };
            fs::write(&policy, text).map_err(|error| Failure::file(&policy, error))?;
            Process::start(folder, &policy, &engine_arguments(engine)).map(Some)
        }
    }
}

/// The counts of a turn in which the generator waits for its packets.
#[derive(Clone, Copy, Debug, Default)]
struct Paced {
    sent: u64,
    arrived: u64,
    /// CPU time of the generator's calls with what the kernel does in them, and of the device's process.
    sending_s: f64,
    device_s: f64,
}

fn paced(
    generator: &mut Generator,
    wires: &Wires,
    core: usize,
    process: Option<&Process>,
    times: u32,
) -> Result<Paced, Failure> {
    let arrives = if process.is_some() { &wires.sink } else { &wires.lower };
    let (core, first) = (Core::new(core), Core::new(0));
    let time = || process.map_or(Ok(Duration::ZERO), Process::processor);
    let (before, device) = (arrives.count()?.received, time()?);
    let mut turn = Paced::default();
    let ((), others) = first.spend(|| {
        for _ in 0..times {
            let (_, spent) = core.spend(|| generator.send(AT_ONCE))?;
            turn.sending_s += spent.processor.as_secs_f64();
            turn.sent += u64::from(AT_ONCE);
            let start = Instant::now();
            while arrives.count()?.received - before < turn.sent && start.elapsed() < ARRIVAL {
                thread::sleep(Duration::from_millis(1));
            }
        }
        Ok::<_, Failure>(())
    })?;
    turn.arrived = arrives.count()?.received - before;
    turn.device_s = (time()? - device).as_secs_f64();
    if process.is_some() {
        turn.device_s += others.softirqs.as_secs_f64();
    }
    Ok(turn)
}

fn paced_row(row: Row, turns: &[Paced]) -> Row {
    let spread = |of: &dyn Fn(&Paced) -> f64| Spread::of(turns.iter().map(of).collect()).expect("there were turns");
    let ns = |seconds: f64, turn: &Paced| seconds * 1e9 / turn.arrived.max(1) as f64;
    row.spread("cpu_ns_per_packet", spread(&|turn| ns(turn.sending_s + turn.device_s, turn)))
        .spread("sending_cpu_ns_per_packet", spread(&|turn| ns(turn.sending_s, turn)))
        .spread("device_cpu_ns_per_packet", spread(&|turn| ns(turn.device_s, turn)))
        .number("lost_share", spread(&|turn| 1.0 - turn.arrived as f64 / turn.sent as f64).median)
}

/// The counts of a turn under load.
#[derive(Clone, Copy, Debug)]
struct Flooded {
    seconds: f64,
    sent: u64,
    arrived: u64,
    device_s: f64,
}

fn flooded(
    generator: &mut Generator,
    wires: &Wires,
    process: Option<&Process>,
    turn: Duration,
) -> Result<Flooded, Failure> {
    let start = Instant::now();
    generator.send(WARM_UP_PACKETS)?;
    let each = start.elapsed().saturating_sub(CALL) / WARM_UP_PACKETS;
    let packets = u32::try_from(turn.as_nanos() / each.as_nanos().max(1)).unwrap_or(u32::MAX).min(PACKETS_MAX);
    let time = || process.map_or(Ok(Duration::ZERO), Process::processor);
    let (before, device, start) = (wires.sink.count()?.received, time()?, Instant::now());
    generator.send(packets)?;
    let (arrived, device) = (wires.sink.count()?.received - before, time()? - device);
    let seconds = start.elapsed().saturating_sub(CALL).as_secs_f64();
    Ok(Flooded { seconds, sent: packets.into(), arrived, device_s: device.as_secs_f64() })
}

fn flooded_row(row: Row, bytes: usize, turns: &[Flooded]) -> Row {
    let spread = |of: &dyn Fn(&Flooded) -> f64| Spread::of(turns.iter().map(of).collect()).expect("there were turns");
    let mpps = |turn: &Flooded| turn.arrived as f64 / turn.seconds / 1e6;
    let row = row
        .spread("mpps", spread(&mpps))
        .spread("gbit_per_s", spread(&|turn| mpps(turn) * bytes as f64 * 8e-3))
        .number("offered_mpps", spread(&|turn| turn.sent as f64 / turn.seconds / 1e6).median);
    match turns.iter().any(|turn| turn.device_s > 0.0) {
        true => {
            row.spread("device_cpu_ns_per_packet", spread(&|turn| turn.device_s * 1e9 / turn.arrived.max(1) as f64))
        }
        false => row,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_packets_that_arrived() {
        let turn = Flooded { seconds: 0.5, sent: 4_000_000, arrived: 1_000_000, device_s: 0.25 };
        let row = flooded_row(Row::default(), 1500, &[turn]);
        assert_eq!(
            (row.get("mpps"), row.get("gbit_per_s"), row.get("offered_mpps")),
            (Some(2.0), Some(24.0), Some(8.0))
        );
        assert_eq!(row.get("device_cpu_ns_per_packet"), Some(250.0));
        let turn = Paced { sent: 2000, arrived: 1000, sending_s: 1e-4, device_s: 3e-4 };
        let row = paced_row(Row::default(), &[turn]);
        assert_eq!((row.get("cpu_ns_per_packet"), row.get("lost_share")), (Some(400.0), Some(0.5)));
    }
}
