//! Compiles a policy to native code and loads it.

use crate::error::LoadError;
use crate::policy::{Origin, Policy};
use std::sync::Arc;
use std::time::Duration;
use weir_abi::Target;
use weir_engine::Bound;
use weir_engine::clang::{Clang, NativeObject};
use weir_engine::cpu::Cpu;
use weir_engine::{NativeCode, NativeFilter};
use weir_policy::backend;
use weir_policy::capability::Engine;

/// Native code of a policy, before loading.
pub struct CompiledNative<'p> {
    policy: &'p Policy,
    /// The code.
    pub object: NativeObject,
    /// Run time of clang, or zero for the code of a bundle.
    pub took: Duration,
}

impl CompiledNative<'_> {
    /// Loads the code, for the filters of many workers.
    ///
    /// # Errors
    /// The code is not for this machine.
    pub fn load(&self, bound: Bound) -> Result<Arc<NativeCode>, LoadError> {
        let Policy { program, .. } = self.policy;
        Ok(NativeCode::load(&program.name, &self.object, &self.policy.shape(), bound)?)
    }

    /// Loads the code, for one filter.
    ///
    /// # Errors
    /// The code is not for this machine.
    pub fn filter(&self, bound: Bound) -> Result<NativeFilter, LoadError> {
        Ok(NativeFilter::alone(&self.load(bound)?))
    }
}

impl Policy {
    /// Compiles the policy. A bundle is compiled already.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or the code of a bundle is not trusted.
    pub fn compile_native(&self, cpu: Cpu) -> Result<CompiledNative<'_>, LoadError> {
        if let Origin::Bundle(bundle) = &self.origin {
            return Ok(CompiledNative { policy: self, object: bundle.native()?.clone(), took: Duration::ZERO });
        }
        self.refuse_unsupported(&[Engine::Native])?;
        let c = backend::emit(&self.program, Target::Native);
        let compiled = Clang::find()?.native(&self.program.name, &c, cpu)?;
        Ok(CompiledNative { policy: self, object: compiled.object, took: compiled.took })
    }

    /// Compiles and loads the policy as native code. Clang and the builds of tables run in parallel.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or a table does not fit its layout.
    pub fn native(&self) -> Result<NativeFilter, LoadError> {
        let (compiled, bound) = std::thread::scope(|scope| {
            let compiled = scope.spawn(|| self.compile_native(Cpu::Native));
            let bound = self.bind(None);
            (compiled.join().expect("compiling does not panic"), bound)
        });
        let bound = bound?;
        compiled?.filter(bound)
    }
}
