//! The configuration file of `weir run`: `weir config check`, `weir config show`, and what `weir run` takes from it.

use crate::weir::Sandbox;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

const POLICY: &str = "upstream { udp drop; accept }\ndownstream { accept }\n";
/// All kinds of values: a path, text, a list, one value of a list, a number, a time, a flag.
const WHOLE: &str = r#"# The edge.
policy = "policies/edge.weir"
engine = "afxdp"
lower = ["eth0", "eth1"]
upper = "eth2"
workers = 2
busy-poll = true
carry-link = false
state = "state"
limits-log = "/var/log/weir.json"
limits-interval = "30s"
"#;

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.put("policies/edge.weir", POLICY).put("weir.toml", WHOLE);
    sandbox
}

/// The mistakes of a file: the whole text on standard error.
#[track_caller]
fn mistakes(text: &str) -> String {
    let sandbox = sandbox();
    sandbox.put("bad.toml", text);
    let ran = sandbox.run("config check bad.toml");
    assert_eq!(ran.code, 2, "{ran:?}");
    ran.err
}

/// The value and the origin of a key in the output of `config show --json`.
fn shown(report: &Value, key: &str) -> (String, String, Option<u64>) {
    let options = report["options"].as_array().expect("a list");
    let row = options.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}: {report}"));
    (row["value"].to_string(), row["origin"].as_str().expect("text").to_owned(), row["line"].as_u64())
}

#[test]
fn every_option_of_run_is_a_key() {
    let sandbox = sandbox();
    let help = sandbox.run("run --help").out;
    let report = sandbox.run("config show --json weir.toml").json();
    let keys: Vec<&str> =
        report["options"].as_array().expect("a list").iter().map(|row| row["key"].as_str().expect("text")).collect();
    let options = help.lines().filter_map(|line| line.trim_start().strip_prefix("--"));
    let options = options.map(|line| line.split([' ', '=']).next().expect("a word"));
    let missing: Vec<&str> = options.filter(|option| *option != "config" && !keys.contains(option)).collect();
    assert!(missing.is_empty() && keys.contains(&"policy") && keys.len() > 20, "{missing:?} {keys:?}");
}

