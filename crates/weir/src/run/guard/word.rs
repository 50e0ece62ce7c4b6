//! What Weir and its guard say to each other.

use serde::{Deserialize, Serialize};
use weir_policy::ir::OnExit;

/// What the guard answers when it has its claim.
pub(super) const READY: &str = "ready";

/// A message to the guard, one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Word {
    /// When Weir ends, everything passes.
    Forward,
    /// When Weir ends, nothing passes.
    Block,
    /// Weir takes this interface down. It is put up again when Weir ends.
    TakenDown(String),
    /// Weir has put this interface up again.
    PutUp(String),
    /// Weir has done everything itself, so the guard leaves.
    Goodbye,
}

impl From<OnExit> for Word {
    fn from(on_exit: OnExit) -> Self {
        match on_exit {
            OnExit::Forward => Word::Forward,
            OnExit::Block => Word::Block,
        }
    }
}
