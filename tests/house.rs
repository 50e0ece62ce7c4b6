//! The rules of the house, checked: who may depend on whom, what the documents promise, how the code is kept, and that
//! Rust and C agree on every shared number.
//!
//! A file or function beyond its limit is allowed if it says why: `Long: <why>` in the file's first line, or in a comment
//! right above the function.

#[path = "house/abi.rs"]
mod abi;
#[path = "house/code.rs"]
mod code;
#[path = "house/cycles.rs"]
mod cycles;
#[path = "house/dependencies.rs"]
mod dependencies;
#[path = "house/documents.rs"]
mod documents;
#[path = "house/modules.rs"]
mod modules;
#[path = "house/tree.rs"]
mod tree;

/// Fails with one line an offence, all of them at once.
#[track_caller]
fn assert_none(offences: Vec<String>, rule: &str) {
    assert!(offences.is_empty(), "{rule}:\n  {}\n", offences.join("\n  "));
}
