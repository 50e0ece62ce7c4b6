//! DPDK's rte_fib, which is loaded at run time if libdpdk is installed.
//!
//! It uses DIR-24-8 with next hops of 4 bytes, one second-level block for each /24 with longer prefixes, and bulk
//! lookups of 64 keys. The scalar lookup and the AVX-512 lookup are separate entrants. Its tables are in memory with
//! transparent huge pages, like Weir's images.

use std::process::Command;
use std::sync::Arc;
use weir_command::failure::Failure;
use weir_engine::clang::{Clang, Extras};
use weir_engine::cpu::Cpu;
use weir_instruments::lookup::{Code, Lookup4};
use weir_tables::Table;

/// The name of the package for pkg-config.
const PACKAGE: &str = "libdpdk";

/// Memory for the largest table with DPDK's tree for updates, or for three tables, in MB.
const MEGABYTES: u32 = 2048;

/// Size of the first level, and of a block of the second level, in bytes.
const LEVEL_24_BYTES: usize = 4 << 24;
const BLOCK_BYTES: usize = 4 << 8;

/// The longest prefix in the first level.
const LEVEL_24: u8 = 24;

/// The modes of lookups.
pub const MODES: [&str; 2] = ["scalar", "avx512"];

/// A running rte_fib with room for three tables.
pub struct RteFib(Arc<Code>);

/// A table in a slot.
#[derive(Clone, Debug)]
pub struct Filled {
    /// Size of both levels in bytes, without the tree for updates, which lookups do not read.
    pub bytes: usize,
    /// Name of each mode, its timed lookup, and its lookup that returns labels.
    pub lookups: Vec<(&'static str, Lookup4, Lookup4)>,
}

impl RteFib {
    /// Compiles the C and starts DPDK with `core` as the core of lookups. It can be called once per process.
    ///
    /// # Errors
    /// libdpdk is missing or does not start. The text gives advice.
    pub fn start(core: usize) -> Result<Self, String> {
        let flags = pkg_config()?;
        let extras = Extras { headers: &[], flags: &flags };
        let object = Clang::find()
            .and_then(|clang| Ok(clang.native_with("rte_fib", include_str!("rte_fib.c"), Cpu::Native, extras)?.object));
        let code = object.and_then(|object| Code::load("rte_fib", &object)).map_err(|error| error.to_string())?;
        let core = u32::try_from(core).expect("cores are few");
        let started = code.call("bench_fib_start", &[core, MEGABYTES]).map_err(|error| error.to_string())?;
        if started < 0 {
            return Err(format!("DPDK does not start: {}", system_error(started)));
        }
        Ok(RteFib(code))
    }

    /// Fills slot 0, 1 or 2 with a table.
    ///
    /// # Errors
    /// The outer error is a failure of the C functions. The inner error means that rte_fib cannot contain the table.
    pub fn fill(&self, slot: u32, table: &Table) -> Result<Result<Filled, String>, Failure> {
        let prefixes = table.prefixes4();
        let blocks = second_level_blocks(table);
        let count = u32::try_from(prefixes.len()).expect("tables have at most 2^24 prefixes");
        let created = self.0.call("bench_fib_create", &[slot, count, blocks])?;
        if created < 0 {
            return Ok(Err(format!("rte_fib_create: {}", system_error(created))));
        }
        let mut words = Vec::with_capacity(1 + 3 * prefixes.len());
        words.push(slot);
        words.extend(prefixes.iter().flat_map(|prefix| [prefix.addr, prefix.len.into(), prefix.label]));
        let added = self.0.call("bench_fib_add", &words)?;
        if added < 0 {
            return Ok(Err(format!("rte_fib_add: {}", system_error(added))));
        }
        let mut lookups = Vec::new();
        for (number, mode) in MODES.into_iter().enumerate() {
            if self.0.call("bench_fib_select", &[slot, number as u32])? == 0 {
                let timed = self.0.lookup4(&format!("bench_fib_{mode}_{slot}"))?;
                lookups.push((mode, timed, self.0.lookup4(&format!("bench_fib_{mode}_labels_{slot}"))?));
            }
        }
        Ok(Ok(Filled { bytes: LEVEL_24_BYTES + blocks as usize * BLOCK_BYTES, lookups }))
    }
}

/// Number of /24s with longer prefixes, plus a spare one.
fn second_level_blocks(table: &Table) -> u32 {
    let long = table.prefixes4().iter().filter(|prefix| prefix.len > LEVEL_24);
    let mut blocks: Vec<u32> = long.map(|prefix| prefix.addr >> (32 - LEVEL_24)).collect();
    blocks.dedup();
    blocks.len() as u32 + 1
}

/// Flags for clang. They have no `-march`, which the caller sets, and suppress warnings about DPDK's headers.
fn pkg_config() -> Result<Vec<String>, String> {
    let missing = || format!("{PACKAGE} not found: install it with `apt-get install libdpdk-dev pkg-config`");
    let output = Command::new("pkg-config").args(["--cflags", "--libs", PACKAGE]).output().map_err(|_| missing())?;
    if !output.status.success() {
        return Err(missing());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let flags = text.split_whitespace().filter(|flag| !flag.starts_with("-march="));
    let flags = flags.map(|flag| match flag.strip_prefix("-I") {
        Some(folder) => format!("-isystem{folder}"),
        None => flag.to_owned(),
    });
    // DPDK's headers use GNU C and system functions. Policies are linked without libraries, so libc is named.
    Ok(["-std=gnu11", "-D_GNU_SOURCE"].map(str::to_owned).into_iter().chain(flags).chain(["-lc".to_owned()]).collect())
}

fn system_error(code: i64) -> String {
    std::io::Error::from_raw_os_error(i32::try_from(-code).unwrap_or_default()).to_string()
}

/// DPDK, which is started at the first use.
pub struct Peer {
    core: usize,
    fib: Option<Result<RteFib, String>>,
}

impl Peer {
    /// DPDK on a core, before its start.
    pub fn on(core: usize) -> Self {
        Peer { core, fib: None }
    }

    /// rte_fib, or the reason why it is not available.
    pub fn get(&mut self) -> Result<&RteFib, String> {
        self.fib.get_or_insert_with(|| RteFib::start(self.core)).as_ref().map_err(Clone::clone)
    }
}
