//! Runs a program in the kernel.
//!
//! The object's tables are the values of mmap-able array maps, one a table, which the code addresses directly (see
//! docs/decisions/0002-bpf-tables.md); they are filled through the mapping after loading, so that an image is copied
//! once. Frames are decided by BPF_PROG_TEST_RUN, one system call each: this is the proof that the kernel decides as
//! user space does, not a fast path. Nothing is pinned, no bpffs is needed.

pub mod generate;
pub(crate) mod load;
pub(crate) mod log;
pub mod plain;
mod replay;
pub mod stream;

use std::sync::Arc;
use std::time::Duration;

use libbpf_rs::{Object, ProgramMut};
use memmap2::MmapRaw;
use weir_abi::{Counter, Verdict};

use crate::clang::BpfObject;
use crate::image::Image;
use crate::limits::counts::{Counted, LimitCount};
use crate::limits::pool::Held;
use crate::limits::{Buckets, Limits};
use crate::memory::{Cost, FrameSet, Spread};
use crate::{EngineError, Filter, FrameBurst, ProgramShape, tsc};
use replay::Replay;

/// A program loaded into the kernel, with its tables and counters.
pub struct XdpFilter {
    object: Object,
    /// Names of the programs, one a chain.
    programs: Vec<String>,
    counters: MmapRaw,
    counter_count: usize,
    /// Buckets, until the first frame brings the time at which they are full.
    unfilled: Option<(Buckets, Arc<Held>)>,
    counted: Option<Counted>,
    replay: Replay,
    costs: Vec<VerifierCost>,
    load_took: Duration,
}

/// What the verifier spent on a program, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifierCost {
    /// The chain.
    pub chain: String,
    /// Programs that its rules are divided into; 0 if they are not.
    pub parts: usize,
    /// Instructions that the verifier walked, over all paths; the kernel's limit is a million a program.
    pub verified_insns: u32,
    /// Instructions of all its programs.
    pub insns: u32,
    /// Bytes of machine code.
    pub jited_bytes: u32,
}

impl XdpFilter {
    /// Loads an object that [`crate::clang`] made for these images; `name` is for messages. `images` are in slot order. Buckets in the kernel
    /// ([`Buckets::in_kernel`]) are shared with all others that charge them.
    pub fn load(
        name: &str,
        object: &BpfObject,
        program: &ProgramShape,
        images: &[Arc<Image>],
        limits: Option<&Limits>,
    ) -> Result<Self, EngineError> {
        program.check_images(images)?;
        program.check_limits(limits)?;
        load::load(name, object, program, images, limits)
    }

    /// All buckets are full at the first frame.
    fn fill_buckets(&mut self, burst: &FrameBurst<'_>) {
        if let Some((buckets, held)) = self.unfilled.take_if(|_| !burst.is_empty()) {
            held.fill(&buckets, burst.time_ns(0));
        }
    }

    /// What the verifier spent, one entry a chain.
    pub fn verifier_costs(&self) -> &[VerifierCost] {
        &self.costs
    }

    /// How long the kernel took to verify and compile the programs, and we to fill the tables.
    pub fn load_took(&self) -> Duration {
        self.load_took
    }

    /// Decides frame `index` of `burst` `repeat` times inside the kernel and says how long once took, as the kernel
    /// measures it, in whole ns. Every time is counted. More than one repeat makes the kernel wait some milliseconds
    /// before and after, which the figure does not hold.
    ///
    /// # Panics
    /// If there is no such chain or frame.
    pub fn time_frame(
        &mut self,
        chain: usize,
        burst: &FrameBurst<'_>,
        index: usize,
        repeat: u32,
    ) -> Result<Duration, EngineError> {
        self.fill_buckets(burst);
        let name = &self.programs[chain];
        let program = find(&self.object, name)?;
        let ran = self.replay.run(&program, burst, index, repeat.max(1)).map_err(|problem| failed(name, problem))?;
        Ok(ran.took)
    }

    /// What deciding a packet costs in the kernel, by the kernel's clock around each frame's single run, `repeats` times
    /// over all frames. Unlike [`crate::memory::measure`] it leaves the system call out; but two clock readings are in
    /// it, and caches and branch predictors that the way through the kernel has disturbed: an upper bound.
    ///
    /// # Panics
    /// If `frames` is empty or `repeats` is 0.
    pub fn measure(&mut self, chain: usize, frames: &FrameSet, repeats: usize) -> Result<Cost, EngineError> {
        assert!(!frames.is_empty() && repeats > 0, "nothing to measure");
        let mut samples = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            let mut total = Duration::ZERO;
            for burst in frames.bursts() {
                for index in 0..burst.len() {
                    total += self.time_frame(chain, &burst, index, 1)?;
                }
            }
            samples.push(total.as_nanos() as f64 / frames.len() as f64);
        }
        let ns_per_packet = Spread::of(samples).expect("there was at least one repeat");
        let cycles_per_packet = ns_per_packet.scaled(tsc::frequency_hz() / 1e9);
        Ok(Cost { cycles_per_packet, ns_per_packet, packets: frames.len() })
    }
}

pub(crate) fn find<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, EngineError> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| failed(name, "no such program".to_owned()))
}

pub(crate) fn failed(object: &str, problem: String) -> EngineError {
    EngineError::Xdp { object: object.to_owned(), problem }
}

impl Filter for XdpFilter {
    fn name(&self) -> &str {
        "xdp"
    }

    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        self.fill_buckets(burst);
        let name = &self.programs[chain];
        let program = find(&self.object, name)?;
        for (index, verdict) in verdicts[..burst.len()].iter_mut().enumerate() {
            *verdict = self.replay.run(&program, burst, index, 1).map_err(|problem| failed(name, problem))?.verdict;
        }
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let counters = self.counters.as_ptr().cast::<Counter>();
        // SAFETY: the mapping holds `counter_count` counters at least (checked by `load`) and is aligned to a page. The
        // kernel writes them only inside `decide` and `time_frame`, which need `&mut self`; volatile all the same,
        // because the compiler cannot see those writes.
        (0..self.counter_count).map(|index| unsafe { counters.add(index).read_volatile() }).collect()
    }

    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(usize, LimitCount)) {
        if let Some(counted) = &self.counted {
            counted.each(limiter, visit);
        }
    }
}
