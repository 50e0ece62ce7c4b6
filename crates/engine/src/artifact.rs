//! The output of the policy compiler, which engines load.

use weir_abi::slot::SLOTS_MAX;
use weir_abi::{ABI_VERSION, FeatureShape, Reason, Target};

use crate::EngineError;
use crate::program_shape::{ProgramShape, RULES_MAX, TableSlot};

/// A compiled policy as source code, before clang.
#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    /// The policy's name, for messages and file names.
    pub name: String,
    /// [`ABI_VERSION`] of the compiler.
    pub abi_version: u32,
    /// Names of the chains, which are suffixes of the compiled functions: `upstream`, `downstream`,
    /// `high_alert_upstream`, ...
    pub chains: Vec<String>,
    /// Number of rules.
    pub rules: usize,
    /// The tables, in slot order.
    pub tables: Vec<TableSlot>,
    /// Number of limiters.
    pub limiters: usize,
    /// Number of adders.
    pub adders: usize,
    /// Maximum number of additions that one packet makes.
    pub additions: usize,
    /// Number of counters for packets that rules decide because a limit is exceeded.
    pub limited: usize,
    /// Number of flows that its table holds; `None` if it does not track.
    pub flows: Option<u32>,
    /// Whether chains change packets.
    pub rewrites: bool,
    /// Number of slots of rules.
    pub slots: usize,
    /// What is counted of the packets that pass; `None` if nothing is.
    pub features: Option<FeatureShape>,
    /// One source for each target, in the order of [`Target::ALL`].
    pub sources: Vec<Source>,
    /// The data that reports need, for instance the citation of each rule. Engines do not interpret it.
    pub report: serde_json::Value,
}

/// The source for one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The target.
    pub target: Target,
    /// The text.
    pub text: String,
}

/// Maximum number of tables of a program.
pub const TABLES_MAX: usize = 256;

/// Maximum number of lists of limits of a program.
pub const LISTS_MAX: usize = 1024;

/// Maximum length of a chain name. The kernel truncates program names to 15 bytes, but object files keep them whole.
const CHAIN_BYTES_MAX: usize = 200;

impl Artifact {
    /// The source for a target.
    pub fn source(&self, target: Target) -> &str {
        let source = self.sources.iter().find(|source| source.target == target);
        &source.expect("an artifact has a source for each target").text
    }

    /// The facts about the program that a loader needs.
    pub fn shape(&self) -> ProgramShape {
        ProgramShape {
            chains: self.chains.clone(),
            rules: self.rules,
            tables: self.tables.clone(),
            limiters: self.limiters,
            adders: self.adders,
            additions: self.additions,
            limited: self.limited,
            flows: self.flows,
            rewrites: self.rewrites,
            slots: self.slots,
            features: self.features.clone(),
            // Bundles are compiled without a card.
            answered: None,
        }
    }

    /// Refuses counts and names that no engine can load.
    pub fn check(&self) -> Result<(), String> {
        if self.rules > RULES_MAX {
            return Err(format!("{} rules, at most {RULES_MAX} are possible", self.rules));
        }
        if self.tables.len() > TABLES_MAX {
            return Err(format!("{} tables, at most {TABLES_MAX} are possible", self.tables.len()));
        }
        let exceeded_max = Reason::RULES_MAX * 3;
        if self.limiters > LISTS_MAX || self.limited > exceeded_max {
            return Err(format!("{} limiters with {} counters are not possible", self.limiters, self.limited));
        }
        if self.slots > SLOTS_MAX {
            return Err(format!("{} slots, at most {SLOTS_MAX} are possible", self.slots));
        }
        if let Some(chain) = self.chains.iter().find(|chain| !is_identifier(chain)) {
            return Err(format!("chain `{}` is not a C identifier", chain.escape_debug()));
        }
        Ok(())
    }

    /// Refuses an artifact of another ABI version. `object` names it in the message.
    pub fn check_version(&self, object: &str) -> Result<(), EngineError> {
        if self.abi_version == ABI_VERSION {
            return Ok(());
        }
        Err(EngineError::AbiVersion { object: object.to_owned(), found: self.abi_version, expected: ABI_VERSION })
    }
}

fn is_identifier(chain: &str) -> bool {
    (1..=CHAIN_BYTES_MAX).contains(&chain.len())
        && chain.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}
