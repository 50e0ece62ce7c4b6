//! From a BPF object to programs in the kernel with filled tables.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use libbpf_rs::libbpf_sys::{BPF_F_XDP_HAS_FRAGS, bpf_obj_get_info_by_fd, bpf_object__load, bpf_prog_info};
use libbpf_rs::{AsRawLibbpf, ErrorKind, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, ProgramType};
use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;
use weir_abi::kernel::Mode;
use weir_abi::{ABI_VERSION, Counter};

use super::replay::Replay;
use super::{VerifierCost, XdpFilter, failed, log};
use crate::clang::BpfObject;
use crate::image::Image;
use crate::limits::counts::Counted;
use crate::limits::{Buckets, Limits, Words};
use crate::{EngineError, Program, descriptors};

/// Section of the counters.
pub(crate) const COUNTERS: &str = ".bss.counters";
/// Section of the abi version.
const ABI: &str = ".rodata.abi";
/// Section of the limiters' image, of the buckets, and of what is counted for them.
const LIMITS: &str = ".bss.limits";
const BUCKETS: &str = ".bss.buckets";
const EXCEEDED: &str = ".bss.exceeded";
const PASSED: &str = ".bss.passed";
/// Section of `struct mode`.
const MODE: &str = ".rodata.mode";
/// What programs that count losses are called (datapath/engine/losses.h).
pub(crate) const LOSSES: &str = "weir_lost_";
/// The map of programs that are parts of chains (datapath/engine/parts.h).
const PARTS: &str = "weir_parts";

/// What of an object is loaded, and how.
pub(crate) struct Plan<'a> {
    /// What programs are for; all zeros for frames of captures.
    pub mode: Mode,
    /// Sections that are made as long as that.
    pub lengths: &'a [(&'a str, usize)],
    /// Maps that programs share with those of other objects, instead of having their own, by section.
    pub shared: &'a [(&'static str, BorrowedFd<'a>)],
    /// Whether a program is wanted, by its name.
    pub program: &'a dyn Fn(&str) -> bool,
    /// Whether a map is.
    pub map: &'a dyn Fn(&str) -> bool,
}

pub(super) fn load(
    name: &str,
    object: &BpfObject,
    program: &Program,
    images: &[Arc<Image>],
    limits: Option<&Limits>,
) -> Result<XdpFilter, EngineError> {
    let start = Instant::now();
    let shared = shared_maps(limits);
    let plan = Plan {
        mode: Mode::default(),
        lengths: &[],
        shared: &shared,
        program: &|name| !name.starts_with(LOSSES),
        map: &|_| true,
    };
    let object = load_object(name, object, &plan)?;
    join_parts(&object)?;
    fill_tables(&object, images, limits)?;
    // Those that it shares with other programs are full already.
    let own = limits.filter(|_| shared.is_empty());
    let buckets = own.map(|limits| buckets(&object, limits)).transpose()?;
    let counted = limits.map_or(Ok(None), |limits| counted(&object, limits))?;
    let counters = map(&object, COUNTERS, program.counters() * size_of::<Counter>())?;
    let programs: Vec<String> = program.chains.iter().map(|chain| program_name(chain)).collect();
    let costs = program.chains.iter().map(|chain| cost(&object, chain));
    let costs = costs.collect::<Result<_, _>>()?;
    let (counter_count, replay, load_took) = (program.counters(), Replay::new(), start.elapsed());
    let unfilled = buckets.zip(own.map(|limits| limits.held.clone()));
    Ok(XdpFilter { object, programs, counters, counter_count, unfilled, counted, replay, costs, load_took })
}

/// What the program of a chain is called.
pub(crate) fn program_name(chain: &str) -> String {
    format!("weir_{chain}")
}

/// The number of a program that is a part of a chain, and the chain: of `weir_7_upstream_part_2` 7 and `upstream`.
fn part_of(program: &str) -> Option<(u32, &str)> {
    let (number, part) = program.strip_prefix("weir_")?.split_once('_')?;
    let (chain, _) = part.rsplit_once("_part_")?;
    Some((number.parse().ok()?, chain))
}

/// Tells the programs of chains in parts where the parts are: their map, which objects of whole chains do not have. It is to be kept open as long
/// as the programs run.
pub(crate) fn join_parts(object: &Object) -> Result<Option<OwnedFd>, EngineError> {
    let Some(parts) = object.maps().find(|map| map.name() == PARTS) else { return Ok(None) };
    for program in object.progs() {
        let name = program.name().to_string_lossy();
        let Some((number, _)) = part_of(&name) else { continue };
        let descriptor = program.as_fd().as_raw_fd() as u32;
        parts
            .update(&number.to_ne_bytes(), &descriptor.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| failed(&name, format!("cannot be jumped to: {error}")))?;
    }
    let parts = parts.as_fd().try_clone_to_owned();
    Ok(Some(parts.map_err(|error| failed(PARTS, error.to_string()).caused_by(&error))?))
}

