//! The output of the policy compiler, which engines load.

use weir_abi::slot::SLOTS_MAX;
use weir_abi::{ABI_VERSION, Reason, Target};
use weir_state::StateShape;

use crate::EngineError;
use crate::program_shape::{ProgramShape, RULES_MAX};

/// A compiled policy as source code, before clang.
#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    /// The policy's name, for messages and file names.
    pub name: String,
    /// [`ABI_VERSION`] of the compiler.
    pub abi_version: u32,
    /// The facts about the program that a loader needs. Artifacts are for machines without a card, so no chain reads
    /// the answers of one.
    pub shape: ProgramShape,
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

    /// Refuses counts and names that no engine can load.
    pub fn check(&self) -> Result<(), String> {
        let ProgramShape { chains, rules, tables, limited, state, .. } = &self.shape;
        let StateShape { limiters, slots, .. } = state;
        if *rules > RULES_MAX {
            return Err(format!("{rules} rules, at most {RULES_MAX} are possible"));
        }
        if tables.len() > TABLES_MAX {
            return Err(format!("{} tables, at most {TABLES_MAX} are possible", tables.len()));
        }
        let exceeded_max = Reason::RULES_MAX * 3;
        if *limiters > LISTS_MAX || *limited > exceeded_max {
            return Err(format!("{limiters} limiters with {limited} counters are not possible"));
        }
        if *slots > SLOTS_MAX {
            return Err(format!("{slots} slots, at most {SLOTS_MAX} are possible"));
        }
        if let Some(chain) = chains.iter().find(|chain| !is_identifier(chain)) {
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
