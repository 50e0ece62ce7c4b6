//! Policies compile for older processors than this one.

#![allow(clippy::unwrap_used)] // helpers of tests are tests

use std::fs;
use weir_abi::Target;
use weir_engine::NativeCode;
use weir_engine::clang::{Clang, Extras};
use weir_engine::cpu::Cpu;
use weir_policy::backend;

/// Tables of both families, connections and limits: the code with the largest columns.
const POLICY: &str = "table bad { type ipv4; elements = { 192.0.2.1, 198.51.100.0/24 } }
table worse { type ipv6; elements = { 2001:db8::1, 2001:db8:1::/64 } }
upstream {
  ip saddr @bad drop
  ip6 saddr @worse drop
  tcp track
  udp dport 53 limit each ip saddr 50pps
  accept
}
downstream { tcp track; accept }
";

#[test]
fn code_without_avx_needs_no_c_library() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("main.weir");
    fs::write(&path, POLICY).unwrap();
    let policy = weir_loading::load(&path).unwrap();
    let c = backend::emit(&policy.program, Target::Native);
    for machine in ["x86-64", "x86-64-v2", "x86-64-v3"] {
        let flags = [format!("-march={machine}")];
        // A function that no object defines is refused by the linker.
        let object =
            Clang::find().unwrap().native_with("main", &c, Cpu::Native, Extras { headers: &[], flags: &flags });
        let object = object.unwrap_or_else(|error| panic!("{machine}: {error}")).object;
        NativeCode::load("main", &object, &policy.shape(), policy.bind(None).unwrap()).unwrap();
    }
}
