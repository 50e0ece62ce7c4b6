//! Policies of this scenario as native code.

use std::fs;
use weir::failure::Failure;
use weir_loading::{Policy, load};

/// Loads a policy of a text before `downstream`, and that direction's rules.
///
/// # Errors
/// A file cannot be written.
pub fn policy(upstream: &str, downstream: &str) -> Result<Policy, Failure> {
    let directory = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let path = directory.path().join("stateful.weir");
    fs::write(&path, format!("{upstream}downstream {downstream}\n")).map_err(|error| Failure::file(&path, error))?;
    Ok(load(&path)?)
}
