//! `weir detect --export` and `weir replay --expect`: attacks as regression tests.

use crate::weir::{ENGINES, Sandbox};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const POLICY: &str = "
include \"parts/more.weir\"
table bad { type ipv4; file \"lists/bad.txt\"; layout exact-set }
table geo { type ipv4 : label; file \"lists/geo.csv\" }
table seen { type ipv4; dynamic; size 1000; timeout 10m }
limits customers { file \"lists/limits.csv\"; default 100kpps }
slot attacks { size 8 }
upstream {
  ip saddr @bad counter drop
  ip saddr @geo { HR } counter
  ip saddr limit @customers
  ip daddr $NETS counter slot attacks accept
  accept
}
posture high { upstream { icmp drop; slot attacks; drop } }
downstream { accept }
";

/// The rule against the SYN flood of the example.
const SYN_RULE: &str = "ip daddr 10.10.10.10 meta l4proto tcp tcp dport 25565 tcp flags == syn tcp doff 5 tcp window 0 meta length 46 drop";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/edge/attack.pcap");
    let bad: String = (0..5000u32).map(|at| format!("172.16.{}.{}\n", at / 250, at % 250 + 1)).collect();
    sandbox
        .put("attack.pcap", fs::read(path).expect("the example is there"))
        .put("p.weir", POLICY)
        .put("parts/more.weir", "define NETS = { 10.10.10.0/24, 192.0.2.0/24 }\n")
        .put("lists/bad.txt", bad)
        .put("lists/geo.csv", "10.0.0.0/8,SI\n203.0.113.0/24,HR\n89.0.0.0/8,DE\n")
        .put("lists/limits.csv", "198.51.100.0/24,10,5\n0.0.0.0/1,50kpps\n");
    sandbox
}

/// The folder of the only export.
fn only_export(sandbox: &Sandbox, folder: &str) -> PathBuf {
    let entries = fs::read_dir(sandbox.path(folder)).expect("there are exports");
    let paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be read").path()).collect();
    assert_eq!(paths.len(), 1, "{paths:?}");
    paths[0].clone()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("it was exported")
}

#[test]
fn an_exported_attack_stands_by_itself_and_passes_on_every_engine() {
    let sandbox = sandbox();
    let report = sandbox.run("detect attack.pcap --policy p.weir --export x --json").json();
    assert_eq!(report["exports"]["left_out"], 0, "{report}");
    let folder = only_export(&sandbox, "x");
    assert_eq!(report["exports"]["folders"][0].as_str(), Some(format!("x/{}", folder_name(&folder)).as_str()));
    assert!(folder_name(&folder).ends_with("-1-syn-flood-10.10.10.10"), "{folder:?}");
    // It needs none of the files of the policy.
    ["p.weir", "parts", "lists", "attack.pcap"].iter().for_each(|name| {
        let path = sandbox.path(name);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.expect("it is ours");
    });
    let policy = text(&folder.join("policy.weir"));
    let rule = SYN_RULE;
    // In each place of the slot, behind the matches of the rule that asks it.
    assert_eq!(policy.matches(rule).count(), 2, "{policy}");
    assert!(policy.contains(&format!("\n  ip daddr $NETS {rule}\n")), "{policy}");
    assert!(!policy.contains("slot attacks") && !policy.contains("172.16.") && !policy.contains(".csv"), "{policy}");
    // A label that a rule names stays known.
    assert!(policy.contains("203.0.113.0/24 : \"HR\"") && policy.contains("0.0.0.0/1 : 50kpps"), "{policy}");
    let expected: Value = serde_json::from_str(&text(&folder.join("expected.json"))).expect("it is JSON");
    let notes = expected["about"]["notes"].to_string();
    assert!(notes.contains("table bad: 0 of 5000 entries") && notes.contains("limits customers: 1 of 2"), "{notes}");
    let counts = &expected["counts"];
    let count = |name: &str| counts[name].as_u64().unwrap_or_else(|| panic!("{name}: {counts}"));
    assert!(count("packets") <= 4096 && count("dropped") > count("packets") / 2, "{counts}");
    assert_eq!(count("passed") + count("dropped"), count("packets"), "{counts}");

    let folder = format!("x/{}", folder_name(&folder));
    for &engine in ENGINES {
        let line = format!("--in {folder}/attack.pcapng --expect {folder}/expected.json --engine {engine}");
        let ran = sandbox.run(&format!("replay {folder}/policy.weir {line}"));
        assert!(ran.code == 0 && ran.out.contains("The counts are as expected."), "{ran:?}");
    }
}

fn folder_name(folder: &Path) -> String {
    folder.file_name().expect("it has one").to_string_lossy().into_owned()
}

#[test]
fn a_changed_policy_fails_and_the_message_says_which_count_differs() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("detect attack.pcap --export x").code, 0);
    let folder = only_export(&sandbox, "x");
    let name = format!("x/{}", folder_name(&folder));
    let policy = text(&folder.join("policy.weir"));
    let replay = |policy: &str, more: &str| {
        sandbox.put("changed.weir", policy);
        sandbox.run(&format!("replay changed.weir --in {name}/attack.pcapng --engine eval {more}"))
    };
    let expect = format!("--expect {name}/expected.json");
    assert_eq!(replay(&policy, &expect).code, 0);
    // Blank lines and comments change nothing.
    assert_eq!(replay(&format!("# moved\n\n{policy}"), &expect).code, 0);

    let without = policy.replace(" tcp dport 25565 ", " tcp dport 25566 ");
    assert_ne!(without, policy);
    let rule = format!("rule `{SYN_RULE}`");
    let rule = rule.as_str();
    replay(&without, &expect).fails(1, &["does not count what", rule, "expected, there is none"]);
    let json: Value = serde_json::from_str(&replay(&without, &format!("{expect} --json")).out).expect("it is JSON");
    let differences = json["differences"].as_array().expect("a list");
    assert!(differences.iter().any(|one| one["what"] == rule && one["counted"].is_null()), "{json}");
    let nothing = "upstream { accept }\ndownstream { accept }\n";
    replay(nothing, &expect).fails(1, &["  dropped: ", " expected, 0 counted", "  passed: "]);

    // A part of the file is enough; another posture or direction is not given twice.
    let packets = json["packets"].as_u64().expect("a number");
    sandbox.put("few.json", format!("{{\"counts\": {{\"packets\": {packets}, \"diverted\": 0}}}}"));
    assert_eq!(replay(nothing, "--expect few.json").code, 0);
    sandbox.put("none.json", "{\"about\": {}}");
    replay(nothing, "--expect none.json").fails(2, &["none.json", "it expects nothing"]);
    replay(nothing, "--expect gone.json").fails(2, &["gone.json"]);
    replay(nothing, &format!("{expect} --posture high")).fails(2, &["--posture", "--expect"]);
    // Nothing is overwritten.
    sandbox.run("detect attack.pcap --export x").fails(1, &["it exists already"]);
    assert_eq!(folder_name(&only_export(&sandbox, "x")), folder_name(&folder));
}

#[test]
fn an_attack_behind_a_bundle_is_exported_without_the_policy() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile p.weir -o p.weirb").code, 0);
    assert_eq!(sandbox.run("detect attack.pcap --policy p.weirb --export x").code, 0);
    let folder = only_export(&sandbox, "x");
    assert!(!folder.join("policy.weir").exists());
    let expected: Value = serde_json::from_str(&text(&folder.join("expected.json"))).expect("it is JSON");
    assert!(expected["about"]["notes"].to_string().contains("is a bundle, which has no text: replay p.weirb"));
    assert_eq!(expected["slots"][0]["slot"], "attacks", "{expected}");
    let name = format!("x/{}", folder_name(&folder));
    for (policy, code) in [("p.weirb", 0), ("p.weir", 0)] {
        let line = format!("replay {policy} --in {name}/attack.pcapng --expect {name}/expected.json --engine native");
        assert_eq!(sandbox.run(&line).code, code, "{policy}");
    }
}
