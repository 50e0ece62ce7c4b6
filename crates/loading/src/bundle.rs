//! Compiles a policy's text to a bundle.

use crate::bundle_report;
use crate::bundle_tables;
use crate::error::LoadError;
use crate::kernel::CompiledBpf;
use crate::policy::{Origin, Policy};
use std::time::Duration;
use weir_engine::EngineError;
use weir_engine::bundle::Bundle;
use weir_engine::cpu::Cpu;
use weir_policy::capability::Engine;

/// A policy that was compiled to a bundle.
pub struct Bundled {
    /// The bundle.
    pub bundle: Bundle,
    /// Run time of clang.
    pub took: Duration,
    /// Why the kernel of this machine was not asked whether it accepts the code as one program.
    pub unchecked: Option<LoadError>,
}

impl Policy {
    /// The policy as a bundle: the one that it was read from, or compiled for `cpu`.
    ///
    /// # Errors
    /// As for [`Policy::bundle`].
    pub fn to_bundle(&self, cpu: Cpu) -> Result<Bundled, LoadError> {
        match &self.origin {
            Origin::Bundle(bundle) => Ok(Bundled { bundle: (**bundle).clone(), took: Duration::ZERO, unchecked: None }),
            Origin::Text(_) => self.bundle(cpu),
        }
    }

    /// Compiles the policy for `cpu` and for the kernel. Code that is too large for the kernel is compiled in parts.
    /// For that it is loaded into the kernel once, with tables as replays have them.
    ///
    /// # Errors
    /// A rule is not supported, there is no clang, or a table or list does not fit its layout.
    pub fn bundle(&self, cpu: Cpu) -> Result<Bundled, LoadError> {
        let artifact = self.artifact()?;
        // Engines in user space can run policies with tables that the kernel has no memory for.
        let (bound, unbound) = match self.bind_kernel_replay() {
            Ok(bound) => (bound, None),
            Err(error @ LoadError::State(_)) => (self.bind(None)?, Some(error)),
            Err(error) => return Err(error),
        };
        let native = self.compile_native(cpu)?;
        let for_hosts = self.refuse_unsupported(&[Engine::Host]).is_ok();
        let (bpf, sent, bpf_took, refused) = self.in_kernel_for_bundle(&bound, |compiled| {
            let refused = if unbound.is_some() { None } else { not_permitted(compiled)? };
            let sent = for_hosts.then(|| compiled.sent()).transpose()?;
            Ok((compiled.object.clone(), sent, compiled.took, refused))
        })?;
        let tables = bundle_tables::members(self.tables());
        let lists = bundle_report::lists(&self.program, &self.lists);
        let bundle = Bundle::new(artifact, tables, lists, native.object, bpf, sent, cpu)?;
        Ok(Bundled { bundle, took: native.took + bpf_took, unchecked: unbound.or(refused.map(LoadError::from)) })
    }
}

/// Loads code into the kernel. Returns the error if this process has no right to do so.
fn not_permitted(compiled: &CompiledBpf<'_>) -> Result<Option<EngineError>, EngineError> {
    match compiled.filter() {
        Ok(_) => Ok(None),
        Err(error @ EngineError::NotPermitted) => Ok(Some(error)),
        Err(error) => Err(error),
    }
}
