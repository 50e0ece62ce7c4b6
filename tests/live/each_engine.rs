//! One function becomes a test on each engine: `soak::mixed_traffic_for_long_leaks_nothing_and_loses_nothing::xdp`.
//!
//! `each_engine!(name)` stands above `fn name(engine: &str, hosts: &Hosts, folder: &Path)`. It makes the tests `name::afpacket`, `name::afxdp` and so on,
//! each with its own hosts and folder. `each_engine!(name, wires)` says what lies between the hosts.
//!
//! The test runner chooses tests by name and runs them in parallel. All tests on one engine: `cargo test -p weir --features dpdk --test live ::xdp`.

use crate::hosts::{Hosts, Wires};
use std::path::Path;

/// A test on every engine. DPDK is left out only where a test is of the kernel's interfaces: DPDK's virtual ports over wires receive fragments that the
/// kernel has put together, and do not learn of packets that the kernel refuses. `live/dpdk.rs` tests ports that are DPDK's own.
macro_rules! each_engine {
    ($($test:tt)*) => { test_on!([afpacket, afxdp, xdp, #[cfg(feature = "dpdk")] dpdk] $($test)*); };
}

/// A test on every engine that opens interfaces of the kernel.
macro_rules! each_kernel_engine {
    ($($test:tt)*) => { test_on!([afpacket, afxdp, xdp] $($test)*); };
}

/// A test on one engine in user space, and on the one in the kernel.
macro_rules! each_kind {
    ($($test:tt)*) => { test_on!([afpacket, xdp] $($test)*); };
}

macro_rules! test_on {
    ([$($(#[$when:meta])? $engine:ident),*] $test:ident) => {
        mod $test {
            $($(#[$when])? #[test] fn $engine() {
                crate::each_engine::run(super::$test, stringify!($engine), crate::hosts::Wires::default());
            })*
        }
    };
    ([$($(#[$when:meta])? $engine:ident),*] $test:ident, $wires:expr) => {
        mod $test {
            use super::*;
            $($(#[$when])? #[test] fn $engine() {
                crate::each_engine::run(super::$test, stringify!($engine), $wires);
            })*
        }
    };
}

/// Runs a test on an engine, between its own hosts.
pub fn run(test: fn(&str, &Hosts, &Path), engine: &str, wires: Wires) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    test(engine, &Hosts::with(wires), folder.path());
}
