//! Which engine a command runs, and what its verdicts say.

use crate::cli::EngineName;
use crate::failure::Failure;
use weir_abi::{Action, Verdict};
use weir_engine::EngineError;
use weir_engine::clang::Clang;
use weir_loading::Policy;

/// The engine asked for; if none was, native where there is code or a compiler, else the interpreter, with a word about it.
///
/// # Errors
/// `WEIR_CLANG` names a compiler that does not work.
pub fn choose(policy: &Policy, asked: Option<EngineName>) -> Result<EngineName, Failure> {
    if let Some(engine) = asked {
        return Ok(engine);
    }
    if policy.is_bundle() {
        return Ok(EngineName::Native);
    }
    match Clang::find() {
        Ok(_) => Ok(EngineName::Native),
        Err(error @ EngineError::NoClang { .. }) => {
            eprintln!("note: {error}; the interpreter decides instead (engine eval), which is much slower");
            Ok(EngineName::Eval)
        }
        Err(error) => Err(error.into()),
    }
}

/// The action of a verdict that an engine gave.
pub fn action(verdict: Verdict) -> Action {
    verdict.action().unwrap_or_else(|| panic!("compiler bug: verdict {:#x} has no action", verdict.0))
}
