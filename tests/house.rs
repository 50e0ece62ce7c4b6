//! Checks the rules of the code base: allowed dependencies, the contents of documents, code style, prose, and that Rust
//! and C agree on every shared number.
//!
//! A file or function may exceed its size limit if it gives a reason: `Long: <why>` in the file's first line or in the
//! comment directly above the function.

#[path = "house/abi.rs"]
mod abi;
#[path = "house/code.rs"]
mod code;
#[path = "house/cycles.rs"]
mod cycles;
#[path = "house/datapath.rs"]
mod datapath;
#[path = "house/dependencies.rs"]
mod dependencies;
#[path = "house/documents.rs"]
mod documents;
#[path = "house/hardware.rs"]
mod hardware;
#[path = "house/modules.rs"]
mod modules;
#[path = "house/prose.rs"]
mod prose;
#[path = "house/tree.rs"]
mod tree;

/// Fails with all offences, one per line.
#[track_caller]
fn assert_none(offences: Vec<String>, rule: &str) {
    assert!(offences.is_empty(), "{rule}:\n  {}\n", offences.join("\n  "));
}
