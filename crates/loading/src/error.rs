//! Why a policy cannot be loaded.

use std::io;
use std::path::PathBuf;
use weir_engine::{EngineError, descriptors};
use weir_policy::capability::Engine;
use weir_policy::diag::Diagnostic;
use weir_policy::source::SourceMap;
use weir_tables::BuildError;

/// Why a policy cannot be loaded. [`LoadError::is_of_policy`] tells wrong policies from failures of what is around them.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The policy or its lists are wrong.
    #[error("{}", .0.summary())]
    Mistakes(Box<Rejected>),
    /// A file of the policy cannot be read.
    #[error("{}: {error}", path.display())]
    Unread {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file of the policy is not text.
    #[error("{}:{line}: not UTF-8 text", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
        /// The first line that is not, from 1.
        line: usize,
    },
    /// Text was asked for.
    #[error("{}: is a bundle already: it was checked when it was compiled; give its policy", path.display())]
    IsBundle {
        /// The bundle.
        path: PathBuf,
    },
    /// The parts of a bundle do not belong together, or another version wrote it.
    #[error("{}: not a bundle of this weir: {problem}", path.display())]
    ForeignBundle {
        /// The bundle.
        path: PathBuf,
        /// What is wrong, without control characters.
        problem: String,
    },
    /// No engine of this version runs the rules of a bundle.
    #[error("the bundle has rules that this weir cannot run")]
    UnsupportedBundle,
    /// The policy has no such posture.
    #[error("the policy has no posture {posture}; it has {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    NoPosture {
        /// The one that was asked for.
        posture: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// A table or list does not fit its layout.
    #[error("{object}: {error}")]
    Image {
        /// `table bad`, `limits each`
        object: String,
        /// Why.
        error: BuildError,
    },
    /// The rates of all limits do not fit their image.
    #[error(transparent)]
    Limits(BuildError),
    /// An engine that is not there yet.
    #[error("the {} engine is not there yet", .0.name())]
    NoEngine(Engine),
    /// The compiler, the kernel, memory, or the bundle's file.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl LoadError {
    /// Whether something failed because this process may not have more files open.
    pub fn is_for_want_of_descriptors(&self) -> bool {
        match self {
            LoadError::Unread { error, .. } => descriptors::were_wanting(error),
            LoadError::Engine(error) => error.is_for_want_of_descriptors(),
            _ => false,
        }
    }

    /// Whether the policy is what is wrong. It is refused on every machine then.
    pub fn is_of_policy(&self) -> bool {
        match self {
            LoadError::Mistakes(_)
            | LoadError::Unread { .. }
            | LoadError::NotText { .. }
            | LoadError::IsBundle { .. }
            | LoadError::UnsupportedBundle
            | LoadError::NoPosture { .. }
            | LoadError::Image { .. }
            | LoadError::Limits(_)
            | LoadError::Engine(EngineError::TooLarge { .. }) => true,
            LoadError::ForeignBundle { .. } | LoadError::NoEngine(_) | LoadError::Engine(_) => false,
        }
    }
}

/// What is wrong with a policy and its lists.
#[derive(Debug)]
pub struct Rejected {
    /// Its files.
    pub sources: SourceMap,
    /// All errors, in order.
    pub diagnostics: Vec<Diagnostic>,
    /// Errors in lists, each naming file and line.
    pub lists: Vec<String>,
}

impl Rejected {
    /// The first mistake, and how many there are.
    pub fn summary(&self) -> String {
        let first = self.diagnostics.first().map(|diagnostic| {
            let place = diagnostic.place(&self.sources);
            format!("{}:{}:{}: {}", place.file, place.line, place.column, diagnostic.message)
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
