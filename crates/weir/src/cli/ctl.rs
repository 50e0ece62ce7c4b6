//! The command line of `weir ctl`.

use super::capture::CaptureOptions;
use clap::{Args, Subcommand, ValueEnum};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_command::values::{entries, time, timeout_ms, top};
use weir_control::DEFAULT_PATH;
use weir_daemon::options::ModeName;

/// `weir ctl`
#[derive(Debug, Args)]
pub struct CtlOptions {
    /// The control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_PATH, global = true)]
    pub control: PathBuf,
    /// Print one JSON object.
    #[arg(long, global = true)]
    pub json: bool,
    /// The request.
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The requests of `weir ctl`.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Print this help, or the help of a request, such as `weir ctl help attacks show`.
    Help {
        /// The request.
        request: Vec<String>,
    },
    /// Show which generation is active and which are ready.
    Status,
    /// Show the counters.
    Stats(StatsOptions),
    /// Show the counts of limits, for lists with `log exceeded` or `log all`.
    Limits {
        /// Show this many limits, the most exceeded first.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = top)]
        top: usize,
        /// Show only this list.
        #[arg(long, value_name = "NAME")]
        list: Option<String>,
    },
    /// Load a policy or bundle without activating it.
    Load {
        /// The policy.
        policy: PathBuf,
    },
    /// Free a loaded generation that is neither active nor a rollback target.
    Unload {
        /// Its number.
        generation: u64,
    },
    /// Activate a loaded generation.
    Activate {
        /// Its number.
        generation: u64,
        /// Roll back after this time (`60s`, `5m`) unless it is confirmed.
        #[arg(long, value_name = "TIME", value_parser = time)]
        confirm: Option<Duration>,
    },
    /// Keep the generation that is on trial.
    Confirm,
    /// Roll back. A trial ends and the confirmed generation is active again; otherwise the previously confirmed
    /// generation is activated.
    Rollback,
    /// Activate a posture of the active generation.
    Posture {
        /// Its name; without a name, the base policy.
        name: Option<String>,
    },
    /// Read the configuration again, load its policy and activate it. If anything fails, the active policy stays.
    Reconfigure {
        /// Roll back after this time (`60s`, `5m`) unless it is confirmed.
        #[arg(long, value_name = "TIME", value_parser = time)]
        confirm: Option<Duration>,
    },
    /// Read the files of tables and limits again, and apply what has changed.
    Reload {
        /// Ignore `max-change` of tables. Protected addresses are refused nevertheless.
        #[arg(long)]
        force: bool,
    },
    /// Upgrade the running Weir to the program that its file has now. With the engine xdp no packet is lost. A program
    /// that cannot take over is refused with its reason, and nothing changes.
    Upgrade,
    /// List attacks, or decide on proposed actions against them.
    Attacks {
        /// What to do; without it, attacks are listed.
        #[command(subcommand)]
        action: Option<AttacksAction>,
    },
    /// Write packets to a pcapng file as they are decided, each with its verdict, rule and reason.
    Capture(Box<CaptureOptions>),
    /// Show what the card drops.
    Card {
        /// Show this many entries, those with the most packets first.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = entries)]
        top: usize,
    },
    /// Show what the active generation has observed in the last second: packets by protected address.
    Features {
        /// Show at most this many addresses, those with most packets first.
        #[arg(long, value_name = "N", default_value_t = 20)]
        top: usize,
    },
    /// List the tracked flows of the active generation, those with the latest packets first.
    Flows(FlowsOptions),
    /// Let a second policy judge packets, and show what it would decide otherwise. It changes nothing.
    Shadow {
        /// What to do; without it, the differences so far are shown.
        #[command(subcommand)]
        action: Option<ShadowAction>,
    },
    /// Change or list the rules of a slot of the active generation while packets pass.
    Slot {
        /// The name of the slot.
        name: String,
        /// What to do with it.
        #[command(subcommand)]
        action: SlotAction,
    },
    /// Change or read a table of the active generation while packets pass.
    Table {
        /// The name of the table.
        name: String,
        /// What to do with it.
        #[command(subcommand)]
        action: TableAction,
    },
}

