//! Lists all headers of the datapath, which become part of the program. With the feature `dpdk`, compiles the C for
//! DPDK and links DPDK.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The compiler of policies.
const CLANG: &str = "clang-19";
/// The folder of the C for DPDK, which generated code does not include.
const DPDK: &str = "dpdk";

fn main() {
    let manifest_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let datapath = manifest_dir.join("../../datapath").canonicalize().expect("datapath/ stands beside crates/");
    println!("cargo::rerun-if-changed=../../datapath");
    let is_feature = |name: &String| name != DPDK && datapath.join(name).is_dir();
    let features = names_in(&datapath).into_iter().filter(is_feature);
    let mut headers: Vec<String> = features.flat_map(|folder| headers_in(&datapath, &folder)).collect();
    headers.sort();
    // The paths are relative to the manifest, so that a target folder that moves with its tree stays valid.
    let rows: String = headers
        .iter()
        .map(|name| {
            let path = format!("/../../datapath/{name}");
            format!("    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?}))),\n")
        })
        .collect();
    let table = format!("pub(super) const HEADERS: &[(&str, &str)] = &[\n{rows}];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("headers.rs");
    fs::write(&out, table).expect("OUT_DIR is writable");
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        trial(&datapath);
    }
    #[cfg(feature = "dpdk")]
    dpdk(&datapath);
}

/// Compiles the lookups that the engine times, for the processor that bundles are for. Clang compiles policies, so it
/// is better than another compiler.
fn trial(datapath: &Path) {
    let mut build = cc::Build::new();
    let clang = Command::new(CLANG).arg("--version").output();
    if env::var_os("CC").is_none() && clang.is_ok_and(|output| output.status.success()) {
        build.compiler(CLANG);
    }
    build.file(datapath.join("tables/trial.c")).include(datapath).std("c11").opt_level(3);
    build.flag("-ffreestanding").flag("-march=x86-64-v3").flag("-fvisibility=hidden");
    build.flag_if_supported("-Wno-invalid-feature-combination");
    build.warnings(true).extra_warnings(true).compile("weir_trial");
}

/// Compiles the C for DPDK with the system's DPDK.
#[cfg(feature = "dpdk")]
fn dpdk(datapath: &Path) {
    /// The version in Debian, the only tested one.
    const VERSION_MIN: &str = "22.11";
    let library = pkg_config::Config::new()
        .atleast_version(VERSION_MIN)
        .probe("libdpdk")
        .unwrap_or_else(|error| panic!("the feature `dpdk` needs `apt-get install libdpdk-dev pkg-config`: {error}"));
    let shim = datapath.join(DPDK);
    let mut build = cc::Build::new();
    build.files(["eal.c", "port.c", "burst.c", "flow.c", "pipeline.c", "controller.c"].map(|name| shim.join(name)));
    build.include(datapath);
    // DPDK calls its pipelines experimental in every version.
    build.define("ALLOW_EXPERIMENTAL_API", None);
    // Warnings in DPDK's headers are suppressed.
    for path in &library.include_paths {
        build.flag("-isystem").flag(path);
    }
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        // The target of Debian's DPDK, which its inline functions require.
        build.flag("-march=corei7");
    }
    build.std("gnu11").opt_level(3).warnings(true).extra_warnings(true).warnings_into_errors(true);
    build.compile("weir_dpdk");
}

/// The paths of the headers in a folder, as `#include` names them.
fn headers_in(datapath: &Path, folder: &str) -> Vec<String> {
    let names = names_in(&datapath.join(folder)).into_iter().filter(|name| name.ends_with(".h"));
    names.map(|name| format!("{folder}/{name}")).collect()
}

/// The names of the files and folders in a folder.
fn names_in(folder: &Path) -> Vec<String> {
    fs::read_dir(folder)
        .expect("the datapath's folders exist")
        .map(|entry| entry.expect("the folder can be read").file_name().into_string().expect("names are plain"))
        .collect()
}
