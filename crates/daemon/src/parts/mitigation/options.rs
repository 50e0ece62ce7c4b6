//! The options of `weir run` for mitigation.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use weir_command::inside::Inside;
use weir_command::values::time;
use weir_mitigate::action::Mode;

/// What `weir run` does about attacks.
#[derive(Clone, Debug, Args)]
pub struct MitigationOptions {
    /// Measure the packets that rules of the policy sample (`sample 1/N`), and find attacks. `watch` reports what it
    /// would do, `propose` waits for `weir ctl attacks accept N`, `act` does it at once.
    #[arg(long, value_name = "MODE", value_enum, requires = "inside")]
    pub mitigate: Option<ModeName>,
    /// Protect these prefixes: packets from them are answers.
    #[arg(long, value_name = "PREFIX", value_delimiter = ',', requires = "mitigate")]
    pub inside: Vec<Inside>,
    /// The slot of the policy that takes rules against attacks.
    #[arg(long, value_name = "NAME", default_value = "attacks")]
    pub mitigate_slot: String,
    /// Dynamic tables of the policy that take blocked sources, one for each family.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "mitigate")]
    pub mitigate_table: Vec<String>,
    /// The posture of the policy for attacks that no rule separates.
    #[arg(long, value_name = "NAME", requires = "mitigate")]
    pub mitigate_posture: Option<String>,
    /// Keep rules for this long after their last packets, because attacks come in pulses.
    #[arg(long, value_name = "TIME", value_parser = hold, default_value = "60s", requires = "mitigate")]
    pub mitigate_hold: Duration,
    /// Export each attack into this folder, as a capture with a policy and expected counts (`weir replay --expect`).
    #[arg(long, value_name = "DIR", requires = "mitigate")]
    pub mitigate_export: Option<PathBuf>,
    /// Export no more when the folder has this many exports.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = exports, requires = "mitigate_export")]
    pub mitigate_export_max: usize,
    /// Append events to this file, as JSON lines.
    #[arg(long, value_name = "FILE", requires = "mitigate")]
    pub mitigate_log: Option<PathBuf>,
    /// Call this program with the arguments of FastNetMon's notify script: victim, `incoming`, packets a second, and
    /// `ban`, `unban` or `attack_details`.
    #[arg(long, value_name = "PROGRAM", requires = "mitigate")]
    pub mitigate_notify: Option<PathBuf>,
}

/// The shortest time: an attack that is shorter would switch its rules on and off.
const HOLD_MIN: Duration = Duration::from_secs(1);
/// The longest time.
const HOLD_MAX: Duration = Duration::from_secs(24 * 3600);

fn hold(text: &str) -> Result<Duration, String> {
    let hold = time(text)?;
    if (HOLD_MIN..=HOLD_MAX).contains(&hold) { Ok(hold) } else { Err("a time from 1s to 24h".to_owned()) }
}

/// Most exports of a folder: of at most 2 MB each.
const EXPORTS_MAX: usize = 10_000;

fn exports(text: &str) -> Result<usize, String> {
    let most = text.parse().ok().filter(|most| (1..=EXPORTS_MAX).contains(most));
    most.ok_or_else(|| format!("a number from 1 to {EXPORTS_MAX} is expected"))
}

/// A mode on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeName {
    /// Attacks are reported.
    Watch,
    /// Actions wait until they are accepted.
    Propose,
    /// Actions are carried out.
    Act,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Watch => Mode::Watch,
            ModeName::Propose => Mode::Propose,
            ModeName::Act => Mode::Act,
        }
    }
}
