//! Compiles a policy to BPF and loads it into the kernel: one program per chain, or several parts
//! (docs/decisions/0020-bpf-in-parts.md).

use crate::error::LoadError;
use crate::policy::{Origin, Policy};
use std::sync::Arc;
use std::time::Duration;
use weir_abi::Target;
use weir_engine::bundle::Bundle;
use weir_engine::clang::{BpfObject, BpfShape, Clang, Hook};
use weir_engine::live::xdp::{KernelCode, Ports};
use weir_engine::{Bound, EngineError, ProgramShape, XdpFilter};
use weir_policy::backend::{self, c};
use weir_policy::capability::Engine;

/// Number of rules of each part, if a chain is too large for one program. The second number is used if the first still
/// fails.
pub const PART_RULES: [usize; 2] = [32, 4];

/// The sizes that code is compiled for, from a program and the state that it is bound to.
type ShapeOf = fn(&ProgramShape, &Bound) -> BpfShape;

/// BPF code of a policy for the state that it is bound to, before loading.
pub struct CompiledBpf<'p> {
    policy: &'p Policy,
    bound: &'p Bound,
    /// The code.
    pub object: BpfObject,
    /// Run time of clang, or zero for the code of a bundle.
    pub took: Duration,
    sent: Sent,
}

/// The code for what a host sends.
enum Sent {
    /// The code is compiled when it is needed, from this C.
    Uncompiled(String, BpfShape),
    /// The code is in the bundle, if the policy supports hosts.
    Bundled(Option<BpfObject>),
}

impl CompiledBpf<'_> {
    /// Loads the code into the kernel, for test runs on frames.
    ///
    /// # Errors
    /// The process may not load BPF programs, or the verifier rejects the code.
    pub fn filter(&self) -> Result<XdpFilter, EngineError> {
        let (name, bound) = (&self.policy.program.name, self.bound);
        XdpFilter::load(name, &self.object, &self.policy.shape(), bound)
    }

    /// Loads the code into the kernel, for interfaces. For the interfaces of a host, text is compiled once more for
    /// what the host sends.
    ///
    /// # Errors
    /// The process may not load BPF programs, or the verifier rejects the code.
    pub fn load(&self, ports: &Ports) -> Result<Arc<KernelCode>, EngineError> {
        let (name, bound) = (&self.policy.program.name, self.bound);
        let sent = if ports.is_host() { Some(self.sent()?) } else { None };
        KernelCode::load(name, &self.object, sent.as_ref(), &self.policy.shape(), bound, ports)
    }

    /// The code for what a host sends. Only for policies that support hosts.
    ///
    /// # Errors
    /// There is no clang, or the code is too large.
    pub fn sent(&self) -> Result<BpfObject, EngineError> {
        let name = &self.policy.program.name;
        match &self.sent {
            Sent::Uncompiled(c, shape) => {
                Ok(Clang::find()?.bpf(name, c, &BpfShape { hook: Hook::Sent, ..shape.clone() })?.object)
            }
            Sent::Bundled(Some(object)) => Ok(object.clone()),
            Sent::Bundled(None) => {
                let problem = "the bundle has no programs for what a host sends (host.o)".to_owned();
                Err(EngineError::Xdp { object: name.clone(), problem })
            }
        }
    }
}

impl Policy {
    /// Compiles the policy for its bound state, one program per chain. A bundle is compiled already.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or the code of a bundle is not trusted.
    pub fn compile_bpf<'p>(&'p self, bound: &'p Bound) -> Result<CompiledBpf<'p>, LoadError> {
        self.refuse_unsupported(&[Engine::Xdp])?;
        match &self.origin {
            Origin::Bundle(bundle) => Ok(self.precompiled(bound, bundle)?),
            Origin::Text(_) => {
                Ok(self.compile_bpf_c(bound, &backend::emit(&self.program, Target::Bpf), BpfShape::new)?)
            }
        }
    }

