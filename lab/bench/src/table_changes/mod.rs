//! `table-changes`: how long a change of a table takes, until the request is answered and until packets see it.
//!
//! ```text
//!   probe -> source ==veth== lower -> weir run -> upper ==veth== sink -> probe
//!              requests -> control socket -^
//! ```
//! Weir runs in its own process with 178,000 addresses in each of three tables, one for each way in which a layout
//! changes: `exact-set` by one store, `rank-leaf` by a new leaf, `d16x4r` by a new image. Three more tables of 1.1
//! million addresses are replaced as a whole. nftables and the kernel's own maps hold the same addresses and are
//! changed in the same run (`peers.rs`).

mod lists;
mod peers;
mod probe;
mod timing;

use crate::data::list;
use crate::live::wire;
use crate::need::Need;
use crate::plan::Plan;
use crate::plot;
use crate::process::Process;
use crate::row::Row;
use crate::scale::Scaled;
use crate::scenario::{Axis, Member, Picks, Scenario};
use lists::{LAYOUTS, Lists, large, name_of};
use probe::Probe;
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use timing::{Effort, p99, spread};
use weir_command::failure::Failure;
use weir_control::{Client, GivenEntries, Request, TableOperation};

/// The name of the peers in `--only`.
const PEERS: &str = "peers";

/// The scenario.
pub const SCENARIO: Scenario = Scenario {
    name: "table-changes",
    paper: "RFPF Fig. 2: an external detector changes the tables of the filter while it runs",
    needs: &[Need::Root, Need::Clang, Need::Program("ip"), Need::Program("ethtool")],
    axes: &[
        Axis {
            name: "engine",
            members: &[
                Member::with("xdp", &[Need::Weir]),
                Member::with("afxdp", &[Need::Weir]),
                Member::with("afpacket", &[Need::Weir]),
                #[cfg(feature = "dpdk")]
                Member::with("dpdk", &[Need::Weir]),
                Member::plain(PEERS),
            ],
        },
        Axis { name: "peer", members: &peers::PEERS },
    ],
    smoke_only: &[],
    picks: Picks::Members,
    seconds: Scaled { full: 150, quick: 60, smoke: 8 },
    run,
    plot: |title, rows| plot::bars(title, "request_us", rows),
};

/// How much is measured.
#[derive(Clone, Copy)]
struct Settings {
    /// Number of changes of one address. Packets must see each change.
    seen: usize,
    /// How long and how often other changes are measured.
    effort: Effort,
}

const SETTINGS: Scaled<Settings> = Scaled {
    full: Settings {
        seen: 400,
        effort: Effort { turn: Duration::from_secs(2), requests_max: 200_000, batch: 10_000, rounds: 5 },
    },
    quick: Settings {
        seen: 100,
        effort: Effort { turn: Duration::from_millis(500), requests_max: 200_000, batch: 10_000, rounds: 3 },
    },
    smoke: Settings {
        seen: 4,
        effort: Effort { turn: Duration::from_millis(10), requests_max: 1000, batch: 100, rounds: 1 },
    },
};

/// Maximum number of requests that are sent together.
const TOGETHER: usize = 128;

/// Runs the scenario.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
fn run(plan: &Plan<'_>) -> Result<Vec<Row>, Failure> {
    let settings = SETTINGS.at(plan.scale);
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let lists = Lists::write(folder.path(), plan)?;
    let mut rows = Vec::new();
    for engine in plan.each("engine") {
        rows.extend(wire::in_namespace(|| match engine {
            PEERS => peers::rows(plan.members("peer"), &lists, settings.effort),
            engine => of_engine(engine, &lists, settings),
        })?);
    }
    Ok(rows)
}

/// Measures an engine between two veth pairs.
fn of_engine(engine: &str, lists: &Lists, settings: Settings) -> Result<Vec<Row>, Failure> {
    wire::pair(["source", "lower"], 1)?;
    wire::pair(["upper", "sink"], 1)?;
    let port = |wire: &str| if engine == "dpdk" { format!("net_af_packet_{wire}") } else { wire.to_owned() };
    let mut arguments = ["--engine", engine, "--workers", "1", "--lower", &port("lower"), "--upper", &port("upper")]
        .map(str::to_owned)
        .to_vec();
    if engine == "dpdk" {
        let ports = ["lower", "upper"].map(|wire| format!(" --vdev={},iface={wire}", port(wire)));
        arguments.extend(["--eal".to_owned(), format!("--no-huge -m 256 --no-pci{}", ports.concat())]);
    }
    let weir = Process::start(&lists.folder, &lists.policy, &arguments)?;
    let mut rows = Vec::new();
    for layout in LAYOUTS {
        let table =
            |name: String| Ok::<_, Failure>(Table { name, client: Client::connect(weir.control())?, lists, settings });
        let row = |what: &str| Row::default().of("change", what).of("engine", engine).of("layout", layout);
        rows.extend(table(name_of(layout))?.rows(row)?);
        let replaced = table(large(layout))?.replaced()?;
        rows.push(row("list of 1.1M").spread("request_us", spread(&replaced)).number("timed", replaced.len() as f64));
    }
    Ok(rows)
}

/// A table of a running Weir.
struct Table<'l> {
    name: String,
    client: Client,
    lists: &'l Lists,
    settings: Settings,
}

