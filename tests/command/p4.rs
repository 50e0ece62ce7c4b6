//! `--engine p4` and `compile --target p4`.

use crate::weir::Sandbox;
use serde_json::json;

const POLICY: &str = "table bad { type ipv4; elements = { 192.0.2.0/24, 198.51.100.7 } }
upstream {
  ip saddr @bad drop
  udp dport 53 limit each ip saddr 1 burst 1 accept
  tcp dport { 80, 443 } accept
  drop
}
downstream { accept }
";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("edge.weir", POLICY);
    sandbox.put_capture(
        "traffic.pcap",
        "eth / ip saddr=192.0.2.9 / tcp dport=80\neth / ip saddr=10.0.0.1 / tcp dport=80\n",
    );
    sandbox
}

#[test]
fn a_folder_has_the_program_its_pipeline_its_tables_and_what_they_are() {
    let sandbox = sandbox();
    let report = sandbox.run("compile edge.weir --target p4 -o out --json").json();
    let names = ["edge.p4", "edge.spec", "p4.c", "tables/bad.csv", "README.md"];
    assert_eq!(report["files"], json!(names.map(|name| format!("out/{name}"))));
    assert_eq!((&report["rules"], &report["tables"]), (&json!(5), &json!(1)));
    let read = |name: &str| std::fs::read_to_string(sandbox.path("out").join(name)).expect("it was written");
    assert_eq!(read("tables/bad.csv"), "# prefix\n192.0.2.0/24\n198.51.100.7/32\n");
    assert!(read("edge.p4").contains("#include <psa.p4>"));
    assert!(read("edge.spec").contains("apply {"));
    assert!(read("p4.c").contains("weir_p4_program"));
    let readme = read("README.md");
    for name in &names[..4] {
        assert!(readme.contains(&format!("| `{name}` |")), "{readme}");
    }
    assert!(readme.contains("| `lookup_0` | bad |"), "{readme}");
    // Nothing of it is read again: a second run writes the same.
    assert_eq!(sandbox.run("compile edge.weir --target p4 -o out").out, "out: 5 files, 5 rules, 1 tables\n");
}

#[test]
fn what_p4_cannot_do_is_refused_with_rule_and_reason() {
    let sandbox = sandbox();
    let samples: String = (0..200).map(|port| format!("  udp dport {port} sample 1/2\n")).collect();
    sandbox.put("many.weir", format!("upstream {{\n{samples}  accept\n}}\ndownstream {{ accept }}\n"));
    for command in ["compile many.weir --target p4 -o out", "replay many.weir --in traffic.pcap --engine p4"] {
        if command.starts_with("replay") && !cfg!(feature = "dpdk") {
            continue;
        }
        let reason = "a pipeline has room for 200 tables, limits, additions and samples";
        sandbox.run(command).fails(2, &["many objects", "(p4)", reason]);
    }
    assert!(!sandbox.path("out").exists());
    sandbox.run("compile edge.weir --target p4 -o out --sign key").fails(2, &["--sign is only for bundles"]);
}

#[test]
fn bundles_have_no_p4() {
    let sandbox = sandbox();
    assert_eq!(sandbox.run("compile edge.weir -o edge.weirb").code, 0);
    let needs = match cfg!(feature = "dpdk") {
        true => "edge: a bundle has no code for the engine p4; name its policy instead",
        false => "the engine p4 needs a weir that was built with DPDK",
    };
    sandbox.run("replay edge.weirb --in traffic.pcap --engine p4").fails(1, &[needs]);
}

#[test]
fn without_dpdk_the_message_says_what_to_build() {
    let sandbox = sandbox();
    let replay = sandbox.run("replay edge.weir --in traffic.pcap --engine p4 --json");
    if cfg!(feature = "dpdk") {
        let report = replay.json();
        assert_eq!((&report["engine"], &report["dropped"], &report["passed"]), (&json!("p4"), &json!(1), &json!(1)));
        return;
    }
    replay.fails(1, &["the engine p4 needs a weir that was built with DPDK"]);
    sandbox.run("check edge.weir --engine p4").fails(1, &["the engine p4 needs a weir that was built with DPDK"]);
}

#[test]
fn a_controller_tracks_what_changes_a_state() {
    let sandbox = sandbox();
    let tracking = "tracking { size 64 }\nupstream { ct state new tcp dport 80 accept; drop }\ndownstream { accept }\n";
    sandbox.put("tracking.weir", tracking);
    let split = "replay tracking.weir --in traffic.pcap --p4-controller 0s --direction upstream";
    sandbox.run(split).fails(2, &["--p4-controller is only for the engine p4"]);
    let run = "run tracking.weir --engine dpdk --lower a --upper b --p4-controller 0s";
    if cfg!(feature = "dpdk") {
        sandbox.run(run).fails(2, &["--p4-controller is only for the engine p4"]);
        let report = sandbox.run(&format!("{split} --engine p4 --json")).json();
        let without =
            sandbox.run("replay tracking.weir --in traffic.pcap --engine p4 --direction upstream --json").json();
        assert_eq!(report["tracked"], json!({ "pipeline": 0, "controller": 2 }));
        assert_eq!((&report["reasons"], without.get("tracked")), (&without["reasons"], None));
        let text = sandbox.run(&format!("{split} --engine p4")).out;
        assert!(text.contains("Tracked by the pipeline 0, by its controller 2"), "{text}");
    }
}
