//! A bundle decides as the text that it was compiled from, on every engine.

use super::engines::Engines;
use weir_engine::EngineError;
use weir_engine::cpu::Cpu;
use weir_loading::{CompiledBpf, LoadError, Policy};
use weir_policy::capability::Engine;
use weir_test_support::Packet;

/// If this variable is set, policies are also compiled in parts, which an older kernel may need. `cargo xtask kernels`
/// runs the tests there without a compiler, with the objects that were compiled here.
const FOR_OLDER_KERNELS: &str = "WEIR_FOR_OLDER_KERNELS";

/// Compiles the policy as for a kernel that finds its programs too large.
fn compile_in_parts(policy: &Policy) -> Result<(), String> {
    let refuse = |compiled: &CompiledBpf<'_>| {
        if policy.refuse_unsupported(&[Engine::Host]).is_ok() {
            compiled.sent()?;
        }
        Err::<(), _>(EngineError::TooLarge { object: policy.program.name.clone(), limit: "of a test" })
    };
    let bound = policy.bind_kernel_replay().map_err(|error| error.to_string())?;
    match policy.in_kernel_for_bundle(&bound, refuse) {
        Err(LoadError::Engine(EngineError::TooLarge { .. })) => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(()) => Err("nothing was compiled".to_owned()),
    }
}

/// Compiles the policy to a bundle, reads it back, and compares its decisions and counts with the decisions and counts
/// of the text.
pub fn decides_as_its_text(policy: &Policy, packets: &[Packet]) -> Result<(), String> {
    if std::env::var_os(FOR_OLDER_KERNELS).is_some() {
        compile_in_parts(policy)?;
    }
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = folder.path().join("policy.weirb");
    let bundled = policy.bundle(Cpu::Native).map_err(|error| format!("it cannot be compiled to a bundle: {error}"))?;
    if let Some(error) = bundled.unchecked {
        return Err(format!("the kernel was not asked: {error}"));
    }
    bundled.bundle.write(&path, None).map_err(|error| error.to_string())?;
    let mut bundled = weir_loading::load(&path).map_err(|error| error.to_string())?;
    bundled.set_slot_rules(policy.slot_rules().to_vec());
    if bundled.limit_needs().buckets != policy.limit_needs().buckets {
        return Err("the bundle needs another number of buckets".to_owned());
    }
    let of_text = Engines::load(policy)?.agree(packets)?;
    let of_bundle = Engines::load(&bundled)?.agree(packets).map_err(|problem| format!("bundle: {problem}"))?;
    match super::engines::difference(&policy.program, packets, &of_text, &of_bundle) {
        Some(difference) => Err(format!("text and bundle differ: {difference}")),
        None => Ok(()),
    }
}
