//! Policies of this scenario as native code.

use std::fs;
use weir_command::failure::Failure;
use weir_loading::{Policy, load};

/// Loads a policy from its text.
///
/// # Errors
/// A file cannot be written.
pub fn policy(text: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let path = directory.path().join("stateful.weir");
    fs::write(&path, text).map_err(|error| Failure::file(&path, error))?;
    Ok(load(&path)?)
}
