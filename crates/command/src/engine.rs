//! Chooses the engine of a command, and names verdicts.

use crate::failure::Failure;
use crate::options::EngineName;
use weir_abi::{Action, Verdict};
use weir_engine::EngineError;
use weir_engine::clang::Clang;
use weir_loading::Policy;
use weir_policy::capability::{self, Engine};

/// The engine of the option. By default it is native, if the policy is a bundle or there is a compiler that supports
/// it. Otherwise it is the interpreter, with a note on standard error.
///
/// # Errors
/// `WEIR_CLANG` names a compiler that does not work.
pub fn choose(policy: &Policy, option: Option<EngineName>) -> Result<EngineName, Failure> {
    if let Some(engine) = option {
        return Ok(engine);
    }
    if policy.is_bundle() {
        return Ok(EngineName::Native);
    }
    let lacks = |engine: Engine| !capability::unsupported(&policy.program, &[engine]).is_empty();
    if lacks(Engine::Native) && !lacks(Engine::Eval) {
        eprintln!(
            "note: only the interpreter (engine eval) supports all statements of this policy yet; it is much slower than compiled code"
        );
        return Ok(EngineName::Eval);
    }
    match Clang::find() {
        Ok(_) => Ok(EngineName::Native),
        Err(error @ EngineError::NoClang { .. }) => {
            eprintln!("note: {error}; the interpreter (engine eval) is used instead, which is much slower");
            Ok(EngineName::Eval)
        }
        Err(error) => Err(error.into()),
    }
}

/// The action of a verdict of an engine.
pub fn action(verdict: Verdict) -> Action {
    verdict.action().unwrap_or_else(|| panic!("compiler bug: verdict {:#x} has no action", verdict.0))
}
