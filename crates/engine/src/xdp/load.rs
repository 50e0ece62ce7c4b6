//! Loads a BPF object as programs in the kernel, and fills its tables.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::libbpf_sys::{BPF_F_XDP_HAS_FRAGS, bpf_object__load};
use libbpf_rs::{
    AsRawLibbpf, ErrorKind, MapCore, MapFlags, MapInfo, Object, ObjectBuilder, OpenObject, ProgramMut, ProgramType,
};
use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;
use weir_abi::ABI_VERSION;
use weir_abi::entry::EntryCounter;
use weir_abi::kernel::{self, Mode};

use super::{log, needs};
use crate::clang::{BpfObject, LimitsRoom, TableRoom};
use crate::{Bound, EngineError, descriptors};
use weir_state::limits::{BUCKETS, Buckets, EXCEEDED, LimiterCounts, Limits, PASSED};
use weir_state::tables::{AdditionRings, ENTRIES, LABELS, LiveTables, SelectedHalves, TABLE};
use weir_state::words::Words;

/// The section of the counters.
pub(crate) const COUNTERS: &str = ".bss.counters";
/// The section of the ABI version.
const ABI: &str = ".rodata.abi";
/// The section of the limiters' image.
const LIMITS: &str = ".bss.limits";
/// The section of `struct loaded_sizes`, and the number of words of a table in it. There is room for one table at
/// least.
const SIZES: &str = ".rodata.sizes";
const TABLE_WORDS: usize = 3;
/// Bytes after the image of limits, which lookups may read.
const LIMITS_PADDING: usize = 64;
/// The section of the rings for additions (datapath/tables/kernel_addition.h).
pub(crate) const ADDITIONS: &str = ".bss.additions";
/// The memory of CPUs for tracked packets.
pub(crate) const TRACKS: &str = ".bss.tracks";
/// What leaves in place of each CPU's packet.
pub(crate) const REWRITES: &str = ".bss.rewrites";
/// The section of `struct words`.
pub(crate) const WORDS: &str = ".bss.words";
/// The section of `struct mode`.
const MODE: &str = ".rodata.mode";
/// Prefix of the names of programs that count losses (datapath/kernel/losses.h).
pub(crate) const LOSSES: &str = "weir_lost_";
/// The memory of CPUs for a card's answers (datapath/card/kernel_answers.h).
pub(crate) const ANSWERS: &str = ".bss.answers";
/// The seals of ports behind cards, and the map of chains (datapath/card/kernel_front.h).
pub(crate) const CARD: &str = ".bss.card";
const CHAINS: &str = "weir_chains";
/// The ring of samples on a host (datapath/observe/kernel_samples.h).
pub(crate) const SAMPLES: &str = "weir_samples";
/// What taps want, and the ring of copies (datapath/observe/kernel_tap.h).
pub(crate) const TAPS_SECTION: &str = ".bss.taps";
pub(crate) const TAP_RING: &str = "weir_tap_ring";
/// The map of programs that are parts of chains (datapath/kernel/parts.h).
const PARTS: &str = "weir_parts";

/// The parts of an object that are loaded, and their settings.
pub(crate) struct Plan<'a> {
    /// The use of the programs; all zeros for frames of captures.
    pub mode: Mode,
    /// Sections with their lengths in bytes, if these differ from the object's.
    pub lengths: &'a [(&'a str, usize)],
    /// The sizes of its data, for the object of a bundle.
    pub sizes: Option<LoadedSizes>,
    /// Maps that programs share with programs of other objects, by section.
    pub shared: &'a [(String, BorrowedFd<'a>)],
    /// Whether the program of a name is loaded.
    pub program: &'a dyn Fn(&str) -> bool,
    /// Whether the map of a name is loaded.
    pub map: &'a dyn Fn(&str) -> bool,
}

/// Sizes of data, which the object of a bundle does not know: `struct loaded_sizes` in `datapath/core/env_bpf.h`.
#[derive(Clone)]
pub(crate) struct LoadedSizes {
    tables: Vec<TableRoom>,
    limits: Option<LimitsRoom>,
}

impl LoadedSizes {
    /// The sizes of these data.
    pub fn of(bound: &Bound) -> Self {
        let tables = bound.images.iter().enumerate().map(|(slot, image)| TableRoom::of(bound, slot, image));
        LoadedSizes { tables: tables.collect(), limits: bound.state.limits.as_ref().map(LimitsRoom::of) }
    }

    /// The section's content.
    fn words(&self) -> Vec<u8> {
        let [limits_mask, buckets] = self.limits.map_or([0, 0], |room| [room.bytes - 1, room.buckets as u32]);
        let mut words = vec![limits_mask, buckets];
        for room in &self.tables {
            words.extend([room.bytes - 1, room.other(), room.entries.map_or(0, |(entries, _)| entries as u32)]);
        }
        words.resize(words.len().max(2 + TABLE_WORDS), 0);
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }

