//! `weir bench`: the tables and figures of the papers as scenarios with stable names.
//!
//! A scenario returns rows. Text fields identify the run. Numeric fields have a unit in their name; each is a median
//! with its extremes in `_min` and `_max`. No test depends on timings, which are comparable only within one run.
#![forbid(unsafe_code)]

#[macro_use]
extern crate weir_command;

mod all;
pub mod data;
mod entry_counters;
mod entry_timeouts;
mod features;
mod figures;
mod hybrid;
mod line_costs;
mod live;
mod mix;
mod moonpol;
mod need;
pub mod options;
mod plan;
pub mod plot;
mod process;
mod rate_accuracy;
mod rfpf_three_tables;
mod row;
mod scale;
mod scenario;
mod slots;
mod smartnic;
mod stateful;
mod stream;
mod table_changes;
mod tables;
mod thread_layouts;

use crate::figures::Section;
use crate::options::Options;
use crate::plan::{LeftOut, Plan};
use crate::row::{Row, rounded};
use crate::scale::Scale;
use crate::scenario::Scenario;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Serialize;
use serde_json::Value;
use std::{env, fs};
use weir_command::failure::Failure;
use weir_command::report;
use weir_engine::kernels::Kernels;
use weir_instruments::quiet::{self, Summary};

const SCENARIOS: [&Scenario; 17] = [
    &rfpf_three_tables::SCENARIO,
    &tables::agree::SCENARIO,
    &tables::choice::SCENARIO,
    &entry_counters::SCENARIO,
    &entry_timeouts::SCENARIO,
    &features::SCENARIO,
    &hybrid::SCENARIO,
    &line_costs::SCENARIO,
    &live::SCENARIO,
    &moonpol::SCENARIO,
    &rate_accuracy::SCENARIO,
    &slots::SCENARIO,
    &smartnic::SCENARIO,
    &stateful::SCENARIO,
    &table_changes::SCENARIO,
    &tables::SCENARIO,
    &thread_layouts::SCENARIO,
];

#[derive(Serialize)]
struct Outcome<'a> {
    scenario: &'a str,
    /// Says that figures mean nothing, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    machine: Machine,
    /// What was not measured on this machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Machine {
    cpu: String,
    kernel: String,
    tsc_ghz: Value,
    /// Which lookups of bursts it runs ([`weir_engine::kernels`]).
    lookups: String,
    /// The part of the stretches in which the core was not shared, and the number of measurements that had hardly any,
    /// so that they counted the others too ([`weir_instruments::quiet`]).
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
            lookups: Kernels::of_this_machine().to_string(),
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
    if options.all {
        return all::run(&SCENARIOS.map(|scenario| scenario.name), options);
    }
    let name = options.scenario.as_deref().unwrap_or_default();
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else {
        return Err(Failure::Rejected(format!("weir: no scenario `{name}`; `weir bench --list` names them")));
    };
    if options.of_all {
        // If this fails, the scenario only runs on when its parent ends.
        let _goes_on = set_parent_process_death_signal(Some(Signal::TERM));
    }
    let plan = Plan::new(scenario, options)?;
    if plan.scale == Scale::Smoke {
        quiet::hurry();
    }
    let rows = (scenario.run)(&plan)?;
    if rows.is_empty() {
        return Err(Failure::Runtime(format!("{name}: nothing of it could be measured on this machine")));
    }
    let note = (plan.scale == Scale::Smoke).then_some(plan::SMOKE);
    let outcome = Outcome { scenario: scenario.name, note, machine: Machine::this(), left_out: plan.left_out(), rows };
    draw(options, scenario, &outcome)?;
    if options.json { report::print_json(&outcome) } else { report::print(&describe(scenario, &outcome)) }
}

/// Writes the drawing to the files that the options name.
fn draw(options: &Options, scenario: &Scenario, outcome: &Outcome<'_>) -> Result<(), Failure> {
    let drawing = (scenario.plot)(scenario.name, &outcome.rows);
    if let Some(path) = &options.plot {
        fs::write(path, drawing.svg()).map_err(|error| Failure::file(path, error))?;
    }
    if let Some(path) = &options.figures {
        let (machine, tables) = (&outcome.machine, drawing.markdown());
        let section = Section {
            name: scenario.name,
            cpu: (&machine.cpu, machine.tsc_ghz.to_string()),
            kernel: &machine.kernel,
            command: figures::command(env::args().skip(1)),
            left_out: outcome.left_out.iter().map(|one| &*one.name).collect(),
            tables: &tables,
        };
        let page = fs::read_to_string(path).map_err(|error| Failure::file(path, error))?;
        fs::write(path, section.put_into(&page)).map_err(|error| Failure::file(path, error))?;
    }
    Ok(())
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
    if let Some(note) = outcome.note {
        text += &format!("  {note}\n");
    }
    if !outcome.left_out.is_empty() {
        text += &format!("  left out: {}\n", outcome.left_out.len());
        for LeftOut { name, missing } in &outcome.left_out {
            text += &format!("    {name}: {missing}\n");
        }
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