    /// Compiles like [`Policy::compile_bpf`], but always from C and in parts of `rules` rules.
    ///
    /// # Errors
    /// There is no clang, or the parts are still too large.
    pub fn compile_bpf_in_parts<'p>(&'p self, bound: &'p Bound, rules: usize) -> Result<CompiledBpf<'p>, EngineError> {
        self.compile_bpf_c(bound, &c::emit(&self.program, c::Dialect::BpfParts { rules }), BpfShape::new)
    }

    /// Compiles the policy for its bound state and calls `load` with the code. A chain that is too large for one
    /// program is compiled in parts.
    ///
    /// # Errors
    /// There is no clang, the process may not load BPF programs, a rule is not supported, or the parts are still too
    /// large.
    pub fn in_kernel<T>(
        &self,
        bound: &Bound,
        load: impl Fn(&CompiledBpf<'_>) -> Result<T, EngineError>,
    ) -> Result<T, LoadError> {
        self.refuse_unsupported(&[Engine::Xdp])?;
        match &self.origin {
            Origin::Bundle(bundle) => Ok(load(&self.precompiled(bound, bundle)?)?),
            Origin::Text(_) => self.in_kernel_with(bound, BpfShape::new, load),
        }
    }

    /// Compiles the policy's text for a bundle and calls `load` with the code, like [`Policy::in_kernel`]. The code
    /// does not depend on the sizes of `bound`.
    ///
    /// # Errors
    /// As for [`Policy::in_kernel`].
    pub fn in_kernel_for_bundle<T>(
        &self,
        bound: &Bound,
        load: impl Fn(&CompiledBpf<'_>) -> Result<T, EngineError>,
    ) -> Result<T, LoadError> {
        self.refuse_unsupported(&[Engine::Xdp])?;
        self.in_kernel_with(bound, BpfShape::for_bundle, load)
    }

    fn in_kernel_with<T>(
        &self,
        bound: &Bound,
        shape: ShapeOf,
        load: impl Fn(&CompiledBpf<'_>) -> Result<T, EngineError>,
    ) -> Result<T, LoadError> {
        let compile = |c: &str| self.compile_bpf_c(bound, c, shape);
        let mut loaded = compile(&backend::emit(&self.program, Target::Bpf)).and_then(|whole| load(&whole));
        for rules in PART_RULES {
            if !matches!(loaded, Err(EngineError::TooLarge { .. })) {
                break;
            }
            let parts = compile(&c::emit(&self.program, c::Dialect::BpfParts { rules }));
            loaded = parts.and_then(|parts| load(&parts));
        }
        Ok(loaded?)
    }

    /// Compiles the policy and loads it into the kernel, for interfaces.
    ///
    /// # Errors
    /// There is no clang, the process may not load BPF programs, or the verifier rejects the code.
    pub fn kernel(&self, bound: &Bound, ports: &Ports) -> Result<Arc<KernelCode>, LoadError> {
        if ports.is_host() {
            self.refuse_unsupported(&[Engine::Host])?;
        }
        self.in_kernel(bound, |compiled| compiled.load(ports))
    }

    /// Compiles the policy and loads it into the kernel, for test runs on frames.
    ///
    /// # Errors
    /// There is no clang, the process may not load BPF programs, or the verifier rejects the code.
    pub fn xdp(&self) -> Result<XdpFilter, LoadError> {
        self.in_kernel(&self.bind_kernel_replay()?, |compiled| compiled.filter())
    }

    fn precompiled<'p>(&'p self, bound: &'p Bound, bundle: &Bundle) -> Result<CompiledBpf<'p>, EngineError> {
        let (object, sent) = (bundle.bpf()?.clone(), Sent::Bundled(bundle.sent()?.cloned()));
        Ok(CompiledBpf { policy: self, bound, object, took: Duration::ZERO, sent })
    }

    fn compile_bpf_c<'p>(&'p self, bound: &'p Bound, c: &str, shape: ShapeOf) -> Result<CompiledBpf<'p>, EngineError> {
        let shape = shape(&self.shape(), bound);
        let compiled = Clang::find()?.bpf(&self.program.name, c, &shape)?;
        let sent = Sent::Uncompiled(c.to_owned(), shape);
        Ok(CompiledBpf { policy: self, bound, object: compiled.object, took: compiled.took, sent })
    }
}
