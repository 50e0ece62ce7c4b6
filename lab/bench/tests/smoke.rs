//! Runs every scenario at the smallest scale. Needs root and two cores. No figure is compared: the scenarios' own
//! checks decide, such as that engines count the same packets.

use serde_json::Value;
use std::process::Command;

#[test]
fn every_scenario_ends_with_rows() {
    let lists = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/edge/lists");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-bench"));
    let output = command.args(["--all", "--smoke", "--json", "--data", lists]).output().expect("the program was built");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"));
    assert!(output.status.success(), "{}: {stderr}", report["failed"]);
    assert_eq!(report["note"], "smoke: figures mean nothing");
    let listed = Command::new(env!("CARGO_BIN_EXE_weir-bench")).arg("--list").output().expect("it lists");
    let names = String::from_utf8_lossy(&listed.stdout);
    let names: Vec<&str> = names.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let scenarios = report["scenarios"].as_array().expect("scenarios");
    assert_eq!(scenarios.iter().map(|one| one["scenario"].as_str().expect("a name")).collect::<Vec<_>>(), names);
    for scenario in scenarios {
        let name = &scenario["scenario"];
        assert!(scenario["rows"].as_array().is_some_and(|rows| !rows.is_empty()), "{name}: {scenario:#}");
        assert_eq!(scenario["note"], report["note"], "{name}");
        assert!(stderr.contains(&format!("weir: {}: about ", name.as_str().expect("a name"))), "{name}: {stderr}");
    }
}

/// A scenario that fails does not end the others, and its message is in the report.
#[test]
fn one_failure_does_not_end_the_others() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-bench"));
    // Without any program, and without lists.
    command.env("PATH", folder.path()).env_remove("WEIR_CLANG").arg("--data").arg(folder.path());
    let output = command.args(["--all", "--smoke", "--json"]).output().expect("the program was built");
    let report: Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    let of = |name: &str| {
        let scenarios = report["scenarios"].as_array().expect("scenarios");
        scenarios.iter().find(|one| one["scenario"] == name).expect("all scenarios are in the report").clone()
    };
    let refused = of("live");
    let message = refused["error"]["message"].as_str().expect("a message");
    assert!(["live cannot run", "clang", "the program ip;"].iter().all(|part| message.contains(part)), "{message}");
    // This one needs nothing but a processor.
    assert!(of("line-costs")["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
    assert!(report["failed"].as_array().is_some_and(|failed| failed.iter().any(|name| name == "live")));
}
