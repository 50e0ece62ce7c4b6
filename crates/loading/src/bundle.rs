//! Compiles a policy's text to a bundle.

use crate::bundle_report;
use crate::error::LoadError;
use crate::kernel::CompiledBpf;
use crate::policy::Policy;
use std::time::Duration;
use weir_engine::EngineError;
use weir_engine::bundle::Bundle;
use weir_engine::cpu::Cpu;

impl Policy {
    /// Compiles the policy for `cpu` and for the kernel. `check` is called with the code for the kernel: if it finds the
    /// code too large, the policy is compiled in parts. Returns the bundle and the run time of clang.
    ///
    /// # Errors
    /// A rule is not supported, there is no clang, or a table or list does not fit its layout.
    pub fn bundle(
        &self,
        cpu: Cpu,
        check: impl Fn(&CompiledBpf<'_>) -> Result<(), EngineError>,
    ) -> Result<(Bundle, Duration), LoadError> {
        let artifact = self.artifact()?;
        let data = self.data(None)?;
        let native = self.compile_native(cpu)?;
        let (bpf, took) = self.in_kernel_for_bundle(&data, |compiled| {
            check(compiled)?;
            Ok((compiled.object.clone(), compiled.took))
        })?;
        let lists = bundle_report::lists(&self.program, &self.lists);
        Ok((Bundle::new(artifact, data.images, lists, native.object, bpf, cpu)?, native.took + took))
    }
}