#[test]
fn show_says_where_values_come_from() {
    let sandbox = sandbox();
    let report = sandbox.run("config show --json weir.toml -- --workers 3 --divert tap0").json();
    let file = |value: &str, line| (value.to_owned(), "file".to_owned(), Some(line));
    let base = sandbox.path("");
    let base = base.to_str().expect("UTF-8");
    assert_eq!(shown(&report, "policy"), file(&format!("\"{base}policies/edge.weir\""), 2));
    assert_eq!(shown(&report, "lower"), file(r#"["eth0","eth1"]"#, 4));
    assert_eq!(shown(&report, "upper"), file(r#"["eth2"]"#, 5));
    assert_eq!(shown(&report, "busy-poll"), file(r#""true""#, 7));
    assert_eq!(shown(&report, "carry-link"), file(r#""false""#, 8));
    assert_eq!(shown(&report, "state"), file(&format!("\"{base}state\""), 9));
    assert_eq!(shown(&report, "limits-log"), file(r#""/var/log/weir.json""#, 10));
    let other = |value: &str, origin: &str| (value.to_owned(), origin.to_owned(), None);
    assert_eq!(shown(&report, "workers"), other(r#""3""#, "command line"));
    assert_eq!(shown(&report, "divert"), other(r#""tap0""#, "command line"));
    assert_eq!(shown(&report, "limits-top"), other(r#""100""#, "default"));
    assert_eq!(shown(&report, "eal"), other("null", "unset"));
    let text = sandbox.run("config show weir.toml -- --workers 3").out;
    let line = text.lines().find(|line| line.starts_with("workers")).expect("there is a line");
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words, ["workers", "3", "command", "line,", "in", "place", "of", "line", "6"]);
    assert!(text.contains("weir.toml:2\n"), "{text}");
}

#[test]
fn check_reads_the_policy_too() {
    let sandbox = sandbox();
    let ran = sandbox.run("config check weir.toml");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(ran.out.starts_with("weir.toml: valid, with the policy /"), "{ran:?}");
    sandbox.put("policies/edge.weir", "upstream { udp dorp }\n");
    sandbox.run("config check weir.toml").fails(2, &["edge.weir:1", "dorp"]);
    let json = sandbox.run("config check --json weir.toml");
    let report: Value = serde_json::from_str(&json.out).expect("JSON");
    assert_eq!((json.code, report["error"]["exit_code"].as_u64()), (2, Some(2)), "{report}");
    sandbox.run("config check nosuch.toml").fails(2, &["nosuch.toml", "No such file"]);
}

#[test]
fn all_mistakes_are_told_with_their_lines() {
    let told = mistakes(
        "policy = \"policies/edge.weir\"\nengine = \"afxpd\"\nlowr = [\"eth0\"]\nupper = 5.5\nworkers = \"many\"\n\
         busy-poll = \"yes\"\nconfig = \"x\"\nstate = 3\nconfirm = [\"60s\"]\nlower = []\n[mitigate]\nmode = \"act\"\n",
    );
    for mistake in [
        "error[E0703]: invalid value of `engine`",
        "bad.toml:2:10",
        "did you mean `afxdp`?",
        "error[E0702]: unknown key `lowr`",
        "bad.toml:3:1",
        "did you mean `lower`?",
        "bad.toml:5:11",
        "a number from 1 to 256",
        "`busy-poll` is on or off",
        "`--config` is an option of the command line only",
        "bad.toml:8:9",
        "write `state = \"DIR\"`",
        "`confirm` has one value, not a list",
        "the list of `lower` is empty",
        "bad.toml:11:1",
    ] {
        assert!(told.contains(mistake), "no {mistake:?} in:\n{told}");
    }
}

#[test]
fn syntax_is_told_with_its_line() {
    let told = mistakes("policy = \"policies/edge.weir\"\nengine = afxdp\nlower = [\"a\"\n");
    assert!(told.contains("error[E0701]: not TOML") && told.contains("bad.toml:2:10"), "{told}");
    let told = mistakes("policy = \"p\"\npolicy = \"q\"\n");
    assert!(told.contains("E0701") && told.contains("duplicate key") && told.contains("bad.toml:2:1"), "{told}");
    assert!(mistakes("\u{feff}policy = [[[[").contains("E0701"));
    let deep = format!("policy = {}", "[".repeat(100_000));
    assert!(mistakes(&deep).contains("E0701"));
    let sandbox = sandbox();
    sandbox.put("bytes.toml", b"policy = \"a\"\n\xff\n").put("long.toml", vec![b'#'; (1 << 20) + 1]);
    sandbox.run("config check bytes.toml").fails(2, &["bytes.toml: line 2: not UTF-8 text"]);
    sandbox.run("config check long.toml").fails(2, &["long.toml: is longer than 1 MiB"]);
    // What a terminal would interpret is escaped.
    let told = mistakes("\"\\u001b[31m\" = 1\n");
    assert!(told.contains("E0702") && !told.contains('\u{1b}'), "{told}");
}

#[test]
fn what_is_missing_or_contradicts_is_told_with_its_line() {
    let told = mistakes("# nothing\n");
    for key in ["policy", "engine", "lower", "upper"] {
        assert!(told.contains(&format!("the key `{key}` is missing")), "{key}: {told}");
    }
    assert!(told.contains("bad.toml:1:1"), "{told}");
    assert!(mistakes("").contains("the key `engine` is missing"));
    let base = "policy = \"policies/edge.weir\"\nengine = \"xdp\"\n";
    let told = mistakes(&format!("{base}lower = \"a\"\nupper = \"b\"\nlimits-top = 3\n"));
    assert!(told.contains("`limits-top` needs `limits-log`") && told.contains("bad.toml:5:1"), "{told}");
    let told = mistakes(&format!("{base}lower = \"a\"\nhost = \"b\"\n"));
    assert!(told.contains("E0705") && told.contains("contradicts") && told.contains("bad.toml:4:1"), "{told}");
    // A rule of the daemon, not of the command line's definition.
    let told = mistakes(&format!("{base}lower = \"a\"\nupper = \"b\"\nbusy-poll = true\n"));
    assert!(told.contains("--busy-poll is only for the engine afxdp") && told.contains("bad.toml:5:1"), "{told}");
}

#[test]
fn run_takes_what_the_command_line_does_not_say() {
    let sandbox = sandbox();
    let missing = |ran: crate::weir::Ran, interface: &str| {
        assert!(ran.code == 1 && ran.err.contains(interface), "{ran:?}");
    };
    sandbox.put(
        "weir.toml",
        "policy = \"policies/edge.weir\"\nengine = \"afpacket\"\nlower = \"nosuch0\"\nupper = \"nosuch1\"\n",
    );
    missing(sandbox.run("run --config weir.toml --control weir.sock"), "nosuch0");
    let ran = sandbox.run("run --config weir.toml --lower nosuch2 --control weir.sock");
    assert!(ran.err.contains("`--lower` of the command line is used in place of line 3"), "{ran:?}");
    missing(ran, "nosuch2");
    // An error of the command line is told as always, and conflicts between both name both.
    sandbox.run("run --config weir.toml --wrokers 3").fails(2, &["unexpected argument '--wrokers'"]);
    sandbox.run("run --config weir.toml --host lo").fails(2, &["contradicts", "`--host` is on the command line"]);
    sandbox.run("run --config nosuch.toml").fails(2, &["nosuch.toml", "No such file"]);
    // A policy on the command line, and no `--config`: no file is read.
    sandbox.run("run policies/edge.weir").fails(2, &["--engine", "were not provided"]);
}

#[test]
fn a_file_that_others_can_write_is_refused() {
    let sandbox = sandbox();
    let file = sandbox.path("weir.toml");
    fs::set_permissions(&file, Permissions::from_mode(0o666)).expect("it is our file");
    sandbox.run("run --config weir.toml").fails(1, &["this configuration is not used", "mode 0666"]);
    fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("it is our file");
    fs::create_dir(sandbox.path("open")).expect("a new folder");
    fs::set_permissions(sandbox.path("open"), Permissions::from_mode(0o777)).expect("it is our folder");
    std::os::unix::fs::symlink(&file, sandbox.path("open/weir.toml")).expect("a link");
    sandbox.run("config check open/weir.toml").fails(1, &["open can be written by others"]);
}
