//! The command line. Its form is stable, because scripts rely on it.

mod capture;
mod card_plan;
mod config;
mod ctl;
mod detect;
mod import;
mod top;

pub use capture::CaptureOptions;
pub use card_plan::{CardCommand, CardCommandOptions, CardPlanOptions, CardServeOptions};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
pub use config::{ConfigCommand, ConfigOptions, ConfigWords};
pub use ctl::{
    AttacksAction, BaselineAction, BaselineOptions, CtlCommand, CtlOptions, FlowsAction, FlowsOptions, Given, Order,
    ShadowAction, SlotAction, StatsOptions, TableAction,
};
pub use detect::DetectOptions;
pub use import::{ImportFormat, ImportOptions, ImportedFiles, RulesetOptions};
use std::ffi::OsString;
use std::path::PathBuf;
pub use top::TopOptions;
use weir_command::options::{ChainOptions, ControllerOptions, EngineName, TrustOptions, format_asked_for};
use weir_command::report::Format;
use weir_command::values::slot_rule;
use weir_daemon::options::{GuardOptions, RunOptions, SweepOptions};

/// The end of the long help and of the manual page.
const EXIT_STATUS: &str = "Exit status: 0 if done, 1 if something failed while it ran, 2 for a mistake in a policy, in \
                           a list or on the command line.";

/// Weir, a software DDoS scrubber: one policy, compiled and enforced wherever a packet can be stopped.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, disable_help_subcommand = true, after_long_help = EXIT_STATUS)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Check a policy and report what it costs.
    Check(CheckOptions),
    /// Compile a policy into a bundle, for a machine without clang.
    Compile(CompileOptions),
    /// Run a policy over a capture.
    Replay(ReplayOptions),
    /// Explain which rule decided a packet, and what each earlier rule saw.
    Why(WhyOptions),
    /// List the packets whose verdict differs between two policies.
    Diff(DiffOptions),
    /// Detect attacks in recordings, and report what mitigation would do about them.
    Detect(DetectOptions),
    /// Write a policy from the rules of another packet filter, and report what is not in it.
    Import(ImportOptions),
    /// Run a policy between interfaces, until SIGINT or SIGTERM.
    Run(Box<RunOptions>),
    /// Wait until the Weir that started this process ends.
    #[command(hide = true)]
    Guard(GuardOptions),
    /// Wait until the Weir that started this process ends, and delete its filters in a card.
    #[command(hide = true)]
    Sweep(SweepOptions),
    /// Check or show the configuration of `weir run`.
    Config(ConfigOptions),
    /// Query and control a running Weir.
    Ctl(CtlOptions),
    /// Watch a running Weir on one screen: rates, attacks, drops, losses.
    Top(TopOptions),
    /// Plan for a card in front of Weir, or be one in software.
    Card(CardCommandOptions),
    /// Run benchmarks: the tables and figures of the papers as named scenarios.
    Bench(BenchOptions),
    /// Print the completions of a shell, for its folder of completions.
    Completions(CompletionsOptions),
    /// Write the manual pages of all commands into a folder.
    #[command(hide = true)]
    Man(ManOptions),
}

impl Command {
    /// The output format that the options select.
    pub fn format(&self) -> Format {
        let json = match self {
            Command::Check(options) => options.json,
            Command::Compile(options) => options.json,
            Command::Replay(options) => options.json,
            Command::Why(options) => options.json,
            Command::Diff(options) => options.json,
            Command::Detect(options) => options.json,
            Command::Config(options) => options.json,
            Command::Import(options) => options.format.files().json,
            Command::Ctl(options) => options.json,
            Command::Top(options) => options.json,
            Command::Card(CardCommandOptions { command: CardCommand::Plan(options) }) => options.json,
            Command::Card(CardCommandOptions { command: CardCommand::Serve(options) }) => options.json,
            Command::Bench(options) => return format_asked_for(options.arguments.iter().cloned()),
            Command::Run(_) | Command::Guard(_) | Command::Sweep(_) | Command::Completions(_) | Command::Man(_) => {
                false
            }
        };
        if json { Format::Json } else { Format::Text }
    }
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
    /// Compile, load and measure this posture instead of the base policy; may be given more than once. All postures are
    /// always checked.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all_postures", "quick"])]
    pub posture: Vec<String>,
    /// Compile, load and measure the base policy and all postures.
    #[arg(long, conflicts_with = "quick")]
    pub all_postures: bool,
    /// Fail unless this engine can run the policy with all its postures; may be given more than once. Only these
    /// engines are measured.
    #[arg(long, value_enum, conflicts_with_all = ["posture", "quick"])]
    pub engine: Vec<EngineName>,
    /// Choose table layouts by this output of `weir bench line-costs --json` from the machine that will run the policy.
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Report which rules of `upstream` a card can take, and why. The profile of the card comes with Weir
    /// (`netfpga-sume`, `open-nic`) or is a file. With `--posture`, the upstream rules of the first one are reported.
    #[arg(long, value_name = "PROFILE")]
    pub card: Option<String>,
}

