//! How a command can fail, and the exit code that says so.

use std::fmt::{self, Display, Formatter};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::process::ExitCode;
use weir_engine::EngineError;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The policy, its lists or the command line mean nothing: exit code 2. The text is shown as it is.
    Rejected(String),
    /// Something outside failed: exit code 1.
    Runtime(String),
}

impl Failure {
    /// A runtime failure of a file.
    pub fn file(path: &Path, error: impl Display) -> Self {
        Failure::Runtime(format!("{}: {error}", path.display()))
    }

    /// Does something; a panic is a failure as well.
    ///
    /// # Errors
    /// Those of `work`, and its panic's message.
    pub fn catch<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panicked| {
            let text = panicked.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panicked.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            Err(Failure::Runtime(format!("compiler bug: {}", text.strip_prefix("compiler bug: ").unwrap_or(text))))
        })
    }

    /// What is wrong, without the program's name.
    pub fn message(&self) -> &str {
        let (Failure::Rejected(text) | Failure::Runtime(text)) = self;
        text.strip_prefix("weir: ").unwrap_or(text)
    }

    /// 1 or 2.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Rejected(_) => ExitCode::from(2),
            Failure::Runtime(_) => ExitCode::FAILURE,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Rejected(text) => f.write_str(text),
            Failure::Runtime(text) => write!(f, "weir: {text}"),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        Failure::Runtime(error.to_string())
    }
}
