//! `table-changes`: how long a change of a table takes, until the request is answered and until packets see it.
//!
//! ```text
//!   probe -> source ==veth== lower -> weir run -> upper ==veth== sink -> probe
//!              requests -> control socket -^
//! ```
//! Weir runs in its own process with 178,000 addresses in each of three tables, one for each way in which a layout
//! changes: `exact-set` by one store, `rank-leaf` by a new leaf, `d16x4r` by a new image. Three more tables of 1.1 million
//! addresses are replaced as a whole. nftables and the kernel's own maps hold the same addresses and are changed in the
//! same run (`peers.rs`).

mod peers;
mod probe;

use crate::data::Dataset;
use crate::live::wire;
use crate::options::Options;
use crate::process::Process;
use crate::row::Row;
use probe::Probe;
use std::fmt::Write;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use weir::failure::Failure;
use weir_control::{Client, GivenEntries, Request, TableOperation};
use weir_engine::measure::Spread;
use weir_engine::traffic::SplitMix;

/// The engines with the names of their ports.
const ENGINES: &[&str] =
    if cfg!(feature = "dpdk") { &["xdp", "afxdp", "afpacket", "dpdk"] } else { &["xdp", "afxdp", "afpacket"] };
/// The tables, which are named after their layouts.
const LAYOUTS: [&str; 3] = ["exact-set", "rank-leaf", "d16x4r"];
/// The name of the peers in `--only`.
const PEERS: &str = "peers";

/// Number of changes of one address of which packets must see each.
const SEEN: usize = 200;
/// Time for which requests follow one another without a pause, and their maximum number.
const TURN: Duration = Duration::from_secs(2);
const REQUESTS_MAX: usize = 100_000;
/// Number of addresses in a batch.
const BATCH: usize = 10_000;
/// Number of batches and of replaced lists.
const ROUNDS: usize = 5;

/// Runs the scenario.
///
/// # Errors
/// The process may not make network namespaces, or something that the scenario needs is missing.
pub fn run(options: &Options) -> Result<Vec<Row>, Failure> {
    let known: Vec<&str> = ENGINES.iter().copied().chain([PEERS]).collect();
    if let Some(unknown) = options.only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::Rejected(format!("weir: --only {unknown}: unknown; known are {}", known.join(", "))));
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let lists = Lists::write(folder.path(), options)?;
    let mut rows = Vec::new();
    for engine in ENGINES.iter().filter(|engine| wanted(engine)) {
        rows.extend(wire::in_namespace(|| of_engine(engine, &lists))?);
    }
    if wanted(PEERS) {
        rows.extend(wire::in_namespace(|| peers::rows(&lists))?);
    }
    Ok(rows)
}

/// The addresses of tables, and lists with them.
struct Lists {
    folder: PathBuf,
    addresses: Vec<u32>,
    policy: PathBuf,
    /// Two lists of 1.1 million addresses, which replace each other.
    large: [PathBuf; 2],
}

impl Lists {
    fn write(folder: &Path, options: &Options) -> Result<Self, Failure> {
        let addresses = Dataset::BLOCK_178K.load(&options.data)?.addresses();
        let many = Dataset::BLOCK_1_1M.load(&options.data)?.addresses();
        let put = |name: &str, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
            Ok::<_, Failure>(path)
        };
        put("block.txt", &list(&addresses))?;
        let tables = LAYOUTS.map(|layout| {
            let declared =
                |name: &str, file: &str| format!("table {name} {{ type ipv4; layout {layout}; file \"{file}\" }}\n");
            declared(&name_of(layout), "block.txt") + &declared(&large(layout), "large.txt")
        });
        let rules =
            LAYOUTS.map(|layout| format!("ip saddr @{} drop; ip daddr @{} drop; ", name_of(layout), large(layout)));
        let policy = format!("{}upstream {{ {}accept }}\ndownstream {{ accept }}\n", tables.concat(), rules.concat());
        let other: Vec<u32> = many.iter().map(|address| address ^ 0x0000_0101).collect();
        Ok(Lists {
            folder: folder.to_owned(),
            policy: put("tables.weir", &policy)?,
            large: [put("large.txt", &list(&many))?, put("other.txt", &list(&other))?],
            addresses,
        })
    }

    /// Addresses that are in no table, in random order.
    fn absent(&self, count: usize) -> Vec<u32> {
        let mut random = SplitMix::new(17);
        let mut absent = Vec::with_capacity(count);
        while absent.len() < count {
            let address = random.draw() as u32;
            // 10.0.0.0/8 and multicast are for others.
            if self.addresses.binary_search(&address).is_err() && (11 << 24..224 << 24).contains(&address) {
                absent.push(address);
            }
        }
        absent.sort_unstable();
        absent.dedup();
        // Neighbours in memory would be cheaper.
        (1..absent.len()).rev().for_each(|last| absent.swap(last, random.below(last as u64 + 1) as usize));
        absent
    }
}

