//! Fuzz targets as functions of bytes. A target fails by a panic, a hang or unbounded memory.
//!
//! `src/bin` passes each to libFuzzer. `tests/corpus.rs` runs seeds and past crashes through them under `cargo test`.
#![forbid(unsafe_code)]

mod bundle;
mod card;
mod control;
mod features;
mod packet;
mod policy;
mod table;
mod tracker;

/// A target.
pub type Target = fn(&[u8]);

/// All Rust targets by name. `src/bin` has a file for each.
pub const TARGETS: &[(&str, Target)] = &[
    ("bundle", bundle::bundle),
    ("capture", packet::capture),
    ("card_device", card::card_device),
    ("card_session", card::card_session),
    ("control_answer", control::control_answer),
    ("control_request", control::control_request),
    ("feature_layout", features::feature_layout),
    ("ir_parser", policy::ir_parser),
    ("list_csv", table::list_csv),
    ("list_ipset", table::list_ipset),
    ("list_limits", table::list_limits),
    ("list_mmdb", table::list_mmdb),
    ("list_plain", table::list_plain),
    ("packet_reference", packet::packet_reference),
    ("policy_parser", policy::policy_parser),
    ("table_image", table::table_image),
    ("tracker", tracker::tracker),
];

/// Runs one target.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(known, _)| *known == name).expect("every binary names a target");
    target(data);
}
