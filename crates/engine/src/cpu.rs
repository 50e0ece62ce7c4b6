//! The processors that native code is compiled for, and the cores that threads run on.

use std::{fs, io};

use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::EngineError;

/// A value of clang's `-march`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cpu {
    /// The processor of the compiling machine.
    #[default]
    #[serde(rename = "native")]
    Native,
    /// Any x86-64 processor with AVX2, BMI2 and FMA; most since 2015.
    #[serde(rename = "x86-64-v3")]
    X86_64V3,
}

impl Cpu {
    /// The name on the command line and in `-march`.
    pub const fn name(self) -> &'static str {
        match self {
            Cpu::Native => "native",
            Cpu::X86_64V3 => "x86-64-v3",
        }
    }

    /// The processor with the given name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Cpu::Native, Cpu::X86_64V3].into_iter().find(|cpu| cpu.name() == name)
    }
}

/// Features of x86-64-v3 beyond the baseline that /proc/cpuinfo shows (System V ABI, table 3.1).
const V3_FEATURES: [&str; 12] =
    ["abm", "avx", "avx2", "bmi1", "bmi2", "cx16", "f16c", "fma", "movbe", "sse4_1", "sse4_2", "ssse3"];

/// Prefixes of the flags in /proc/cpuinfo that mean instructions for compilers. Other flags concern the kernel.
const INSTRUCTION_SETS: [&str; 25] = [
    "3dnowprefetch",
    "abm",
    "adx",
    "aes",
    "amx",
    "avx",
    "bmi",
    "clflushopt",
    "clwb",
    "cx16",
    "f16c",
    "fma",
    "gfni",
    "lzcnt",
    "movbe",
    "movdir",
    "pclmulqdq",
    "popcnt",
    "rdrand",
    "rdseed",
    "sha_ni",
    "sse4",
    "ssse3",
    "vaes",
    "vpclmulqdq",
];

/// The instruction sets that code compiled on this machine for `cpu` may use: sorted names of /proc/cpuinfo.
pub fn features(cpu: Cpu) -> Vec<String> {
    match cpu {
        Cpu::Native => this_machine(),
        Cpu::X86_64V3 => V3_FEATURES.map(str::to_owned).to_vec(),
    }
}

/// Refuses code that needs instruction sets which this machine lacks. `object` names the code in the message.
pub fn check(features: &[String], object: &str) -> Result<(), EngineError> {
    let here = this_machine();
    let missing: Vec<&str> =
        features.iter().map(String::as_str).filter(|name| !here.iter().any(|h| h == name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(EngineError::Cpu { object: object.to_owned(), missing: missing.join(", ") })
}

/// Pins the calling thread to its current core, so that it keeps its caches. Returns the number of the core.
pub fn pin() -> io::Result<usize> {
    let core = sched_getcpu();
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)?;
    Ok(core)
}

/// Pins the calling thread to a core.
pub fn pin_to(core: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}

fn this_machine() -> Vec<String> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    parse_flags(&cpuinfo)
}

fn parse_flags(cpuinfo: &str) -> Vec<String> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.trim_start().strip_prefix(':'));
    let mut names: Vec<String> = flags
        .unwrap_or_default()
        .split_whitespace()
        .filter(|name| is_instruction_set(name))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn is_instruction_set(flag: &str) -> bool {
    INSTRUCTION_SETS.iter().any(|prefix| flag.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_those_that_compilers_use() {
        let cpuinfo =
            "processor\t: 0\nflags\t\t: fpu vme sse4_2 avx2 avx512vl bmi2 ibrs arch_perfmon vaes avx2\nbugs\t: x\n";
        assert_eq!(parse_flags(cpuinfo), ["avx2", "avx512vl", "bmi2", "sse4_2", "vaes"]);
        assert!(parse_flags("").is_empty());
    }

    #[test]
    fn code_for_another_processor_is_refused() {
        check(&this_machine(), "a.weirb").expect("code for this machine runs here");
        let error = check(&["avx2048".to_owned(), "bmi9".to_owned()], "a.weirb").expect_err("there is no avx2048");
        assert_eq!(
            error.to_string(),
            "a.weirb: compiled for a processor with avx2048, bmi9, which this one lacks; compile with --cpu x86-64-v3"
        );
    }
}
