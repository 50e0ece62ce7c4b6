//! The C datapath: which folder is which feature, what each may include, and which files know the kernel.
//!
//! C is pure if it knows neither maps nor helpers of the kernel, so all engines and the tests compile it. The rest is C
//! around the program of a policy: the folders of [`AROUND`], and in a feature's folder `kernel.h` and `kernel_*.h`.

use crate::assert_none;
use crate::tree::{File, files, paths};

/// The folders of features, and the other features that the C of each may include.
const FEATURES: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("tables", &["core"]),
    ("limits", &["core", "tables"]),
    ("track", &["core", "proxy"]),
    ("proxy", &["core", "track"]),
    ("connections", &["core", "limits", "track"]),
    ("observe", &["core"]),
    ("slots", &["core", "limits"]),
    ("card", &["core", "tables"]),
];
/// The folders of C around the program of a policy, which may include every feature.
const AROUND: &[&str] = &["kernel", "dpdk", "p4"];
/// What the kernel's C of a feature may include besides.
const KERNEL: &str = "kernel";
/// The compiler's own headers.
const STANDARD: &[&str] = &["<immintrin.h>", "<stdbool.h>", "<stddef.h>", "<stdint.h>"];
/// The only pure header that knows for which machine it is compiled.
const ENVIRONMENT: &str = "core/env.h";

/// The path below `datapath/`, as `#include` names it. None for files of other folders.
pub fn included_as(path: &str) -> Option<&str> {
    path.strip_prefix("datapath/")
}

/// Whether a path below `datapath/` is C that knows neither maps nor helpers of the kernel.
pub fn is_pure(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    !AROUND.contains(&folder_of(path)) && name != "kernel.h" && !name.starts_with("kernel_")
}

fn folder_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// The C of the datapath. Paths are those below `datapath/`.
fn sources() -> Vec<File> {
    let own = files(&["c", "h"]).into_iter();
    own.filter_map(|file| Some(File { path: included_as(&file.path)?.to_owned(), text: file.text })).collect()
}

/// `(line number, included file)`
fn includes(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let lines = file.text.lines().enumerate();
    lines.filter_map(|(at, line)| Some((at + 1, line.trim().strip_prefix("#include")?.trim())))
}

/// Whether C at one path may include C at another one.
fn may_include(from: &str, to: &str) -> bool {
    let (own, other) = (folder_of(from), folder_of(to));
    if AROUND.contains(&own) {
        return true;
    }
    let allowed =
        FEATURES.iter().find(|(feature, _)| *feature == own).is_some_and(|(_, others)| others.contains(&other));
    let is_near = own == other || allowed || (other == KERNEL && !is_pure(from));
    is_near && (is_pure(to) || !is_pure(from))
}

#[test]
fn every_folder_is_a_feature() {
    let folder = |path: &String| included_as(path).filter(|below| !below.contains('/')).map(str::to_owned);
    let folders = paths().iter().filter_map(folder).collect::<Vec<_>>();
    let is_known = |name: &str| AROUND.contains(&name) || FEATURES.iter().any(|(feature, _)| *feature == name);
    let unknown = folders.iter().filter(|name| !is_known(name));
    assert_none(unknown.cloned().collect(), "folders of datapath/ are features that tests/house/datapath.rs lists");
}

#[test]
fn features_include_only_what_they_may() {
    let known = paths();
    let mut offences = Vec::new();
    for file in sources() {
        for (line, what) in includes(&file) {
            let path = what.trim_matches('"');
            let is_allowed = if what.starts_with('"') {
                known.contains(&format!("datapath/{path}")) && may_include(&file.path, path)
            } else {
                !is_pure(&file.path) || STANDARD.contains(&what)
            };
            if !is_allowed {
                offences.push(format!("datapath/{}:{line}: {what}", file.path));
            }
        }
    }
    assert_none(offences, "C includes the features it may, and pure C only pure C and the compiler's own headers");
}

#[test]
fn only_env_h_knows_bpf() {
    let mut offences = Vec::new();
    for file in sources().iter().filter(|file| is_pure(&file.path) && file.path != ENVIRONMENT) {
        for (at, line) in file.text.lines().enumerate() {
            if line.contains("__bpf__") || line.contains("bpf_helpers.h") {
                offences.push(format!("datapath/{}:{}: {line}", file.path, at + 1));
            }
        }
    }
    assert_none(offences, "only core/env.h knows whether the code is compiled for BPF");
}

/// A program has all headers in one file, so two of them must not have the same guard.
#[test]
fn guards_are_named_for_paths() {
    let mut offences = Vec::new();
    for file in sources().iter().filter(|file| file.extension() == "h") {
        let guard = format!("WEIR_{}", file.path.replace(['/', '.'], "_").to_uppercase());
        if !file.text.contains(&format!("\n#ifndef {guard}\n#define {guard}\n")) {
            offences.push(format!("datapath/{}: {guard}", file.path));
        }
    }
    assert_none(offences, "the guard of a header is its path");
}
