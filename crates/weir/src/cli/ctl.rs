//! The command line of `weir ctl`.

use super::values::{entries, time, top};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use weir_control::DEFAULT_PATH;

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
    /// Show which generation is active and which are ready.
    Status,
    /// Show the counters.
    Stats,
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
    /// Read the files of tables and limits again, and apply what has changed.
    Reload {
        /// Ignore `max-change` of tables. Protected addresses are refused nevertheless.
        #[arg(long)]
        force: bool,
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

/// `weir ctl table NAME`
#[derive(Debug, Subcommand)]
pub enum TableAction {
    /// Add entries, all or none.
    Add {
        /// Addresses, prefixes and ranges; in a table with labels `ENTRY,LABEL`.
        #[arg(required = true, value_name = "ENTRY")]
        entries: Vec<String>,
    },
    /// Remove entries. Entries that are not there are ignored.
    Del {
        /// Addresses, prefixes and ranges, as they were added.
        #[arg(required = true, value_name = "ENTRY")]
        entries: Vec<String>,
    },
    /// Replace all entries by those of a list file.
    Replace {
        /// The list.
        file: PathBuf,
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
    /// Show entries in the order of addresses.
    List {
        /// Show this many entries.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = entries)]
        top: usize,
    },
    /// Read changes from standard input, a line each (`add ENTRY...`, `del ENTRY...`, `flush`, `get ADDRESS`), and
    /// print a line for each.
    Stream,
}
