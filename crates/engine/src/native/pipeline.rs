//! Code that is a P4 program: data in the shared object, from which each filter makes a pipeline of DPDK's SWX.
//!
//! `datapath/p4/program.h` has the form of the program, `datapath/dpdk/pipeline.c` the pipeline, and
//! `datapath/dpdk/controller.c` the thread that tracks for it. Without the feature `dpdk` no pipeline can be made.

use std::ffi::c_void;
use std::time::Duration;

use libloading::os::unix::Library;
use weir_abi::Burst;
use weir_state::tracked::TrackedBy;

use crate::EngineError;

/// The program in a shared object: `const struct p4_program *`.
#[derive(Clone, Copy)]
pub(super) struct P4Program(
    #[cfg_attr(not(feature = "dpdk"), expect(dead_code, reason = "only pipelines read it"))] *const c_void,
);

// SAFETY: nothing writes the program. `NativeCode` owns the library that it points into.
unsafe impl Send for P4Program {}
// SAFETY: as above.
unsafe impl Sync for P4Program {}

impl P4Program {
    /// The program of an object whose ABI version was checked. `None` if the object has chains instead.
    pub(super) fn find(library: &Library) -> Option<Self> {
        // SAFETY: only the address of the symbol is used.
        let symbol = unsafe { library.get::<*const c_void>(b"weir_p4_program") }.ok()?;
        Some(P4Program(symbol.into_raw().cast_const()))
    }
}

/// A controller: a thread beside each P4 pipeline, which tracks the packets that change the state of a flow, or belong
/// to a flow that is not known. The pipeline tracks all others. The verdicts are those of a pipeline without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// The time that it takes for each packet, besides the work: a model of a slow interface.
    pub takes: Duration,
}

#[cfg(feature = "dpdk")]
pub(super) use built::Pipeline;
#[cfg(not(feature = "dpdk"))]
pub(super) use unbuilt::Pipeline;

#[cfg(feature = "dpdk")]
mod built {
    use std::ffi::{CStr, c_char};
    use std::ptr::NonNull;

    use super::{Burst, Controller, EngineError, P4Program, TrackedBy, c_void};

    /// `struct p4_pipeline`, an opaque type.
    #[repr(C)]
    struct Opaque {
        _opaque: [u8; 0],
    }

    unsafe extern "C" {
        fn p4_build(program: *const c_void, controller_ns: *const u64, words: *mut c_char, size: usize) -> *mut Opaque;
        fn p4_decide(pipeline: *mut Opaque, burst: *const Burst, chain: u32) -> u32;
        fn p4_tracked_by(pipeline: *const Opaque, here: *mut u64, away: *mut u64);
        fn p4_free(pipeline: *mut Opaque);
    }

    /// Bytes of the message of a refusal.
    const WORDS: usize = 512;

    /// A pipeline, which one filter owns, with its controller. It points into the library of its code.
    pub(in super::super) struct Pipeline(NonNull<Opaque>);

    // SAFETY: any thread may use a pipeline, one at a time.
    unsafe impl Send for Pipeline {}

    impl Pipeline {
        /// Makes a pipeline, with a controller if one is wanted and the program tracks. `name` is for messages.
        ///
        /// # Errors
        /// DPDK refuses the program, or memory is short.
        pub(in super::super) fn build(
            name: &str,
            program: P4Program,
            controller: Option<Controller>,
        ) -> Result<Self, EngineError> {
            let mut words: [c_char; WORDS] = [0; WORDS];
            let takes_ns = controller.map(|controller| controller.takes.as_nanos() as u64);
            let takes_ns = takes_ns.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: the program is one of this ABI version, and `words` has room for as many bytes as are said. The
            // number is only read during the call.
            let pipeline = unsafe { p4_build(program.0, takes_ns, words.as_mut_ptr(), WORDS) };
            NonNull::new(pipeline).map(Pipeline).ok_or_else(|| {
                // SAFETY: a failed call leaves a string there, which ends inside of the array.
                let problem = unsafe { CStr::from_ptr(words.as_ptr()) }.to_string_lossy().into_owned();
                EngineError::Native { object: name.to_owned(), problem: format!("p4: {problem}") }
            })
        }

        /// Decides a burst.
        ///
        /// # Safety
        /// As for a chain of native code. The library of the program is still loaded.
        pub(in super::super) unsafe fn decide(&mut self, chain: usize, burst: &Burst) {
            // SAFETY: the caller says so; the pipeline belongs to this value.
            let lost = unsafe { p4_decide(self.0.as_ptr(), burst, chain as u32) };
            assert_eq!(lost, 0, "compiler bug: the pipeline lost packets of chain {chain}");
        }

        /// Where packets were tracked.
        pub(in super::super) fn tracked_by(&self) -> TrackedBy {
            let mut by = TrackedBy::default();
            // SAFETY: the pipeline belongs to this value, and no burst is being decided.
            unsafe { p4_tracked_by(self.0.as_ptr(), &raw mut by.pipeline, &raw mut by.controller) };
            by
        }
    }

    impl Drop for Pipeline {
        fn drop(&mut self) {
            // SAFETY: nothing uses it any more.
            unsafe { p4_free(self.0.as_ptr()) };
        }
    }
}

#[cfg(not(feature = "dpdk"))]
mod unbuilt {
    use std::convert::Infallible;

    use super::{Burst, Controller, EngineError, P4Program, TrackedBy};

    /// A pipeline, which this program cannot make.
    pub(in super::super) struct Pipeline(Infallible);

    impl Pipeline {
        /// Fails.
        pub(in super::super) fn build(_: &str, _: P4Program, _: Option<Controller>) -> Result<Self, EngineError> {
            Err(EngineError::NoP4)
        }

        /// There is no pipeline.
        pub(in super::super) fn tracked_by(&self) -> TrackedBy {
            match self.0 {}
        }

        /// # Safety
        /// There is no pipeline.
        pub(in super::super) unsafe fn decide(&mut self, _: usize, _: &Burst) {
            match self.0 {}
        }
    }
}
