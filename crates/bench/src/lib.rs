//! `weir bench`: the tables and figures of the papers as scenarios with stable names.
//!
//! A scenario returns rows. Text fields identify the run. Numeric fields have a unit in their name; each is a median
//! with its extremes in `_min` and `_max`. No test depends on timings, which are comparable only within one run.
#![forbid(unsafe_code)]

/// Replaces the macro of the standard library: it escapes external text, and a closed standard error does not cause a
/// panic.
macro_rules! eprintln {
    ($($text:tt)*) => { weir::report::say(&format!($($text)*)) };
}

pub mod data;
mod entry_counters;
mod entry_timeouts;
mod features;
mod hybrid;
mod line_costs;
mod live;
mod moonpol;
pub mod options;
pub mod plot;
mod process;
mod rate_accuracy;
mod rfpf_three_tables;
mod row;
mod slots;
mod smartnic;
mod stateful;
mod stream;
mod table_changes;
mod tables;
mod thread_layouts;

use crate::options::Options;
use crate::row::{Row, rounded};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use weir::failure::Failure;
use weir::report;
use weir_engine::quiet::Summary;

/// A named experiment.
struct Scenario {
    name: &'static str,
    /// The corresponding figure of a paper.
    paper: &'static str,
    run: fn(&Options) -> Result<Vec<Row>, Failure>,
    /// Draws the rows for `--plot`, with the scenario's name as title.
    plot: fn(&str, &[Row]) -> String,
    /// What the command line can select.
    picks: Picks,
}

/// What the command line can select in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Picks {
    /// Nothing: the scenario runs completely.
    Nothing,
    /// Cells of the result, with `--table`, `--layout` and `--keys`.
    Cells,
    /// Engines, with `--only`.
    Engines,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "rfpf-three-tables",
        paper: "RFPF Fig. 5-6: three lookups on the source, 67 Mpps on 6 cores of 3.6 GHz with I/O (about 320 cycles a packet)",
        run: rfpf_three_tables::run,
        plot: |title, rows| plot::bars(title, "ns_per_packet", rows),
        picks: Picks::Nothing,
    },
    Scenario {
        name: "agree",
        paper: "RFPF section IV: every scheme gives the same answers",
        run: tables::agree::run,
        plot: |title, rows| plot::bars(title, "keys_checked", rows),
        picks: Picks::Cells,
    },
    Scenario {
        name: "layout-choice",
        paper: "RFPF section IV: which scheme is the fastest depends on what the table holds",
        run: tables::choice::run,
        plot: |title, rows| plot::bars(title, "cycles_per_lookup", rows),
        picks: Picks::Cells,
    },
    Scenario {
        name: "entry-counters",
        paper: "no paper counts the packets of each entry; the goal is at most 10 cycles for a packet that hits",
        run: entry_counters::run,
        plot: |title, rows| plot::bars(title, "cycles_per_packet", rows),
        picks: Picks::Nothing,
    },
    Scenario {
        name: "entry-timeouts",
        paper: "no paper lets a million entries expire; the goal is that packets take at most 5% longer",
        run: entry_timeouts::run,
        plot: |title, rows| plot::bars(title, "ns_per_packet", rows),
        picks: Picks::Nothing,
    },
    Scenario {
        name: "features",
        paper: "smartnic section IV-B: features by a double map, read entry by entry in 30 us; the goal is 15 ns a packet in XDP, 10 cycles in native code, and a million entries in 50 ms",
        run: features::run,
        plot: |title, rows| plot::bars(title, "more_ns_per_packet", rows),
        picks: Picks::Engines,
    },
    Scenario {
        name: "hybrid",
        paper: "Hybrid Fig. 7-9: up to 20.2% fewer cycles for random traffic, and 28.9% for specific traffic",
        run: hybrid::run,
        plot: hybrid::plot,
        picks: Picks::Engines,
    },
    Scenario {
        name: "line-costs",
        paper: "RFPF section II: a lookup costs the memory accesses of its scheme, each by the cache that its table fits in",
        run: line_costs::run,
        plot: |title, rows| plot::bars(title, "cycles_per_line", rows),
        picks: Picks::Nothing,
    },
    Scenario {
        name: "live",
        paper: "RFPF Fig. 4: 28 Mpps forwarded and 29.8 dropped on one core of 3.6 GHz, 7.3 and 11.5 by the paper's XDP programs",
        run: live::run,
        plot: live::plot,
        picks: Picks::Engines,
    },
    Scenario {
        name: "moonpol",
        paper: "MoonPol Fig. 3, Fig. 6 and Table I: 432 cycles a packet with 2 limited subnets, 492 with 1M, I/O included (7.4 to 6.5 Mpps); 186 MB for all countries",
        run: moonpol::run,
        plot: moonpol::plot,
        picks: Picks::Nothing,
    },
    Scenario {
        name: "rate-accuracy",
        paper: "MoonPol section IV-E: tokens are added after every millionth packet, and a limit is to be a horizontal line, not a square wave",
        run: rate_accuracy::run,
        plot: rate_accuracy::plot,
        picks: Picks::Nothing,
    },
    Scenario {
        name: "slots",
        paper: "no paper interprets rules; the goal is that an empty slot costs a load",
        run: slots::run,
        plot: |title, rows| plot::bars(title, "cycles_per_packet", rows),
        picks: Picks::Nothing,
    },
    Scenario {
        name: "smartnic",
        paper: "SmartNIC Fig. 2-4: XDP on four cores drops 26 Mpps of up to 1K sources, and 10 Mpps of 128K; iptables 2.5 to 4.5, and nothing above 4K",
        run: smartnic::run,
        plot: smartnic::plot,
        picks: Picks::Engines,
    },
    Scenario {
        name: "stateful",
        paper: "Moving down the stack, Fig. 5: throughputs of a stateful firewall by technology and threads; up to 50 Gbps with packets of 1500 bytes",
        run: stateful::run,
        plot: stateful::plot,
        picks: Picks::Engines,
    },
    Scenario {
        name: "table-changes",
        paper: "RFPF Fig. 2: an external detector changes the tables of the filter while it runs",
        run: table_changes::run,
        plot: |title, rows| plot::bars(title, "request_us", rows),
        picks: Picks::Engines,
    },
    Scenario {
        name: "tables",
        paper: "RFPF Table 1: size of each table in each lookup scheme (D16X4R: 2.41 MB for 178k addresses, 9.40 MB for 1.1M)",
        run: tables::run,
        plot: tables::plot,
        picks: Picks::Cells,
    },
    Scenario {
        name: "thread-layouts",
        paper: "Moving down the stack, Fig. 4-5: one thread is fastest on DPDK, and five on packet sockets",
        run: thread_layouts::run,
        plot: thread_layouts::plot,
        picks: Picks::Engines,
    },
];

