//! Checks the objects of a bundle before the dynamic loader or libbpf sees them.
//!
//! Opening a shared object can run code: constructors, resolvers of indirect functions, and code that relocations
//! overwrite. Weir's generated code needs none of them. This module therefore allows only the necessary parts and
//! refuses all others. It allows a few kinds of segments, the symbol table with its hash table, and the chains'
//! functions. Like the loader, it reads segments and ignores sections of shared objects.
//!
//! It does not restrict the code itself: a called chain can do everything that Weir can do. [`crate::bundle::trust`]
//! determines whose code is run.
//!
//! Sources: the System V ABI (gABI 4.1, chapter 5), its AMD64 supplement, and glibc's `_dl_map_object_from_fd`.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::ops::Range;

use object::elf::{self, Dyn64, DynamicTag, FileHeader64, ProgramHeader64, Sym64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{LittleEndian as Le, pod};

type ElfHeader = FileHeader64<Le>;
type Segment = ProgramHeader64<Le>;

/// The symbol with the ABI version.
const ABI_VERSION: &str = "weir_abi_version";

/// The word that code with lookups of both kinds has ([`crate::kernels`]).
const KERNELS: &str = "weir_kernels";

/// Maximum number of segments. Compilers make about twelve.
const SEGMENTS_MAX: usize = 32;
/// Maximum size of an object in memory, in bytes.
const MEMORY_BYTES_MAX: u64 = 1 << 28;
/// Maximum alignment of a segment: a huge page.
const ALIGN_MAX: u64 = 2 << 20;
/// Page size of x86-64. The loader maps whole pages.
const PAGE: u64 = 4096;

/// Allowed entries of the dynamic section. They neither run code nor load other objects.
const DYNAMIC_ALLOWED: [DynamicTag; 8] = [
    elf::DT_GNU_HASH,
    elf::DT_HASH,
    elf::DT_STRTAB,
    elf::DT_STRSZ,
    elf::DT_SYMTAB,
    elf::DT_SYMENT,
    elf::DT_FLAGS,
    elf::DT_FLAGS_1,
];

/// Prefixes of the sections of BPF instructions: shared functions, chains for received packets and for sent ones, and
/// programs that count losses.
const BPF_CODE_ALLOWED: [&str; 4] = [".text", "xdp", "tcx/egress", "tp_btf/xdp_"];

/// Refuses a shared object that is unsafe to map, or that exports other symbols than the functions of `chains` and the
/// ABI version.
///
/// Mapping is unsafe if the loader would run code, access memory outside the object, or make writable memory
/// executable.
///
/// # Errors
/// Returns the problem.
pub fn check_native(bytes: &[u8], chains: &[String]) -> Result<(), String> {
    let header = header(bytes, elf::ET_DYN, elf::EM_X86_64, "a shared object for x86-64")?;
    let segments = header.program_headers(Le, bytes).map_err(damaged)?;
    if segments.len() > SEGMENTS_MAX {
        return Err(format!("has {} segments, at most {SEGMENTS_MAX} are possible", segments.len()));
    }
    let memory = Memory::map(bytes, segments)?;
    check_segments(&memory, segments)?;
    let dynamic = Dynamic::read(&memory, segments)?;
    let exported = dynamic.exported(&memory)?;
    let functions = chains.iter().map(|chain| format!("weir_{chain}"));
    let expected: BTreeSet<String> = functions.chain([ABI_VERSION.to_owned()]).collect();
    if let Some(missing) = expected.difference(&exported).next() {
        return Err(format!("has no symbol {missing}"));
    }
    match exported.difference(&expected).find(|name| *name != KERNELS) {
        Some(odd) => Err(format!("exports {odd}, which is not a chain of the policy")),
        None => Ok(()),
    }
}

/// Refuses a file that is not a BPF object, or that has programs of other kinds than Weir's.
///
/// # Errors
/// Returns the problem.
pub fn check_bpf(bytes: &[u8]) -> Result<(), String> {
    let header = header(bytes, elf::ET_REL, elf::EM_BPF, "a BPF object")?;
    let sections = header.sections(Le, bytes).map_err(damaged)?;
    for section in sections.iter() {
        section.data(Le, bytes).map_err(damaged)?;
        let name = sections.section_name(Le, section).map_err(damaged)?;
        let is_code = section.sh_flags(Le).0 & elf::SHF_EXECINSTR.0 != 0;
        if is_code && !BPF_CODE_ALLOWED.iter().any(|allowed| name.starts_with(allowed.as_bytes())) {
            return Err(format!("has a program of another kind in section {}", name.escape_ascii()));
        }
    }
    Ok(())
}

fn damaged(error: object::read::Error) -> String {
    format!("is damaged: {error}")
}

fn header<'a>(
    bytes: &'a [u8],
    file: elf::FileType,
    machine: elf::Machine,
    expected: &str,
) -> Result<&'a ElfHeader, String> {
    let header = ElfHeader::parse(bytes).ok().filter(|header| header.endian().is_ok());
    header
        .filter(|header| header.e_type(Le) == file && header.e_machine(Le) == machine)
        .ok_or_else(|| format!("is not {expected}"))
}

