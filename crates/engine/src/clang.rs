//! Runs clang on generated C, for user space and for BPF.
//!
//! The headers of the datapath are part of this program. Generated code needs no system header, C library or start
//! files. A machine therefore needs only clang and a linker.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use weir_state::limits::{LimiterCounts, Limits};
use weir_tables::limit_image::Logged;

use crate::cpu::Cpu;
use crate::image::{Image, capacity_bytes, limits_capacity_bytes};
use crate::kernels::Kernels;
use crate::scratch;
use crate::{Bound, EngineError, ProgramShape};

mod headers;

/// Environment variable that names the compiler to use instead of searching one.
pub const CLANG_ENV: &str = "WEIR_CLANG";

/// Names of compilers in the order of the search. The first one is the tested version.
const PROGRAMS: [&str; 6] = ["clang-19", "clang-20", "clang-21", "clang-22", "clang-18", "clang"];

/// Flags for both targets.
const FLAGS: [&str; 3] = ["-std=c11", "-ffreestanding", "-fno-stack-protector"];
/// Warnings for generated code. It has none, except for a bug of the emitter. Two warnings are turned off. A policy may
/// have rules that never match (`tcp dport < 80 tcp dport 443`). On some virtual machines, clang 19 warns of AVX10 with
/// the model number of an older processor. Other versions of clang do not know the latter warning.
const WARNINGS: [&str; 6] = [
    "-Wall",
    "-Wextra",
    // Tests are debug builds. In release builds, a new warning of a newer clang must not prevent a policy from loading.
    if cfg!(debug_assertions) { "-Werror" } else { "-Wno-error" },
    "-Wno-tautological-compare",
    "-Wno-unknown-warning-option",
    "-Wno-invalid-feature-combination",
];
/// A call of a function that the code does not contain is an error of the emitter: `-z defs`.
const NATIVE_FLAGS: [&str; 7] =
    ["-O3", "-shared", "-fPIC", "-nostdlib", "-fvisibility=default", "-Wl,--build-id=none", "-Wl,-z,defs"];
/// `-g` makes BTF, which describes maps and functions to the loader. Without crash diagnostics, code that is too long
/// for BPF's jumps does not leave crash reports.
const BPF_FLAGS: [&str; 6] = ["--target=bpf", "-mcpu=v3", "-O2", "-g", "-fno-crash-diagnostics", COMPILE_ONLY];
const COMPILE_ONLY: &str = "-c";
/// Bytes and buckets of limits in an object whose loader sets them.
const SIZES_BEFORE_LOAD: u32 = 64;
/// The message of clang for a jump that exceeds BPF's range.
const TOO_FAR: &str = "Branch target out of insn range";

/// A working compiler.
#[derive(Clone, Debug)]
pub struct Clang {
    program: PathBuf,
    version: String,
}

/// The result of a compilation.
#[derive(Clone, Debug)]
pub struct Compiled<T> {
    /// A [`NativeObject`] or a [`BpfObject`].
    pub object: T,
    /// Run time of clang.
    pub took: Duration,
}

/// A shared object that our compiler made, which is trusted like this program. [`crate::Bundle::native`] returns one
/// only if the bundle is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeObject(pub(crate) Vec<u8>);

impl NativeObject {
    /// The ELF file.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A BPF object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfObject(pub(crate) Vec<u8>);

impl BpfObject {
    /// The ELF file.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What BPF code is compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfShape {
    /// The sizes of its data.
    pub sizes: DataSizes,
    /// Number of counters per CPU: a power of two.
    pub counters: usize,
    /// What limiters count for each bucket: the maximum over all limiters.
    pub logged: Logged,
    /// Where the kernel calls the programs.
    pub hook: Hook,
}

/// Where the kernel calls programs (datapath/kernel/hook.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// When an interface receives a packet (XDP).
    Received,
    /// When a host sends a packet (tcx, egress).
    Sent,
}

