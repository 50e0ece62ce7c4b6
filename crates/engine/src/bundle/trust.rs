//! Decides which archives are opened and whose code is run. docs/guide/bundles.md explains the rules.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::key::TrustedKey;
use crate::EngineError;
use weir_state::owner;

/// Maximum number of trusted keys.
const KEYS_MAX: usize = 64;

/// The keys of `--trust`.
///
/// With keys, an archive is opened only if one of them signed it. Without keys, any archive is opened, but its code is
/// run only if no user other than root and the caller can have written it.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: Vec<TrustedKey>,
}

/// Whether the code of an archive may be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Yes: by a signature, by the owner of the file, or because it was just compiled.
    Trusted,
    /// No, with the reason.
    Distrusted(String),
}

impl Trust {
    /// Reads public keys.
    ///
    /// # Errors
    /// A file cannot be read, is not a public Ed25519 key, or can be changed by other users.
    pub fn read(paths: &[PathBuf]) -> Result<Self, EngineError> {
        if let Some(path) = paths.get(KEYS_MAX) {
            let problem = format!("too many keys: at most {KEYS_MAX} can be trusted");
            return Err(EngineError::Key { path: path.clone(), problem });
        }
        Ok(Trust { keys: paths.iter().map(|path| TrustedKey::read(path)).collect::<Result<_, _>>()? })
    }

    /// Whether archives must be signed.
    pub fn wants_signatures(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Refuses a manifest that none of the keys signed. Without keys, accepts every manifest.
    pub(super) fn verify(&self, manifest: &[u8], signature: Option<&[u8]>) -> Result<(), String> {
        if self.keys.is_empty() {
            return Ok(());
        }
        let Some(signature) = signature else {
            return Err(
                "is not signed, and only signed bundles are trusted; `weir compile --sign KEY` signs".to_owned()
            );
        };
        if self.keys.iter().any(|key| key.has_signed(manifest, signature)) {
            return Ok(());
        }
        let keys: Vec<String> = self.keys.iter().map(|key| key.path.display().to_string()).collect();
        Err(format!("is not signed by a trusted key ({}), or was altered afterwards", keys.join(", ")))
    }

    /// Whether the code of the archive in `file` may be run, after [`Trust::verify`] accepted its manifest.
    pub(super) fn standing(&self, path: &Path, file: &File) -> Standing {
        if self.wants_signatures() {
            return Standing::Trusted;
        }
        match owner::check(path, file) {
            Ok(()) => Standing::Trusted,
            Err(why) => Standing::Distrusted(why.to_string()),
        }
    }
}
