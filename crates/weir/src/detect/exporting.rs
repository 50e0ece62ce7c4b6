//! Exports the attacks of a recording.

use crate::cli::DetectOptions;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_command::inside::Inside;
use weir_loading::Policy;
use weir_mitigate::excerpt::Excerpt;
use weir_mitigate::mitigator::Mitigator;
use weir_recording::export::{self, Export, PolicyParts};

/// Attacks of a recording that are exported.
const EXPORTS_MAX: usize = 100;
/// The slot of the policy that the rules replace.
const SLOT: &str = "attacks";

/// Writes exports into a folder.
pub struct Exporter {
    folder: PathBuf,
    inside: Vec<Inside>,
    bundle: Option<PathBuf>,
    written: Vec<PathBuf>,
    left_out: u64,
}

/// What was exported.
#[derive(Debug, Serialize)]
pub struct Exports {
    /// The folders, one an attack.
    pub folders: Vec<PathBuf>,
    /// Attacks that were not exported, because there were too many.
    pub left_out: u64,
}

impl Exporter {
    /// Nothing was exported yet.
    pub fn new(folder: &Path, options: &DetectOptions, inside: Vec<Inside>) -> Self {
        let bundle = options.policy.clone();
        Exporter { folder: folder.to_owned(), inside, bundle, written: Vec::new(), left_out: 0 }
    }

    /// Exports an attack.
    ///
    /// # Errors
    /// The folder cannot be written, or the attack was exported before.
    pub fn export(&mut self, excerpt: Excerpt, mitigator: &Mitigator, policy: Option<&Policy>) -> Result<(), Failure> {
        let Some(attack) = mitigator.attack(excerpt.attack) else { return Ok(()) };
        if self.written.len() >= EXPORTS_MAX {
            self.left_out += 1;
            return Ok(());
        }
        let export = Export::new(attack, excerpt, self.inside.clone(), SLOT.to_owned(), 0);
        let parts = policy.map(|policy| self.parts(policy)).unwrap_or_default();
        self.written.push(export::write(&self.folder, &export, &parts)?);
        Ok(())
    }

    fn parts(&self, policy: &Policy) -> PolicyParts {
        let table = |table: &weir_loading::DeclaredTable| (table.name.clone(), Arc::clone(&table.entries));
        PolicyParts {
            sources: policy.text().map(|text| text.sources.clone()),
            bundle: self.bundle.clone().filter(|_| policy.is_bundle()),
            tables: policy.tables().all().iter().map(table).collect(),
            limits: policy.limit_lists().to_vec(),
            ..PolicyParts::default()
        }
    }

    /// What was exported. `left_out` is the number of attacks that have no excerpt.
    pub fn finish(self, left_out: u64) -> Exports {
        Exports { folders: self.written, left_out: self.left_out + left_out }
    }
}