/// Copies images into the tables. No program runs yet.
pub(crate) fn fill_tables(object: &Object, images: &[Arc<Image>], limits: Option<&Limits>) -> Result<(), EngineError> {
    for (slot, image) in images.iter().enumerate() {
        fill(object, &format!(".bss.table{slot}"), image.as_bytes())?;
    }
    limits.map_or(Ok(()), |limits| fill(object, LIMITS, limits.image.as_bytes()))
}

fn fill(object: &Object, section: &str, bytes: &[u8]) -> Result<(), EngineError> {
    let memory = map(object, section, bytes.len())?;
    // SAFETY: the mapping is at least as long as the image and was made for us alone; no program runs yet.
    unsafe { memory.as_mut_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// The buckets that the object's programs charge, as many as the limits have.
fn buckets(object: &Object, limits: &Limits) -> Result<Buckets, EngineError> {
    Ok(Buckets::of_map(map(object, BUCKETS, limits.buckets.count() * size_of::<u64>())?))
}

/// What the object's programs count for their buckets.
fn counted(object: &Object, limits: &Limits) -> Result<Option<Counted>, EngineError> {
    let Some(counted) = &limits.counted else { return Ok(None) };
    let words = |section: &str, wanted: Option<&Words>| {
        let mapped = wanted.map(|_| map(object, section, limits.buckets.count() * size_of::<u64>()));
        mapped.transpose().map(|memory| memory.map(Words::of_map))
    };
    let counts = counted.counts();
    Ok(Some(counted.in_maps(words(EXCEEDED, counts.exceeded())?, words(PASSED, counts.passed())?)))
}

/// The maps of buckets and counts that programs of all generations share.
pub(crate) fn shared_maps(limits: Option<&Limits>) -> Vec<(&'static str, BorrowedFd<'_>)> {
    let Some(limits) = limits else { return Vec::new() };
    let counts = limits.counted.as_ref().map(Counted::counts);
    let [exceeded, passed] = [counts.and_then(|counts| counts.exceeded()), counts.and_then(|counts| counts.passed())];
    let maps = [
        (BUCKETS, limits.buckets.map()),
        (EXCEEDED, exceeded.and_then(Words::map)),
        (PASSED, passed.and_then(Words::map)),
    ];
    maps.into_iter().filter_map(|(section, map)| map.map(|map| (section, map))).collect()
}

/// What the verifier is to say of programs that it refuses (BPF_LOG_STATS, BPF_LOG_LEVEL1 of the kernel). libbpf loads a program anew each time
/// that the log outgrows its buffer, which takes seconds if the verifier gives up only after a million instructions.
const LOG_REFUSAL: u32 = 4;
const LOG_TRACE: u32 = 1;

/// Opens and loads an object. Kernels that account BPF memory to RLIMIT_MEMLOCK (before 5.11) have it raised by libbpf.
pub(crate) fn load_object(name: &str, object: &BpfObject, plan: &Plan<'_>) -> Result<Object, EngineError> {
    match load_logged(name, object, plan, LOG_REFUSAL) {
        // Our bug: whoever mends it needs the way that led there.
        Err(EngineError::Verifier { .. }) => load_logged(name, object, plan, LOG_TRACE),
        loaded => loaded,
    }
}

fn load_logged(name: &str, object: &BpfObject, plan: &Plan<'_>, log_level: u32) -> Result<Object, EngineError> {
    let (loaded, heard) = log::listen(|| {
        let mut opened = ObjectBuilder::default().open_memory(object.bytes())?;
        check_version(name, &opened)?;
        prepare(&mut opened, plan, log_level)?;
        load_opened(opened)
    });
    loaded.map_err(|error| match error {
        LoadError::Engine(error) => error,
        LoadError::Libbpf(error) if error.kind() == ErrorKind::PermissionDenied && !is_verdict(&heard) => {
            EngineError::NotPermitted
        }
        // The verifier may have been content: a program gets its descriptor after that.
        LoadError::NoDescriptors(error) => failed(name, format!("cannot be loaded: {error}")).caused_by(&error),
        LoadError::Libbpf(error) => match log::verifier_log(&heard) {
            Some(log) => match exceeded(&log) {
                Some(limit) => EngineError::TooLarge { object: name.to_owned(), limit },
                None => EngineError::Verifier { object: name.to_owned(), log },
            },
            None => failed(name, format!("cannot be loaded: {error:#}\n{}", heard.trim_end())),
        },
    })
}

/// As `OpenObject::load`, which leaves only the text of some errors.
fn load_opened(opened: OpenObject) -> Result<Object, LoadError> {
    // SAFETY: the object is open and ours.
    let result = unsafe { bpf_object__load(opened.as_libbpf_object().as_ptr()) };
    if result < 0 {
        let error = io::Error::from_raw_os_error(-result);
        return Err(match descriptors::were_wanting(&error) {
            true => LoadError::NoDescriptors(error),
            false => LoadError::Libbpf(libbpf_rs::Error::from_raw_os_error(-result)),
        });
    }
    // SAFETY: the object is loaded, and nobody else has the pointer.
    Ok(unsafe { Object::from_ptr(opened.take_ptr()) })
}

fn prepare(opened: &mut OpenObject, plan: &Plan<'_>, log_level: u32) -> Result<(), LoadError> {
    for mut program in opened.progs_mut() {
        let wanted = (plan.program)(&program.name().to_string_lossy());
        program.set_autoload(wanted);
        program.set_log_level(log_level);
        if plan.mode.jumbo != 0 && program.prog_type() == ProgramType::Xdp {
            program.set_flags(BPF_F_XDP_HAS_FRAGS);
        }
    }
    if let Some((section, _)) = plan.lengths.iter().find(|(section, _)| opened.maps().all(|map| map.name() != *section))
    {
        return Err(LoadError::Engine(failed(section, "the object has no such section".to_owned())));
    }
    for mut map in opened.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == MODE {
            let bytes: Vec<u8> = plan.mode.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
            map.set_initial_value(&bytes)?;
        }
        if let Some(&(_, bytes)) = plan.lengths.iter().find(|(section, _)| *section == name) {
            map.set_value_size(bytes as u32)?;
        }
        if let Some(&(_, shared)) = plan.shared.iter().find(|(section, _)| *section == name) {
            map.reuse_fd(shared)?;
        }
        if !(plan.map)(&name) {
            map.set_autocreate(false)?;
        }
    }
    Ok(())
}

/// What there is too much of, if the verifier gave up because of that and not because of what the program does (kernel/bpf/verifier.c).
fn exceeded(log: &str) -> Option<&'static str> {
    const LIMITS: [(&str, &str); 3] = [
        ("BPF program is too large", "the verifier follows at most a million instructions"),
        ("jumps is too complex", "the verifier follows at most 8192 branches"),
        ("maps per program has reached the limit", "a program has at most 64 maps, which leaves 56 tables"),
    ];
    LIMITS.iter().find(|(complaint, _)| log.contains(complaint)).map(|&(_, limit)| limit)
}