/// The sizes of the data of BPF code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSizes {
    /// Sizes of known data.
    Known {
        /// The room for each table slot.
        tables: Vec<TableRoom>,
        /// The room for limits, if the program has limiters.
        limits: Option<LimitsRoom>,
    },
    /// The loader writes the sizes (`struct loaded_sizes` in `datapath/core/env_bpf.h`).
    AtLoad {
        /// Number of table slots.
        tables: usize,
    },
}

/// The room for limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsRoom {
    /// Capacity of the limiters' image in bytes, a power of two.
    pub bytes: u32,
    /// Number of buckets.
    pub buckets: usize,
}

/// The room for a table's image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableRoom {
    /// Capacity in bytes: a power of two.
    pub bytes: u32,
    /// Whether there is the same room for a second image.
    pub twice: bool,
    /// The counters of its entries, if they have any: the number of counters per CPU, and the number of CPUs. Both are
    /// powers of two.
    pub entries: Option<(usize, usize)>,
}

/// Additional headers and flags of a compilation. Policies need none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// Headers: the path in `#include`, and the text.
    pub headers: &'a [(&'a str, &'a str)],
    /// Flags that follow the flags of this module.
    pub flags: &'a [String],
}

impl TableRoom {
    /// The room for the image of a slot.
    pub(crate) fn of(bound: &Bound, slot: usize, image: &Image) -> Self {
        match bound.map_of(slot) {
            Some(map) => {
                let entries = bound.entry_maps_of(slot).map(|maps| (maps.capacity, maps.cpus));
                TableRoom { bytes: map.bytes() as u32, twice: true, entries }
            }
            None => TableRoom { bytes: capacity_bytes(image), twice: false, entries: None },
        }
    }

    /// Offset of the second half; 0 if there is none.
    pub(crate) fn other(&self) -> u32 {
        if self.twice { self.bytes } else { 0 }
    }

    /// The flags of the compiler for the slot.
    fn flags(&self, slot: usize) -> Vec<String> {
        let mut flags = vec![
            format!("-DWEIR_TABLE_{slot}_BYTES={}", self.bytes),
            format!("-DWEIR_TABLE_{slot}_OTHER={}", self.other()),
        ];
        if let Some((entries, cpus)) = self.entries {
            flags.push(format!("-DWEIR_ENTRIES_{slot}={entries}"));
            flags.push(format!("-DWEIR_ENTRY_CPUS={cpus}"));
        }
        flags
    }
}

impl LimitsRoom {
    /// The room for limits.
    pub(crate) fn of(limits: &Limits) -> Self {
        LimitsRoom { bytes: limits_capacity_bytes(limits), buckets: limits.buckets.count() }
    }
}

impl BpfShape {
    /// The shape for the given program and its data.
    pub fn new(program: &ProgramShape, bound: &Bound) -> Self {
        let tables = bound.images.iter().enumerate().map(|(slot, image)| TableRoom::of(bound, slot, image)).collect();
        let sizes = DataSizes::Known { tables, limits: bound.state.limits.as_ref().map(LimitsRoom::of) };
        Self::with_sizes(sizes, program, bound)
    }

    /// The shape for a bundle, which is loaded with data of any size.
    pub fn for_bundle(program: &ProgramShape, bound: &Bound) -> Self {
        let sizes = DataSizes::AtLoad { tables: program.tables.len() };
        Self::with_sizes(sizes, program, bound)
    }

    fn with_sizes(sizes: DataSizes, program: &ProgramShape, bound: &Bound) -> Self {
        let counters = program.counters().next_power_of_two();
        BpfShape { sizes, counters, logged: logged(bound), hook: Hook::Received }
    }

