//! Diagnostics: each describes a mistake in a policy, its position and a remedy.

mod excerpt;
mod nearest;
pub mod printable;
pub mod render;

pub use nearest::nearest;

use crate::source::{SourceMap, Span};

/// Error or warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The policy can be used, but probably does not do what its author wants.
    Warning,
    /// The policy cannot be used.
    Error,
}

/// One message. `code` (`E0101`, `W0203`) is stable, the text may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Stable code.
    pub code: &'static str,
    /// The mistake, on one line without a full stop.
    pub message: String,
    /// The underlined text.
    pub span: Span,
    /// The text beside the underline; may be empty.
    pub label: String,
    /// Further underlined text, each with a label.
    pub notes: Vec<(Span, String)>,
    /// How to correct it.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, span, message.into())
    }

    /// A warning.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, span, message.into())
    }

    fn new(severity: Severity, code: &'static str, span: Span, message: String) -> Self {
        Diagnostic { severity, code, message, span, label: String::new(), notes: Vec::new(), help: None }
    }

    /// Sets the text beside the underline.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Underlines further text, with a label.
    pub fn note(mut self, span: Span, text: impl Into<String>) -> Self {
        self.notes.push((span, text.into()));
        self
    }

    /// Sets the help.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The position of a diagnostic, for editors and other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position<'a> {
    /// The file's name, as the user gave it.
    pub file: &'a str,
    /// Line, counted from 1.
    pub line: u32,
    /// Character in the line, counted from 1.
    pub column: u32,
}

impl Severity {
    /// `error` or `warning`.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

impl Diagnostic {
    /// The start of the underlined text.
    pub fn position<'a>(&self, sources: &'a SourceMap) -> Position<'a> {
        let source = sources.file(self.span.file);
        let start = source.text.floor_char_boundary(self.span.start as usize);
        let (line, column) =
            source.line_column(u32::try_from(start).expect("policy texts are bounded by TEXT_BYTES_MAX"));
        Position { file: &source.name, line, column }
    }
}
