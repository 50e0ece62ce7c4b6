//! What `weir ctl` says about parts that a Weir does not use, and about what is empty: a sentence, and exit code 0.

use crate::device_under_test::Running;
use crate::hosts::Hosts;
use crate::put;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

const POLICY: &str = "
table changing { type ipv4; dynamic; size 16 }
slot extra { size 4 }
upstream { ip saddr @changing drop; slot extra; accept }
downstream { accept }
";

/// Questions, and what the answer says. `null` in JSON, or an empty list, at a path; or `nothing` with the reason.
const QUESTIONS: &[(&str, &str, &str)] = &[
    ("attacks", "attacks are not measured: start Weir with --mitigate", "/nothing"),
    ("attacks show 1", "attacks are not measured: start Weir with --mitigate", "/nothing"),
    ("attacks baseline", "attacks are not measured: start Weir with --mitigate", "/nothing"),
    ("card", "there is no card: start Weir with --card", "/nothing"),
    ("features", "the active policy does not observe", "/nothing"),
    ("flows", "the active policy does not track flows", "/nothing"),
    ("flows count", "the active policy does not track flows", "/nothing"),
    ("limits", "no limits are counted", "/limits"),
    ("shadow", "no policy is a shadow", "/shadow"),
    ("slot extra list", "extra: 0 of 4 rules", "/rules"),
    ("table changing list", "no entry", "/entries"),
    ("table changing get 192.0.2.1", "not in the table", "/found"),
];

/// What needs a part that is not used, or names what there is not, is refused.
const REFUSED: &[(&str, &str)] = &[
    ("attacks accept 1", "attacks are not measured: start Weir with --mitigate"),
    ("attacks dismiss 1", "attacks are not measured: start Weir with --mitigate"),
    ("attacks mode act", "attacks are not measured: start Weir with --mitigate"),
    ("attacks baseline reset all", "attacks are not measured: start Weir with --mitigate"),
    ("flows kill ip saddr 192.0.2.1", "the active policy does not track flows"),
    ("slot other list", "other"),
    ("table other list", "other"),
    ("rollback", "no previous policy to roll back to"),
    ("confirm", "no policy is on trial"),
];

/// Exit code, standard output and standard error of a request.
fn ctl(running: &Running, request: &str, json: bool) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(running.control()).args(json.then_some("--json")).args(request.split(' '));
    let output = command.output().expect("the program was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

each_kind!(nothing_to_show_is_an_answer);
fn nothing_to_show_is_an_answer(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    for &(request, says, path) in QUESTIONS {
        let (code, output, errors) = ctl(&running, request, false);
        assert_eq!((code, errors.as_str()), (0, ""), "{engine}: {request}: {output}");
        assert!(output.contains(says) && output.ends_with('\n'), "{engine}: {request}: {output:?}");
        let (code, output, errors) = ctl(&running, request, true);
        assert_eq!((code, errors.as_str()), (0, ""), "{engine}: {request}: {output}");
        let json: Value = serde_json::from_str(&output).expect("one object");
        let shown = json.pointer(path).unwrap_or_else(|| panic!("{engine}: {request}: {output}"));
        let is_nothing = match shown {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::String(why) => path == "/nothing" && why == says,
            _ => false,
        };
        assert!(json.is_object() && is_nothing, "{engine}: {request}: {output}");
    }
    for &(request, says) in REFUSED {
        let (code, output, errors) = ctl(&running, request, false);
        assert_eq!((code, output.as_str()), (2, ""), "{engine}: {request}: {errors}");
        assert!(errors.contains(says), "{engine}: {request}: {errors}");
        let (code, output, _) = ctl(&running, request, true);
        let json: Value = serde_json::from_str(&output).expect("one object");
        assert_eq!((code, &json["error"]["exit_code"]), (2, &Value::from(2)), "{engine}: {request}: {output}");
    }
    // One connection has several answers: nothing to show does not end it.
    let top = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["top", "--once", "--json", "--control"])
        .arg(running.control())
        .output()
        .expect("the program was built");
    let snapshot: Value = serde_json::from_slice(&top.stdout).expect("a snapshot");
    assert_eq!(snapshot["absent"]["card"], "there is no card: start Weir with --card");
    assert!(snapshot["room"].is_object() && snapshot["status"]["captures"] == 0, "{snapshot}");
    assert_eq!(running.stop(), 0);
}