/// The memory of the object as the loader maps it, before any of its code runs.
struct Memory<'a> {
    segments: Vec<Mapped<'a>>,
}

struct Mapped<'a> {
    addresses: Range<u64>,
    flags: elf::ProgramFlags,
    /// The part that comes from the file. The rest is 0.
    content: &'a [u8],
}

impl<'a> Memory<'a> {
    fn map(bytes: &'a [u8], segments: &[Segment]) -> Result<Self, String> {
        let mut memory = Memory { segments: Vec::new() };
        let mut free_from = 0;
        for segment in segments.iter().filter(|segment| segment.p_type.get(Le) == elf::PT_LOAD) {
            let (at, offset) = (segment.p_vaddr.get(Le), segment.p_offset.get(Le));
            let (in_file, in_memory) = (segment.p_filesz.get(Le), segment.p_memsz.get(Le));
            let flags = segment.p_flags.get(Le);
            let end = at.checked_add(in_memory).filter(|&end| end <= MEMORY_BYTES_MAX);
            let content = offset.checked_add(in_file).and_then(|end| bytes.get(offset as usize..end as usize));
            let (Some(end), Some(content), true) = (end, content, in_file <= in_memory) else {
                return Err("has a segment that is longer than the file or than can be mapped".to_owned());
            };
            // The bytes of segments that share a page would overlap.
            let own_pages = at - at % PAGE >= free_from && at % PAGE == offset % PAGE;
            if !own_pages || segment.p_align.get(Le) > ALIGN_MAX {
                return Err("has segments that overlap or are not aligned to pages".to_owned());
            }
            if flags.0 & elf::PF_W.0 != 0 && flags.0 & elf::PF_X.0 != 0 {
                return Err("has a segment that can be written and executed".to_owned());
            }
            free_from = end.next_multiple_of(PAGE);
            memory.segments.push(Mapped { addresses: at..end, flags, content });
        }
        Ok(memory)
    }

    /// The segment that contains the whole range.
    fn segment(&self, range: Range<u64>) -> Option<&Mapped<'a>> {
        let covers = |mapped: &&Mapped<'_>| mapped.addresses.start <= range.start && range.end <= mapped.addresses.end;
        self.segments.iter().find(covers)
    }

    /// `bytes` bytes at the address `at`, if one segment contains them and they come from the file.
    fn read(&self, at: u64, bytes: u64) -> Option<&'a [u8]> {
        let segment = self.segment(at..at.checked_add(bytes)?)?;
        let start = at - segment.addresses.start;
        segment.content.get(start as usize..(start + bytes) as usize)
    }

    fn word(&self, at: u64) -> Option<u32> {
        Some(u32::from_le_bytes(*self.read(at, 4)?.first_chunk()?))
    }
}

