//! Forward and drop between DPDK ports, with Weir in its own process and the generator in this one.
//!
//! ```text
//!   generator -> memif -> lower  weir run  upper -> memif -> the same generator, which counts
//! ```
//! memif is memory that both processes share. The generator runs on the last core, Weir's worker on the first. The
//! generator sends only packets for which memif has room, so none is lost. With `dpdk-no-wire` there is no generator: a
//! DPDK port (`net_pcap`) copies the same packets from memory repeatedly, and another one (`net_null`) frees forwarded
//! packets.

use super::rulesets::Ruleset;
use crate::process::Process;
use crate::row::Row;
use std::fs;
use std::panic;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_command::failure::Failure;
use weir_control::InterfaceStats;
use weir_engine::cpu;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::dpdk::Eal;
use weir_engine::live::dpdk::wire::Wire;
use weir_engine::measure::Spread;
use weir_engine::traffic;

/// Names of the engines. Over memif, Weir copies all packets, or all packets except the ones of the lower port. Without
/// a wire there is no memif.
pub const ENGINES: [&str; 3] = [COPIED, ZERO_COPY, NO_WIRE];
const COPIED: &str = "dpdk-memif";
const ZERO_COPY: &str = "dpdk-memif-zero-copy";
const NO_WIRE: &str = "dpdk-no-wire";

/// Number of different packets, which are sent repeatedly from memory of DPDK.
const PACKETS: usize = 1 << 10;
/// Maximum length of a packet in bytes.
const LONGEST: u16 = 2048;
/// Duration of a turn.
const TURN: Duration = Duration::from_millis(500);
/// Number of bursts between two readings of the clock.
const BURSTS: usize = 256;
/// Maximum time until the first packet arrives; and the pause after which no more packets are expected.
const TIMEOUT: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_millis(30);
/// DPDK's arguments in both processes. They do not require huge pages, which may not be configured.
const EAL: &str = "--no-huge -m 256 --no-pci --single-file-segments";

/// The counts of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Turn {
    seconds: f64,
    /// CPU time of Weir in seconds.
    processor_s: f64,
    /// Number of packets that Weir decided, and that arrived behind it.
    decided: u64,
    arrived: u64,
}