/// The scenarios that `--quick` shortens.
const QUICK: [&str; 4] = ["hybrid", "smartnic", "stateful", "thread-layouts"];

#[derive(Serialize)]
struct Outcome<'a> {
    scenario: &'a str,
    machine: Machine,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Machine {
    cpu: String,
    kernel: String,
    tsc_ghz: Value,
    /// The part of the stretches in which the core was not shared, and the number of measurements that had hardly any,
    /// so that they counted the others too ([`weir_engine::quiet`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    quiet_share: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shared_measurements: Option<u64>,
}

impl Machine {
    fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let quiet = Summary::of_process();
        Machine {
            cpu: model.map_or("unknown", |(_, name)| name.trim()).to_owned(),
            kernel: kernel.trim().to_owned(),
            tsc_ghz: rounded(weir_engine::tsc::frequency_hz() / 1e9),
            quiet_share: quiet.map(|quiet| rounded(quiet.share)),
            shared_measurements: quiet.map(|quiet| quiet.shared_measurements),
        }
    }
}

/// Runs the command `weir bench`.
///
/// # Errors
/// The scenario does not exist, or something that it needs is missing.
pub fn run(options: &Options) -> Result<(), Failure> {
    if options.list {
        let lines = SCENARIOS.iter().map(|scenario| format!("{:<20} {}\n", scenario.name, scenario.paper));
        return report::print(&lines.collect::<String>());
    }
    let name = options.scenario.as_deref().unwrap_or_default();
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else {
        return Err(Failure::Rejected(format!("weir: no scenario `{name}`; `weir bench --list` names them")));
    };
    let cells = [&options.table, &options.layout, &options.keys].iter().any(|names| !names.is_empty());
    if cells && scenario.picks != Picks::Cells {
        return Err(Failure::Rejected(format!("weir: {name} takes no --table, --layout or --keys")));
    }
    if !options.only.is_empty() && scenario.picks != Picks::Engines {
        return Err(Failure::Rejected(format!("weir: {name} takes no --only")));
    }
    if options.quick && !QUICK.contains(&name) {
        return Err(Failure::Rejected(format!("weir: {name} takes no --quick")));
    }
    let rows = (scenario.run)(options)?;
    if let Some(path) = &options.plot {
        fs::write(path, (scenario.plot)(scenario.name, &rows)).map_err(|error| Failure::file(path, error))?;
    }
    let outcome = Outcome { scenario: scenario.name, machine: Machine::this(), rows };
    if options.json { report::print_json(&outcome) } else { report::print(&describe(scenario, &outcome)) }
}

/// The result as text.
fn describe(scenario: &Scenario, outcome: &Outcome<'_>) -> String {
    let machine = &outcome.machine;
    let mut text = format!("{}\n  the paper: {}\n  here: {}\n", scenario.name, scenario.paper, machine.cpu);
    if let (Some(share), Some(shared)) = (&machine.quiet_share, machine.shared_measurements) {
        text += &format!(
            "  quiet: {share} of the stretches; {shared} measurements had hardly any, and count the others too\n"
        );
    }
    text.push('\n');
    for row in &outcome.rows {
        text += &format!("  {}\n", row.title());
        for (field, value) in row.fields().filter(|(field, value)| value.is_number() && !is_bound(field)) {
            text += &format!("    {field:<28} {value}\n");
        }
    }
    text
}

fn is_bound(field: &str) -> bool {
    field.ends_with("_min") || field.ends_with("_max")
}
