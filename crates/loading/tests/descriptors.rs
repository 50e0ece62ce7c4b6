//! A policy that cannot be loaded at the limit of open files gives an error of its own type. The limit is one of the
//! process, so this test is alone in its process.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use weir_engine::cpu::Cpu;
use weir_loading::{LoadError, Policy};

/// More than one step of loading takes.
const FREE_MAX: u64 = 64;

const MAIN: &str = "include \"tables.weir\"
limits customers { file \"limits.csv\" }
upstream { ip saddr @bad drop; ip daddr limit @customers; accept }
downstream { accept }
";

/// Calls `work` with 0 descriptors left, then 1, and so on, until it succeeds. Every failure before must name the
/// limit. Returns how many failures there were.
fn failures<T>(step: &str, work: impl Fn() -> Result<T, LoadError>) -> u64 {
    let usual = getrlimit(Resource::Nofile);
    // The lowest number that is free is the one that is given out.
    let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    for more in 0..FREE_MAX {
        setrlimit(Resource::Nofile, Rlimit { current: Some(free + more), ..usual }).unwrap();
        let done = work().map(drop);
        setrlimit(Resource::Nofile, usual).unwrap();
        match done {
            Ok(()) => return more,
            Err(error) => assert!(error.is_descriptor_limit(), "{step}, {more} descriptors: {error}"),
        }
    }
    panic!("{step} takes more than {FREE_MAX} descriptors");
}

fn read(folder: &Path) -> Result<Policy, LoadError> {
    weir_loading::load(&folder.join("main.weir"))
}

#[test]
fn failures_at_the_limit_of_descriptors_have_a_type() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("main.weir"), MAIN).unwrap();
    fs::write(folder.join("tables.weir"), "table bad { type ipv4; file \"bad.txt\" }\n").unwrap();
    fs::write(folder.join("bad.txt"), "192.0.2.1\n").unwrap();
    fs::write(folder.join("limits.csv"), "198.51.100.0/24,10\n").unwrap();
    assert!(failures("reading", || read(folder)) > 0);

    let policy = read(folder).unwrap();
    let data = || policy.bind(None);
    let native = policy.compile_native(Cpu::Native).unwrap();
    assert!(failures("loading native code", || native.filter(data()?)) > 1);
    if !geteuid().is_root() {
        return;
    }
    let data = data().unwrap();
    let bpf = policy.compile_bpf(&data).unwrap();
    // libbpf asks once what the kernel has, and takes no answer for a no.
    bpf.filter().unwrap();
    assert!(failures("loading into the kernel", || Ok(bpf.filter()?)) > 3);
}
