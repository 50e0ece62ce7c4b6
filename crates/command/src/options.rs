//! The options that several commands share, and failures of command lines.

use crate::failure::Failure;
use crate::inside::Inside;
use crate::report::Format;
use crate::values::time;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use weir_engine::Controller;
use weir_engine::bundle::trust::Trust;
use weir_policy::capability::Engine;
use weir_policy::ir;

/// The output format for the failure of a command line that cannot be parsed.
pub fn format_asked_for(words: impl IntoIterator<Item = OsString>) -> Format {
    let mut options = words.into_iter().take_while(|word| word != "--");
    if options.any(|word| word == "--json") { Format::Json } else { Format::Text }
}

/// The failure of a command line that cannot be parsed.
pub fn refusal(error: &clap::Error) -> Failure {
    Failure::Rejected(error.render().to_string().trim_end().to_owned())
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

/// The controller of P4 pipelines.
#[derive(Clone, Debug, Args)]
pub struct ControllerOptions {
    /// Engine `p4`: packets that change the state of a flow, or belong to an unknown flow, are tracked by a controller,
    /// a thread beside each pipeline. Verdicts stay the same. The controller takes TIME longer for each packet, as if
    /// it were behind a slow interface; `0s` is no longer than it needs.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub p4_controller: Option<Duration>,
}

impl ControllerOptions {
    /// The controller, if there is one.
    pub fn controller(&self) -> Option<Controller> {
        self.p4_controller.map(|takes| Controller { takes })
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
