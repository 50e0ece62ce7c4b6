//! Outputs and inputs of captures: files of any name, links, pipes, devices, standard input and output.

use crate::weir::{Sandbox, capture};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

const POLICY: &str = "table t { type ipv4; file \"list\" }\ninclude \"more.weir\"\nupstream { ip saddr @t drop; tcp dport 80 accept; drop }\ndownstream { accept }\n";
const TRAFFIC: &str = "eth / ip / tcp dport=80\neth / ip6 / udp / payload 9\neth / ip / tcp dport=81";

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox
        .put("p.weir", POLICY)
        .put("list", "203.0.113.0/24\n")
        .put("more.weir", "# nothing\n")
        .put("t.pcap", capture(TRAFFIC));
    sandbox
}

fn replay(sandbox: &Sandbox, options: &str) -> crate::weir::Ran {
    sandbox.run(&format!("replay p.weir --engine eval --in t.pcap {options}"))
}

/// Number of packets in a capture.
fn packets(sandbox: &Sandbox, name: &str) -> u64 {
    sandbox.run(&format!("replay p.weir --engine eval --in {name} --json")).json()["packets"]
        .as_u64()
        .expect("a number")
}

fn names(sandbox: &Sandbox) -> Vec<String> {
    let entries = fs::read_dir(sandbox.path("")).expect("the folder is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn no_output_is_a_file_that_is_read() {
    let sandbox = sandbox();
    fs::hard_link(sandbox.path("t.pcap"), sandbox.path("hard")).unwrap();
    symlink("t.pcap", sandbox.path("soft")).unwrap();
    symlink("soft", sandbox.path("softer")).unwrap();
    let all = names(&sandbox);
    for output in ["t.pcap", "./t.pcap", "hard", "soft", "softer", "p.weir", "list", "more.weir"] {
        for option in ["--out", "--dropped"] {
            replay(&sandbox, &format!("{option} {output}")).fails(2, &["different files"]);
        }
        let line = format!("compile p.weir -o {output}");
        if !["t.pcap", "./t.pcap", "hard", "soft", "softer"].contains(&output) {
            sandbox.run(&line).fails(2, &["different files"]);
        }
    }
    assert_eq!(names(&sandbox), all);
    assert_eq!(
        (fs::read(sandbox.path("t.pcap")).unwrap(), fs::read(sandbox.path("list")).unwrap()),
        (capture(TRAFFIC), b"203.0.113.0/24\n".to_vec())
    );
}

#[test]
fn two_outputs_are_two_files() {
    let sandbox = sandbox();
    symlink("new", sandbox.path("dangling")).unwrap();
    symlink("dangling", sandbox.path("twice")).unwrap();
    fs::create_dir(sandbox.path("folder")).unwrap();
    symlink("../new", sandbox.path("folder/up")).unwrap();
    sandbox.put("old", "");
    fs::hard_link(sandbox.path("old"), sandbox.path("hard")).unwrap();
    for (passed, dropped) in [
        ("new", "new"),
        ("new", "./new"),
        ("new", "dangling"),
        ("dangling", "twice"),
        ("folder/up", "dangling"),
        ("old", "hard"),
        ("-", "-"),
    ] {
        replay(&sandbox, &format!("--out {passed} --dropped {dropped}")).fails(2, &["different files"]);
    }
    assert!(!sandbox.path("new").exists());
    // Devices may be named twice.
    assert_eq!(replay(&sandbox, "--out /dev/null --dropped /dev/null").code, 0);
}

#[test]
fn links_are_followed_to_files_that_are_there_or_not() {
    let sandbox = sandbox();
    sandbox.put("old", "old content");
    fs::set_permissions(sandbox.path("old"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("old", sandbox.path("to-old")).unwrap();
    symlink("new", sandbox.path("to-new")).unwrap();
    assert_eq!(replay(&sandbox, "--out to-old --dropped to-new").code, 0);
    assert!(sandbox.path("to-old").is_symlink() && sandbox.path("to-new").is_symlink());
    assert_eq!((packets(&sandbox, "old"), packets(&sandbox, "new")), (1, 2));
    assert_eq!(fs::metadata(sandbox.path("old")).unwrap().permissions().mode() & 0o777, 0o600);
    symlink("none/new", sandbox.path("astray")).unwrap();
    symlink("round", sandbox.path("round")).unwrap();
    for (output, problem) in
        [("astray", "No such file"), ("round", "symbolic links"), (".", "directory"), ("none/x", "No such file")]
    {
        replay(&sandbox, &format!("--out {output}")).fails(1, &[output, problem]);
    }
}

/// On any failure, the old file stays unchanged and no partial file is left.
#[test]
fn a_failure_leaves_no_output() {
    let sandbox = sandbox();
    sandbox.put("old", "old content").put("noise.pcap", "no capture");
    let before = names(&sandbox);
    replay(&sandbox, "--out old --dropped /dev/full").fails(1, &["/dev/full", "No space left"]);
    replay(&sandbox, "--out /dev/full").fails(1, &["/dev/full", "No space left"]);
    sandbox.run("replay p.weir --engine eval --in noise.pcap --out old").fails(1, &["noise.pcap"]);
    sandbox.run("replay p.weir --engine eval --in t.pcap --out old --posture none").fails(2, &["no posture"]);
    assert_eq!((names(&sandbox), fs::read(sandbox.path("old")).unwrap()), (before, b"old content".to_vec()));
}

#[test]
fn pipes_with_names_take_captures() {
    let sandbox = sandbox();
    assert!(Command::new("mkfifo").arg(sandbox.path("fifo")).status().expect("mkfifo is there").success());
    let reader =
        Command::new("cat").arg(sandbox.path("fifo")).stdout(File::create(sandbox.path("copy")).unwrap()).spawn();
    let mut reader = reader.expect("cat is there");
    assert_eq!(replay(&sandbox, "--dropped fifo").code, 0);
    assert!(reader.wait().unwrap().success());
    assert_eq!(packets(&sandbox, "copy"), 2);
    // Two outputs to one pipe would mix.
    replay(&sandbox, "--out fifo --dropped fifo").fails(2, &["different files"]);
}

/// Runs the program with one file as standard input and another as standard output. Returns exit code and standard
/// error.
fn piped(sandbox: &Sandbox, line: &str, from: &str, to: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(line.split_whitespace()).current_dir(sandbox.path("")).env("NO_COLOR", "1");
    // Pipes on both sides, which have no length and cannot seek.
    let mut feeder = Command::new("cat").arg(sandbox.path(from)).stdout(Stdio::piped()).spawn().expect("cat is there");
    let mut child = command
        .stdin(feeder.stdout.take().expect("it is piped"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut taker = Command::new("cat")
        .stdin(child.stdout.take().expect("it is piped"))
        .stdout(File::create(sandbox.path(to)).expect("files can be made"))
        .spawn()
        .expect("cat is there");
    let output = child.wait_with_output().expect("it ends");
    assert!(feeder.wait().is_ok() && taker.wait().is_ok_and(|status| status.success()));
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A pcapng capture with one interface and two packets of 64 bytes.
fn pcapng() -> Vec<u8> {
    let mut words = vec![0x0a0d_0d0a, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28, 1, 20, 1, 0, 20];
    for _ in 0..2 {
        words.extend([6, 96, 0, 0, 0, 64, 64]);
        words.extend([0; 16]);
        words.push(96);
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn standard_input_and_output() {
    let sandbox = sandbox();
    let (code, stderr) = piped(&sandbox, "replay p.weir --engine eval --in - --out -", "t.pcap", "passed");
    assert_eq!((code, packets(&sandbox, "passed")), (0, 1), "{stderr}");
    assert!(stderr.contains("over standard input") && stderr.contains("received"), "{stderr}");
    let (code, stderr) =
        piped(&sandbox, "replay p.weir --engine eval --in - --dropped - --out kept", "t.pcap", "dropped");
    assert_eq!((code, packets(&sandbox, "dropped"), packets(&sandbox, "kept")), (0, 2, 1), "{stderr}");
    let (code, stderr) =
        piped(&sandbox, "replay p.weir --engine eval --in - --dropped /dev/stdout", "t.pcap", "dropped");
    assert_eq!((code, packets(&sandbox, "dropped")), (0, 2), "{stderr}");
    sandbox.put("t.pcapng", pcapng());
    let (code, stderr) = piped(
        &sandbox,
        "replay p.weir --engine eval --in - --direction downstream --dropped - --out passed.pcapng",
        "t.pcapng",
        "dropped",
    );
    assert_eq!((code, packets(&sandbox, "dropped") + packets(&sandbox, "passed.pcapng")), (0, 2), "{stderr}");
    let (code, stderr) = piped(&sandbox, "replay p.weir --engine eval --in - --json", "t.pcap", "report");
    let report: Value = serde_json::from_slice(&fs::read(sandbox.path("report")).unwrap()).expect("JSON");
    assert_eq!((code, &report["packets"]), (0, &3.into()), "{stderr}");
    for line in ["why p.weir --in - --packet 2", "diff p.weir p.weir --in -"] {
        let (code, stderr) = piped(&sandbox, line, "t.pcap", "report");
        assert_eq!(code, 0, "{line}: {stderr}");
    }
    replay(&sandbox, "--out - --json").fails(2, &["--json and a capture cannot both go to standard output"]);
    let (code, stderr) = piped(&sandbox, "replay p.weir --engine eval --in - --out -", "list", "passed");
    assert!(code == 1 && stderr.contains("standard input: "), "{stderr}");
    // A truncated capture ends in the same way.
    sandbox.put("cut.pcap", &capture(TRAFFIC)[..100]);
    let (code, stderr) = piped(&sandbox, "replay p.weir --engine eval --in - --out -", "cut.pcap", "passed");
    assert_eq!((code, packets(&sandbox, "passed")), (1, 1), "{stderr}");
    assert!(stderr.contains("is damaged: at packet 2"), "{stderr}");
}

#[test]
fn standard_output_that_is_full_or_closed_is_no_success() {
    let sandbox = sandbox();
    let full = |command: &mut Command| _ = command.stdout(File::options().write(true).open("/dev/full").unwrap());
    for line in [
        "replay p.weir --engine eval --in t.pcap --out -",
        "replay p.weir --engine eval --in t.pcap",
        "replay p.weir --engine eval --in t.pcap --json",
    ] {
        sandbox.run_with(line.split_whitespace(), full).fails(1, &["standard output", "No space left"]);
    }
    // The output is the input under another name.
    let stdin = |command: &mut Command| _ = command.stdin(File::open(sandbox.path("t.pcap")).unwrap());
    sandbox
        .run_with("replay p.weir --engine eval --in - --out t.pcap".split_whitespace(), stdin)
        .fails(2, &["different files"]);
    assert_eq!(packets(&sandbox, "t.pcap"), 3);
}
