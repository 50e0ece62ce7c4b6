//! Output to a terminal: external text has no control characters, and messages are short.

use crate::weir::{Sandbox, capture};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Sets a colour, clears the screen with a one-character CSI, reverses the text direction, and rings the bell.
const EVIL: &str = "x\u{1b}[31m\u{9b}2J\u{202e}\u{7}y";

fn is_harmless(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c))
}

#[test]
fn nothing_from_outside_controls_the_terminal() {
    let sandbox = Sandbox::new();
    let with = |entries: &str| {
        format!(
            "table t {{ type ipv4 : label; {entries} }}\nupstream {{ ip saddr @t {{ \"{EVIL}\" }} drop; accept }}\ndownstream {{ accept }}\n"
        )
    };
    let labelled = with(&format!("elements = {{ 10.0.0.0/8 : \"{EVIL}\" }}"));
    sandbox.put("p.weir", &labelled).put("evil.weir", format!("upstream {{ {EVIL} drop }}\n"));
    sandbox.put("unknown.weir", labelled.replace("drop", "drop; ip saddr @t { other } drop"));
    sandbox.put("bad.csv", format!("10.0.0.0/8,a\n{EVIL}\n")).put("bad.weir", with("file \"bad.csv\""));
    sandbox.put("missing.weir", with(&format!("file \"no-{EVIL}\"")));
    sandbox.put("skipped.weir", with("file \"bad.csv\" lenient"));
    sandbox.put("t.pcap", capture("eth / ip saddr=10.0.0.1 / tcp dport=80\neth / ip / tcp"));
    sandbox.put(EVIL, "upstream { accept }\ndownstream { accept }\n");
    let mut lines: Vec<Vec<&str>> = Vec::new();
    for policy in ["p.weir", "evil.weir", "unknown.weir", "bad.weir", "missing.weir", "skipped.weir", EVIL] {
        lines.push(vec!["check", policy, "--quick"]);
        lines.push(vec!["replay", policy, "--in", "t.pcap", "--engine", "eval"]);
        lines.push(vec!["why", policy, "--in", "t.pcap", "--packet", "1"]);
        lines.push(vec!["diff", policy, "p.weir", "--in", "t.pcap"]);
        lines.push(vec!["check", policy, "--quick", "--json"]);
        lines.push(vec!["replay", policy, "--in", "t.pcap", "--engine", "eval", "--json"]);
    }
    lines.extend([
        vec!["replay", "p.weir", "--in", EVIL],
        vec!["check", "none", EVIL],
        vec!["ctl", "status", "--control", EVIL],
        vec![EVIL],
    ]);
    lines.extend([
        vec!["bench", EVIL],
        vec!["replay", "p.weir", "--in", "t.pcap", "--posture", EVIL],
        vec!["compile", EVIL, "-o", EVIL],
    ]);
    for line in lines {
        let ran = sandbox.run_with(line.iter().map(|word| OsStr::from_bytes(word.as_bytes())), |_| {});
        assert!(is_harmless(&ran.out) && is_harmless(&ran.err), "{line:?}: {ran:?}");
    }
    let ran = sandbox.run("why p.weir --in t.pcap --packet 1");
    assert!(ran.out.contains(r"x\x1b[31m\u{9b}2J\u{202e}\x07y"), "{ran:?}");
    let json = sandbox.run("why p.weir --in t.pcap --packet 1 --json").json();
    assert!(json["rules"][0]["rule"].as_str().is_some_and(|rule| rule.contains(EVIL)), "{json:#}");
}

#[test]
fn messages_are_as_long_as_a_person_reads() {
    let sandbox = Sandbox::new();
    sandbox.put("t.pcap", capture("eth / arp"));
    let elements =
        |gap: &str| (0..3000).map(|n| format!("10.0.{}.{}", n / 256 % 2, n % 256)).collect::<Vec<_>>().join(gap);
    let policies = [
        "{".repeat(100_000),
        "}".repeat(100_000),
        format!("upstream {{ accept {} }}", "{".repeat(100_000)),
        format!("upstream {{ ip saddr {} drop }}", "x".repeat(100_000)),
        format!("upstream {{ ip saddr @{} drop }}\ndownstream {{ accept }}", "y".repeat(100_000)),
        format!("upstream {{ accept {} }}", "\u{1b}[31m".repeat(20_000)),
        format!("upstream {{ ip saddr {{ {} }} drop; accept }}\ndownstream {{ accept }}", elements(", ")),
        format!("upstream {{ ip saddr {{ {} }} drop; accept }}\ndownstream {{ accept }}", elements(",\n")),
    ];
    for policy in policies {
        sandbox.put("p.weir", &policy);
        for line in [
            "check p.weir --quick",
            "replay p.weir --in t.pcap --engine eval",
            "why p.weir --in t.pcap --packet 1",
            "diff p.weir p.weir --in t.pcap",
            "compile p.weir -o b",
        ] {
            let ran = sandbox.run(line);
            assert!(ran.err.len() + ran.out.len() < 20_000, "{line}: {} bytes of {}", ran.err.len(), &policy[..40]);
            assert!(ran.err.lines().all(|line| line.len() < 600), "{line}: {}", &policy[..40]);
        }
    }
    // The last packet has more warnings than are shown.
    let ran = sandbox.run("why p.weir --in t.pcap --packet 1");
    assert!(ran.code == 0 && ran.err.contains("more warnings W0407"), "{ran:?}");
    assert_eq!(ran.err.matches("warning[W0407]").count(), 10);
    let all = sandbox.run("check p.weir --quick --json").json()["warnings"].as_array().unwrap().len();
    assert!(all > 100, "{all}");
}

/// The reported column is the column in the whole line, not in the shown part.
#[test]
fn a_long_line_keeps_its_columns() {
    let sandbox = Sandbox::new();
    sandbox.put(
        "p.weir",
        format!(
            "upstream {{ {} udp sprot 1 drop; accept }}\ndownstream {{ accept }}\n",
            "udp dport 53 drop; ".repeat(500)
        ),
    );
    let ran = sandbox.run("check p.weir --quick");
    let column = 12 + 500 * 19 + 5;
    assert!(
        ran.err.contains(&format!("p.weir:1:{column}\n")) && ran.err.contains("...") && ran.err.contains("sprot"),
        "{ran:?}"
    );
    assert!(!ran.err.contains(":::"), "{ran:?}");
}
