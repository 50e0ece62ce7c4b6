//! `thread-layouts`: the paper's four divisions of a stateful firewall into threads (`layout.rs`), on packet sockets
//! and DPDK, beside Weir's workers. Each worker receives, decides and sends. All layouts run the same code with the
//! same flows.

mod afpacket;
#[cfg(feature = "dpdk")]
mod dpdk;
mod layout;
mod threads;

use crate::live::wire;
use crate::need::Need;
use crate::plan::Plan;
use crate::plot::{Drawing, by_fields};
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Axis, Member, Picks, Scenario};
use crate::stateful::filters::policy;
use crate::stateful::rules;
use crate::stateful::segments::{Segment, clients};
use crate::stateful::wires::Wires;
use layout::Codes;
use std::sync::Arc;
use std::time::Duration;
use threads::{Counted, Threads};
use weir_abi::{BURST_MAX, Link, Verdict};
use weir_command::failure::Failure;
use weir_engine::cpu::Cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::measure::Spread;
use weir_engine::native::Sharing;
use weir_engine::traffic::SMALL_FRAME_BYTES;
use weir_engine::{Filter, NativeCode};
use weir_state::now_ns;

/// Number of established flows.
const CONNECTIONS: usize = 4096;
/// Bytes of frames.
const FRAMES: [usize; 2] = [88, 1500];

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "thread-layouts",
    paper: "Moving down the stack, Fig. 4-5: one thread is fastest on DPDK, and five on packet sockets",
    needs: &[Need::Root, Need::Clang, Need::Program("ip"), Need::Program("ethtool")],
    axes: &[Axis {
        name: "engine",
        members: &[
            Member::plain("afpacket"),
            #[cfg(feature = "dpdk")]
            Member::plain("dpdk"),
        ],
    }],
    smoke_only: &[],
    picks: Picks::Members,
    seconds: Scaled { full: 60, quick: 20, smoke: 8 },
    run,
    plot,
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Duration of a turn.
    turn: Duration,
    /// Number of turns of each.
    rounds: usize,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings { turn: Duration::from_millis(400), rounds: 7 },
    quick: Settings { turn: Duration::from_millis(400), rounds: 2 },
    smoke: Settings { turn: Duration::from_millis(5), rounds: 1 },
};

/// Runs the scenario.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let clients = clients(CONNECTIONS);
    let codes = load(&clients)?;
    let mut rows = Vec::new();
    for engine in plan.each("engine") {
        rows.extend(match engine {
            "afpacket" => wire::in_namespace(|| on_sockets(&codes, &clients, settings))?,
            #[cfg(feature = "dpdk")]
            "dpdk" => on_dpdk(&codes, &clients, settings)?,
            unknown => unreachable!("compiler bug: there is no engine {unknown}"),
        });
    }
    Ok(rows)
}

/// Draws the rows.
pub fn plot(title: &str, rows: &[Row]) -> Drawing {
    let plan = by_fields::Plan {
        part: "layouts",
        panels: ["frame_bytes", "part"],
        group: "engine",
        bar: "layout",
        field: "mpps",
        unit: "millions of packets per second",
    };
    by_fields::draw(title, &[(": throughput by threads (paper: Fig. 5)", &plan)], rows)
}

/// Loads the rules, and opens a connection of each client.
fn load(clients: &[u32]) -> Result<Codes, Failure> {
    let native = |text: &str| -> Result<Arc<NativeCode>, Failure> {
        let policy = policy(text)?;
        Ok(policy.compile_native(Cpu::Native)?.load(policy.bind(None)?)?)
    };
    let codes = Codes { tracking: native(&rules::tracking(CONNECTIONS))?, header: native(rules::STATELESS)? };
    let mut filter = codes.tracking.filter(Sharing::Alone, 0);
    let mut verdicts = [Verdict(0); BURST_MAX];
    for burst in clients.chunks(BURST_MAX) {
        for segment in [Segment::SYN, Segment::SYN_ACK, Segment::ACK] {
            let frames = frames(segment, burst, SMALL_FRAME_BYTES);
            filter.decide(usize::from(segment.from_server), &frames.burst(0).received_at(now_ns()), &mut verdicts)?;
        }
    }
    Ok(codes)
}