    /// The length of a section in bytes, with those after the last word; `None` if it does not depend on the sizes.
    fn length(&self, section: &str) -> Option<usize> {
        match section {
            LIMITS => Some(self.limits?.bytes as usize + LIMITS_PADDING),
            BUCKETS | EXCEEDED | PASSED => Some(self.limits?.buckets * size_of::<u64>()),
            _ => self.table_length(section),
        }
    }

    fn table_length(&self, section: &str) -> Option<usize> {
        let prefix = [TABLE, ENTRIES, LABELS].into_iter().find(|prefix| section.starts_with(prefix))?;
        let room = self.tables.get(section[prefix.len()..].parse::<usize>().ok()?)?;
        match (prefix, room.entries) {
            (TABLE, _) => Some(room.bytes as usize + room.other() as usize + size_of::<u64>()),
            (ENTRIES, Some((entries, cpus))) => Some(entries * cpus * size_of::<EntryCounter>()),
            (_, Some((entries, _))) => Some(entries * size_of::<u32>()),
            (_, None) => None,
        }
    }
}

/// The name of the program of a chain.
pub(crate) fn program_name(chain: &str) -> String {
    format!("weir_{chain}")
}

/// The number of a program that is a part of a chain, and its chain: 7 and `upstream` for `weir_7_upstream_part_2`.
pub(crate) fn part_of(program: &str) -> Option<(u32, &str)> {
    let (number, part) = program.strip_prefix("weir_")?.split_once('_')?;
    let (chain, _) = part.rsplit_once("_part_")?;
    Some((number.parse().ok()?, chain))
}

