//! DPDK's rte_fib, the peer that design and issue name: found at run time, where libdpdk is installed.
//!
//! DIR-24-8 with next hops of 4 bytes, as many second-level blocks as the table has /24s with longer prefixes in them, bulk
//! lookups of 64 keys. The scalar and the AVX-512 lookup race as two entrants. Its tables lie
//! in memory that asks for huge pages, as Weir's images do.

use std::process::Command;
use std::sync::Arc;
use weir::failure::Failure;
use weir_engine::clang::{Clang, Extras};
use weir_engine::cpu::Cpu;
use weir_engine::lookup::{Code, Lookup4};
use weir_tables::Table;

/// The package that is asked for.
const PACKAGE: &str = "libdpdk";

/// Memory for the largest table with the tree that changes go through, or for three tables.
const MEGABYTES: u32 = 2048;

/// Bytes of the first level, and of a block of the second.
const LEVEL_24_BYTES: usize = 4 << 24;
const BLOCK_BYTES: usize = 4 << 8;

/// The longest prefix that the first level holds.
const LEVEL_24: u8 = 24;

/// How it looks up.
pub const MODES: [&str; 2] = ["scalar", "avx512"];

/// A running rte_fib with room for three tables.
pub struct RteFib(Arc<Code>);

/// A table in a slot.
#[derive(Clone, Debug)]
pub struct Filled {
    /// Bytes of both levels; the tree that changes go through, which no lookup reads, comes on top.
    pub bytes: usize,
    /// Each mode's name, the lookup that is timed, and the one that gives labels.
    pub lookups: Vec<(&'static str, Lookup4, Lookup4)>,
}

impl RteFib {
    /// Compiles the shim and starts DPDK; `core` is the one that lookups run on. Once a process.
    ///
    /// # Errors
    /// libdpdk is missing or does not start: the text says what to do.
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

    /// Puts a table into a slot, 0 to 2.
    ///
    /// # Errors
    /// Outside: the shim is not what it should be. Inside: rte_fib cannot hold the table.
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

/// /24s with longer prefixes, and one to spare.
fn second_level_blocks(table: &Table) -> u32 {
    let long = table.prefixes4().iter().filter(|prefix| prefix.len > LEVEL_24);
    let mut blocks: Vec<u32> = long.map(|prefix| prefix.addr >> (32 - LEVEL_24)).collect();
    blocks.dedup();
    blocks.len() as u32 + 1
}

/// What clang must be told. The processor is ours to choose, and warnings about others' headers are not ours.
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
    // Its headers use GNU C, and functions of the system.
    Ok(["-std=gnu11", "-D_GNU_SOURCE"].map(str::to_owned).into_iter().chain(flags).collect())
}

fn system_error(code: i64) -> String {
    std::io::Error::from_raw_os_error(i32::try_from(-code).unwrap_or_default()).to_string()
}

/// DPDK, started when it is first asked for.
pub struct Peer {
    core: usize,
    fib: Option<Result<RteFib, String>>,
}

impl Peer {
    /// On a core; not started yet.
    pub fn on(core: usize) -> Self {
        Peer { core, fib: None }
    }

    /// rte_fib, or why it is not there.
    pub fn get(&mut self) -> Result<&RteFib, String> {
        self.fib.get_or_insert_with(|| RteFib::start(self.core)).as_ref().map_err(Clone::clone)
    }
}
