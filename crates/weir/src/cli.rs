//! The command line. Its form is stable, because scripts rely on it.

mod card;
mod card_plan;
mod ctl;
mod detect;
mod mitigation;
mod values;

use crate::failure::Failure;
use crate::inside::Inside;
use crate::report::Format;
use crate::run::claim::ClaimTarget;
pub use card::{CardKind, CardOptions, CardRules, GivenCard, GivenDropping, GivenHybrid, Placement, SweepOptions};
pub use card_plan::{CardCommand, CardCommandOptions, CardPlanOptions, CardServeOptions};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use ctl::{
    AttacksAction, BaselineAction, BaselineOptions, CtlCommand, CtlOptions, FlowsAction, FlowsOptions, Given, Order,
    SlotAction, TableAction,
};
pub use detect::DetectOptions;
pub use mitigation::{MitigationOptions, ModeName};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
pub(crate) use values::timeout_ms;
use values::{slot_rule, time, top};
use weir_control::DEFAULT_PATH;
use weir_engine::bundle::trust::Trust;
use weir_policy::capability::Engine;
use weir_policy::ir;
use weir_state::words::BUCKETS_MAX;

/// Weir, a software DDoS scrubber: one policy, compiled and enforced wherever a packet can be stopped.
#[derive(Debug, Parser)]
#[command(name = "weir", version, about, disable_help_subcommand = true)]
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
    /// Run a policy between interfaces, until SIGINT or SIGTERM.
    Run(Box<RunOptions>),
    /// Wait until the Weir that started this process ends.
    #[command(hide = true)]
    Guard(GuardOptions),
    /// Wait until the Weir that started this process ends, and delete its filters in a card.
    #[command(hide = true)]
    Sweep(SweepOptions),
    /// Query and control a running Weir.
    Ctl(CtlOptions),
    /// Plan for a card in front of Weir, or be one in software.
    Card(CardCommandOptions),
    /// Run benchmarks: the tables and figures of the papers as named scenarios.
    Bench(BenchOptions),
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
            Command::Ctl(options) => options.json,
            Command::Card(CardCommandOptions { command: CardCommand::Plan(options) }) => options.json,
            Command::Card(CardCommandOptions { command: CardCommand::Serve(options) }) => options.json,
            Command::Bench(options) => return format_asked_for(options.arguments.iter().cloned()),
            Command::Run(_) | Command::Guard(_) | Command::Sweep(_) => false,
        };
        if json { Format::Json } else { Format::Text }
    }
}

/// The output format for the failure of a command line that cannot be parsed.
pub fn format_asked_for(words: impl IntoIterator<Item = OsString>) -> Format {
    let mut options = words.into_iter().take_while(|word| word != "--");
    if options.any(|word| word == "--json") { Format::Json } else { Format::Text }
}

/// The failure of a command line that cannot be parsed.
pub fn refusal(error: &clap::Error) -> Failure {
    Failure::Rejected(error.render().to_string().trim_end().to_owned())
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
    /// The bundle to write.
    #[arg(short, long, value_name = "BUNDLE")]
    pub output: PathBuf,
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

/// An engine for captures.
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
    pub fn name(self) -> &'static str {
        Engine::from(self).name()
    }
}

impl From<EngineName> for Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Eval => Engine::Eval,
            EngineName::Native => Engine::Native,
            EngineName::Xdp => Engine::Xdp,
            EngineName::P4 => Engine::P4,
        }
    }
}

/// The direction of the packets in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DirectionName {
    /// From the lower interfaces (outside) to the upper interfaces (inside).
    Upstream,
    /// From the upper interfaces to the lower interfaces.
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

/// The chain of a policy that decides.
#[derive(Clone, Debug, Args)]
pub struct ChainOptions {
    /// The direction of all packets. Without it, `inside` of the policy determines each packet's direction, and all go
    /// upstream if the policy does not say what is inside.
    #[arg(long, value_enum)]
    pub direction: Option<DirectionName>,
    /// Determine each packet's direction by its source: downstream if it is in one of these prefixes, else upstream.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', conflicts_with = "direction")]
    pub inside: Vec<Inside>,
    /// Use this posture instead of the base policy.
    #[arg(long, value_name = "NAME")]
    pub posture: Option<String>,
}

impl ChainOptions {
    /// The posture; `None` for the base policy.
    pub fn posture(&self) -> Option<&str> {
        self.posture.as_deref()
    }

    /// The direction of packets that no source determines.
    pub fn direction(&self) -> ir::Direction {
        self.direction.unwrap_or(DirectionName::Upstream).into()
    }

    /// Which sources are inside, by these options or by the policy. Empty if all packets have one direction.
    pub fn inside(&self, program: &ir::Program) -> Vec<Inside> {
        match self.direction {
            None if self.inside.is_empty() => Inside::of_sets(&program.inside),
            _ => self.inside.clone(),
        }
    }
}

/// Which bundles are opened.
#[derive(Clone, Debug, Args)]
pub struct TrustOptions {
    /// Open a bundle only if it is signed with the private key of this public key: Ed25519 in PEM, as `openssl pkey -in
    /// KEY -pubout` writes it. May be given more than once; one matching key is enough.
    #[arg(long, value_name = "KEY")]
    pub trust: Vec<PathBuf>,
}

