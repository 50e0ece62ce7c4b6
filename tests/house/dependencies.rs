//! Allowed dependencies of crates, by `cargo metadata`.

use crate::assert_none;
use crate::tree::{File, files, root};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// What loads policies and runs them.
const LIBRARIES: &[&str] =
    &["weir-abi", "weir-control", "weir-engine", "weir-loading", "weir-policy", "weir-state", "weir-tables"];
/// The crates of Weir that each crate may use. Top-level crates may use all.
const ALLOWED: &[(&str, &[&[&str]])] = &[
    ("weir-abi", &[]),
    ("weir-tables", &[&["weir-abi"]]),
    ("weir-policy", &[&["weir-abi"]]),
    ("weir-state", &[&["weir-abi", "weir-tables"]]),
    ("weir-engine", &[&["weir-abi", "weir-tables", "weir-state"]]),
    ("weir-loading", &[&["weir-abi", "weir-tables", "weir-policy", "weir-state", "weir-engine"]]),
    ("weir-control", &[]),
    ("weir-top", &[&["weir-control"]]),
    ("weir-export", &[&["weir-abi"]]),
    ("weir-mitigate", &[&["weir-abi"]]),
    ("weir-import", &[&["weir-abi", "weir-policy"]]),
    ("weir-card", &[&["weir-abi", "weir-policy"]]),
    ("weir-command", &[LIBRARIES, &["weir-mitigate"]]),
    ("weir-configuration", &[&["weir-command", "weir-loading", "weir-policy", "weir-state"]]),
    ("weir-planning", &[LIBRARIES, &["weir-card", "weir-command"]]),
    ("weir-recording", &[LIBRARIES, &["weir-mitigate", "weir-command"]]),
    (
        "weir-daemon",
        &[
            LIBRARIES,
            &["weir-card", "weir-command", "weir-configuration", "weir-export"],
            &["weir-mitigate", "weir-planning", "weir-recording"],
        ],
    ),
    ("weir-schemes", &[&["weir-abi", "weir-tables"]]),
    ("weir-instruments", &[&["weir-abi", "weir-tables", "weir-engine", "weir-schemes"]]),
    ("weir-simulation", &[]),
    ("weir-test-support", &[]),
    ("xtask", &[]),
];
/// The top-level crates, which may use all others.
const TOP_LEVEL: &[&str] = &["weir", "weir-bench", "weir-fuzz"];
/// Crates for command lines and terminals.
const FRONT_ENDS: &[&str] = &["clap", "indicatif", "ratatui"];
/// Packages with a command line, or with a part of one: options are beside what they are for.
const PROGRAMS: &[&str] =
    &["weir", "weir-bench", "weir-command", "weir-configuration", "weir-daemon", "weir-recording", "weir-top", "xtask"];
/// Libraries that never print. Their messages are values for the caller.
const SILENT: &[&str] = &[
    "crates/card/src/",
    "crates/import/src/",
    "crates/loading/src/",
    "crates/mitigate/src/",
    "crates/policy/src/",
    "crates/tables/src/",
];
/// The crates without input or output.
const PURE: &[&str] = &["weir-policy", "weir-mitigate", "weir-card", "weir-export", "weir-import"];
/// Crates that access files, processes or the network. Pure crates do not use them.
const IMPURE: &[&str] = &["tempfile", "memmap2", "libloading", "libbpf-rs", "rustix", "libc", "tokio"];

fn metadata() -> Vec<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["metadata", "--format-version=1", "--no-deps", "--offline"]).current_dir(root());
    let output = cargo.output().expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("")
}

/// Names of the dependencies of a package outside of its tests.
fn dependencies(package: &Value) -> Vec<&str> {
    let list = package["dependencies"].as_array().expect("a list of dependencies");
    list.iter()
        .filter(|dependency| text(dependency, "kind") != "dev")
        .map(|dependency| text(dependency, "name"))
        .collect()
}

#[test]
fn crates_use_only_what_they_may() {
    let packages = metadata();
    let ours: Vec<&str> = packages.iter().map(|package| text(package, "name")).collect();
    let mut offences = Vec::new();
    for package in &packages {
        let name = text(package, "name");
        if TOP_LEVEL.contains(&name) {
            continue;
        }
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| *known == name) else {
            offences.push(format!("{name} is new: say in {} what it may use", file!()));
            continue;
        };
        let used = dependencies(package);
        let foreign = used.iter().filter(|used| ours.contains(used) && !allowed.concat().contains(used));
        offences.extend(foreign.map(|used| format!("{name} uses {used}")));
        let impure = used.iter().filter(|used| PURE.contains(&name) && IMPURE.contains(used));
        offences.extend(impure.map(|used| format!("{name} is pure and uses {used}")));
    }
    assert_none(offences, "dependency rules of docs/ARCHITECTURE.md");
}

