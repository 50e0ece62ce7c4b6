//! The command line. Its shape is stable: scripts rely on it.

use crate::failure::Failure;
use crate::report::Format;
use crate::run::claim::Place;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use weir_control::{DEFAULT_PATH, TOP_MAX};
use weir_engine::bundle::trust::Trust;
use weir_policy::capability::Engine;
use weir_policy::ir;
use weir_state::words::BUCKETS_MAX;

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
    /// Run a policy between interfaces, until SIGINT or SIGTERM.
    Run(RunOptions),
    /// Wait for the end of the Weir that has started it.
    #[command(hide = true)]
    Guard(GuardOptions),
    /// Ask a running Weir, and change what it does.
    Ctl(CtlOptions),
    /// Measure: the tables and figures of the papers as named scenarios.
    Bench(BenchOptions),
}

impl Command {
    /// How the command is to report.
    pub fn format(&self) -> Format {
        let json = match self {
            Command::Check(options) => options.json,
            Command::Compile(options) => options.json,
            Command::Replay(options) => options.json,
            Command::Why(options) => options.json,
            Command::Diff(options) => options.json,
            Command::Ctl(options) => options.json,
            Command::Bench(options) => return format_asked_for(options.words.iter().cloned()),
            Command::Run(_) | Command::Guard(_) => false,
        };
        if json { Format::Json } else { Format::Text }
    }
}

/// How a command line that cannot be read wants its failure reported.
pub fn format_asked_for(words: impl IntoIterator<Item = OsString>) -> Format {
    let mut options = words.into_iter().take_while(|word| word != "--");
    if options.any(|word| word == "--json") { Format::Json } else { Format::Text }
}

/// Why a command line cannot be read.
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
    /// Compile, load and measure this posture, instead of the base policy; may be given more than once. All postures are checked in any case.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all_postures", "quick"])]
    pub posture: Vec<String>,
    /// Compile, load and measure the base policy and all postures.
    #[arg(long, conflicts_with = "quick")]
    pub all_postures: bool,
    /// Fail unless this engine can run the policy, with all its postures; may be given more than once. No other engine is measured.
    #[arg(long, value_enum, conflicts_with_all = ["posture", "quick"])]
    pub engine: Vec<EngineName>,
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
    /// Sign the bundle with this private key: Ed25519 in PEM, as `openssl genpkey -algorithm ed25519` makes it.
    #[arg(long, value_name = "KEY")]
    pub sign: Option<PathBuf>,
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

impl ChainOptions {
    /// The posture; none is the base policy.
    pub fn posture(&self) -> Option<&str> {
        self.posture.as_deref()
    }

    /// Which way the packets go.
    pub fn direction(&self) -> ir::Direction {
        self.direction.into()
    }
}

/// Whose bundles are opened.
#[derive(Clone, Debug, Args)]
pub struct TrustOptions {
    /// Open a bundle only if this public key's owner signed it: Ed25519 in PEM, as `openssl pkey -in KEY -pubout` makes it. May be given more than
    /// once; one of the keys is enough.
    #[arg(long, value_name = "KEY")]
    pub trust: Vec<PathBuf>,
}

impl TrustOptions {
    /// The keys.
    ///
    /// # Errors
    /// A file is no public key, or can be changed by others.
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
    /// Write the packets that pass here. `-` is standard output; the report goes to standard error then.
    #[arg(long, value_name = "CAPTURE")]
    pub out: Option<PathBuf>,
    /// Write the packets that are dropped here, or to standard output (`-`).
    #[arg(long, value_name = "CAPTURE")]
    pub dropped: Option<PathBuf>,
    /// Whose bundles are opened.
    #[command(flatten)]
    pub trust: TrustOptions,
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
    /// The capture; `-` is standard input.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Number of the packet, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub packet: u64,
    /// Whose bundles are opened.
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
    /// The policy, or bundle, as it is.
    pub old: PathBuf,
    /// The policy, or bundle, as it will be.
    pub new: PathBuf,
    /// The capture; `-` is standard input.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: PathBuf,
    /// Whose bundles are opened.
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
    /// Whose bundles are opened, by `ctl load` too.
    #[command(flatten)]
    pub trust: TrustOptions,
    /// How packets are received and sent.
    #[arg(long, value_enum)]
    pub engine: LiveEngine,
    /// Interfaces towards the network.
    #[arg(long, value_name = "IF", value_delimiter = ',', required = true)]
    pub lower: Vec<String>,
    /// Interfaces towards what is protected.
    #[arg(long, value_name = "IF", value_delimiter = ',', required = true)]
    pub upper: Vec<String>,
    /// Where diverted packets and samples go.
    #[arg(long, value_name = "IF")]
    pub divert: Option<String>,
    /// Threads that move packets, each with a queue of every interface.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = workers)]
    pub workers: usize,
    /// Take an interface down while there is no link opposite, so that its neighbour notices.
    #[arg(long)]
    pub carry_link: bool,
    /// Engine `dpdk`: what DPDK's environment is told, parted by blanks: `--vdev=net_memif0,role=client -a 0000:01:00.0`. Interfaces are the names
    /// of DPDK's ports then. Weir adds `--in-memory` (`--no-shconf` with `--no-huge`), `--no-telemetry` and a core (`-l`) unless something else is said
    /// about that.
    #[arg(long, value_name = "ARGS", allow_hyphen_values = true)]
    pub eal: Option<String>,
    /// Workers without packets ask the driver for some, again and again, instead of sleeping: less delay for a whole core each. Of afxdp.
    #[arg(long)]
    pub busy_poll: bool,
    /// The control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH)]
    pub control: PathBuf,
    /// Engine `xdp`: keep room for so many limits of all policies that stand ready, 8 bytes each. Lists that grow beyond the room are refused. The first
    /// policy's and a quarter more, at least 65,536 or the largest table of addresses, unless said otherwise.
    #[arg(long, value_name = "N", value_parser = limits_room)]
    pub limits_room: Option<usize>,
    /// Append what limits count to this file, as JSON lines: those of lists with `log exceeded` or `log all`.
    #[arg(long, value_name = "FILE")]
    pub limits_log: Option<PathBuf>,
    /// How often.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval, requires = "limits_log")]
    pub limits_interval: Duration,
    /// Limits that get a line each time, the most exceeded first; all are in the sums.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = top, requires = "limits_log")]
    pub limits_top: usize,
}