impl TrustOptions {
    /// Reads the keys.
    ///
    /// # Errors
    /// A file is not a public key, or other users can change it.
    pub fn read(&self) -> Result<Trust, Failure> {
        Ok(Trust::read(&self.trust)?)
    }
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

/// `weir run`
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The policy, or a bundle.
    pub policy: PathBuf,
    /// Which bundles are opened, also by `ctl load`.
    #[command(flatten)]
    pub trust: TrustOptions,
    /// How packets are received and sent.
    #[arg(long, value_enum)]
    pub engine: LiveEngine,
    /// Interfaces towards the network.
    #[arg(long, value_name = "IF", value_delimiter = ',', required_unless_present = "host")]
    pub lower: Vec<String>,
    /// Interfaces towards the protected hosts.
    #[arg(long, value_name = "IF", value_delimiter = ',', required_unless_present = "host")]
    pub upper: Vec<String>,
    /// Engine `xdp`: protect this machine, at these interfaces of it. Received packets are decided by `upstream`, and
    /// go up to the kernel if accepted. Packets that the machine sends are decided by `downstream`.
    #[arg(long, value_name = "IF", value_delimiter = ',', conflicts_with_all = ["lower", "upper", "divert", "carry_link"])]
    pub host: Vec<String>,
    /// The interface for diverted packets and samples.
    #[arg(long, value_name = "IF")]
    pub divert: Option<String>,
    /// What happens about attacks.
    #[command(flatten)]
    pub mitigation: MitigationOptions,
    /// What a card drops.
    #[command(flatten)]
    pub card: CardOptions,
    /// Try the policy: unless `weir ctl confirm` comes within this time (`60s`, `5m`), Weir ends and everything passes,
    /// as without Weir. Until then that also happens if Weir is killed, whatever `on-exit` says.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub confirm: Option<Duration>,
    /// Start although the policy drops packets of the connection over which you are logged in (`SSH_CONNECTION`).
    #[arg(long)]
    pub drop_own_connection: bool,
    /// Threads that move packets. Each has a queue of every interface.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = workers)]
    pub workers: usize,
    /// Take an interface down while the opposite interface has no link, so that the neighbour notices.
    #[arg(long)]
    pub carry_link: bool,
    /// Engine `dpdk`: arguments for DPDK's environment, separated by blanks: `--vdev=net_memif0,role=client -a
    /// 0000:01:00.0`. Interfaces are then names of DPDK ports. Weir adds `--in-memory` (`--no-shconf` with
    /// `--no-huge`), `--no-telemetry` and a core (`-l`), unless ARGS contain options for them.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub eal: Option<String>,
    /// Engine `afxdp`: workers without packets poll the driver instead of sleeping. Packets are delayed less, but each
    /// worker uses a whole core.
    #[arg(long)]
    pub busy_poll: bool,
    /// The control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    pub control: PathBuf,
    /// Engine `xdp`: reserve room for N limits of all loaded policies together, 8 bytes each. Policies whose limits do
    /// not fit are refused. The default is the limits of the first policy and a quarter more, but at least 65,536 or
    /// the largest table of addresses.
    #[arg(long, value_name = "N", value_parser = limits_room)]
    pub limits_room: Option<usize>,
    /// Keep dynamic tables, the debts of limits and answered flows in this folder, so that they outlive Weir.
    #[arg(long = "state", value_name = "DIR")]
    pub state_folder: Option<PathBuf>,
    /// Append the counts of limits to this file, as JSON lines, for lists with `log exceeded` or `log all`.
    #[arg(long, value_name = "FILE")]
    pub limits_log: Option<PathBuf>,
    /// The interval of the limits log.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval, requires = "limits_log")]
    pub limits_interval: Duration,
    /// Limits that have a line in each interval, the most exceeded first. The sums cover all limits.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = top, requires = "limits_log")]
    pub limits_top: usize,
}

/// `weir guard`
#[derive(Debug, Args)]
pub struct GuardOptions {
    /// Interfaces towards the network.
    #[arg(long, value_name = "IF", value_delimiter = ',', required = true)]
    pub lower: Vec<String>,
    /// Interfaces towards the protected hosts.
    #[arg(long, value_name = "IF", value_delimiter = ',', required = true)]
    pub upper: Vec<String>,
    /// The claims that the guard takes.
    #[arg(long = "claim", value_name = "CLAIM")]
    pub claims: Vec<ClaimTarget>,
}

fn limits_room(text: &str) -> Result<usize, String> {
    let room = text.parse().ok().filter(|room| (1..BUCKETS_MAX).contains(room));
    room.ok_or_else(|| format!("a number from 1 to {} is expected", BUCKETS_MAX - 1))
}

/// Most threads that move packets.
const WORKERS_MAX: usize = 256;

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(workers) if (1..=WORKERS_MAX).contains(&workers) => Ok(workers),
        _ => Err(format!("a number from 1 to {WORKERS_MAX}")),
    }
}

/// How packets are received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LiveEngine {
    /// Raw packet sockets; works everywhere.
    Afpacket,
    /// AF_XDP sockets.
    Afxdp,
    /// DPDK drivers, for interfaces without a kernel driver.
    Dpdk,
    /// Programs in the kernel; packets do not reach user space.
    Xdp,
}

/// The shortest interval of the limits log.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    if interval < INTERVAL_MIN { Err(format!("at least {} ms", INTERVAL_MIN.as_millis())) } else { Ok(interval) }
}

/// `weir bench`
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct BenchOptions {
    /// The arguments of `weir-bench`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub arguments: Vec<OsString>,
}
