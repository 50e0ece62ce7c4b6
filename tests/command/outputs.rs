//! Where captures are written and read: files under any name, links, pipes, devices, standard input and output.

use crate::weir::{Desk, capture};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

const POLICY: &str = "table t { type ipv4; file \"list\" }\ninclude \"more.weir\"\nupstream { ip saddr @t drop; tcp dport 80 accept; drop }\ndownstream { accept }\n";
const TRAFFIC: &str = "eth / ip / tcp dport=80\neth / ip6 / udp / payload 9\neth / ip / tcp dport=81";

fn desk() -> Desk {
    let desk = Desk::new();
    desk.put("p.weir", POLICY)
        .put("list", "203.0.113.0/24\n")
        .put("more.weir", "# nothing\n")
        .put("t.pcap", capture(TRAFFIC));
    desk
}

fn replay(desk: &Desk, options: &str) -> crate::weir::Ran {
    desk.run(&format!("replay p.weir --engine eval --in t.pcap {options}"))
}

/// Packets of a capture.
fn packets(desk: &Desk, name: &str) -> u64 {
    desk.run(&format!("replay p.weir --engine eval --in {name} --json")).json()["packets"].as_u64().expect("a number")
}

fn names(desk: &Desk) -> Vec<String> {
    let entries = fs::read_dir(desk.path("")).expect("the folder is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn no_output_is_a_file_that_is_read() {
    let desk = desk();
    fs::hard_link(desk.path("t.pcap"), desk.path("hard")).unwrap();
    symlink("t.pcap", desk.path("soft")).unwrap();
    symlink("soft", desk.path("softer")).unwrap();
    let all = names(&desk);
    for output in ["t.pcap", "./t.pcap", "hard", "soft", "softer", "p.weir", "list", "more.weir"] {
        for option in ["--out", "--dropped"] {
            replay(&desk, &format!("{option} {output}")).fails(2, &["different files"]);
        }
        let line = format!("compile p.weir -o {output}");
        if !["t.pcap", "./t.pcap", "hard", "soft", "softer"].contains(&output) {
            desk.run(&line).fails(2, &["different files"]);
        }
    }
    assert_eq!(names(&desk), all);
    assert_eq!(
        (fs::read(desk.path("t.pcap")).unwrap(), fs::read(desk.path("list")).unwrap()),
        (capture(TRAFFIC), b"203.0.113.0/24\n".to_vec())
    );
}

#[test]
fn two_outputs_are_two_files() {
    let desk = desk();
    symlink("new", desk.path("dangling")).unwrap();
    symlink("dangling", desk.path("twice")).unwrap();
    fs::create_dir(desk.path("folder")).unwrap();
    symlink("../new", desk.path("folder/up")).unwrap();
    desk.put("old", "");
    fs::hard_link(desk.path("old"), desk.path("hard")).unwrap();
    for (passed, dropped) in [
        ("new", "new"),
        ("new", "./new"),
        ("new", "dangling"),
        ("dangling", "twice"),
        ("folder/up", "dangling"),
        ("old", "hard"),
        ("-", "-"),
    ] {
        replay(&desk, &format!("--out {passed} --dropped {dropped}")).fails(2, &["different files"]);
    }
    assert!(!desk.path("new").exists());
    // Devices take what they are given.
    assert_eq!(replay(&desk, "--out /dev/null --dropped /dev/null").code, 0);
}

#[test]
fn links_are_followed_to_files_that_are_there_or_not() {
    let desk = desk();
    desk.put("old", "old content");
    fs::set_permissions(desk.path("old"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("old", desk.path("to-old")).unwrap();
    symlink("new", desk.path("to-new")).unwrap();
    assert_eq!(replay(&desk, "--out to-old --dropped to-new").code, 0);
    assert!(desk.path("to-old").is_symlink() && desk.path("to-new").is_symlink());
    assert_eq!((packets(&desk, "old"), packets(&desk, "new")), (1, 2));
    assert_eq!(fs::metadata(desk.path("old")).unwrap().permissions().mode() & 0o777, 0o600);
    symlink("none/new", desk.path("astray")).unwrap();
    symlink("round", desk.path("round")).unwrap();
    for (output, problem) in
        [("astray", "No such file"), ("round", "symbolic links"), (".", "directory"), ("none/x", "No such file")]
    {
        replay(&desk, &format!("--out {output}")).fails(1, &[output, problem]);
    }
}

/// What was there stays as it was, and nothing half-written is left, whatever fails.
#[test]
fn a_failure_leaves_no_output() {
    let desk = desk();
    desk.put("old", "old content").put("noise.pcap", "no capture");
    let before = names(&desk);
    replay(&desk, "--out old --dropped /dev/full").fails(1, &["/dev/full", "No space left"]);
    replay(&desk, "--out /dev/full").fails(1, &["/dev/full", "No space left"]);
    desk.run("replay p.weir --engine eval --in noise.pcap --out old").fails(1, &["noise.pcap"]);
    desk.run("replay p.weir --engine eval --in t.pcap --out old --posture none").fails(2, &["no posture"]);
    assert_eq!((names(&desk), fs::read(desk.path("old")).unwrap()), (before, b"old content".to_vec()));
}

#[test]
fn pipes_with_names_take_captures() {
    let desk = desk();
    assert!(Command::new("mkfifo").arg(desk.path("fifo")).status().expect("mkfifo is there").success());
    let reader = Command::new("cat").arg(desk.path("fifo")).stdout(File::create(desk.path("copy")).unwrap()).spawn();
    let mut reader = reader.expect("cat is there");
    assert_eq!(replay(&desk, "--dropped fifo").code, 0);
    assert!(reader.wait().unwrap().success());
    assert_eq!(packets(&desk, "copy"), 2);
    // It would not end otherwise: a pipe of which both ends are somebody else's.
    replay(&desk, "--out fifo --dropped fifo").fails(2, &["different files"]);
}

/// Runs with a file as standard input and one as standard output; gives what was said.
fn piped(desk: &Desk, line: &str, from: &str, to: &str) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(line.split_whitespace()).current_dir(desk.path("")).env("NO_COLOR", "1");
    // Through pipes on both sides: nothing can be sought or measured.
    let mut feeder = Command::new("cat").arg(desk.path(from)).stdout(Stdio::piped()).spawn().expect("cat is there");
    let mut child = command
        .stdin(feeder.stdout.take().expect("it is piped"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut taker = Command::new("cat")
        .stdin(child.stdout.take().expect("it is piped"))
        .stdout(File::create(desk.path(to)).expect("files can be made"))
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
    let desk = desk();
    let (code, said) = piped(&desk, "replay p.weir --engine eval --in - --out -", "t.pcap", "passed");
    assert_eq!((code, packets(&desk, "passed")), (0, 1), "{said}");
    assert!(said.contains("over standard input") && said.contains("received"), "{said}");
    let (code, said) = piped(&desk, "replay p.weir --engine eval --in - --dropped - --out kept", "t.pcap", "dropped");
    assert_eq!((code, packets(&desk, "dropped"), packets(&desk, "kept")), (0, 2, 1), "{said}");
    let (code, said) = piped(&desk, "replay p.weir --engine eval --in - --dropped /dev/stdout", "t.pcap", "dropped");
    assert_eq!((code, packets(&desk, "dropped")), (0, 2), "{said}");
    desk.put("t.pcapng", pcapng());
    let (code, said) = piped(
        &desk,
        "replay p.weir --engine eval --in - --direction downstream --dropped - --out passed.pcapng",
        "t.pcapng",
        "dropped",
    );
    assert_eq!((code, packets(&desk, "dropped") + packets(&desk, "passed.pcapng")), (0, 2), "{said}");
    let (code, said) = piped(&desk, "replay p.weir --engine eval --in - --json", "t.pcap", "report");
    let report: Value = serde_json::from_slice(&fs::read(desk.path("report")).unwrap()).expect("JSON");
    assert_eq!((code, &report["packets"]), (0, &3.into()), "{said}");
    for line in ["why p.weir --in - --packet 2", "diff p.weir p.weir --in -"] {
        let (code, said) = piped(&desk, line, "t.pcap", "report");
        assert_eq!(code, 0, "{line}: {said}");
    }
    replay(&desk, "--out - --json").fails(2, &["--json and a capture cannot both go to standard output"]);
    let (code, said) = piped(&desk, "replay p.weir --engine eval --in - --out -", "list", "passed");
    assert!(code == 1 && said.contains("standard input: "), "{said}");
    // A capture that ends too early ends the same way.
    desk.put("cut.pcap", &capture(TRAFFIC)[..100]);
    let (code, said) = piped(&desk, "replay p.weir --engine eval --in - --out -", "cut.pcap", "passed");
    assert_eq!((code, packets(&desk, "passed")), (1, 1), "{said}");
    assert!(said.contains("not whole: at packet 2"), "{said}");
}

#[test]
fn standard_output_that_is_full_or_closed_is_no_success() {
    let desk = desk();
    let full = |command: &mut Command| _ = command.stdout(File::options().write(true).open("/dev/full").unwrap());
    for line in [
        "replay p.weir --engine eval --in t.pcap --out -",
        "replay p.weir --engine eval --in t.pcap",
        "replay p.weir --engine eval --in t.pcap --json",
    ] {
        desk.run_with(line.split_whitespace(), full).fails(1, &["standard output", "No space left"]);
    }
    // The input, by another name, as the output.
    let stdin = |command: &mut Command| _ = command.stdin(File::open(desk.path("t.pcap")).unwrap());
    desk.run_with("replay p.weir --engine eval --in - --out t.pcap".split_whitespace(), stdin)
        .fails(2, &["different files"]);
    assert_eq!(packets(&desk, "t.pcap"), 3);
}