/// Checks the other segments: the loader must only read them, or protect memory that is mapped.
fn check_segments(memory: &Memory<'_>, segments: &[Segment]) -> Result<(), String> {
    let mut stack_is_data = false;
    for segment in segments {
        let kind = segment.p_type.get(Le);
        match kind {
            elf::PT_NULL | elf::PT_LOAD => {}
            elf::PT_GNU_STACK => stack_is_data = segment.p_flags.get(Le).0 & elf::PF_X.0 == 0,
            elf::PT_DYNAMIC
            | elf::PT_GNU_RELRO
            | elf::PT_PHDR
            | elf::PT_NOTE
            | elf::PT_GNU_PROPERTY
            | elf::PT_GNU_EH_FRAME => {
                let (at, bytes) = (segment.p_vaddr.get(Le), segment.p_memsz.get(Le));
                let inside = at.checked_add(bytes).and_then(|end| memory.segment(at..end));
                inside.ok_or_else(|| format!("has a segment {kind:?} outside the mapped segments"))?;
            }
            _ => return Err(format!("has a segment {kind:?}, which generated code does not need")),
        }
    }
    // Without this segment, the loader makes the stacks of all threads executable.
    if stack_is_data { Ok(()) } else { Err("asks for an executable stack".to_owned()) }
}

/// Addresses in the dynamic section.
struct Dynamic {
    hash: u64,
    symbols: u64,
    names: u64,
    names_bytes: u64,
}

impl Dynamic {
    fn read(memory: &Memory<'_>, segments: &[Segment]) -> Result<Self, String> {
        let mut dynamic = segments.iter().filter(|segment| segment.p_type.get(Le) == elf::PT_DYNAMIC);
        let (Some(segment), None) = (dynamic.next(), dynamic.next()) else {
            return Err("does not have one dynamic section".to_owned());
        };
        let bytes = memory.read(segment.p_vaddr.get(Le), segment.p_memsz.get(Le)).unwrap_or_default();
        let (entries, _) = pod::slice_from_bytes::<Dyn64<Le>>(bytes, bytes.len() / size_of::<Dyn64<Le>>())
            .expect("as many entries as there are bytes for");
        // The loader reads until the end entry, even beyond the segment.
        let end = entries.iter().position(|entry| entry.d_tag.get(Le) == elf::DT_NULL);
        let entries = &entries[..end.ok_or("has a dynamic section without an end")?];
        let mut known: Vec<(DynamicTag, u64)> = Vec::new();
        for entry in entries {
            let (tag, value) = (entry.d_tag.get(Le), entry.d_val.get(Le));
            check_entry(tag, value)?;
            if known.iter().any(|&(other, _)| other == tag) {
                return Err(format!("has {tag:?} twice in its dynamic section"));
            }
            known.push((tag, value));
        }
        let value = |wanted: DynamicTag| {
            let found = known.iter().find(|(tag, _)| *tag == wanted);
            found.map(|&(_, value)| value).ok_or_else(|| format!("has no {wanted:?} in its dynamic section"))
        };
        if value(elf::DT_SYMENT)? != size_of::<Sym64<Le>>() as u64 {
            return Err("has symbols of an unknown size".to_owned());
        }
        Ok(Dynamic {
            hash: value(elf::DT_GNU_HASH)?,
            symbols: value(elf::DT_SYMTAB)?,
            names: value(elf::DT_STRTAB)?,
            names_bytes: value(elf::DT_STRSZ)?,
        })
    }

    /// Names of all symbols that a lookup can find. Each must be defined in this object and match its type.
    fn exported(&self, memory: &Memory<'_>) -> Result<BTreeSet<String>, String> {
        let found = self.reachable(memory).ok_or("has a symbol hash table that points outside the object")?;
        found.into_iter().map(|index| self.symbol(memory, index)).collect()
    }