/// `weir guard`
#[derive(Debug, Args)]
pub struct GuardOptions {
    /// Interfaces towards the network.
    #[arg(long, value_name = "IF", value_delimiter = ',', required = true)]
    pub lower: Vec<String>,
    /// Interfaces towards what is protected.
    #[arg(long, value_name = "IF", value_delimiter = ',', required = true)]
    pub upper: Vec<String>,
    /// What it claims.
    #[arg(long = "claim", value_name = "CLAIM")]
    pub claims: Vec<Place>,
}

fn limits_room(text: &str) -> Result<usize, String> {
    let room = text.parse().ok().filter(|room| (1..BUCKETS_MAX).contains(room));
    room.ok_or_else(|| format!("a number from 1 to {} is expected", BUCKETS_MAX - 1))
}

/// Threads that move packets, at most.
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
    /// Raw packet sockets: works everywhere.
    Afpacket,
    /// AF_XDP sockets.
    Afxdp,
    /// DPDK's drivers: interfaces that the kernel has no part in.
    Dpdk,
    /// Programs in the kernel: no thread of ours touches a packet.
    Xdp,
}

/// `weir ctl`
#[derive(Debug, Args)]
pub struct CtlOptions {
    /// The control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH, global = true)]
    pub control: PathBuf,
    /// Print one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to ask.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// What `weir ctl` asks.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Who decides, and who stands ready.
    Status,
    /// What was counted.
    Stats,
    /// What was counted for limits, of lists with `log exceeded` or `log all`.
    Limits {
        /// So many, the most exceeded first.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = top)]
        top: usize,
        /// Of this list only.
        #[arg(long, value_name = "NAME")]
        list: Option<String>,
    },
    /// Prepare a policy or bundle beside the one that runs.
    Load {
        /// The policy.
        policy: PathBuf,
    },
    /// Let a prepared generation decide.
    Activate {
        /// Its number.
        generation: u64,
        /// Go back after this time (`60s`, `5m`) unless `confirm` comes.
        #[arg(long, value_name = "TIME", value_parser = time)]
        confirm: Option<Duration>,
    },
    /// What is on trial stays.
    Confirm,
    /// Go back: on trial to what was confirmed last, else to what was confirmed before.
    Rollback,
    /// Let a posture of the active generation decide.
    Posture {
        /// Its name; the base policy's if none.
        name: Option<String>,
    },
}

/// The shortest interval of a log.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    if interval < INTERVAL_MIN { Err(format!("at least {} ms", INTERVAL_MIN.as_millis())) } else { Ok(interval) }
}

fn top(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(top) if (1..=TOP_MAX).contains(&top) => Ok(top),
        _ => Err(format!("a number from 1 to {TOP_MAX}")),
    }
}

/// `500ms`, `60s`, `5m`, `1h`.
fn time(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a time like 500ms, 60s, 5m".to_owned()),
    };
    let number: u64 = text[..digits].parse().map_err(|_| "a time like 500ms, 60s, 5m".to_owned())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "too long a time".to_owned())
}

/// `weir bench`
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct BenchOptions {
    /// What `weir-bench` is given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub words: Vec<OsString>,
}
