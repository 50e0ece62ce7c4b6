//! `weir top` without a terminal: recordings, one screen, one snapshot.

use crate::weir::Sandbox;
use std::process::Stdio;

/// Two snapshots of a Weir that has gone away.
const RECORDING: &str = "{\"time_s\":1.0,\"problem\":\"gone\"}\n{\"time_s\":2.0,\"problem\":\"gone \\u001b[2J\"}\n";

#[test]
fn a_recording_is_shown_once_as_text_or_as_json() {
    let sandbox = Sandbox::new();
    sandbox.put("r.jsonl", RECORDING);
    let text = sandbox.run("top --from r.jsonl --once --size 60x20");
    assert_eq!((text.code, text.out.lines().count()), (0, 20), "{text:?}");
    assert!(text.out.lines().nth(1) == Some(" gone \\u{1b}[2J") && text.out.contains("recording"), "{text:?}");
    let last = sandbox.run("top --from r.jsonl --once --json").json();
    assert_eq!((last["time_s"].as_f64(), last["problem"].as_str()), (Some(2.0), Some("gone \u{1b}[2J")));
}

#[test]
fn what_cannot_be_shown_is_said() {
    let sandbox = Sandbox::new();
    sandbox.put("r.jsonl", RECORDING).put("empty", "").put("noise", "{\"time_s\":1}\n[]\n");
    for (line, code, word) in [
        ("top --from none --once", 1, "none: No such file"),
        ("top --from empty --once", 2, "empty: the recording is empty"),
        ("top --from noise --once", 2, "noise:2: not a snapshot of `weir top --record`"),
        ("top --control none.sock --once", 1, "none.sock"),
        ("top --from r.jsonl", 2, "standard output is no terminal"),
        ("top --from r.jsonl --control x", 2, "--control"),
        ("top --json", 2, "--once"),
        ("top --once --size 0x9", 2, "80x24"),
    ] {
        sandbox.run(line).fails(code, &[word]);
    }
}

#[test]
fn a_recording_is_recorded_without_a_terminal() {
    let sandbox = Sandbox::new();
    sandbox.put("r.jsonl", RECORDING);
    let ran = sandbox.run_with(["top", "--from", "r.jsonl", "--record", "copy.jsonl"], |command| {
        command.stdout(Stdio::null());
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(std::fs::read_to_string(sandbox.path("copy.jsonl")).expect("a recording"), RECORDING);
}

#[test]
fn ctl_help_is_the_help_of_a_request() {
    let sandbox = Sandbox::new();
    let ran = sandbox.run("ctl help attacks dismiss");
    assert!(ran.code == 0 && ran.out.contains("weir ctl attacks dismiss"), "{ran:?}");
    assert!(sandbox.run("ctl help").out.contains("unload"));
    sandbox.run("ctl help frob").fails(2, &["there is no request `frob`"]);
}