    /// Indices of the symbols in the GNU hash table, in the way the loader searches it.
    ///
    /// ```text
    /// word 0          1                2            3            4 ...
    ///      buckets    first symbol     bloom words  bloom shift  bloom (8 bytes each), one word per bucket, one word
    ///      per symbol
    /// ```
    /// A bucket contains the index of its first symbol, or 0. The lowest bit of a symbol's word marks the last symbol
    /// of a bucket.
    fn reachable(&self, memory: &Memory<'_>) -> Option<BTreeSet<u64>> {
        let word = |index: u64| memory.word(self.hash.checked_add(index.checked_mul(4)?)?);
        let (buckets, first, blooms) = (u64::from(word(0)?), u64::from(word(1)?), u64::from(word(2)?));
        let shift = word(3)?;
        // The loader uses the number of bloom words as a mask, and divides by the number of buckets.
        if buckets == 0 || !blooms.is_power_of_two() || shift >= 64 {
            return None;
        }
        let first_bucket = 4 + 2 * blooms;
        let first_word = first_bucket + buckets;
        memory.read(self.hash, first_word * 4)?;
        let mut found = BTreeSet::new();
        for bucket in 0..buckets {
            let mut index = u64::from(word(first_bucket + bucket)?);
            if index == 0 {
                continue;
            }
            // A symbol that was already visited ends the walk: the rest of the chain was visited too.
            while found.insert(index) {
                if word(first_word + index.checked_sub(first)?)? & 1 == 1 {
                    break;
                }
                index += 1;
            }
        }
        Some(found)
    }

    /// The name of a symbol, which must be a function or a 4-byte object of this file.
    fn symbol(&self, memory: &Memory<'_>, index: u64) -> Result<String, String> {
        let broken = || format!("has a symbol {index} that points outside the object");
        let bytes = size_of::<Sym64<Le>>() as u64;
        let at = self.symbols.checked_add(index * bytes).ok_or_else(broken)?;
        let entry = memory.read(at, bytes).ok_or_else(broken)?;
        let (symbol, _) = pod::from_bytes::<Sym64<Le>>(entry).expect("as many bytes as a symbol has");
        let names = memory.read(self.names, self.names_bytes).ok_or_else(broken)?;
        let name = names.get(symbol.st_name.get(Le) as usize..).and_then(|name| CStr::from_bytes_until_nul(name).ok());
        let name = name.ok_or_else(broken)?.to_bytes().escape_ascii().to_string();
        let section = symbol.st_shndx.get(Le);
        if section == elf::SHN_UNDEF {
            return Err(format!("needs {name} from another object"));
        }
        let range = symbol.st_value.get(Le)..symbol.st_value.get(Le).saturating_add(symbol.st_size.get(Le));
        let segment = memory.segment(range).filter(|_| !section.is_reserved()).ok_or_else(broken)?;
        let is_code = segment.flags.0 & elf::PF_X.0 != 0;
        match symbol.st_type() {
            elf::STT_FUNC if is_code => Ok(name),
            elf::STT_OBJECT if symbol.st_size.get(Le) == 4 => Ok(name),
            kind => Err(format!("exports {name} as {kind:?}")),
        }
    }
}

/// Refuses entries of the dynamic section that make the loader do more than find symbols.
fn check_entry(tag: DynamicTag, value: u64) -> Result<(), String> {
    let refuse = |why: &str| Err(format!("has {tag:?} in its dynamic section: {why}"));
    match tag {
        elf::DT_INIT | elf::DT_INIT_ARRAY | elf::DT_PREINIT_ARRAY | elf::DT_FINI | elf::DT_FINI_ARRAY => {
            refuse("it would run code when it is opened or closed")
        }
        elf::DT_NEEDED => refuse("it needs another library"),
        elf::DT_REL | elf::DT_RELA | elf::DT_RELR | elf::DT_JMPREL | elf::DT_TEXTREL => refuse("it needs relocations"),
        // These flags request that all symbols are resolved at once, which happens anyway.
        elf::DT_FLAGS if value & !elf::DF_BIND_NOW.0 != 0 => refuse("unknown flags"),
        elf::DT_FLAGS_1 if value & !elf::DF_1_NOW.0 != 0 => refuse("unknown flags"),
        _ if DYNAMIC_ALLOWED.contains(&tag) => Ok(()),
        _ => refuse("generated code does not need it"),
    }
}
