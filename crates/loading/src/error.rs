//! The errors of loading a policy.

use std::io;
use std::path::PathBuf;
use weir_engine::{EngineError, descriptors};
use weir_policy::capability::Engine;
use weir_policy::diag::Diagnostic;
use weir_policy::source::SourceMap;
use weir_state::StateError;
use weir_tables::{BuildError, ListError};

/// An error of loading a policy. [`LoadError::is_of_policy`] distinguishes errors of the policy from failures of the
/// environment.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The policy or its lists have errors.
    #[error("{}", .0.summary())]
    Mistakes(Box<Rejected>),
    /// A file of the policy cannot be read.
    #[error("{}: {error}", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// A file of the policy is not UTF-8 text.
    #[error("{}:{line}: not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first invalid line, from 1.
        line: usize,
    },
    /// The file is a bundle, but a policy's text is required.
    #[error("{}: is a bundle, which was checked when it was compiled; name its policy instead", path.display())]
    IsBundle {
        /// The bundle.
        path: PathBuf,
    },
    /// The parts of a bundle do not match, or another version wrote it.
    #[error("{}: not a bundle of this weir: {problem}", path.display())]
    ForeignBundle {
        /// The bundle.
        path: PathBuf,
        /// The problem, without control characters.
        problem: String,
    },
    /// A bundle has rules that no engine of this version supports.
    #[error("the bundle has rules that this weir does not support")]
    UnsupportedBundle,
    /// The policy has no such posture.
    #[error("the policy has no posture {posture}; it has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    NoPosture {
        /// The requested posture.
        posture: String,
        /// The existing postures.
        known: Vec<String>,
    },
    /// A table or list does not fit its layout.
    #[error("{object}: {error}")]
    Image {
        /// `table bad`, `limits each`
        object: String,
        /// The problem.
        error: BuildError,
    },
    /// A list that replaces a table has bad lines.
    #[error(transparent)]
    List(#[from] ListError),
    /// The rates of all limits together do not fit their image.
    #[error(transparent)]
    Limits(BuildError),
    /// There is no room or memory for state that the policy declares.
    #[error(transparent)]
    State(#[from] StateError),
    /// The engine decides no packets of captures.
    #[error("the engine {} decides no captures", .0.name())]
    NoEngine(Engine),
    /// The compiler, the kernel, memory allocation or the bundle's file failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl LoadError {
    /// Whether something failed because this process may not have more files open.
    pub fn is_descriptor_limit(&self) -> bool {
        match self {
            LoadError::Unread { error, .. } => descriptors::limit_reached(error),
            LoadError::Engine(error) => error.is_descriptor_limit(),
            LoadError::State(StateError::Memory { source, .. }) => descriptors::limit_reached(source),
            _ => false,
        }
    }

    /// Whether this process may not give programs and their data to the kernel.
    pub fn is_not_permitted(&self) -> bool {
        match self {
            LoadError::Engine(error) => matches!(error, EngineError::NotPermitted),
            LoadError::State(StateError::Memory { source, .. } | StateError::TableMemory { source, .. }) => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }

    /// Whether the policy is the cause, so that it is refused on every machine.
    pub fn is_of_policy(&self) -> bool {
        match self {
            LoadError::Mistakes(_)
            | LoadError::Unread { .. }
            | LoadError::NotText { .. }
            | LoadError::IsBundle { .. }
            | LoadError::UnsupportedBundle
            | LoadError::NoPosture { .. }
            | LoadError::Image { .. }
            | LoadError::List(_)
            | LoadError::Limits(_)
            | LoadError::Engine(EngineError::TooLarge { .. }) => true,
            LoadError::ForeignBundle { .. } | LoadError::NoEngine(_) | LoadError::State(_) | LoadError::Engine(_) => {
                false
            }
        }
    }
}

/// The errors of a policy and its lists.
#[derive(Debug)]
pub struct Rejected {
    /// The files of the policy.
    pub sources: SourceMap,
    /// All errors of the policy, in order.
    pub diagnostics: Vec<Diagnostic>,
    /// The errors of lists. Each names its file and line.
    pub lists: Vec<String>,
}

impl Rejected {
    /// The first error and the number of others.
    pub fn summary(&self) -> String {
        let first = self.diagnostics.first().map(|diagnostic| {
            let position = diagnostic.position(&self.sources);
            format!("{}:{}:{}: {}", position.file, position.line, position.column, diagnostic.message)
        });
        let first = first.or_else(|| self.lists.first().cloned()).unwrap_or_default();
        match self.diagnostics.len() + self.lists.len() {
            0 | 1 => first,
            count => format!("{first} (and {} more)", count - 1),
        }
    }
}

impl From<Rejected> for LoadError {
    fn from(rejected: Rejected) -> Self {
        LoadError::Mistakes(Box::new(rejected))
    }
}
