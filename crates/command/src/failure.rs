//! Failures of commands, and their exit codes.

use crate::figures;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use weir_engine::{EngineError, descriptors};
use weir_loading::{LoadError, Rejected};
use weir_policy::diag::Diagnostic;
use weir_policy::diag::printable::printable;
use weir_policy::diag::render::{self, Style};
use weir_policy::source::SourceMap;

/// Most characters of an error in a list that are shown.
const LIST_ERROR_CHARACTERS: usize = 1000;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The policy, its lists or the command line are invalid: exit code 2. The text is shown as it is.
    Rejected(String),
    /// Mistakes in a policy or its lists: exit code 2.
    Mistakes {
        /// All mistakes.
        rejected: Box<Rejected>,
        /// The first mistake, and their number.
        summary: String,
    },
    /// There is nothing to show, and why. It fails a command that needs what is not there: exit code 2.
    Nothing(String),
    /// A failure at run time: exit code 1.
    Runtime(String),
    /// Something failed because this process may not have more files open: exit code 1.
    NoDescriptors(String),
    /// A failure that the JSON on standard output already contains.
    Reported(Box<Failure>),
}

/// A diagnostic in JSON.
#[derive(Debug, Serialize)]
pub struct Message {
    severity: &'static str,
    code: &'static str,
    message: String,
    file: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    help: Option<String>,
}

/// The output of `--json` for any failure.
#[derive(Debug, Serialize)]
pub struct Failed {
    error: Error,
    /// The mistakes in the policy and its lists, if there are any.
    errors: Vec<Message>,
}

/// The failure on one line.
#[derive(Clone, Debug, Serialize)]
pub struct Error {
    /// 1: failure at run time. 2: the policy or the command line is invalid.
    pub exit_code: u8,
    /// The message.
    pub message: String,
}

/// All mistakes, rendered as text.
pub(crate) fn rendered(rejected: &Rejected, style: Style) -> String {
    let mut texts = Vec::new();
    if !rejected.diagnostics.is_empty() {
        texts.push(render::render(&rejected.diagnostics, &rejected.sources, style).trim_end().to_owned());
    }
    let list = |error: &String| format!("error: {}", figures::cut(&printable(error.trim_end()), LIST_ERROR_CHARACTERS));
    texts.extend(rejected.lists.iter().map(list));
    texts.join("\n\n")
}

/// All mistakes, for JSON.
fn mistakes(rejected: &Rejected) -> Vec<Message> {
    let mut errors = messages(&rejected.diagnostics, &rejected.sources);
    errors.extend(rejected.lists.iter().map(|error| Message {
        severity: "error",
        code: "E0601",
        message: error.clone(),
        file: None,
        line: None,
        column: None,
        help: None,
    }));
    errors
}

/// Diagnostics, for JSON.
pub fn messages(diagnostics: &[Diagnostic], sources: &SourceMap) -> Vec<Message> {
    let message = |diagnostic: &Diagnostic| {
        let position = diagnostic.position(sources);
        Message {
            severity: diagnostic.severity.name(),
            code: diagnostic.code,
            message: diagnostic.message.clone(),
            file: Some(position.file.to_owned()),
            line: Some(position.line),
            column: Some(position.column),
            help: diagnostic.help.clone(),
        }
    };
    diagnostics.iter().map(message).collect()
}

impl Failure {
    /// A failure of a file.
    pub fn file(path: &Path, error: io::Error) -> Self {
        Failure::system(path.display(), error)
    }

    /// A failure of the system to do what `object` needs.
    pub fn system(object: impl Display, error: io::Error) -> Self {
        let text = format!("{object}: {error}");
        if descriptors::limit_reached(&error) { Failure::NoDescriptors(text) } else { Failure::Runtime(text) }
    }

    /// Calls `work`. A panic becomes a failure.
    ///
    /// # Errors
    /// The errors of `work`, and the message of its panic.
    pub fn catch<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panicked| {
            let text = panicked.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panicked.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Err(Failure::Runtime(format!("compiler bug: {}", text.strip_prefix("compiler bug: ").unwrap_or(text))))
        })
    }

    /// The message, without the name of the program.
    pub fn message(&self) -> &str {
        match self {
            Failure::Rejected(text)
            | Failure::Nothing(text)
            | Failure::Runtime(text)
            | Failure::NoDescriptors(text) => {
                // The message for an invalid command line is followed by the usage.
                let text = text.split("\n\nUsage: ").next().unwrap_or(text);
                ["weir: ", "error: "].iter().find_map(|name| text.strip_prefix(name)).unwrap_or(text)
            }
            Failure::Mistakes { summary, .. } => summary,
            Failure::Reported(failure) => failure.message(),
        }
    }

    /// 1 or 2.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Rejected(_) | Failure::Nothing(_) | Failure::Mistakes { .. } => 2,
            Failure::Runtime(_) | Failure::NoDescriptors(_) => 1,
            Failure::Reported(failure) => failure.exit_code(),
        }
    }

    /// Marks the failure as contained in the JSON on standard output.
    pub fn reported(self) -> Self {
        Failure::Reported(Box::new(self))
    }

    /// The failure as a part of a JSON report.
    pub fn error(&self) -> Error {
        Error { exit_code: self.exit_code(), message: self.message().to_owned() }
    }

    /// The failure as a JSON object.
    pub fn to_json(&self) -> Failed {
        let errors = match self {
            Failure::Mistakes { rejected, .. } => mistakes(rejected),
            _ => vec![],
        };
        Failed { error: self.error(), errors }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rejected(text) => f.write_str(text),
            Failure::Mistakes { rejected, .. } => f.write_str(&rendered(rejected, Style::Plain)),
            Failure::Nothing(text) | Failure::Runtime(text) | Failure::NoDescriptors(text) => {
                write!(f, "weir: {text}")
            }
            Failure::Reported(failure) => failure.fmt(f),
        }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        match error {
            error if error.is_descriptor_limit() => Failure::NoDescriptors(error.to_string()),
            LoadError::Mistakes(rejected) => Failure::Mistakes { summary: rejected.summary(), rejected },
            error if error.is_of_policy() => Failure::Rejected(format!("weir: {error}")),
            error => Failure::Runtime(error.to_string()),
        }
    }
}

impl From<weir_control::Error> for Failure {
    fn from(error: weir_control::Error) -> Self {
        match error {
            weir_control::Error::Nothing(text) => Failure::Nothing(text),
            weir_control::Error::Refused(text) => Failure::Rejected(text),
            weir_control::Error::NotARequest(_) => Failure::Rejected(format!("weir: {error}")),
            error => Failure::Runtime(error.to_string()),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        LoadError::from(error).into()
    }
}
