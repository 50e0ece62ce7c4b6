//! Runs a program as native code in this process.

use std::error::Error;
use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::{MemfdFlags, memfd_create};
use weir_abi::{ABI_VERSION, Burst, Counter, Verdict, burst};

use crate::clang::NativeObject;
use crate::counters::CounterBlock;
use crate::image::Image;
use crate::limits::counts::{Counted, Counts, LimitCount};
use crate::limits::{Limits, Words};
use crate::{EngineError, Filter, FrameBurst, Program};

/// `void weir_<chain>(const struct weir_burst *)`.
type ChainFn = unsafe extern "C" fn(*const Burst);

/// A loaded shared object and its tables: what the filters of all workers share.
pub struct NativeCode {
    chains: Vec<ChainFn>,
    tables: Vec<*const u8>,
    /// Counters that a filter needs.
    counters: usize,
    /// What limiters police by, if the program has any.
    limits: Option<Limits>,
    /// What `tables` point into.
    _images: Vec<Arc<Image>>,
    /// What `chains` point into.
    library: Library,
    /// Where the library came from. The loader knows libraries by their path, which is the number of this descriptor: were it
    /// closed and its number used again, the next policy would be given this one's code.
    _file: OwnedFd,
}

// SAFETY: the pointers lead into images and code that this owns and nobody writes; compiled chains keep no state besides the
// counters and images that each call is given.
unsafe impl Send for NativeCode {}
// SAFETY: as above; the stage clock, which chains do write, is for benchmarks of one filter.
unsafe impl Sync for NativeCode {}

/// Decides by native code, and counts. One worker owns it.
pub struct NativeFilter {
    code: Arc<NativeCode>,
    counters: CounterBlock,
    /// Whether the first burst brings the time at which all buckets are full.
    fills_buckets: bool,
    /// Who else charges the buckets.
    sharing: Sharing,
}

/// Who charges a program's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// One worker, which then needs no atomic steps.
    Alone,
    /// Several.
    Shared,
}

/// Stages of a burst that code compiled with [`STAGE_CLOCK`] takes the time of: parse, lookup, rules.
pub const STAGES: [&str; 3] = ["parse", "lookup", "rules"];

/// Put before generated C, this makes it count the cycles of each stage, at the cost of a few cycles a burst.
pub const STAGE_CLOCK: &str = "#define WEIR_STAGE_CLOCK\n";

impl NativeCode {
    /// Loads a shared object that [`crate::clang`] made; `name` is for messages. `images` are in slot order.
    pub fn load(
        name: &str,
        object: &NativeObject,
        program: &Program,
        images: Vec<Arc<Image>>,
        limits: Option<Limits>,
    ) -> Result<Arc<Self>, EngineError> {
        program.check_images(&images)?;
        program.check_limits(limits.as_ref())?;
        let refuse = |problem: String| EngineError::Native { object: name.to_owned(), problem };
        let (library, file) = open(name, object)?;
        check_version(name, &library)?;
        let mut chains = Vec::with_capacity(program.chains.len());
        for chain in &program.chains {
            let symbol = format!("weir_{chain}");
            // SAFETY: the abi version was checked: in this version every `weir_<chain>` has this type.
            let function = unsafe { library.get::<ChainFn>(symbol.as_bytes()) };
            chains.push(*function.map_err(|_| refuse(format!("has no function {symbol}")))?);
        }
        let tables = images.iter().map(|image| image.as_bytes().as_ptr()).collect();
        let counters = program.counters();
        Ok(Arc::new(NativeCode { chains, tables, counters, limits, _images: images, library, _file: file }))
    }

    /// A filter of its own counters, at 0.
    pub fn filter(self: &Arc<Self>, sharing: Sharing) -> NativeFilter {
        NativeFilter { code: self.clone(), counters: CounterBlock::new(self.counters), fills_buckets: false, sharing }
    }
}

/// Maps a shared object. It is unmapped with the library; the file must stay open as long.
pub(crate) fn open(name: &str, object: &NativeObject) -> Result<(Library, OwnedFd), EngineError> {
    let refuse = |problem: String| EngineError::Native { object: name.to_owned(), problem };
    let file = memory_file(object.bytes())
        .map_err(|error| refuse(format!("cannot be put into memory: {error}")).caused_by(&error))?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // SAFETY: the object comes from our own compiler, directly or through a bundle that `Bundle::native` vouches for; it has no
    // initialisers, which `elf::check_native` has seen to for bundles.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|error| {
        let failed = refuse(loader_message(&error));
        // The dynamic loader gives no error number. It opens one descriptor, as this does.
        match file.try_clone() {
            Ok(_) => failed,
            Err(cause) => failed.caused_by(&cause),
        }
    });
    Ok((library?, file))
}