/// `weir ctl shadow` with a verb.
#[derive(Clone, Debug, Subcommand)]
pub enum ShadowAction {
    /// Let a policy or bundle judge packets from now on, in place of the previous shadow.
    Load {
        /// The policy.
        policy: PathBuf,
        /// Let it judge one packet in N, chosen by chance.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        every: u32,
        /// Use this posture instead of the base policy.
        #[arg(long, value_name = "NAME")]
        posture: Option<String>,
    },
    /// End the shadow, and show the differences for the last time.
    End,
}

/// `weir ctl stats`
#[derive(Debug, Args)]
pub struct StatsOptions {
    /// Print rates and counts again and again, until SIGINT, instead of the counts once. With --json, a line each time.
    #[arg(long)]
    pub watch: bool,
    /// With --watch: print them this often.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s", requires = "watch")]
    pub every: Duration,
    /// Show this many reasons and tables of each direction, those with the most packets first; the default is all.
    #[arg(long, value_name = "N", value_parser = entries)]
    pub top: Option<usize>,
}

/// `weir ctl attacks` with a verb.
#[derive(Clone, Debug, Subcommand)]
pub enum AttacksAction {
    /// Explain an attack: what was measured, what was decided, and what that has hit.
    Show {
        /// Its number.
        attack: u32,
    },
    /// Carry out the actions against an attack that wait.
    Accept {
        /// Its number.
        attack: u32,
    },
    /// End the actions against an attack, those that wait and those that are carried out. They are not proposed again
    /// for it, and further actions wait.
    Dismiss {
        /// Its number.
        attack: u32,
    },
    /// Set the mode. All actions are undone at once, unless it is `act`.
    Mode {
        /// The mode.
        mode: ModeName,
    },
    /// Show what was learned in peace, and change it.
    Baseline(BaselineOptions),
}

/// `weir ctl attacks baseline`
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BaselineOptions {
    /// Show at most this many prefixes, those with the most packets first.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// What else to do with what was learned.
    #[command(subcommand)]
    pub action: Option<BaselineAction>,
}

/// `weir ctl attacks baseline` with a verb.
#[derive(Clone, Debug, Subcommand)]
pub enum BaselineAction {
    /// Set a learned rate. It is learned on from there.
    Set {
        /// `source`, or a prefix.
        of: String,
        /// A rate of the prefix, such as `unproven.udp`, `vouched` or `proven`, and packets a second. Only the latter
        /// for `source`.
        #[arg(required = true, num_args = 1..=2, value_names = ["RATE", "PPS"])]
        values: Vec<String>,
    },
    /// Forget what was learned.
    Reset {
        /// `all`, `source`, `known`, `reference`, `signatures`, or a prefix with all that is in it.
        of: String,
    },
}

/// `weir ctl flows`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct FlowsOptions {
    /// List at most this many.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// List only flows in this state, such as `syn-sent` or `established`.
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// List only flows whose opening packet has these matches, such as `ip saddr 192.0.2.0/24 tcp dport 443`.
    #[arg(long = "where", value_name = "MATCH")]
    pub matches: Option<String>,
    /// What else to do with flows.
    #[command(subcommand)]
    pub action: Option<FlowsAction>,
}

/// `weir ctl flows` with a verb.
#[derive(Debug, Subcommand)]
pub enum FlowsAction {
    /// Count the flows by state.
    Count,
    /// End flows whose opening packet has these matches. Their next packets belong to no flow.
    Kill {
        /// The matches.
        #[arg(required = true, value_name = "MATCH", trailing_var_arg = true)]
        matches: Vec<String>,
    },
}

