//! The options of `weir run`, and of the processes that it starts.

use crate::interfaces::claim::ClaimTarget;
pub use crate::parts::card::options::{CardOptions, SweepOptions};
pub use crate::parts::export::options::ExportOptions;
pub use crate::parts::metrics::options::MetricsOptions;
pub use crate::parts::mitigation::options::{MitigationOptions, ModeName};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::path::PathBuf;
use std::time::Duration;
use weir_command::options::{ControllerOptions, TrustOptions};
use weir_command::values::{time, top};
use weir_control::DEFAULT_PATH;
use weir_engine::live::afxdp::Waiting;
use weir_engine::live::engines::{LaneOptions, LiveEngine};
use weir_state::words::BUCKETS_MAX;

/// `weir run`
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The policy, or a bundle. Without one, policy and options come from the configuration.
    pub policy: PathBuf,
    /// Read options from this file: long option names as keys. Options of the command line win. Without a policy, the
    /// default is /etc/weir/weir.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which bundles are opened, also by `ctl load`.
    #[command(flatten)]
    pub trust: TrustOptions,
    /// How packets are received and sent.
    #[arg(long, value_parser = engine())]
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
    /// What collectors are told.
    #[command(flatten)]
    pub export: ExportOptions,
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
    /// Who tracks for P4 pipelines.
    #[command(flatten)]
    pub controller: ControllerOptions,
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
    /// Keep the last confirmed policy in the folder of `--state`, compiled and with its lists. If POLICY does not load
    /// at a start, Weir starts with the kept one, and the log and `weir ctl status` say so.
    #[arg(long, requires = "state_folder")]
    pub keep_confirmed: bool,
    /// Append the counts of limits to this file, as JSON lines, for lists with `log exceeded` or `log all`.
    #[arg(long, value_name = "FILE")]
    pub limits_log: Option<PathBuf>,
    /// The interval of the limits log.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval, requires = "limits_log")]
    pub limits_interval: Duration,
    /// Limits that have a line in each interval, the most exceeded first. The sums cover all limits.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = top, requires = "limits_log")]
    pub limits_top: usize,
    /// Only try whether this program can run these policies with these options: what an upgrade asks the new program.
    #[arg(long = "try-policy", hide = true, value_name = "POLICY")]
    pub try_policies: Vec<PathBuf>,
    /// What Prometheus is told.
    #[command(flatten)]
    pub metrics: MetricsOptions,
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

/// The engines, with what they are.
fn engine() -> impl TypedValueParser<Value = LiveEngine> {
    let value = |(_, name, what): (LiveEngine, &'static str, &'static str)| PossibleValue::new(name).help(what);
    let names = PossibleValuesParser::new(LiveEngine::ALL.map(value));
    names.map(|name| LiveEngine::named(&name).expect("only names of engines are possible"))
}

impl RunOptions {
    /// What engines with workers need.
    pub fn lanes(&self) -> LaneOptions<'_> {
        let waiting = if self.busy_poll { Waiting::BusyPoll } else { Waiting::Sleep };
        LaneOptions { workers: self.workers, waiting, eal: self.eal.as_deref().unwrap_or_default() }
    }
}

/// The shortest interval of the limits log.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    if interval < INTERVAL_MIN { Err(format!("at least {} ms", INTERVAL_MIN.as_millis())) } else { Ok(interval) }
}
