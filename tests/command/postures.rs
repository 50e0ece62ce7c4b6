//! The chains of a policy with several postures that commands compile: only those that they need.

use crate::weir::Sandbox;
use serde_json::{Value, json};
use std::fs;
use weir_test_support::program::install_script;

const POLICY: &str = "table bad { type ipv4; elements = { 198.51.100.0/24 } }
table worse { type ipv4; elements = { 203.0.113.0/24 } }
upstream { ip saddr @bad drop; accept }
downstream { accept }
posture calm { upstream { accept } }
posture storm { upstream { ip saddr @worse drop; ip saddr @bad drop; tcp dport 81 drop; accept } }
";

/// A sandbox whose clang stores the C that it compiles.
fn watched() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox
        .put("p.weir", POLICY)
        .put_capture("t.pcap", "eth / ip saddr=203.0.113.9 / tcp dport=80\neth / ip / tcp dport=81");
    let script = format!(
        "#!/bin/sh\nfor word; do case $word in *.c) cat \"$word\" >> {};; esac; done\nexec clang-19 \"$@\"\n",
        sandbox.path("compiled").display()
    );
    install_script(&script, &sandbox.path("clang")).expect("the sandbox can be written");
    sandbox
}

/// The chains that the program compiled, each once, sorted by name.
fn compiled(sandbox: &Sandbox, line: &str) -> (Value, Vec<String>) {
    let clang = sandbox.path("clang");
    let report = sandbox.run_with(line.split_whitespace(), |command| _ = command.env("WEIR_CLANG", clang)).json();
    let text = fs::read_to_string(sandbox.path("compiled")).expect("something was compiled");
    fs::remove_file(sandbox.path("compiled")).expect("it is there");
    let name = |line: &str| {
        let rest = line.strip_prefix("void weir_").or_else(|| line.strip_prefix("WEIR_CHAIN("))?;
        rest.split(['(', ')']).next().map(str::to_owned)
    };
    let mut names: Vec<String> = text.lines().filter_map(name).collect();
    names.sort();
    names.dedup();
    (report, names)
}

#[test]
fn replay_and_diff_compile_the_chain_that_they_ask() {
    let sandbox = watched();
    for engine in ["native", "xdp"] {
        let replay = |options: &str| {
            compiled(&sandbox, &format!("replay p.weir --in t.pcap --engine {engine} --json {options}"))
        };
        let (report, chains) = replay("");
        assert_eq!((&report["dropped"], chains), (&json!(0), vec!["upstream".to_owned()]), "{engine}");
        let (report, chains) = replay("--posture storm");
        assert_eq!((&report["dropped"], chains), (&json!(2), vec!["storm_upstream".to_owned()]), "{engine}");
        assert_eq!(report["reasons"], json!({"p.weir:6": 2}), "{engine}");
        let (_, chains) = replay("--posture calm --direction downstream");
        assert_eq!(chains, ["calm_downstream"], "{engine}");
    }
    let (report, chains) = compiled(&sandbox, "diff p.weir p.weir --in t.pcap --json --posture storm");
    assert_eq!((&report["changed"], chains), (&json!(0), vec!["storm_upstream".to_owned()]));
}

#[test]
fn check_compiles_the_base_policy_or_the_postures_asked_for() {
    let sandbox = watched();
    let (report, chains) = compiled(&sandbox, "check p.weir --json");
    assert_eq!(chains, ["downstream", "upstream"]);
    assert_eq!((&report["compiled"], &report["rules"]), (&json!(["upstream", "downstream"]), &json!(8)));
    let measured = |report: &Value| -> Vec<(String, bool)> {
        let chains = report["chains"].as_array().expect("chains").iter();
        chains
            .map(|chain| (chain["name"].as_str().unwrap().to_owned(), chain["verifier_instructions"].is_u64()))
            .collect()
    };
    let of = |names: [(&str, bool); 6]| names.map(|(name, is)| (name.to_owned(), is)).to_vec();
    let all = ["upstream", "downstream", "calm upstream", "calm downstream", "storm upstream", "storm downstream"];
    assert_eq!(measured(&report), of(all.map(|name| (name, !name.contains(' ')))));
    let (report, chains) = compiled(&sandbox, "check p.weir --json --posture storm");
    assert_eq!(chains, ["storm_downstream", "storm_upstream"]);
    assert_eq!(measured(&report), of(all.map(|name| (name, name.starts_with("storm")))));
    assert_eq!(report["compiled"], json!(["storm upstream", "storm downstream"]));
    let (report, _) = compiled(&sandbox, "check p.weir --json --all-postures");
    assert_eq!(measured(&report), of(all.map(|name| (name, true))));
    let ran = sandbox.run("check p.weir");
    assert!(ran.out.contains("compiled: upstream, downstream; the other 4 chains"), "{ran:?}");
    sandbox.run("check p.weir --posture tempest").fails(2, &["no posture tempest", "it has calm, storm"]);
    sandbox.run("check p.weir --posture calm --quick").fails(2, &["--quick"]);
    assert_eq!(sandbox.run("check p.weir --quick --json").json()["compiled"], json!([]));
}

/// A requested engine must support the whole policy. Other engines are not checked.
#[test]
fn check_fails_if_an_engine_that_is_asked_for_cannot_run_the_policy() {
    let sandbox = watched();
    let (report, chains) = compiled(&sandbox, "check p.weir --engine xdp --json");
    assert_eq!(chains.len(), 6, "{chains:?}");
    assert!(
        report["chains"][0]["verifier_instructions"].is_u64() && report["chains"][0]["cycles_per_packet"].is_null()
    );
    assert_eq!(report["not_measured"], json!([]));

    let broken =
        |line: &str| sandbox.run_with(line.split_whitespace(), |command| _ = command.env("WEIR_CLANG", "/bin/none"));
    let noted = broken("check p.weir --json");
    assert_eq!((noted.code, noted.json()["not_measured"].as_array().map(Vec::len)), (0, Some(2)));
    for engine in ["native", "xdp", "p4"] {
        let refused = broken(&format!("check p.weir --engine {engine} --json"));
        let report: Value = serde_json::from_str(&refused.out).expect("a failure is an object too");
        assert_eq!((refused.code, &report["valid"]), (1, &json!(false)), "{engine}");
    }
    assert_eq!(broken("check p.weir --engine eval --json").code, 0);
}
