//! The command line. Its shape is stable: scripts rely on it.

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use weir_policy::ir;

/// Weir, a software DDoS scrubber: one policy, compiled and enforced wherever a packet can be stopped.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a policy and say what it costs.
    Check(CheckOptions),
    /// Compile a policy into a bundle for a box without clang.
    Compile(CompileOptions),
    /// Run a policy over a capture.
    Replay(ReplayOptions),
    /// Explain which rule decided a packet, and what each rule before it saw.
    Why(WhyOptions),
    /// List the packets whose verdict differs between two policies.
    Diff(DiffOptions),
    /// Measure: the tables and figures of the papers as named scenarios.
    Bench(BenchOptions),
}

/// `weir check`
#[derive(Debug, Args)]
pub struct CheckOptions {
    /// The policy.
    pub policy: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Only check: do not compile, load and measure.
    #[arg(long)]
    pub quick: bool,
    /// Choose table layouts for the machine on which `weir bench line-costs --json` printed this.
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
}

/// `weir compile`
#[derive(Debug, Args)]
pub struct CompileOptions {
    /// The policy.
    pub policy: PathBuf,
    /// The bundle to write.
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: PathBuf,
    /// The processor that native code is for.
    #[arg(long, value_enum, default_value_t = CpuName::Native)]
    pub cpu: CpuName,
    /// Choose table layouts for the machine on which `weir bench line-costs --json` printed this.
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Also write the generated C and the IR into this directory.
    #[arg(long, value_name = "DIR")]
    pub emit: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Processors that native code can be compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CpuName {
    /// This machine.
    #[value(name = "native")]
    Native,
    /// Any x86-64 with AVX2.
    #[value(name = "x86-64-v3")]
    X86_64V3,
}

/// Which engine decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// The reference interpreter.
    Eval,
    /// Generated C in this process.
    Native,
    /// Generated BPF in the kernel.
    Xdp,
    /// Generated P4 on DPDK's SWX pipeline.
    P4,
}

impl EngineName {
    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            EngineName::Eval => "eval",
            EngineName::Native => "native",
            EngineName::Xdp => "xdp",
            EngineName::P4 => "p4",
        }
    }
}

/// Which way the packets of a capture go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectionName {
    /// From the lower bundle (outside) to the upper (inside).
    Upstream,
    /// From the upper bundle to the lower.
    Downstream,
}

impl From<DirectionName> for ir::Direction {
    fn from(name: DirectionName) -> Self {
        match name {
            DirectionName::Upstream => ir::Direction::Upstream,
            DirectionName::Downstream => ir::Direction::Downstream,
        }
    }
}

/// Which chain of a policy decides.
#[derive(Clone, Debug, Args)]
pub struct ChainOptions {
    /// Which way the packets go.
    #[arg(long, value_enum, default_value_t = DirectionName::Upstream)]
    pub direction: DirectionName,
    /// Use this posture instead of the base policy.
    #[arg(long, value_name = "NAME")]
    pub posture: Option<String>,
}

/// `weir replay`
#[derive(Debug, Args)]
pub struct ReplayOptions {
    /// The policy, or a bundle.
    pub policy: PathBuf,
    /// The capture: pcap or pcapng; Ethernet, raw IP or Linux cooked.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Write the packets that pass here.
    #[arg(long, value_name = "CAPTURE")]
    pub out: Option<PathBuf>,
    /// Write the packets that are dropped here.
    #[arg(long, value_name = "CAPTURE")]
    pub dropped: Option<PathBuf>,
    /// Direction and posture.
    #[command(flatten)]
    pub chain: ChainOptions,
    /// Which engine decides; native where clang or a bundle is at hand, else eval.
    #[arg(long, value_enum)]
    pub engine: Option<EngineName>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// With --json: list every packet's verdict, in order.
    #[arg(long, requires = "json")]
    pub verdicts: bool,
}

/// `weir why`
#[derive(Debug, Args)]
pub struct WhyOptions {
    /// The policy, or a bundle.
    pub policy: PathBuf,
    /// The capture.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Number of the packet, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: u64,
    /// Direction and posture.
    #[command(flatten)]
    pub chain: ChainOptions,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `weir diff`
#[derive(Debug, Args)]
pub struct DiffOptions {
    /// The policy, or bundle, as it is.
    pub old: PathBuf,
    /// The policy, or bundle, as it will be.
    pub new: PathBuf,
    /// The capture.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Direction and posture.
    #[command(flatten)]
    pub chain: ChainOptions,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `weir bench`
#[derive(Debug, Args)]
pub struct BenchOptions {
    /// The scenario.
    #[arg(required_unless_present = "list")]
    pub scenario: Option<String>,
    /// Name the scenarios with the papers' figures.
    #[arg(long)]
    pub list: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Directory of the lists that scenarios use (`country.csv`, `block-178k.txt`, ...); what it lacks is made up.
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
    /// Draw the result.
    #[arg(long, value_name = "SVG")]
    pub plot: Option<PathBuf>,
}
