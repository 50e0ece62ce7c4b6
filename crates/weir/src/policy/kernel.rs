//! A policy in the kernel: compiled to BPF and loaded, a program a chain or in parts (docs/decisions/0020-bpf-in-parts.md).

use super::{Data, Origin, Policy};
use crate::cli::EngineName;
use crate::failure::Failure;
use std::sync::Arc;
use std::time::Duration;
use weir_engine::clang::{BpfObject, BpfShape, Clang, Compiled};
use weir_engine::live::xdp::{KernelCode, Ports};
use weir_engine::{EngineError, XdpFilter};
use weir_policy::backend::c::{self, Target};

/// Rules of a BPF program where a chain is too much for one: the second figure if the first is still too much.
pub const PART_RULES: [usize; 2] = [32, 4];

impl Policy {
    /// BPF code for the data, a program a chain, and clang's own time; a bundle's is at hand.
    ///
    /// # Errors
    /// There is no clang, a rule is not supported, or nobody vouches for a bundle's code.
    pub fn bpf_object(&self, data: &Data) -> Result<Compiled<BpfObject>, Failure> {
        if let Origin::Bundle(bundle) = &self.origin {
            return Ok(Compiled { object: bundle.bpf()?.clone(), took: Duration::ZERO });
        }
        Ok(self.compile_bpf(data, &self.artifact()?.bpf_c)?)
    }

    fn compile_bpf(&self, data: &Data, c: &str) -> Result<Compiled<BpfObject>, EngineError> {
        let shape = BpfShape::new(&self.shape(), &data.images, data.limits.as_ref());
        Clang::find()?.bpf(&self.program.name, c, &shape)
    }

    /// What `load` makes of BPF code for the data, and clang's own time. A chain that is too much for one program is compiled in parts.
    ///
    /// # Errors
    /// There is no clang, no right to load BPF, a rule is not supported, or even the parts are too much.
    pub fn in_kernel<T>(
        &self,
        data: &Data,
        load: impl Fn(&BpfObject) -> Result<T, EngineError>,
    ) -> Result<(T, Duration), Failure> {
        self.refuse_unsupported(EngineName::Xdp)?;
        let whole = match &self.origin {
            Origin::Bundle(bundle) => return Ok((load(bundle.bpf()?)?, Duration::ZERO)),
            Origin::Text(_) => self.compile_bpf(data, &c::emit(&self.program, Target::Bpf)),
        };
        let mut loaded = whole.and_then(|whole| Ok((load(&whole.object)?, whole.took)));
        for rules in PART_RULES {
            if !matches!(loaded, Err(EngineError::TooLarge { .. })) {
                break;
            }
            loaded = self.in_parts(data, rules, &load);
        }
        Ok(loaded?)
    }

    /// As [`Policy::in_kernel`], in parts of so many rules.
    ///
    /// # Errors
    /// There is no clang, no right to load BPF, or even the parts are too much.
    pub fn in_parts<T>(
        &self,
        data: &Data,
        rules: usize,
        load: impl Fn(&BpfObject) -> Result<T, EngineError>,
    ) -> Result<(T, Duration), EngineError> {
        let parts = self.compile_bpf(data, &c::emit(&self.program, Target::BpfParts { rules }))?;
        Ok((load(&parts.object)?, parts.took))
    }

    /// The program loaded into the kernel, to be run on frames.
    ///
    /// # Errors
    /// There is no right to load BPF, or the verifier refuses.
    pub fn load_xdp(&self, object: &BpfObject, data: &Data) -> Result<XdpFilter, EngineError> {
        XdpFilter::load(&self.program.name, object, &self.shape(), &data.images, data.limits.as_ref())
    }

    /// The program loaded into the kernel, to be attached to interfaces.
    ///
    /// # Errors
    /// There is no right to load BPF, or the verifier refuses.
    pub fn load_kernel(&self, object: &BpfObject, data: &Data, ports: &Ports) -> Result<Arc<KernelCode>, EngineError> {
        let limits = data.limits.as_ref();
        KernelCode::load(&self.program.name, object, &self.shape(), &data.images, limits, ports)
    }

    /// The program compiled and loaded into the kernel, to be attached to interfaces.
    ///
    /// # Errors
    /// There is no clang, no right to load BPF, or the verifier refuses.
    pub fn kernel(&self, data: &Data, ports: &Ports) -> Result<Arc<KernelCode>, Failure> {
        Ok(self.in_kernel(data, |object| self.load_kernel(object, data, ports))?.0)
    }

    /// The program compiled and loaded into the kernel.
    ///
    /// # Errors
    /// There is no clang, no right to load BPF, or the verifier refuses.
    pub fn xdp(&self) -> Result<XdpFilter, Failure> {
        let data = self.data(None)?;
        Ok(self.in_kernel(&data, |object| self.load_xdp(object, &data))?.0)
    }
}