    /// The flags of the compiler.
    fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("-DWEIR_COUNTERS={}", self.counters)];
        if self.hook == Hook::Sent {
            flags.push("-DWEIR_SENT".to_owned());
        }
        let limits = match &self.sizes {
            DataSizes::Known { tables, limits } => {
                flags.extend((0..).zip(tables).flat_map(|(slot, room)| room.flags(slot)));
                *limits
            }
            DataSizes::AtLoad { tables } => {
                flags.push("-DWEIR_SIZES_AT_LOAD".to_owned());
                flags.push(format!("-DWEIR_TABLES={}", (*tables).max(1)));
                Some(LimitsRoom { bytes: SIZES_BEFORE_LOAD, buckets: SIZES_BEFORE_LOAD as usize })
            }
        };
        if let Some(LimitsRoom { bytes, buckets }) = limits {
            flags.push(format!("-DWEIR_LIMITS_BYTES={bytes}"));
            flags.push(format!("-DWEIR_BUCKETS={buckets}"));
            flags.push(format!("-DWEIR_LOGGED={}", self.logged as u32));
        }
        flags
    }
}

fn logged(bound: &Bound) -> Logged {
    bound
        .state
        .limits
        .as_ref()
        .and_then(|limits| limits.counted.as_ref())
        .map(LimiterCounts::logged)
        .unwrap_or_default()
}

impl Clang {
    /// Finds the compiler: the one in [`CLANG_ENV`], else the first installed one of the search.
    pub fn find() -> Result<Self, EngineError> {
        Self::find_with(env::var_os(CLANG_ENV))
    }

    fn find_with(chosen: Option<OsString>) -> Result<Self, EngineError> {
        if let Some(program) = chosen {
            let program = PathBuf::from(program);
            return Self::probe(&program).map_err(|problem| EngineError::BadClang { program, problem });
        }
        PROGRAMS
            .iter()
            .find_map(|program| Self::probe(Path::new(program)).ok())
            .ok_or_else(|| EngineError::NoClang { tried: PROGRAMS.join(", ") })
    }

