//! Whose bundles are opened, and whose code is run. docs/bundles.md is the page about it.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::key::TrustedKey;
use super::owner;
use crate::EngineError;

/// The most keys that can be trusted at a time.
const KEYS_MAX: usize = 64;

/// The keys of `--trust`.
///
/// With keys, a bundle is opened only if one of them signed it. Without, any bundle is opened, but its code is run only if nobody else than root and
/// the caller can have written it.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    keys: Vec<TrustedKey>,
}

/// Whether a bundle's code may be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// By a signature, by its file's owner, or because it was just compiled.
    Trusted,
    /// Why not.
    Distrusted(String),
}

impl Trust {
    /// Reads public keys.
    ///
    /// # Errors
    /// A file cannot be read, is no public Ed25519 key, or can be changed by others.
    pub fn read(paths: &[PathBuf]) -> Result<Self, EngineError> {
        if let Some(path) = paths.get(KEYS_MAX) {
            let problem = format!("one key too many: at most {KEYS_MAX} can be trusted");
            return Err(EngineError::Key { path: path.clone(), problem });
        }
        Ok(Trust { keys: paths.iter().map(|path| TrustedKey::read(path)).collect::<Result<_, _>>()? })
    }

    /// Whether bundles must be signed.
    pub fn wants_signatures(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Refuses a manifest that none of the keys signed. Without keys, everything is let through.
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

    /// Whether code of the bundle in `file`, which [`Trust::verify`] let through, may be run.
    pub(super) fn standing(&self, path: &Path, file: &File) -> Standing {
        if self.wants_signatures() {
            return Standing::Trusted;
        }
        owner::check(path, file).map_or_else(Standing::Distrusted, |()| Standing::Trusted)
    }
}
