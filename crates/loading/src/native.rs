//! Compiles a policy to native code, or to a P4 program in a shared object, and loads it.

use crate::error::LoadError;
use crate::policy::{Origin, Policy};
use std::sync::Arc;
use std::time::Duration;
use weir_abi::Target;
use weir_engine::clang::{Clang, Extras, NativeObject};
use weir_engine::cpu::Cpu;
use weir_engine::{Bound, EngineError};
use weir_engine::{Controller, NativeCode, NativeFilter};
use weir_policy::backend;
use weir_policy::capability::Engine;

/// Native code or a P4 program of a policy, before loading.
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
        self.compile_for(Target::Native, cpu, Extras::default())
    }

    /// Compiles the policy to a P4 program with its extern objects.
    ///
    /// # Errors
    /// This program has no DPDK, there is no clang, a rule is not supported, or the policy is a bundle.
    pub fn compile_p4(&self, cpu: Cpu) -> Result<CompiledNative<'_>, LoadError> {
        self.compile_p4_with(cpu, Extras::default())
    }

    /// Compiles like [`Policy::compile_p4`], with additional flags.
    ///
    /// # Errors
    /// As for [`Policy::compile_p4`].
    pub fn compile_p4_with(&self, cpu: Cpu, extras: Extras<'_>) -> Result<CompiledNative<'_>, LoadError> {
        NativeCode::check_p4()?;
        if self.is_bundle() {
            return Err(EngineError::NoP4InBundle { object: self.program.name.clone() }.into());
        }
        self.refuse_unsupported(&[Engine::P4])?;
        self.compile_for(Target::P4, cpu, extras)
    }

    fn compile_for(&self, target: Target, cpu: Cpu, extras: Extras<'_>) -> Result<CompiledNative<'_>, LoadError> {
        let c = backend::emit(&self.program, target);
        let compiled = Clang::find()?.native_with(&self.program.name, &c, cpu, extras)?;
        Ok(CompiledNative { policy: self, object: compiled.object, took: compiled.took })
    }

    /// Compiles and loads the policy as native code. Clang and the builds of tables run in parallel.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or a table does not fit its layout.
    pub fn native(&self) -> Result<NativeFilter, LoadError> {
        self.filter_of(|policy| policy.compile_native(Cpu::Native), None)
    }

    /// Compiles and loads the policy as a P4 program, like [`Policy::native`]. The pipeline may have a controller.
    ///
    /// # Errors
    /// This program has no DPDK, there is no clang, a rule is not supported, or a table does not fit its layout.
    pub fn p4(&self, controller: Option<Controller>) -> Result<NativeFilter, LoadError> {
        self.filter_of(|policy| policy.compile_p4(Cpu::Native), controller)
    }

    fn filter_of<'p>(
        &'p self,
        compile: impl FnOnce(&'p Policy) -> Result<CompiledNative<'p>, LoadError> + Send,
        controller: Option<Controller>,
    ) -> Result<NativeFilter, LoadError> {
        let (compiled, bound) = std::thread::scope(|scope| {
            let compiled = scope.spawn(|| compile(self));
            let bound = self.bind(None);
            (compiled.join().expect("compiling does not panic"), bound)
        });
        let bound = bound?;
        compiled?.filter(Bound { controller, ..bound })
    }
}
