//! `weir card`

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `weir card`
#[derive(Debug, Args)]
pub struct CardCommandOptions {
    /// The command.
    #[command(subcommand)]
    pub command: CardCommand,
}

/// The commands about cards.
#[derive(Debug, Subcommand)]
pub enum CardCommand {
    /// Choose which rules of `upstream` a card should take, and say why.
    Plan(CardPlanOptions),
    /// Be a card: a process between two interfaces that does what a card of a profile does, until SIGINT or SIGTERM.
    Serve(CardServeOptions),
}

/// `weir card serve`
#[derive(Debug, Args)]
pub struct CardServeOptions {
    /// The card: a profile that comes with Weir (`netfpga-sume`, `open-nic`), or a file.
    pub profile: String,
    /// The interface to the network.
    #[arg(long, value_name = "IF")]
    pub network: String,
    /// The interface to the host that runs Weir. Its MTU is larger by 64 or more than that of the network's.
    #[arg(long, value_name = "IF")]
    pub host: String,
    /// Print one JSON object at the end.
    #[arg(long)]
    pub json: bool,
}

/// `weir card plan`
#[derive(Debug, Args)]
pub struct CardPlanOptions {
    /// The policy.
    pub policy: PathBuf,
    /// The card: a profile that comes with Weir (`netfpga-sume`, `open-nic`), or a file.
    #[arg(long, value_name = "PROFILE")]
    pub card: String,
    /// Measure the hits of rules over this capture. Otherwise every packet has answers, reaches every rule and matches
    /// none.
    #[arg(long = "in", value_name = "CAPTURE")]
    pub input: Option<PathBuf>,
    /// Plan for the upstream rules of this posture.
    #[arg(long, value_name = "NAME")]
    pub posture: Option<String>,
    /// The link between card and host, Gbit/s.
    #[arg(long, value_name = "GBIT", default_value_t = 10.0, value_parser = positive)]
    pub link: f64,
    /// Packets a second that the card receives. The default is what half of the link carries without metadata.
    #[arg(long, value_name = "PPS", value_parser = positive)]
    pub pps: Option<f64>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "a number above 0 is expected".to_owned())
}
