//! The command line of `weir bench`.

use crate::scale::Scale;
use clap::Parser;
use std::path::PathBuf;

/// Measure: the tables and figures of the papers as named scenarios.
#[derive(Debug, Parser)]
#[command(name = "weir-bench", bin_name = "weir bench", version)]
pub struct Options {
    /// The scenario.
    #[arg(required_unless_present_any = ["list", "all"])]
    pub scenario: Option<String>,
    /// List the scenarios with the papers' figures.
    #[arg(long)]
    pub list: bool,
    /// Run all scenarios, one after the other, each in a process of its own.
    #[arg(long, conflicts_with_all = ["scenario", "list", "table", "layout", "keys", "only", "rtl", "plot"])]
    pub all: bool,
    /// End with the process that runs all scenarios.
    #[arg(long, hide = true, conflicts_with = "all")]
    pub of_all: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Directory of the lists that scenarios use (`country.csv`, `block-178k.txt`, ...); missing lists are generated.
    #[arg(long, value_name = "DIR", default_value = "examples/edge/lists")]
    pub data: PathBuf,
    /// Scenario `tables`: only this table; may be given more than once.
    #[arg(long, value_name = "NAME")]
    pub table: Vec<String>,
    /// Scenario `tables`: only this layout; may be given more than once.
    #[arg(long, value_name = "NAME")]
    pub layout: Vec<String>,
    /// Scenario `tables`: only these keys; may be given more than once.
    #[arg(long, value_name = "NAME")]
    pub keys: Vec<String>,
    /// Scenarios `features`, `hybrid`, `live`, `smartnic`, `stateful`, `table-changes` and `thread-layouts`: only this
    /// engine, contender, part, card, ruleset or kind of row; may be given more than once.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// Fewer and shorter turns.
    #[arg(long)]
    quick: bool,
    /// The least that runs all of a scenario, in seconds. Its checks count, its figures mean nothing.
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
    /// Scenario `hybrid`: with frames of the RTL, whose simulation is built in this folder with Verilator.
    #[arg(long, value_name = "DIR")]
    pub rtl: Option<PathBuf>,
    /// Draw the result as SVG.
    #[arg(long, value_name = "SVG")]
    pub plot: Option<PathBuf>,
    /// Replace the scenario's section in this page of Markdown by the figures, the machine and the command.
    #[arg(long, value_name = "PAGE", conflicts_with_all = ["all", "list", "smoke", "table", "layout", "keys", "only"])]
    pub figures: Option<PathBuf>,
}

impl Options {
    /// How much is measured.
    pub fn scale(&self) -> Scale {
        match (self.quick, self.smoke) {
            (_, true) => Scale::Smoke,
            (true, false) => Scale::Quick,
            (false, false) => Scale::Full,
        }
    }
}
