//! The rulesets with which the paper's datapath was measured.

use crate::data::Dataset;
use crate::mix::{self, Mix};
use crate::plan::Plan;
use crate::rfpf_three_tables::{self, COUNTRIES};
use std::fs;
use std::path::PathBuf;
use tempfile::TempDir;
use weir_command::failure::Failure;
use weir_loading::{Policy, load};

/// Fig. 4: the rules read the EtherType, and count IPv4 and other packets separately.
const FORWARD: &str = "upstream { ether type ip counter accept; counter accept }\ndownstream { accept }\n";
const DROP: &str = "upstream { ether type ip counter drop; counter drop }\ndownstream { accept }\n";

/// A ruleset, and the source addresses of its packets.
pub struct Ruleset {
    /// Its name in rows.
    pub name: &'static str,
    /// The rules.
    pub policy: Policy,
    /// Path of the policy, for engines that start another Weir.
    #[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "only DPDK's ports want another process"))]
    pub path: PathBuf,
    /// The distribution of sources.
    sources: Sources,
    /// The directory of the policy and its lists.
    _directory: TempDir,
}

enum Sources {
    Random,
    Botnet { allowed: Vec<u32>, blocked: Vec<u32> },
}

impl Ruleset {
    /// The baseline that forwards all packets.
    ///
    /// # Errors
    /// Files cannot be written.
    pub fn forward() -> Result<Self, Failure> {
        Ruleset::plain("forward", FORWARD)
    }

    /// The baseline that drops all packets.
    ///
    /// # Errors
    /// Files cannot be written.
    pub fn drop() -> Result<Self, Failure> {
        Ruleset::plain("drop", DROP)
    }

    /// Three table lookups of each source, with the packets of a botnet: Fig. 6.
    ///
    /// # Errors
    /// The list of countries is missing, or files cannot be written.
    pub fn three_tables(plan: &Plan<'_>) -> Result<Self, Failure> {
        let (allowed, blocked) = (plan.load(Dataset::ALLOW_100K)?, plan.load(Dataset::BLOCK_178K)?);
        let directory = directory()?;
        let country = plan.file(Dataset::COUNTRY, directory.path())?;
        let policy = rfpf_three_tables::write_policy(directory.path(), (&country, COUNTRIES), &allowed, &blocked)?;
        let sources = Sources::Botnet { allowed: allowed.addresses(), blocked: blocked.addresses() };
        let path = directory.path().join(rfpf_three_tables::POLICY_FILE);
        Ok(Ruleset { name: "three-tables", policy, path, sources, _directory: directory })
    }

    fn plain(name: &'static str, text: &str) -> Result<Self, Failure> {
        let directory = directory()?;
        let path = directory.path().join(format!("{name}.weir"));
        fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
        Ok(Ruleset { name, policy: load(&path)?, path, sources: Sources::Random, _directory: directory })
    }

    /// Whether its packets are forwarded.
    pub fn forwards(&self) -> bool {
        self.name != "drop"
    }

    /// `count` sources. Different seeds give different sources.
    pub fn sources(&self, count: usize, seed: u64) -> Vec<u32> {
        let mix = match &self.sources {
            Sources::Random => Mix::Random,
            Sources::Botnet { allowed, blocked } => Mix::Botnet { allowed, blocked },
        };
        mix::sources(count, mix, seed)
    }
}

fn directory() -> Result<TempDir, Failure> {
    tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))
}