/// `weir compile`
#[derive(Debug, Args)]
pub struct CompileOptions {
    /// The policy.
    pub policy: PathBuf,
    /// The bundle to write; with `--target p4` the folder.
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: PathBuf,
    /// What to write.
    #[arg(long, value_enum, default_value_t = TargetName::Bundle)]
    pub target: TargetName,
    /// The processor that native code is for.
    #[arg(long, value_enum, default_value_t = CpuName::Native)]
    pub cpu: CpuName,
    /// Sign the bundle with this private key: Ed25519 in PEM, as `openssl genpkey -algorithm ed25519` writes it.
    #[arg(long, value_name = "KEY")]
    pub sign: Option<PathBuf>,
    /// Choose table layouts by this output of `weir bench line-costs --json` from the machine that will run the policy.
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// Also write the generated C and the IR into this directory.
    #[arg(long, value_name = "DIR")]
    pub emit: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `weir compile` can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TargetName {
    /// One file for every engine, for machines without clang.
    Bundle,
    /// A folder with the policy as P4, its pipeline for DPDK, and its tables.
    P4,
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

/// `weir replay`
#[derive(Debug, Args)]
pub struct ReplayOptions {
    /// The policy, or a bundle.
    pub policy: PathBuf,
    /// The capture: pcap or pcapng; Ethernet, raw IP or Linux cooked. `-` is standard input.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Write the packets that pass to this file. `-` is standard output; the report then goes to standard error.
    #[arg(long, value_name = "CAPTURE")]
    pub out: Option<PathBuf>,
    /// Write the packets that are dropped to this file, or to standard output (`-`).
    #[arg(long, value_name = "CAPTURE")]
    pub dropped: Option<PathBuf>,
    /// Write the packets that Weir itself sends to this file, or to standard output (`-`): answers to SYNs, and its
    /// handshakes with servers.
    #[arg(long, value_name = "CAPTURE")]
    pub replies: Option<PathBuf>,
    /// Put a rule into a slot of the policy, for instance `attacks='udp sport 53 drop'`. Repeatable.
    #[arg(long = "slot", value_name = "NAME=RULE", value_parser = slot_rule)]
    pub slots: Vec<(String, String)>,
    /// Which bundles are opened.
    #[command(flatten)]
    pub trust: TrustOptions,
    /// Direction and posture.
    #[command(flatten)]
    pub chain: ChainOptions,
    /// The engine; by default native if there is clang or the policy is a bundle, else eval.
    #[arg(long, value_enum)]
    pub engine: Option<EngineName>,
    /// Who tracks for a P4 pipeline.
    #[command(flatten)]
    pub controller: ControllerOptions,
    /// Compare the counts with this file (`expected.json` of an exported attack), which also says direction and
    /// posture. If one differs, the exit code is 1 and a message names it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["direction", "inside", "posture"])]
    pub expect: Option<PathBuf>,
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
    /// The capture; `-` is standard input.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Number of the packet, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: u64,
    /// Put a rule into a slot of the policy, for instance `attacks='udp sport 53 drop'`. Repeatable.
    #[arg(long = "slot", value_name = "NAME=RULE", value_parser = slot_rule)]
    pub slots: Vec<(String, String)>,
    /// Which bundles are opened.
    #[command(flatten)]
    pub trust: TrustOptions,
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
    /// The old policy or bundle.
    pub old: PathBuf,
    /// The new policy or bundle.
    pub new: PathBuf,
    /// The capture; `-` is standard input.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Which bundles are opened.
    #[command(flatten)]
    pub trust: TrustOptions,
    /// Direction and posture.
    #[command(flatten)]
    pub chain: ChainOptions,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `weir bench`
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct BenchOptions {
    /// The arguments of `weir-bench`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub arguments: Vec<OsString>,
}

/// `weir completions`
#[derive(Debug, Args)]
pub struct CompletionsOptions {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `weir man`
#[derive(Debug, Args)]
pub struct ManOptions {
    /// The folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}
