//! What the compiler hands over and the engines load.

use serde::{Deserialize, Serialize};
use weir_abi::ABI_VERSION;

use crate::EngineError;
use crate::program_shape::{ProgramShape, RULES_MAX, TableSlot};

/// A compiled policy as C, before clang.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Artifact {
    /// The policy's name, for messages and file names.
    pub name: String,
    /// [`ABI_VERSION`] of the compiler that wrote it.
    pub abi_version: u32,
    /// Suffixes of the compiled functions: `upstream`, `downstream`, `high_alert_upstream`, ...
    pub chains: Vec<String>,
    /// Number of rules.
    pub rules: usize,
    /// Tables in slot order.
    pub tables: Vec<TableSlot>,
    /// Number of limiters.
    pub limiters: usize,
    /// Counters of what the limits of rules ended.
    pub limited: usize,
    /// C for user space.
    pub native_c: String,
    /// C for BPF.
    pub bpf_c: String,
    /// What reports need: each rule's citation and so on. The engines carry it along unread.
    pub report: serde_json::Value,
}

/// The most tables of a program.
pub const TABLES_MAX: usize = 256;

/// The longest name of a chain: the kernel cuts program names off at 15 bytes, the object file keeps them whole.
const CHAIN_BYTES_MAX: usize = 200;

impl Artifact {
    /// The program's shape.
    pub fn shape(&self) -> ProgramShape {
        ProgramShape {
            chains: self.chains.clone(),
            rules: self.rules,
            tables: self.tables.clone(),
            limiters: self.limiters,
            limited: self.limited,
        }
    }

    /// Refuses what no engine could load: another abi version, or counts and names out of bounds.
    pub fn check(&self) -> Result<(), String> {
        if self.rules > RULES_MAX {
            return Err(format!("{} rules, at most {RULES_MAX} are possible", self.rules));
        }
        if self.tables.len() > TABLES_MAX {
            return Err(format!("{} tables, at most {TABLES_MAX} are possible", self.tables.len()));
        }
        if let Some(chain) = self.chains.iter().find(|chain| !is_identifier(chain)) {
            return Err(format!("chain `{}` is no C identifier", chain.escape_debug()));
        }
        Ok(())
    }

    /// Refuses an artifact of another abi version; `object` names it in the message.
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