/// What the dynamic loader said; the error itself says only that it failed.
fn loader_message(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

impl NativeFilter {
    /// Loads code for one filter ([`NativeCode::load`]), which alone charges its buckets: they are full at the time of its first burst.
    pub fn load(
        name: &str,
        object: &NativeObject,
        program: &Program,
        images: Vec<Arc<Image>>,
        limits: Option<Limits>,
    ) -> Result<Self, EngineError> {
        let filter = NativeCode::load(name, object, program, images, limits)?.filter(Sharing::Alone);
        Ok(NativeFilter { fills_buckets: true, ..filter })
    }

    /// Whether it needs to know when packets were received.
    pub(crate) fn has_limits(&self) -> bool {
        self.code.limits.is_some()
    }

    /// Its counters, to be read while it counts.
    pub fn counter_block(&self) -> CounterBlock {
        self.counters.clone()
    }

    /// TSC cycles spent in each of [`STAGES`] since loading; `None` if the code was not compiled with [`STAGE_CLOCK`].
    pub fn stage_cycles(&self) -> Option<[u64; STAGES.len()]> {
        // SAFETY: only the address is taken here.
        let symbol = unsafe { self.code.library.get::<*const c_void>(b"weir_stage_cycles") }.ok()?;
        // SAFETY: env.h defines the symbol as `uint64_t[STAGES]`; only chains write it, and they need `&mut self`.
        Some(unsafe { symbol.into_raw().cast::<[u64; STAGES.len()]>().read() })
    }

    /// What the program's limiters charge and count.
    fn limits(&self) -> burst::Limits {
        let Some(Limits { image, buckets, counted, .. }) = &self.code.limits else { return burst::Limits::NONE };
        let counts = counted.as_ref().map(Counted::counts);
        let words = |words: Option<&Words>| words.map_or(ptr::null_mut(), Words::as_ptr);
        burst::Limits {
            image: image.as_bytes().as_ptr(),
            buckets: buckets.as_ptr(),
            shared: (self.sharing == Sharing::Shared).into(),
            exceeded: words(counts.and_then(Counts::exceeded)),
            passed: words(counts.and_then(Counts::passed)),
        }
    }
}

fn check_version(name: &str, library: &Library) -> Result<(), EngineError> {
    // SAFETY: only the address is taken here.
    let symbol = unsafe { library.get::<*const c_void>(b"weir_abi_version") };
    let symbol = symbol.map_err(|_| EngineError::Native {
        object: name.to_owned(),
        problem: "does not say its abi version".to_owned(),
    })?;
    // SAFETY: every object of every abi version exports `const uint32_t weir_abi_version`.
    let found = unsafe { symbol.into_raw().cast::<u32>().read() };
    if found != ABI_VERSION {
        return Err(EngineError::AbiVersion { object: name.to_owned(), found, expected: ABI_VERSION });
    }
    Ok(())
}

/// A file in memory that can be executed. Every call gives a new one, so that dlopen never takes it for an older one.
fn memory_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    // Kernels before 6.3 do not know the flag and need none.
    let file = memfd_create(c"weir", MemfdFlags::CLOEXEC | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(c"weir", MemfdFlags::CLOEXEC))?;
    let mut file = File::from(file);
    file.write_all(bytes)?;
    Ok(file.into())
}

impl Filter for NativeFilter {
    fn name(&self) -> &str {
        "native"
    }

    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        let function = self.code.chains[chain];
        let verdicts = &mut verdicts[..burst.len()];
        if std::mem::take(&mut self.fills_buckets)
            && !burst.is_empty()
            && let Some(limits) = &self.code.limits
        {
            limits.held.fill(&limits.buckets, burst.time_ns(0));
        }
        let arguments = Burst {
            frames: burst.frames().as_ptr(),
            verdicts: verdicts.as_mut_ptr().cast(),
            count: burst.len() as u32,
            link: burst.link() as u32,
            times: burst.times(),
            tables: burst::Tables { images: self.code.tables.as_ptr() },
            counters: burst::Counters { reasons: self.counters.as_ptr() },
            limits: self.limits(),
        };
        // SAFETY: frames are readable (FrameBurst), `verdicts` has room for all of them and is a transparent u32 each,
        // `tables` are checked images in slot order, `counters` has one for every reason the program can give, `times` one for each frame, if any;
        // the tickets in the tables name buckets that there are, and what is counted for them has as many words (Pool::hold, Pool::count).
        unsafe { function(&arguments) };
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        self.counters.read()
    }

    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(usize, LimitCount)) {
        if let Some(counted) = self.code.limits.as_ref().and_then(|limits| limits.counted.as_ref()) {
            counted.each(limiter, visit);
        }
    }
}