    fn probe(program: &Path) -> Result<Self, String> {
        let output = scratch::output(Command::new(program).arg("--version")).map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout);
        match text.lines().next() {
            Some(version) if output.status.success() && version.contains("clang") => {
                Ok(Clang { program: program.to_owned(), version: version.to_owned() })
            }
            _ => Err("its output of --version is not that of clang".to_owned()),
        }
    }

    /// First line of `clang --version`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Path of the compiler.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Compiles C for user space to a shared object. `name` is used in messages and file names.
    pub fn native(&self, name: &str, c: &str, cpu: Cpu) -> Result<Compiled<NativeObject>, EngineError> {
        self.native_with(name, c, cpu, Extras::default())
    }

    /// Compiles like [`Clang::native`], with additional headers and flags.
    pub fn native_with(
        &self,
        name: &str,
        c: &str,
        cpu: Cpu,
        extras: Extras<'_>,
    ) -> Result<Compiled<NativeObject>, EngineError> {
        let mut flags = NATIVE_FLAGS.map(str::to_owned).to_vec();
        flags.push(format!("-march={}", cpu.name()));
        if cpu == Cpu::Native {
            flags.extend(Kernels::of_this_machine().flags());
        }
        flags.extend_from_slice(extras.flags);
        let (object, took) = self.compile(name, "native", c, &flags, extras.headers)?;
        Ok(Compiled { object: NativeObject(object), took })
    }

    /// Compiles C for BPF to an object.
    pub fn bpf(&self, name: &str, c: &str, shape: &BpfShape) -> Result<Compiled<BpfObject>, EngineError> {
        self.bpf_with(name, c, shape, Extras::default())
    }

    /// Compiles like [`Clang::bpf`], with additional headers and flags.
    pub fn bpf_with(
        &self,
        name: &str,
        c: &str,
        shape: &BpfShape,
        extras: Extras<'_>,
    ) -> Result<Compiled<BpfObject>, EngineError> {
        let mut flags = BPF_FLAGS.map(str::to_owned).to_vec();
        flags.extend(shape.flags());
        flags.extend_from_slice(extras.flags);
        let (object, took) = self.compile(name, "bpf", c, &flags, extras.headers)?;
        Ok(Compiled { object: BpfObject(object), took })
    }

    fn compile(
        &self,
        name: &str,
        machine: &str,
        c: &str,
        flags: &[String],
        more_headers: &[(&str, &str)],
    ) -> Result<(Vec<u8>, Duration), EngineError> {
        let folder = scratch::Folder::new().map_err(|source| EngineError::Io { path: env::temp_dir(), source })?;
        let stem: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(64).collect();
        let file = format!("{stem}.{machine}.c");
        let (source, object) = (folder.path().join(&file), folder.path().join("object"));
        fs::write(&source, headers::inlined(&file, c, more_headers))
            .map_err(|error| EngineError::Io { path: source.clone(), source: error })?;
        let start = Instant::now();
        let output = self.build(folder.path(), &source, &object, flags)?;
        let took = start.elapsed();
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            if stderr.contains(TOO_FAR) {
                let limit = "a jump of BPF reaches 32,767 instructions";
                return Err(EngineError::TooLarge { object: name.to_owned(), limit });
            }
            // The folder is kept, so that a bug report can include the file that clang's message names.
            return Err(EngineError::Refused { file: folder.keep().join(file), stderr });
        }
        let bytes = fs::read(&object).map_err(|source| EngineError::Io { path: object, source })?;
        Ok((bytes, took))
    }

    /// Compiles and links in two runs. For several jobs, clang starts child processes, which survive if clang is
    /// killed.
    fn build(&self, folder: &Path, source: &Path, object: &Path, flags: &[String]) -> Result<Output, EngineError> {
        if flags.iter().any(|flag| flag == COMPILE_ONLY) {
            return self.run(folder, source, object, flags);
        }
        let unlinked = folder.join("unlinked.o");
        let compile = [flags, &[COMPILE_ONLY.to_owned()]].concat();
        let output = self.run(folder, source, &unlinked, &compile)?;
        if output.status.success() { self.run(folder, &unlinked, object, flags) } else { Ok(output) }
    }

    fn run(&self, folder: &Path, source: &Path, object: &Path, flags: &[String]) -> Result<Output, EngineError> {
        let mut command = Command::new(&self.program);
        // The source precedes the flags, because linkers search libraries only for symbols of preceding files.
        command.arg(source).args(FLAGS).args(WARNINGS).args(flags);
        // Independence of the temporary and the current folder: the same text gives the same bytes.
        command.arg(format!("-ffile-prefix-map={}=.", folder.display())).arg("-ffile-compilation-dir=.");
        // The compiler ignores linker flags and vice versa. Temporary files of clang go into the private folder and are
        // removed with it.
        command.arg("-Qunused-arguments").arg("-o").arg(object).env("LC_ALL", "C").env("TMPDIR", folder);
        scratch::output(&mut command).map_err(|source| EngineError::Io { path: self.program.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use weir_abi::Reason;

    use super::*;

    #[test]
    fn a_wrong_compiler_is_named() {
        let error = Clang::find_with(Some("/nonexistent/clang".into())).expect_err("it is not there");
        assert_eq!(error.to_string(), "WEIR_CLANG=/nonexistent/clang: No such file or directory (os error 2)");
        let error = Clang::find_with(Some("/bin/true".into())).expect_err("it is no clang");
        assert_eq!(error.to_string(), "WEIR_CLANG=/bin/true: its output of --version is not that of clang");
    }

    #[test]
    fn a_missing_compiler_is_an_error_that_names_the_package() {
        let error = EngineError::NoClang { tried: PROGRAMS.join(", ") }.to_string();
        assert!(error.contains("apt-get install clang-19"), "{error}");
    }

    #[test]
    fn counters_are_a_power_of_two_that_holds_all_rules() {
        let program = ProgramShape { chains: vec![], rules: 40, ..ProgramShape::default() };
        let shape = BpfShape::new(&program, &Bound::default());
        assert_eq!(shape.counters, 128);
        assert!(shape.counters >= usize::from(Reason::RULE_BASE) + program.rules);
    }
}