/// Fills the map of parts, if the object has chains in parts. The map must stay open as long as the programs run.
pub(crate) fn join_parts(object: &Object) -> Result<Option<OwnedFd>, EngineError> {
    let Some(parts) = object.maps().find(|map| map.name() == PARTS) else { return Ok(None) };
    for program in object.progs().filter(|program| program.autoload()) {
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

/// The name of the program in front of a chain, for interfaces behind a card.
pub(crate) fn front_name(chain: usize) -> String {
    format!("weir_front_{chain}")
}

/// Whether a program is in front of a chain. Names of chains end in words.
pub(crate) fn is_front(program: &str) -> bool {
    let number = program.strip_prefix("weir_front_");
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Fills the map of chains. The programs behind a card jump to these. The map must stay open as long as they run.
pub(crate) fn join_chains(object: &Object, chains: &[String]) -> Result<OwnedFd, EngineError> {
    let map = object.maps().find(|map| map.name() == CHAINS);
    let map = map.ok_or_else(|| failed(CHAINS, "the object has no such map".to_owned()))?;
    for (number, chain) in chains.iter().enumerate() {
        let name = program_name(chain);
        let descriptor = find(object, &name)?.as_fd().as_raw_fd() as u32;
        map.update(&(number as u32).to_ne_bytes(), &descriptor.to_ne_bytes(), MapFlags::ANY)
            .map_err(|error| failed(&name, format!("cannot be jumped to: {error}")))?;
    }
    map.as_fd().try_clone_to_owned().map_err(|error| failed(CHAINS, error.to_string()).caused_by(&error))
}

/// The section of a table slot.
fn table_section(slot: usize) -> String {
    format!("{TABLE}{slot}")
}

/// Copies images into the tables that do not change. No program may run yet. The result is the word that says which
/// halves of the others are read; programs must not run after it is dropped.
pub(crate) fn fill_tables(object: &Object, bound: &Bound) -> Result<Arc<SelectedHalves>, EngineError> {
    for (slot, image) in bound.images.iter().enumerate() {
        if bound.map_of(slot).is_none() {
            fill(object, &table_section(slot), image.as_bytes())?;
        }
    }
    bound.state.limits.as_ref().map_or(Ok(()), |limits| fill(object, LIMITS, limits.image.as_bytes()))?;
    let halves = Arc::new(SelectedHalves::of_map(map(object, WORDS, size_of::<kernel::Words>())?));
    let tables = bound.state.tables.iter().flat_map(LiveTables::image_maps);
    tables.for_each(|(slot, map)| map.follow(&halves, slot));
    Ok(halves)
}

fn fill(object: &Object, section: &str, bytes: &[u8]) -> Result<(), EngineError> {
    let memory = map(object, section, bytes.len())?;
    // SAFETY: the mapping is at least as long as the image and has no other user, because no program runs yet.
    unsafe { memory.as_mut_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(())
}

/// The buckets of the object's programs, as many as the limits have.
pub(super) fn buckets(object: &Object, limits: &Limits) -> Result<Buckets, EngineError> {
    Ok(Buckets::of_map(map(object, BUCKETS, limits.buckets.count() * size_of::<u64>())?))
}

/// The counts of the object's programs.
pub(super) fn counted(object: &Object, limits: &Limits) -> Result<Option<LimiterCounts>, EngineError> {
    let Some(counted) = &limits.counted else { return Ok(None) };
    let words = |section: &str, wanted: Option<&Words>| {
        let mapped = wanted.map(|_| map(object, section, limits.buckets.count() * size_of::<u64>()));
        mapped.transpose().map(|memory| memory.map(Words::of_map))
    };
    let counts = counted.counts();
    Ok(Some(counted.in_maps(words(EXCEEDED, counts.exceeded())?, words(PASSED, counts.passed())?)))
}

/// The rings of the object's programs, one for each of the CPUs that the section was made for.
pub(crate) fn addition_rings(object: &Object, cpus: usize) -> Result<AdditionRings, EngineError> {
    Ok(AdditionRings::of_map(Words::of_map(map(object, ADDITIONS, cpus * kernel::ring_bytes(cpus))?), cpus))
}

/// Log level for rejected programs (the kernel's BPF_LOG_STATS, BPF_LOG_LEVEL1). libbpf repeats a load whenever the log
/// exceeds its buffer. That takes seconds if the verifier gives up only after a million instructions.
const LOG_REFUSAL: u32 = 4;
const LOG_TRACE: u32 = 1;

/// Opens and loads an object. Kernels that account BPF memory to RLIMIT_MEMLOCK (before 5.11) have it raised by libbpf.
pub(crate) fn load_object(name: &str, object: &BpfObject, plan: &Plan<'_>) -> Result<Object, EngineError> {
    match load_logged(name, object, plan, LOG_REFUSAL) {
        // This is a bug of Weir. The trace of the verifier helps to fix it.
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
                None => needs::missing_helper(name, &log).unwrap_or_else(|| EngineError::Verifier {
                    object: name.to_owned(),
                    release: needs::running_release(),
                    log,
                }),
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
        return Err(match descriptors::limit_reached(&error) {
            true => LoadError::NoDescriptors(error),
            false => LoadError::Libbpf(libbpf_rs::Error::from_raw_os_error(-result)),
        });
    }
    // SAFETY: the object is loaded, and nothing else has the pointer.
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
    // Other objects know the sizes of their data.
    let sizes = plan.sizes.as_ref().filter(|_| opened.maps().any(|map| map.name() == SIZES));
    for mut map in opened.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == MODE {
            let bytes: Vec<u8> = plan.mode.words().iter().flat_map(|word| word.to_ne_bytes()).collect();
            map.set_initial_value(&bytes)?;
        }
        if let Some(sizes) = sizes {
            if name == SIZES {
                map.set_initial_value(&sizes.words())?;
            }
            if let Some(bytes) = sizes.length(&name) {
                map.set_value_size(bytes as u32)?;
            }
        }
        if let Some(&(_, bytes)) = plan.lengths.iter().find(|(section, _)| *section == name) {
            map.set_value_size(bytes as u32)?;
        }
        if let Some((_, shared)) = plan.shared.iter().find(|(section, _)| *section == name) {
            let (found, expected) = (map.value_size() as usize, plan.sizes.as_ref().and_then(|of| of.length(&name)));
            if let Some(bytes) = expected.filter(|&bytes| bytes != found) {
                let problem = format!("{found} bytes set aside, the shared map has {bytes}");
                return Err(LoadError::Engine(failed(&name, problem)));
            }
            // libbpf maps the shared map where it has set memory aside for the section.
            let bytes = MapInfo::new(*shared)?.info.value_size;
            if map.value_size() != bytes {
                map.set_value_size(bytes)?;
            }
            map.reuse_fd(*shared)?;
        }
        if !(plan.map)(&name) {
            map.set_autocreate(false)?;
        }
    }
    Ok(())
}

/// The exceeded limit, if the verifier rejected the program because of its size and not of its behaviour
/// (kernel/bpf/verifier.c).
fn exceeded(log: &str) -> Option<&'static str> {
    const LIMITS: [(&str, &str); 5] = [
        ("BPF program is too large", "the verifier follows at most a million instructions"),
        ("jumps is too complex", "the verifier follows at most 8192 branches"),
        ("combined stack size", "a program and the functions that it calls have 512 bytes of stack"),
        ("too many subprograms", "a program has at most 256 functions"),
        ("maps per program has reached the limit", "a program has at most 64 maps, which leaves 54 tables"),
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
        match descriptors::limit_reached_in_libbpf(&error) {
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

/// The program with the given name.
///
/// # Errors
/// There is none.
pub fn find<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, EngineError> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| failed(name, "no such program".to_owned()))
}

/// An error of an object, or of one of its programs and sections.
pub fn failed(object: &str, problem: String) -> EngineError {
    EngineError::Xdp { object: object.to_owned(), problem }
}

/// The memory of the map for a section, which must have at least `bytes` bytes.
///
/// # Errors
/// There is no such section, or it is smaller.
pub fn map(object: &Object, section: &str, bytes: usize) -> Result<MmapRaw, EngineError> {
    let map = object.maps().find(|map| map.name() == section);
    let map = map.ok_or_else(|| failed(section, "the object has no such section".to_owned()))?;
    if (map.value_size() as usize) < bytes {
        return Err(failed(section, format!("{} bytes set aside, {bytes} needed", map.value_size())));
    }
    let mapped = MmapOptions::new().len(map.value_size() as usize).map_raw(map.as_fd().as_raw_fd());
    mapped.map_err(|error| failed(section, format!("cannot be mapped: {error}")))
}
