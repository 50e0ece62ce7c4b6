//! Makes a test on each engine from one function: `soak::mixed_traffic_for_long_leaks_nothing_and_loses_nothing::xdp`.
//!
//! `each_engine!(name)` precedes `fn name(engine: &str, hosts: &Hosts, folder: &Path)`. It makes the tests
//! `name::afpacket`, `name::afxdp` and so on, each with its own hosts and folder. `each_engine!(name, wires)` sets the
//! interfaces between the hosts. `each_engine_and_form!(name)` also makes `name::bundled::afpacket` and
//! `name::bundled::xdp`, in which Weir gets a bundle of each policy (live/form.rs). `each_engine_and_host!` also makes
//! `name::host`: the engine `xdp` on the host that it protects, which is the server.
//!
//! The test runner selects tests by name and runs them in parallel. The tests of one engine: `cargo test -p weir
//! --features dpdk --test live ::xdp`.

use crate::device_under_test::HOST;
use crate::form::{Form, with_form};
use crate::hosts::{Hosts, Wires};
use std::path::Path;

/// Tests on every engine. Tests of the kernel's interfaces leave DPDK out, because its virtual ports receive
/// reassembled fragments and do not learn which packets the kernel refuses. `live/dpdk.rs` tests DPDK's own ports.
macro_rules! each_engine {
    ($($test:tt)*) => { test_on!([afpacket, afxdp, xdp, #[cfg(feature = "dpdk")] dpdk] $($test)*); };
}

/// Like `each_engine`, and with the policy as P4 on the ports of DPDK. The policy needs what P4 has.
macro_rules! each_engine_and_p4 {
    ($($test:tt)*) => {
        test_on!([afpacket, afxdp, xdp, #[cfg(feature = "dpdk")] dpdk, #[cfg(feature = "dpdk")] p4] $($test)*);
    };
}

/// Like `each_engine_and_host`, and with the policy as P4.
macro_rules! each_engine_host_and_p4 {
    ($($test:tt)*) => {
        test_on!([afpacket, afxdp, xdp, host, #[cfg(feature = "dpdk")] dpdk, #[cfg(feature = "dpdk")] p4] $($test)*);
    };
}

/// Like `each_engine_and_form`, and with the policy as P4, from its text.
macro_rules! each_engine_form_and_p4 {
    ($test:ident) => {
        test_on!(
            [afpacket, afxdp, xdp, host, #[cfg(feature = "dpdk")] dpdk, #[cfg(feature = "dpdk")] p4]
            and bundled [afpacket, xdp, host] $test
        );
    };
}

/// Tests on every engine, and on a host.
macro_rules! each_engine_and_host {
    ($($test:tt)*) => { test_on!([afpacket, afxdp, xdp, host, #[cfg(feature = "dpdk")] dpdk] $($test)*); };
}

/// Like `each_engine_and_host`, and with the policy as P4 whose tracking is split with a controller.
macro_rules! each_engine_host_and_split {
    ($($test:tt)*) => {
        test_on!([afpacket, afxdp, xdp, host, #[cfg(feature = "dpdk")] dpdk, #[cfg(feature = "dpdk")] split] $($test)*);
    };
}

/// Tests on every engine that opens interfaces of the kernel.
macro_rules! each_kernel_engine {
    ($($test:tt)*) => { test_on!([afpacket, afxdp, xdp] $($test)*); };
}

/// Tests on one engine in user space and on the kernel engine.
macro_rules! each_kind {
    ($($test:tt)*) => { test_on!([afpacket, xdp] $($test)*); };
}

/// Like `each_kind`, and on a host.
macro_rules! each_kind_and_host {
    ($($test:tt)*) => { test_on!([afpacket, xdp, host] $($test)*); };
}

/// Like `each_kind_and_host`, for `fn name(engine: &str)`, which makes hosts with a card on the wire.
macro_rules! each_kind_and_host_behind_card {
    ($test:ident) => {
        mod $test {
            each_kind_and_host_behind_card!(@ $test afpacket xdp host);
        }
    };
    (@ $test:ident $($engine:ident)*) => {
        $(#[test] fn $engine() {
            super::$test(stringify!($engine));
        })*
    };
}

/// Tests on every engine and on a host from the text of policies, and on one engine in user space and the kernel engine
/// from bundles.
macro_rules! each_engine_and_form {
    ($test:ident) => { test_on!([afpacket, afxdp, xdp, host, #[cfg(feature = "dpdk")] dpdk] and bundled [afpacket, xdp, host] $test); };
}

macro_rules! test_on {
    ([$($(#[$when:meta])? $engine:ident),*] and bundled [$($bundled:ident),*] $test:ident) => {
        mod $test {
            $($(#[$when])? #[test] fn $engine() {
                crate::each_engine::run(super::$test, stringify!($engine), crate::hosts::Wires::default());
            })*
            mod bundled {
                $(#[test] fn $bundled() {
                    crate::each_engine::run_bundled(super::super::$test, stringify!($bundled));
                })*
            }
        }
    };
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

/// Runs a test on an engine, with new hosts.
pub fn run(test: fn(&str, &Hosts, &Path), engine: &str, wires: Wires) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hosts = if engine == HOST { Hosts::of_host(wires) } else { Hosts::with(wires) };
    test(engine, &hosts, folder.path());
}

/// Runs a test on an engine, with new hosts and with bundles of its policies.
pub fn run_bundled(test: fn(&str, &Hosts, &Path), engine: &str) {
    with_form(Form::Bundle, || run(test, engine, Wires::default()));
}