impl Table<'_> {
    /// Measures single changes and batches.
    fn rows(mut self, row: impl Fn(&str) -> Row) -> Result<Vec<Row>, Failure> {
        // The first change of a table makes images with room for more.
        let outside = Ipv4Addr::new(10, 0, 0, 2).into();
        let first_us = self.timed(TableOperation::Add(one(outside)))?;
        self.ask(TableOperation::Del(one(outside)))?;
        let seen = self.seen()?;
        let (answered, rate) = self.answered()?;
        let single =
            row("one address").spread("request_us", spread(&answered)).number("request_us_p99", p99(&answered));
        let single = single.number("changes_per_s", rate).number("timed", answered.len() as f64);
        let single = single.number("first_change_us", first_us);
        let single = single.spread("seen_us", spread(&seen)).number("seen_us_p99", p99(&seen));
        let (rate, timed) = self.together(rate)?;
        let together = row("one address, requests together").number("changes_per_s", rate).number("timed", timed);
        let batches = self.batches()?;
        let batch = row("10,000 addresses").spread("request_us", spread(&batches));
        let batch = batch.number("timed", batches.len() as f64);
        Ok(vec![single.number("seen_timed", seen.len() as f64), together, batch])
    }

    /// Microseconds from a request until packets see the change, for additions and removals in turn.
    fn seen(&mut self) -> Result<Vec<f64>, Failure> {
        let probe = Probe::start("source", "sink")?;
        let mut seen = Vec::new();
        for address in self.lists.absent(self.settings.seen / 2) {
            probe.watch(address)?;
            let asked = probe.now_ns();
            self.ask(TableOperation::Add(one(address)))?;
            seen.push(probe.blocked_after_us(asked)?);
            let asked = probe.now_ns();
            self.ask(TableOperation::Del(one(address)))?;
            seen.push(probe.passed_after_us(asked)?);
        }
        probe.end()?;
        Ok(seen)
    }

    /// Microseconds of each request, and requests a second: additions and then removals of the same addresses.
    fn answered(&mut self) -> Result<(Vec<f64>, f64), Failure> {
        let (mut times, start) = (Vec::new(), Instant::now());
        let absent = self.lists.absent(self.settings.effort.requests_max / 2);
        let mut added = 0;
        let turn = self.settings.effort.turn / 2;
        for (_, &address) in absent.iter().enumerate().take_while(|(at, _)| *at == 0 || start.elapsed() < turn) {
            times.push(self.timed(TableOperation::Add(one(address)))?);
            added += 1;
        }
        for &address in &absent[..added] {
            times.push(self.timed(TableOperation::Del(one(address)))?);
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        Ok((times, rate))
    }

    /// Changes a second if a request does not wait for the answers of those before it, as in `weir ctl table stream`
    /// and `nft -i`, and their number: additions and then removals of the same addresses. `rate` is the rate one by
    /// one.
    fn together(&mut self, rate: f64) -> Result<(f64, f64), Failure> {
        let at_once = (rate as usize).clamp(1, TOGETHER);
        let (start, absent) = (Instant::now(), self.lists.absent(self.settings.effort.requests_max / 2));
        let added = self.all_together(absent.chunks(at_once), TableOperation::Add, self.settings.effort.turn / 2)?;
        let removed = self.all_together(absent[..added].chunks(at_once), TableOperation::Del, Duration::MAX)?;
        let changes = (added + removed) as f64;
        Ok((changes / start.elapsed().as_secs_f64(), changes))
    }

    /// Changes addresses for a time. Returns their number.
    fn all_together<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u32]>,
        operation: fn(GivenEntries) -> TableOperation,
        turn: Duration,
    ) -> Result<usize, Failure> {
        let (start, mut changes) = (Instant::now(), 0);
        for (_, part) in parts.enumerate().take_while(|(at, _)| *at == 0 || start.elapsed() < turn) {
            let request = |&address| Request::Table { table: self.name.clone(), operation: operation(one(address)) };
            let requests: Vec<Request> = part.iter().map(request).collect();
            let mut answers = Vec::new();
            self.client.ask_all(&requests, &mut answers)?;
            answers.into_iter().collect::<Result<Vec<_>, _>>()?;
            changes += part.len();
        }
        Ok(changes)
    }

    /// Microseconds to add a batch from a file. It is removed again.
    fn batches(&mut self) -> Result<Vec<f64>, Failure> {
        let path = self.lists.folder.join("batch.txt");
        let Effort { batch, rounds, .. } = self.settings.effort;
        let absent = self.lists.absent(batch * rounds);
        let rounds = absent.chunks_exact(batch).map(|batch| {
            fs::write(&path, list(batch)).map_err(|error| Failure::file(&path, error))?;
            let given = || GivenEntries { file: Some(path.clone()), ..Default::default() };
            let took = self.timed(TableOperation::Add(given()))?;
            self.ask(TableOperation::Del(given()))?;
            Ok(took)
        });
        rounds.collect()
    }

    /// Microseconds to replace 1.1 million addresses by as many others, from the request to the answer.
    fn replaced(&mut self) -> Result<Vec<f64>, Failure> {
        let replace = |file: &Path| TableOperation::Replace { file: file.to_owned(), atomic: false, force: false };
        let lists = self.lists;
        self.ask(replace(&lists.large[1]))?;
        (0..self.settings.effort.rounds).map(|round| self.timed(replace(&lists.large[round % 2]))).collect()
    }

    fn timed(&mut self, operation: TableOperation) -> Result<f64, Failure> {
        let start = Instant::now();
        self.ask(operation)?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }

    fn ask(&mut self, operation: TableOperation) -> Result<(), Failure> {
        let request = Request::Table { table: self.name.clone(), operation };
        self.client.ask(&request)?;
        Ok(())
    }
}

/// One address.
fn one(address: u32) -> GivenEntries {
    GivenEntries { entries: vec![Ipv4Addr::from(address).to_string()], ..Default::default() }
}
