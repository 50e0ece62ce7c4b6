//! Reserved words: their meaning is defined, but no engine supports it yet.

use crate::diag::Diagnostic;
use crate::source::Span;

/// The action that sends a packet back to its source: [`weir_abi::Action::Reply`].
pub(crate) const REPLY: &str = "reply";

/// The error for [`REPLY`].
pub(crate) fn reply(span: Span) -> Diagnostic {
    Diagnostic::error("E0114", span, "`reply` is a reserved word")
        .label("Weir cannot send packets back yet")
        .help("write `drop` or `divert`")
}