/// The name of the table with a layout.
fn name_of(layout: &str) -> String {
    layout.replace('-', "_")
}

/// The name of the table with a layout and 1.1 million addresses.
fn large(layout: &str) -> String {
    format!("large_{}", name_of(layout))
}

fn list(addresses: &[u32]) -> String {
    addresses.iter().fold(String::new(), |mut text, &address| {
        let _ = writeln!(text, "{}", Ipv4Addr::from(address));
        text
    })
}

/// Measures an engine between two veth pairs.
fn of_engine(engine: &str, lists: &Lists) -> Result<Vec<Row>, Failure> {
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
        let table = |name: String| Ok::<_, Failure>(Table { name, client: Client::connect(weir.control())?, lists });
        let row = |what: &str| Row::default().of("change", what).of("engine", engine).of("layout", layout);
        rows.extend(table(name_of(layout))?.rows(row)?);
        let replaced = table(large(layout))?.replaced()?;
        rows.push(row("list of 1.1M").spread("request_us", spread(&replaced)));
    }
    Ok(rows)
}

/// A table of a running Weir.
struct Table<'l> {
    name: String,
    client: Client,
    lists: &'l Lists,
}

impl Table<'_> {
    /// Measures single changes and batches.
    fn rows(mut self, row: impl Fn(&str) -> Row) -> Result<Vec<Row>, Failure> {
        let seen = self.seen()?;
        let (answered, rate) = self.answered()?;
        let single =
            row("one address").spread("request_us", spread(&answered)).number("request_us_p99", p99(&answered));
        let single = single.number("changes_per_s", rate).spread("seen_us", spread(&seen));
        let mut rows = vec![single.number("seen_us_p99", p99(&seen))];
        rows.push(row("10,000 addresses").spread("request_us", spread(&self.batches()?)));
        Ok(rows)
    }

    /// Microseconds from a request until packets see the change, for additions and removals in turn.
    fn seen(&mut self) -> Result<Vec<f64>, Failure> {
        let probe = Probe::start("source", "sink")?;
        let mut seen = Vec::new();
        for address in self.lists.absent(SEEN / 2) {
            probe.watch(address)?;
            let given = || GivenEntries { entries: vec![Ipv4Addr::from(address).to_string()], ..Default::default() };
            let asked = probe.now_ns();
            self.ask(TableOperation::Add(given()))?;
            seen.push(probe.blocked_after_us(asked)?);
            let asked = probe.now_ns();
            self.ask(TableOperation::Del(given()))?;
            seen.push(probe.passed_after_us(asked)?);
        }
        probe.end()?;
        Ok(seen)
    }

    /// Microseconds of each request, and requests a second: additions and then removals of the same addresses.
    fn answered(&mut self) -> Result<(Vec<f64>, f64), Failure> {
        let (mut times, start) = (Vec::new(), Instant::now());
        let absent = self.lists.absent(REQUESTS_MAX / 2);
        let mut added = 0;
        for &address in absent.iter().take_while(|_| start.elapsed() < TURN / 2) {
            times.push(self.timed(TableOperation::Add(one(address)))?);
            added += 1;
        }
        for &address in &absent[..added] {
            times.push(self.timed(TableOperation::Del(one(address)))?);
        }
        let rate = times.len() as f64 / start.elapsed().as_secs_f64();
        Ok((times, rate))
    }

    /// Microseconds to add a batch from a file. It is removed again.
    fn batches(&mut self) -> Result<Vec<f64>, Failure> {
        let path = self.lists.folder.join("batch.txt");
        let absent = self.lists.absent(BATCH * ROUNDS);
        let rounds = absent.chunks_exact(BATCH).map(|batch| {
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
        (0..ROUNDS).map(|round| self.timed(replace(&lists.large[round % 2]))).collect()
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

fn spread(samples: &[f64]) -> Spread {
    Spread::of(samples.to_vec()).expect("there were changes")
}

/// The 99th percentile.
fn p99(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[(sorted.len() * 99 / 100).min(sorted.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_takes_longer() {
        let samples: Vec<f64> = (0..1000).rev().map(f64::from).collect();
        assert_eq!((p99(&samples), p99(&[7.0]), spread(&samples).max), (990.0, 7.0, 999.0));
    }

    #[test]
    fn addresses_are_listed_in_lines() {
        assert_eq!(list(&[0x0102_0304, 0xff00_0001]), "1.2.3.4\n255.0.0.1\n");
        assert_eq!(name_of("exact-set"), "exact_set");
    }
}
