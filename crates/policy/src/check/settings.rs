//! Settings of items that may have several blocks, such as `tracking { ... }`: each is set once.

use super::Checker;
use crate::diag::Diagnostic;
use crate::source::Span;
use std::collections::HashMap;

/// The settings that were read so far.
#[derive(Default)]
pub(super) struct Settings {
    /// The first block.
    place: Option<Span>,
    set: HashMap<String, Span>,
}

impl Settings {
    /// A block begins.
    pub fn block(&mut self, span: Span) {
        self.place = self.place.or(Some(span));
    }

    /// The place of the first block, if there is one.
    pub const fn place(&self) -> Option<Span> {
        self.place
    }

    /// Whether a setting is read for the first time. Otherwise that is reported.
    pub fn is_first(&mut self, checker: &mut Checker<'_>, name: String, span: Span) -> bool {
        if let Some(&first) = self.set.get(&name) {
            let message = format!("`{name}` is set twice");
            checker.report(Diagnostic::error("E0210", span, message).note(first, "first here"));
            return false;
        }
        self.set.insert(name, span);
        true
    }
}