/// What only benchmarks use is in `lab`, and `cargo build` without arguments does not build it.
#[test]
fn the_product_does_not_use_the_lab() {
    let packages = metadata();
    let root = root().canonicalize().expect("it is there");
    let is_lab = |package: &&Value| Path::new(text(package, "manifest_path")).starts_with(root.join("lab"));
    let (lab, others): (Vec<&Value>, Vec<&Value>) = packages.iter().partition(is_lab);
    let lab: Vec<&str> = lab.into_iter().map(|package| text(package, "name")).collect();
    assert!(lab.contains(&"weir-bench"), "{lab:?}");
    let mut offences = Vec::new();
    for package in others {
        // Tests count too: a test of the product must not build the lab.
        let list = package["dependencies"].as_array().expect("a list of dependencies");
        let used = list.iter().map(|dependency| text(dependency, "name")).filter(|used| lab.contains(used));
        offences.extend(used.map(|used| format!("{} uses {used}", text(package, "name"))));
    }
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("there is a workspace");
    let default = manifest.lines().find(|line| line.starts_with("default-members")).expect("it names default members");
    offences.extend(default.contains("lab/").then(|| format!("Cargo.toml: {default}")));
    assert_none(offences, "the product does not use lab, and is built without it");
}

#[test]
fn libraries_know_no_command_line() {
    let packages = metadata();
    let mut offences = Vec::new();
    for package in packages.iter().filter(|package| !PROGRAMS.contains(&text(package, "name"))) {
        let used = dependencies(package).into_iter().filter(|used| FRONT_ENDS.contains(used));
        offences.extend(used.map(|used| format!("{} uses {used}", text(package, "name"))));
    }
    for file in files(&["rs"]).iter().filter(|file| SILENT.iter().any(|folder| file.path.starts_with(folder))) {
        for (at, line) in without_tests(&file.text).lines().enumerate() {
            if ["print!(", "println!(", "stderr()", "stdout()", "dbg!("].iter().any(|output| line.contains(output)) {
                offences.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    assert_none(offences, "only programs read command lines, and these libraries print nothing");
}

/// Dependencies that only benchmarks or tests need must not remain in the product.
#[test]
fn crates_use_what_they_depend_on() {
    let (sources, root) = (files(&["rs"]), root().canonicalize().expect("it is there"));
    let mut offences = Vec::new();
    for package in metadata() {
        let manifest = Path::new(text(&package, "manifest_path")).strip_prefix(&root).expect("a crate of ours");
        let folder = manifest.parent().expect("a manifest lies in a folder");
        let is_product = |file: &&File| {
            let path = Path::new(&file.path);
            path.starts_with(folder.join("src")) || path == folder.join("build.rs")
        };
        let code: String = sources.iter().filter(is_product).map(|file| without_tests(&file.text)).collect();
        let unused = dependencies(&package).into_iter().filter(|used| !code.contains(&used.replace('-', "_")));
        offences.extend(unused.map(|unused| format!("{}: {unused}", manifest.display())));
    }
    assert_none(offences, "what a crate depends on is named outside of its tests");
}

/// The file without test modules, which are at its end.
fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// The service, the screen and the fleet manager use the client like `ctl`. It must not depend on the daemon or the
/// command line.
#[test]
fn the_client_is_separate_from_the_daemon() {
    let packages = metadata();
    let control = packages.iter().find(|package| text(package, "name") == "weir-control").expect("there is a protocol");
    assert_eq!(dependencies(control), ["serde", "serde_json", "thiserror"]);
    let sources = files(&["rs"]);
    let ctl = sources.iter().find(|file| file.path == "crates/weir/src/ctl.rs").expect("there is `weir ctl`");
    let lines = ctl.text.lines().filter(|line| line.contains("::run::"));
    assert_none(lines.map(str::to_owned).collect(), "`weir ctl` knows only the protocol");
}

/// What changes what decides packets, and the files behind the door that call it.
const CHANGES: &[&str] = &[
    "requests::perform(",
    "Updater {",
    "controller.activate(",
    "controller.succeed(",
    "controller.posture(",
    "controller.rollback(",
    "controller.confirm(",
    "controller.take(",
    "controller.release(",
    "controller.make_due(",
];
const BEHIND_THE_DOOR: &[&str] =
    &["crates/daemon/src/door.rs", "crates/daemon/src/requests/mod.rs", "crates/daemon/src/parts/feeds/updater.rs"];

/// Cards watch over changes at the door, so no code may bypass it.
#[test]
fn every_change_comes_through_the_door() {
    let mut offences = Vec::new();
    let is_outside =
        |file: &&File| file.path.starts_with("crates/weir/src/") && !BEHIND_THE_DOOR.contains(&&*file.path);
    for file in files(&["rs"]).iter().filter(is_outside) {
        for (at, line) in without_tests(&file.text).lines().enumerate() {
            if CHANGES.iter().any(|change| line.contains(change)) {
                offences.push(format!("{}:{}: {}", file.path, at + 1, line.trim()));
            }
        }
    }
    assert_none(offences, "changes come through crates/daemon/src/door.rs");
}

#[test]
fn the_abi_depends_on_nothing() {
    let packages = metadata();
    let abi = packages.iter().find(|package| text(package, "name") == "weir-abi").expect("there is crates/abi");
    assert_eq!(dependencies(abi), [""; 0]);
}
