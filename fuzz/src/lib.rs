//! Fuzz targets as plain functions: bytes in, and the only wrong answer is a panic, a hang or memory without bound.
//!
//! `src/bin` hands each to libFuzzer; `tests/corpus.rs` replays seeds and past crashes through them under `cargo test`.
#![forbid(unsafe_code)]

use weir_policy::source::{SourceMap, Span};

/// A target.
pub type Target = fn(&[u8]);

/// All Rust targets by name. `fuzz/src/bin` has one file for each.
pub const TARGETS: &[(&str, Target)] = &[("policy_parser", policy_parser)];

/// A policy's text through the source map (and, once it stands, the parser).
pub fn policy_parser(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut sources = SourceMap::default();
    let file = sources.add("fuzz.weir", text);
    for (start, end) in text.char_indices().zip(text.char_indices().skip(1)).take(64) {
        let span = Span { file, start: start.0 as u32, end: end.0 as u32 };
        let _ = (sources.text(span), sources.cite(span));
    }
}
