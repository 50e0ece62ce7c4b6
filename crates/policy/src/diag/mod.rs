//! Diagnostics: what is wrong with a policy, where, and what to do about it.

mod excerpt;
mod nearest;
pub mod printable;
pub mod render;

pub(crate) use nearest::nearest;

use crate::source::{SourceMap, Span};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The policy means something, but probably not what its author wants.
    Warning,
    /// The policy has no meaning.
    Error,
}

/// One message. `code` is stable (`E0101`, `W0203`); the text may improve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Stable code.
    pub code: &'static str,
    /// What is wrong, in one line without a full stop.
    pub message: String,
    /// The place that is underlined.
    pub span: Span,
    /// What is said at the underline; may be empty.
    pub label: String,
    /// Further places, each with what is said there.
    pub notes: Vec<(Span, String)>,
    /// What to do.
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

    /// Sets what is said at the underline.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds another place.
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

/// A diagnostic's place in numbers, for editors and other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
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
    /// Where the underlined place begins.
    pub fn place<'a>(&self, sources: &'a SourceMap) -> Place<'a> {
        let source = sources.file(self.span.file);
        let start = source.text.floor_char_boundary(self.span.start as usize);
        let (line, column) =
            source.line_column(u32::try_from(start).expect("policy texts are bounded by TEXT_BYTES_MAX"));
        Place { file: &source.name, line, column }
    }
}