/// A segment of each client.
fn frames(segment: Segment, clients: &[u32], bytes: usize) -> FrameSet {
    let frames: Vec<Vec<u8>> = clients.iter().map(|&client| segment.frame(client, bytes)).collect();
    FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)))
}

fn on_sockets(codes: &Codes, clients: &[u32], Settings { turn, rounds }: Settings) -> Result<Vec<Row>, Failure> {
    let _core = crate::live::generating_core()?;
    let wires = Wires::open()?;
    let mut rows = Vec::new();
    for bytes in FRAMES {
        let mut generator = wires.generator(clients, bytes)?;
        for threads in Threads::all() {
            let turns = afpacket::turns(threads, codes, &wires, &mut generator, turn, rounds)?;
            rows.push(to_row("afpacket", threads, bytes, &turns));
        }
    }
    Ok(rows)
}

#[cfg(feature = "dpdk")]
fn on_dpdk(codes: &Codes, clients: &[u32], Settings { turn, rounds }: Settings) -> Result<Vec<Row>, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let captures = FRAMES.map(|bytes| folder.path().join(format!("{bytes}.pcap")));
    for (path, bytes) in captures.iter().zip(FRAMES) {
        let capture = crate::live::dpdk::pcap(&frames(Segment::ACK, clients, bytes));
        std::fs::write(path, capture).map_err(|error| Failure::file(path, error))?;
    }
    let mut pairs = Vec::new();
    for (capture, bytes) in captures.iter().zip(FRAMES) {
        for threads in Threads::all() {
            let queues = if let Threads::Workers(workers) = threads { workers } else { 1 };
            pairs.push((threads, bytes, (capture.as_path(), queues)));
        }
    }
    let eal = dpdk::start(&pairs.iter().map(|pair| pair.2).collect::<Vec<_>>())?;
    let rows = pairs.iter().enumerate().map(|(pair, &(threads, bytes, _))| {
        let turns = dpdk::turns(threads, codes, &eal, pair, turn, rounds)?;
        Ok(to_row("dpdk", threads, bytes, &turns))
    });
    rows.collect()
}

fn to_row(engine: &str, threads: Threads, bytes: usize, turns: &[Counted]) -> Row {
    let spread = |of: &dyn Fn(&Counted) -> f64| Spread::of(turns.iter().map(of).collect()).expect("there were turns");
    let mpps = |turn: &Counted| turn.sent as f64 / turn.seconds / 1e6;
    Row::default()
        .of("part", "layouts")
        .of("engine", engine)
        .of("layout", &threads.name())
        .of("frame_bytes", &bytes.to_string())
        .spread("mpps", spread(&mpps))
        .spread("gbit_per_s", spread(&|turn| mpps(turn) * bytes as f64 * 8e-3))
        .spread("cpu_ns_per_packet", spread(&|turn| turn.processor_s * 1e9 / turn.sent.max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_names_and_a_chart() {
        let names: Vec<String> = Threads::all().map(Threads::name).collect();
        assert_eq!((&names[0][..], &names[3][..]), ("paper, 1 thread", "paper, 7 threads"));
        assert_eq!((&names[4][..], &names[5][..]), ("weir, 1 worker", "weir, 2 workers"));
        let turn = Counted { seconds: 0.5, sent: 1_000_000, processor_s: 0.75 };
        let row = to_row("dpdk", Threads::Layout(5), 1500, &[turn]);
        assert_eq!(
            (row.get("mpps"), row.get("gbit_per_s"), row.get("cpu_ns_per_packet")),
            (Some(2.0), Some(24.0), Some(750.0))
        );
        let svg = plot("thread-layouts", &[row]).svg();
        assert!(svg.contains("paper, 5 threads") && svg.contains("frame_bytes 1500"), "{svg}");
    }
}
