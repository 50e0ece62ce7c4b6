//! Words that policies cannot use yet: their meaning is decided, and no engine has it.

use crate::diag::Diagnostic;
use crate::source::Span;

/// The action that sends a packet back where it came from. The abi has a number for it ([`weir_abi::Action::REPLY`]).
pub(crate) const REPLY: &str = "reply";

/// Refuses [`REPLY`].
pub(crate) fn reply(span: Span) -> Diagnostic {
    Diagnostic::error("E0114", span, "`reply` is a reserved word")
        .label("Weir cannot send packets back yet")
        .help("write `drop` or `divert`")
}