/// Whether the verifier has spoken: it refuses programs with the same error number that a lack of rights gives.
fn is_verdict(heard: &str) -> bool {
    log::verifier_log(heard).is_some_and(|log| log.contains("processed "))
}

enum LoadError {
    Engine(EngineError),
    Libbpf(libbpf_rs::Error),
    NoDescriptors(io::Error),
}

impl From<libbpf_rs::Error> for LoadError {
    fn from(error: libbpf_rs::Error) -> Self {
        match descriptors::were_wanting_to_libbpf(&error) {
            true => LoadError::NoDescriptors(Errno::MFILE.into()),
            false => LoadError::Libbpf(error),
        }
    }
}

fn check_version(name: &str, object: &libbpf_rs::OpenObject) -> Result<(), LoadError> {
    let map = object.maps().find(|map| map.name() == ABI);
    let version = map.as_ref().and_then(|map| map.initial_value()?.first_chunk().copied()).map(u32::from_ne_bytes);
    match version {
        Some(ABI_VERSION) => Ok(()),
        Some(found) => {
            Err(LoadError::Engine(EngineError::AbiVersion { object: name.to_owned(), found, expected: ABI_VERSION }))
        }
        None => Err(LoadError::Engine(failed(name, "does not say its abi version".to_owned()))),
    }
}

/// The memory of the map that holds a section, at least `bytes` of it.
pub(crate) fn map(object: &Object, section: &str, bytes: usize) -> Result<MmapRaw, EngineError> {
    let map = object.maps().find(|map| map.name() == section);
    let map = map.ok_or_else(|| failed(section, "the object has no such section".to_owned()))?;
    if (map.value_size() as usize) < bytes {
        return Err(failed(section, format!("{} bytes set aside, {bytes} needed", map.value_size())));
    }
    let mapped = MmapOptions::new().len(map.value_size() as usize).map_raw(map.as_fd().as_raw_fd());
    mapped.map_err(|error| failed(section, format!("cannot be mapped: {error}")))
}

/// What the verifier spent on a chain: on its program, and on its parts if it has any.
fn cost(object: &Object, chain: &str) -> Result<VerifierCost, EngineError> {
    let mut cost = VerifierCost { chain: chain.to_owned(), ..VerifierCost::default() };
    let whole = program_name(chain);
    for program in object.progs() {
        let name = program.name().to_string_lossy();
        let is_part = part_of(&name).is_some_and(|(_, of)| of == chain);
        if !is_part && name != whole {
            continue;
        }
        let info = program_info(&name, program.as_fd())?;
        cost.parts += usize::from(is_part);
        cost.verified_insns += info.verified_insns;
        cost.insns += info.xlated_prog_len / 8;
        cost.jited_bytes += info.jited_prog_len;
    }
    if cost.insns == 0 {
        return Err(failed(&whole, "no such program".to_owned()));
    }
    Ok(cost)
}

fn program_info(name: &str, program: BorrowedFd<'_>) -> Result<bpf_prog_info, EngineError> {
    let mut info = bpf_prog_info::default();
    let mut bytes = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `bytes` bytes of `info`; its pointers are null, so it writes nothing else.
    let failure = unsafe { bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut bytes) };
    if failure != 0 {
        return Err(failed(name, format!("no program info: {}", io::Error::last_os_error())));
    }
    Ok(info)
}
