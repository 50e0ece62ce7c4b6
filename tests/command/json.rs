//! `--json` prints exactly one JSON object on standard output, also for failures.

use crate::weir::{Ran, Sandbox, capture};
use serde_json::{Value, json};

const POLICY: &str = "upstream { tcp dport 80 accept; drop }\ndownstream { accept }\n";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let whole = capture("eth / ip / tcp dport=80\neth / ip / tcp dport=81\neth / arp");
    sandbox.put("p.weir", POLICY).put("q.weir", POLICY.replace("80", "81")).put("cut.pcap", &whole[..whole.len() - 5]);
    sandbox.put("t.pcap", whole).put("noise", [0xff, 0, 0x80].repeat(99));
    sandbox.put("bad.weir", "upstream { tcp dport 99999 drop; udp sprot 1 drop }\n");
    sandbox
        .put("list.weir", "table t { type ipv4; file \"list\" }\nupstream { ip saddr @t drop; accept }\n")
        .put("list", "10.0.0.300\n");
    sandbox
}

/// The printed object, and the exit code and message of the failure.
fn failure(ran: &Ran) -> (Value, i32, String) {
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let error = &report["error"];
    let code = error["exit_code"].as_i64().unwrap_or_else(|| panic!("no exit code: {ran:?}")) as i32;
    let message = error["message"].as_str().unwrap_or_else(|| panic!("no message: {ran:?}")).to_owned();
    assert!(!ran.err.is_empty(), "people are told too: {ran:?}");
    (report, code, message)
}

#[test]
fn every_failure_is_one_object() {
    let sandbox = sandbox();
    for (line, code, word) in [
        ("check none.weir", 2, "none.weir: No such file"),
        ("check noise", 2, "not UTF-8"),
        ("check bad.weir", 2, "bad.weir:1:"),
        ("check list.weir", 2, "10.0.0.300"),
        ("check p.weir --costs none.json", 2, "none.json"),
        ("check p.weir --posture none", 2, "no posture none"),
        ("check", 2, "<POLICY>"),
        ("check p.weir --frob", 2, "--frob"),
        ("detect", 2, "<CAPTURE>"),
        ("detect none.pcap", 1, "none.pcap"),
        ("detect t.pcap --labels noise", 1, "noise"),
        ("detect t.pcap --labels p.weir", 2, "p.weir:2: a line `N,0` or `N,1` is expected"),
        ("detect t.pcap --inside 300.0.0.0/8", 2, "a prefix such as"),
        ("replay none.weir --in t.pcap", 2, "none.weir"),
        ("replay bad.weir --in t.pcap", 2, "bad.weir:1:"),
        ("replay p.weir --in none.pcap", 1, "none.pcap"),
        ("replay p.weir --in noise", 1, "noise"),
        ("replay p.weir", 2, "--in"),
        ("replay p.weir --in t.pcap --engine quantum", 2, "quantum"),
        ("replay p.weir --in t.pcap --posture none", 2, "no posture none"),
        ("replay p.weir --in t.pcap --out none/x", 1, "none/x"),
        ("replay p.weir --in t.pcap --out t.pcap", 2, "different files"),
        ("replay p.weir --in t.pcap --out /dev/full", 1, "/dev/full"),
        ("replay p.weir --in t.pcap --out -", 2, "standard output"),
        ("diff p.weir bad.weir --in t.pcap", 2, "bad.weir:1:"),
        ("diff p.weir q.weir --in none.pcap", 1, "none.pcap"),
        ("diff p.weir --in t.pcap", 2, "<NEW>"),
        ("why p.weir --in t.pcap --packet 9", 1, "no packet 9"),
        ("why p.weir --in t.pcap --packet 0", 2, "--packet"),
        ("why bad.weir --in t.pcap --packet 1", 2, "bad.weir:1:"),
        ("why p.weir --in cut.pcap --packet 3", 1, "cut.pcap: packet 3"),
        ("compile bad.weir -o b", 2, "bad.weir:1:"),
        ("compile p.weir -o none/b", 1, "none/b"),
        ("compile p.weir -o p.weir", 2, "different files"),
        ("ctl status --control none.sock", 1, "none.sock"),
        ("ctl frob", 2, "frob"),
    ] {
        let ran = sandbox.run(&format!("{line} --json"));
        let (_, reported, message) = failure(&ran);
        assert_eq!((ran.code, reported), (code, code), "{line}: {ran:?}");
        assert!(message.contains(word) && !message.contains("Usage:"), "{line}: {message}");
    }
}

#[test]
fn mistakes_are_listed_with_their_places() {
    let sandbox = sandbox();
    for line in [
        "check bad.weir",
        "replay bad.weir --in t.pcap",
        "diff p.weir bad.weir --in t.pcap",
        "why bad.weir --in t.pcap --packet 1",
        "compile bad.weir -o b",
    ] {
        let (report, ..) = failure(&sandbox.run(&format!("{line} --json")));
        let errors = report["errors"].as_array().expect("errors");
        assert!(errors.len() >= 2, "{line}: {report:#}");
        assert_eq!((&errors[0]["file"], &errors[0]["line"]), (&json!("bad.weir"), &json!(1)), "{line}");
        assert!(errors.iter().all(|error| error["code"].as_str().is_some_and(|code| code.starts_with('E'))), "{line}");
    }
    let (report, ..) = failure(&sandbox.run("check bad.weir --json"));
    assert_eq!((&report["valid"], &report["policy"]), (&json!(false), &json!("bad.weir")));
    let (report, ..) = failure(&sandbox.run("replay list.weir --in t.pcap --json"));
    assert_eq!(report["errors"][0]["code"], "E0601");
}

#[test]
fn a_truncated_capture_is_marked_in_the_report() {
    let sandbox = sandbox();
    for line in ["replay p.weir --in cut.pcap --engine eval", "diff p.weir q.weir --in cut.pcap"] {
        let ran = sandbox.run(&format!("{line} --json"));
        let (report, code, message) = failure(&ran);
        assert_eq!(
            (ran.code, code, &report["packets"], &report["truncated"]),
            (1, 1, &json!(2), &json!(true)),
            "{line}"
        );
        let at = &report["truncated_at"];
        assert_eq!((&at["packet"], &at["byte"]), (&json!(3), &json!(24 + 2 * (16 + 54))), "{line}");
        assert!(message.contains("ends inside a packet"), "{line}: {message}");
        let ran = sandbox.run(line);
        assert!(ran.code == 1 && ran.out.contains("is damaged: at packet 3"), "{ran:?}");
    }
    let whole = sandbox.run("replay p.weir --in t.pcap --engine eval --json").json();
    assert_eq!((&whole["truncated"], whole.get("error"), whole.get("truncated_at")), (&json!(false), None, None));
}
