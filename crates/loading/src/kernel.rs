//! A policy in the kernel: compiled to BPF for its data and loaded, a program a chain or in parts (docs/decisions/0020-bpf-in-parts.md).

use crate::data::Data;
use crate::error::LoadError;
use crate::policy::{Origin, Policy};
use std::sync::Arc;
use std::time::Duration;
use weir_abi::Target;
use weir_engine::clang::{BpfObject, BpfShape, Clang};
use weir_engine::live::xdp::{KernelCode, Ports};
use weir_engine::{EngineError, XdpFilter};
use weir_policy::backend::{self, c};
use weir_policy::capability::Engine;

/// Rules of a BPF program where a chain is too much for one: the second figure if the first is still too much.
pub const PART_RULES: [usize; 2] = [32, 4];

/// A policy's BPF code for its data, not loaded yet.
pub struct CompiledBpf<'p> {
    policy: &'p Policy,
    data: &'p Data,
    /// The code.
    pub object: BpfObject,
    /// clang's own time; none if a bundle had the code at hand.
    pub took: Duration,
}

impl CompiledBpf<'_> {
    /// Loads the code into the kernel, to be run on frames.
    ///
    /// # Errors
    /// There is no right to load BPF, or the verifier refuses.
    pub fn filter(&self) -> Result<XdpFilter, EngineError> {
        let (name, data) = (&self.policy.program.name, self.data);
        XdpFilter::load(name, &self.object, &self.policy.shape(), &data.images, data.limits.as_ref())
    }

    /// Loads the code into the kernel, to be attached to interfaces.
    ///
    /// # Errors
    /// There is no right to load BPF, or the verifier refuses.
    pub fn load(&self, ports: &Ports) -> Result<Arc<KernelCode>, EngineError> {
        let (name, data) = (&self.policy.program.name, self.data);
        KernelCode::load(name, &self.object, &self.policy.shape(), &data.images, data.limits.as_ref(), ports)
    }
}

impl Policy {
    /// Compiles the policy for its data, a program a chain; a bundle has the code at hand.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or nobody vouches for a bundle's code.
    pub fn compile_bpf<'p>(&'p self, data: &'p Data) -> Result<CompiledBpf<'p>, LoadError> {
        match &self.origin {
            Origin::Bundle(bundle) => Ok(self.at_hand(data, bundle.bpf()?)),
            Origin::Text(_) => Ok(self.compile_bpf_c(data, self.artifact()?.source(Target::Bpf))?),
        }
    }

    /// As [`Policy::compile_bpf`], in parts of so many rules. A bundle's code is as it is.
    ///
    /// # Errors
    /// There is no clang, or even the parts are too much for it.
    pub fn compile_bpf_in_parts<'p>(&'p self, data: &'p Data, rules: usize) -> Result<CompiledBpf<'p>, EngineError> {
        self.compile_bpf_c(data, &c::emit(&self.program, c::Dialect::BpfParts { rules }))
    }

    /// What `load` makes of BPF code for the data. A chain that is too much for one program is compiled in parts.
    ///
    /// # Errors
    /// There is no clang, no right to load BPF, a rule is not supported, or even the parts are too much.
    pub fn in_kernel<T>(
        &self,
        data: &Data,
        load: impl Fn(&CompiledBpf<'_>) -> Result<T, EngineError>,
    ) -> Result<T, LoadError> {
        self.refuse_unsupported(&[Engine::Xdp])?;
        let whole = match &self.origin {
            Origin::Bundle(bundle) => return Ok(load(&self.at_hand(data, bundle.bpf()?))?),
            Origin::Text(_) => self.compile_bpf_c(data, &backend::emit(&self.program, Target::Bpf)),
        };
        let mut loaded = whole.and_then(|whole| load(&whole));
        for rules in PART_RULES {
            if !matches!(loaded, Err(EngineError::TooLarge { .. })) {
                break;
            }
            loaded = self.compile_bpf_in_parts(data, rules).and_then(|parts| load(&parts));
        }
        Ok(loaded?)
    }

    /// Compiles and loads the policy into the kernel, to be attached to interfaces.
    ///
    /// # Errors
    /// There is no clang, no right to load BPF, or the verifier refuses.
    pub fn kernel(&self, data: &Data, ports: &Ports) -> Result<Arc<KernelCode>, LoadError> {
        self.in_kernel(data, |compiled| compiled.load(ports))
    }

    /// Compiles and loads the policy into the kernel, to be run on frames.
    ///
    /// # Errors
    /// There is no clang, no right to load BPF, or the verifier refuses.
    pub fn xdp(&self) -> Result<XdpFilter, LoadError> {
        self.in_kernel(&self.data(None)?, |compiled| compiled.filter())
    }

    fn at_hand<'p>(&'p self, data: &'p Data, object: &BpfObject) -> CompiledBpf<'p> {
        CompiledBpf { policy: self, data, object: object.clone(), took: Duration::ZERO }
    }

    fn compile_bpf_c<'p>(&'p self, data: &'p Data, c: &str) -> Result<CompiledBpf<'p>, EngineError> {
        let shape = BpfShape::new(&self.shape(), &data.images, data.limits.as_ref());
        let compiled = Clang::find()?.bpf(&self.program.name, c, &shape)?;
        Ok(CompiledBpf { policy: self, data, object: compiled.object, took: compiled.took })
    }
}