/// `weir ctl slot NAME`
#[derive(Debug, Subcommand)]
pub enum SlotAction {
    /// Append a rule, such as `ip daddr 192.0.2.1 udp sport 53 drop`, and print its number.
    Add {
        /// When it is removed.
        #[command(flatten)]
        timeout: RuleTimeout,
        /// The rule.
        #[arg(required = true, value_name = "RULE")]
        rule: Vec<String>,
    },
    /// Put a rule in place of another one. It keeps the number, its counters begin at 0.
    Replace {
        /// When it is removed.
        #[command(flatten)]
        timeout: RuleTimeout,
        /// The number of the rule.
        number: u32,
        /// The new rule.
        #[arg(required = true, value_name = "RULE")]
        rule: Vec<String>,
    },
    /// Remove a rule.
    Del {
        /// Its number.
        number: u32,
    },
    /// Remove all rules.
    Flush,
    /// List the rules with their counters, in the order in which packets meet them.
    List,
}

/// The timeout of a rule.
#[derive(Debug, Args)]
pub struct RuleTimeout {
    /// Remove the rule after this time (`30s`, `10m`, `1h30m`; `0s`: never).
    #[arg(long = "timeout", value_name = "TIME", value_parser = timeout_ms)]
    pub timeout_ms: Option<u64>,
}

/// `weir ctl table NAME`
#[derive(Debug, Subcommand)]
pub enum TableAction {
    /// Add entries, all or none. Entries that are there keep their timeout.
    Add {
        /// The entries.
        #[command(flatten)]
        given: Given,
        /// When they expire.
        #[command(flatten)]
        timeout: Timeout,
    },
    /// Add entries, all or none. The timeouts of those that are there begin anew.
    Update {
        /// The entries.
        #[command(flatten)]
        given: Given,
        /// When they expire.
        #[command(flatten)]
        timeout: Timeout,
    },
    /// Remove entries. Entries that are not there are ignored.
    Del {
        /// The entries, as they were added.
        #[command(flatten)]
        given: Given,
    },
    /// Replace all entries by those of a list file.
    Replace {
        /// The list.
        file: PathBuf,
        /// Let no packet see a part of the list.
        #[arg(long)]
        atomic: bool,
        /// Ignore `max-change` of the table. Protected addresses are refused nevertheless.
        #[arg(long)]
        force: bool,
    },
    /// Remove all entries.
    Flush,
    /// Look an address up: show the longest prefix that contains it.
    Get {
        /// The address.
        address: String,
    },
    /// Show the number of entries.
    Count,
    /// Show entries in the order of addresses, or those with the most packets.
    List {
        /// Show this many entries.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = entries)]
        top: usize,
        /// Show the entries with the most packets first, or with the most packets a second now. Needs `counters`.
        #[arg(long, value_name = "ORDER")]
        by: Option<Order>,
        /// Show entries that no packet hit for this time, for instance `10m`. Needs `counters`.
        #[arg(long = "idle", value_name = "TIME", value_parser = timeout_ms)]
        idle_ms: Option<u64>,
        /// Show entries from this address on.
        #[arg(long, value_name = "ADDRESS")]
        from: Option<IpAddr>,
    },
    /// Read changes from standard input, a line each, and print a line for each: `add ENTRY... [timeout T]`, `update
    /// ENTRY... [timeout T]`, `del ENTRY...`, `flush`, `get ADDRESS`.
    Stream {
        /// Let no packet see a part of a line.
        #[arg(long)]
        atomic: bool,
    },
}

/// An order of entries with counters.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Order {
    /// The most packets first.
    Packets,
    /// The most packets a second first.
    Rate,
}

/// The entries of a change.
#[derive(Debug, Args)]
pub struct Given {
    /// Addresses, prefixes and ranges; in a table with labels `ENTRY,LABEL`.
    #[arg(required_unless_present = "file", value_name = "ENTRY")]
    pub entries: Vec<String>,
    /// Take more entries from this list file.
    #[arg(long, short, value_name = "LIST")]
    pub file: Option<PathBuf>,
    /// Let no packet see a part of the change.
    #[arg(long)]
    pub atomic: bool,
}

/// The timeout of entries.
#[derive(Debug, Args)]
pub struct Timeout {
    /// Entries expire after this time (`30s`, `10m`, `1h30m`; `0s`: never) instead of the table's timeout.
    #[arg(long = "timeout", value_name = "TIME", value_parser = timeout_ms)]
    pub timeout_ms: Option<u64>,
}