/// Measures the rulesets with the wanted engines, in `rounds` turns and one that warms up. It can be called once per
/// process.
///
/// # Errors
/// DPDK or Weir does not start.
pub fn rows(
    rulesets: &[Ruleset],
    wanted: impl Fn(&str) -> bool,
    rounds: usize,
    row: &Row,
) -> Result<Vec<Row>, Failure> {
    let engines: Vec<&str> = ENGINES.into_iter().filter(|name| wanted(name)).collect();
    if engines.is_empty() {
        return Ok(Vec::new());
    }
    // A separate thread, because it is pinned to a core.
    let measured = thread::scope(|scope| scope.spawn(|| measure(rulesets, &engines, rounds, row)).join());
    measured.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

fn measure(rulesets: &[Ruleset], engines: &[&str], rounds: usize, row: &Row) -> Result<Vec<Row>, Failure> {
    let last = thread::available_parallelism().map_or(1, usize::from) - 1;
    // A container may not be allowed to use the core. Then the thread stays unpinned.
    let _not_allowed = cpu::pin_to(last);
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let mut wires = Wires::open(folder)?;
    let mut rows = Vec::new();
    for engine in engines {
        for ruleset in rulesets {
            let row = row.clone().of("engine", engine).of("ruleset", ruleset.name);
            if *engine == NO_WIRE {
                for workers in [1, 2] {
                    let row = row.clone().of("workers", &workers.to_string());
                    rows.push(to_row(row, ruleset, &no_wire_turns(wires.folder.path(), ruleset, workers, rounds)?));
                }
            } else {
                let turns = wires.turns(engine, ruleset, rounds)?;
                rows.push(to_row(row.of("workers", "1"), ruleset, &turns));
            }
        }
    }
    Ok(rows)
}

/// The generator's ends of the memif connections.
struct Wires {
    lower: Wire,
    upper: Wire,
    folder: TempDir,
}

impl Wires {
    /// Starts DPDK in this process, with the server ports. Weir connects to them later.
    fn open(folder: TempDir) -> Result<Self, Failure> {
        let eal = Eal::start(&format!("{EAL} {}", memif_ports(folder.path(), ["server", "server"])))?;
        let open = |name: &str| Wire::open(&eal, name, LONGEST);
        Ok(Wires { lower: open("net_memif_lower")?, upper: open("net_memif_upper")?, folder })
    }

    fn turns(&mut self, engine: &str, ruleset: &Ruleset, rounds: usize) -> Result<Vec<Turn>, Failure> {
        let lower = if engine == ZERO_COPY { "client,zero-copy=yes" } else { "client" };
        let eal = format!("{EAL} {}", memif_ports(self.folder.path(), [lower, "client"]));
        let weir = start(self.folder.path(), ruleset, 1, ["net_memif_lower", "net_memif_upper"], &eal)?;
        let bursts = self.lower.stock(&traffic::packets_from(&ruleset.sources(PACKETS, 11)));
        self.wait_for(&weir)?;
        let turns = (0..=rounds).map(|_| self.turn(&weir, bursts)).collect::<Result<Vec<_>, Failure>>()?;
        Ok(turns[1..].to_vec())
    }

    /// Sends packets until Weir decides one.
    fn wait_for(&mut self, weir: &Process) -> Result<(), Failure> {
        let start = Instant::now();
        while counted(weir)?.decided == 0 {
            if start.elapsed() > TIMEOUT {
                return Err(Failure::Runtime("no packet came through memif".to_owned()));
            }
            self.lower.send_stock(0);
            self.upper.receive(|_| ());
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn turn(&mut self, weir: &Process, bursts: usize) -> Result<Turn, Failure> {
        self.drain();
        let (before, start) = (counted(weir)?, Instant::now());
        let (mut arrived, mut next) = (0, 0);
        while start.elapsed() < TURN {
            for _ in 0..BURSTS {
                self.lower.send_stock(next % bursts);
                arrived += self.upper.receive(|_| ());
                next += 1;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        arrived += self.drain();
        let after = counted(weir)?;
        Ok(Turn { seconds, arrived: arrived as u64, ..after.since(&before) })
    }

    /// Receives the remaining packets and returns their number.
    fn drain(&mut self) -> usize {
        let (mut count, mut last) = (0, Instant::now());
        while last.elapsed() < SETTLE {
            let more = self.upper.receive(|_| ());
            if more > 0 {
                (count, last) = (count + more, Instant::now());
            }
        }
        count
    }
}

fn memif_ports(folder: &Path, [lower, upper]: [&str; 2]) -> String {
    // An abstract socket with a unique name. Few buffers, whose distance is not a multiple of a page, so that the first
    // lines of all fit into the caches.
    let socket = folder.join("memif");
    let port = |id: u32, name: &str, role: &str| {
        format!("--vdev=net_memif_{name},id={id},role={role},socket={},rsize=9,bsize=2112", socket.display())
    };
    format!("{} {}", port(0, "lower", lower), port(1, "upper", upper))
}

/// Starts Weir between two ports, with its own DPDK.
fn start(
    folder: &Path,
    ruleset: &Ruleset,
    workers: usize,
    [lower, upper]: [&str; 2],
    eal: &str,
) -> Result<Process, Failure> {
    let workers = workers.to_string();
    let arguments = ["--engine", "dpdk", "--workers", &workers, "--lower", lower, "--upper", upper, "--eal", eal];
    Process::start(folder, &ruleset.path, &arguments.map(str::to_owned))
}

/// Measures Weir between a port that gives packets and one that frees them.
fn no_wire_turns(folder: &Path, ruleset: &Ruleset, workers: usize, rounds: usize) -> Result<Vec<Turn>, Failure> {
    let capture = folder.join("packets.pcap");
    let frames = traffic::packets_from(&ruleset.sources(PACKETS, 11));
    fs::write(&capture, pcap(&frames)).map_err(|error| Failure::file(&capture, error))?;
    let queue = format!(",rx_pcap={}", capture.display());
    let eal = format!("{EAL} --vdev=net_pcap0,infinite_rx=1{} --vdev=net_null0,no-rx=1", queue.repeat(workers));
    let weir = start(folder, ruleset, workers, ["net_pcap0", "net_null0"], &eal)?;
    let mut turns = Vec::new();
    for _ in 0..=rounds {
        let before = (counted(&weir)?, Instant::now());
        thread::sleep(TURN);
        let after = (counted(&weir)?, Instant::now());
        turns.push(Turn { seconds: (after.1 - before.1).as_secs_f64(), ..after.0.since(&before.0) });
    }
    Ok(turns[1..].to_vec())
}

/// A capture in the format of libpcap: magic number, version 2.4, maximum length, link type; then each packet after its
/// time and lengths.
pub fn pcap(frames: &FrameSet) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bytes = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, LONGEST.into(), 1]);
    for burst in frames.bursts() {
        for index in 0..burst.len() {
            let frame = burst.bytes(index);
            let length = frame.len() as u32;
            bytes.extend(words(&[0, 0, length, length]));
            bytes.extend(frame);
        }
    }
    bytes
}

/// The counts of Weir since its start, of both sides.
fn counted(weir: &Process) -> Result<Turn, Failure> {
    let stats = weir.stats()?;
    let sum = |count: fn(&InterfaceStats) -> u64| stats.interfaces.iter().map(count).sum();
    let processor_s = weir.processor()?.as_secs_f64();
    Ok(Turn { seconds: 0.0, processor_s, decided: sum(|port| port.rx_packets), arrived: sum(|port| port.tx_packets) })
}

impl Turn {
    fn since(&self, before: &Turn) -> Turn {
        Turn {
            seconds: self.seconds - before.seconds,
            processor_s: self.processor_s - before.processor_s,
            decided: self.decided - before.decided,
            arrived: self.arrived - before.arrived,
        }
    }
}

fn to_row(row: Row, ruleset: &Ruleset, turns: &[Turn]) -> Row {
    let spread =
        |figure: &dyn Fn(&Turn) -> f64| Spread::of(turns.iter().map(figure).collect()).expect("there were turns");
    let done = |turn: &Turn| if ruleset.forwards() { turn.arrived } else { turn.decided };
    row.spread("mpps", spread(&|turn| done(turn) as f64 / turn.seconds / 1e6))
        .spread("cpu_ns_per_packet", spread(&|turn| turn.processor_s * 1e9 / done(turn).max(1) as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::capture::CaptureReader;

    #[test]
    fn what_ports_read_is_a_capture() {
        let frames = traffic::packets_from(&[1, 2, 3]);
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), pcap(&frames)).expect("it can be written to");
        let mut reader = CaptureReader::open(file.path()).expect("a capture");
        let burst = reader.next_burst().expect("whole packets").expect("three of them");
        let bytes = |burst: &weir_engine::FrameBurst<'_>| (0..3).map(|at| burst.bytes(at).to_vec()).collect::<Vec<_>>();
        assert_eq!((burst.frames().len(), bytes(burst.frames())), (3, bytes(&frames.burst(0))));
    }

    #[test]
    fn what_is_forwarded_counts_where_it_arrives() {
        let turn = Turn { seconds: 0.5, processor_s: 0.25, decided: 10_000_000, arrived: 5_000_000 };
        let forward = to_row(Row::default(), &Ruleset::forward().expect("files can be written"), &[turn]);
        let drop = to_row(Row::default(), &Ruleset::drop().expect("files can be written"), &[turn]);
        assert_eq!((forward.get("mpps"), forward.get("cpu_ns_per_packet")), (Some(10.0), Some(50.0)));
        assert_eq!((drop.get("mpps"), drop.get("cpu_ns_per_packet")), (Some(20.0), Some(25.0)));
    }
}
