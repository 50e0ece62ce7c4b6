//! The messages between Weir and its guard.

use serde::{Deserialize, Serialize};
use weir_policy::ir::OnExit;

/// The answer of the guard when it has its claims.
pub(super) const READY: &str = "ready";

/// A message to the guard, one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// When Weir ends, everything passes.
    Forward,
    /// When Weir ends, nothing passes.
    Block,
    /// Weir takes this interface down. It is put up again when Weir ends.
    TakenDown(String),
    /// Weir has put this interface up again.
    PutUp(String),
    /// Weir has set the final state itself, so the guard ends.
    Goodbye,
}

impl From<OnExit> for Message {
    fn from(on_exit: OnExit) -> Self {
        match on_exit {
            OnExit::Forward => Message::Forward,
            OnExit::Block => Message::Block,
        }
    }
}
