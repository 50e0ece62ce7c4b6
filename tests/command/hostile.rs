//! Files that are damaged, of the wrong kind, or have strange names.

use crate::weir::{ENGINES, Sandbox, capture};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

const POLICY: &str = "upstream { tcp dport 80 accept; drop }\ndownstream { accept }\n";
const TRAFFIC: &str = "eth / ip / tcp\neth / ip6 / udp / payload 9\neth / arp";

/// A truncated capture is an error or a shorter capture.
#[test]
fn captures_cut_off_anywhere() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY);
    let whole = capture(TRAFFIC);
    for end in (0..whole.len()).step_by(7) {
        sandbox.put("cut.pcap", &whole[..end]);
        let ran = sandbox.run("replay p.weir --in cut.pcap --engine eval");
        assert!(ran.code < 2, "{end}: {ran:?}");
    }
}

#[test]
fn captures_with_any_byte_wrong() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY);
    let whole = capture(TRAFFIC);
    for at in (0..56).chain((56..whole.len()).step_by(19)) {
        let mut broken = whole.clone();
        broken[at] ^= 0xff;
        sandbox.put("broken.pcap", broken);
        let ran = sandbox.run("replay p.weir --in broken.pcap --engine eval");
        assert!(ran.code < 2, "{at}: {ran:?}");
    }
}

#[test]
fn files_of_another_kind() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put("empty", "").put("noise", [0xff, 0, 0x80, 0x0a].repeat(500));
    sandbox.put("t.pcap", capture(TRAFFIC)).put("folder/file", "");
    for not_a_policy in ["noise", "t.pcap", "folder", "/dev/null/x"] {
        for line in [
            "check POLICY --quick",
            "replay POLICY --in t.pcap",
            "compile POLICY -o b",
            "diff p.weir POLICY --in t.pcap",
        ] {
            sandbox.run(&line.replace("POLICY", not_a_policy)).fails(2, &[not_a_policy]);
        }
    }
    sandbox.put("none", "# nothing\n").put("tables", "table t { type ipv4; elements = { 192.0.2.1 } }\n");
    for empty in ["empty", "none", "tables"] {
        for line in [
            "check POLICY --quick",
            "replay POLICY --in t.pcap --engine eval",
            "compile POLICY -o b",
            "diff p.weir POLICY --in t.pcap",
        ] {
            sandbox.run(&line.replace("POLICY", empty)).fails(2, &["E0322", "every packet would pass"]);
        }
    }
    sandbox.put("meant", "upstream { accept }\ndownstream { accept }\n");
    assert_eq!(sandbox.run("replay meant --in t.pcap --engine eval --json").json()["passed"], 3);
    for not_a_capture in ["noise", "p.weir", "empty", "folder"] {
        sandbox.run(&format!("replay p.weir --in {not_a_capture} --engine eval")).fails(1, &[not_a_capture]);
        sandbox.run(&format!("why p.weir --in {not_a_capture} --packet 1")).fails(1, &[not_a_capture]);
    }
}

#[test]
fn bundles_damaged_anywhere() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put("t.pcap", capture(TRAFFIC));
    assert_eq!(sandbox.run("compile p.weir -o whole").code, 0);
    let whole = std::fs::read(sandbox.path("whole")).unwrap();
    let step = whole.len() / 40;
    for at in (600..whole.len()).step_by(step.max(1)) {
        sandbox.put("cut", &whole[..at]);
        let ran = sandbox.run("replay cut --in t.pcap --engine eval");
        assert!(ran.code > 0, "cut at {at}: {ran:?}");
        let mut broken = whole.clone();
        broken[at] ^= 1;
        sandbox.put("broken", &broken);
        // A flipped bit in the padding between the parts has no effect.
        sandbox.run("replay broken --in t.pcap --engine native");
    }
}

#[test]
fn names_that_mean_something_elsewhere() {
    let sandbox = Sandbox::new();
    let names: [&[u8]; 9] = [
        b"-.weir",
        b"a b.weir",
        b"*.weir",
        b"x\\.weir",
        b"d/*.weir",
        b"\xc3\xa4.weir",
        b"\xff.weir",
        b"%s\".weir",
        b"line\n.weir",
    ];
    sandbox.put("t.pcap", capture(TRAFFIC));
    for name in names {
        let name = OsStr::from_bytes(name);
        sandbox.put(name, POLICY);
        for &engine in ENGINES {
            let words = ["replay", "--in", "t.pcap", "--engine", engine, "--"].map(OsStr::new);
            let ran = sandbox.run_with(words.into_iter().chain([name]), |_| {});
            assert_eq!(ran.code, 0, "{name:?}: {ran:?}");
        }
    }
}

/// A named pipe works too. `-` is an ordinary file name where a policy is expected.
#[test]
fn files_from_pipes() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put("t.pcap", capture(TRAFFIC));
    sandbox.run("check - --quick").fails(2, &["-: No such file"]);
    let piped = |line: &str, file: &str| {
        let input = std::fs::File::open(sandbox.path(file)).expect("it was just written");
        sandbox.run_with(line.split_whitespace(), |command| _ = command.stdin(input))
    };
    assert_eq!(piped("replay p.weir --in /dev/stdin --engine eval --json", "t.pcap").json()["packets"], 3);
    assert_eq!(piped("replay /dev/stdin --in t.pcap --engine eval --json", "p.weir").json()["packets"], 3);
}

/// Names in a policy that give the same C name remain different.
#[test]
fn names_that_are_alike_in_c() {
    let sandbox = Sandbox::new();
    sandbox.put(
        "t.pcap",
        capture("eth / ip saddr=10.0.0.1 / tcp\neth / ip saddr=10.0.0.2 / tcp\neth / ip saddr=10.0.0.3 / tcp"),
    );
    sandbox.put(
        "p.weir",
        "table t1_a_b { type ipv4; elements = { 10.0.0.1 } }
table a-b    { type ipv4; elements = { 10.0.0.2 } }
table a_b    { type ipv4; elements = { 10.0.0.3 } }
table sampled { type ipv4; elements = { 10.0.0.9 } }
upstream { ip saddr @t1_a_b drop; ip saddr @a_b divert; ip saddr @a-b accept; ip saddr @sampled drop; drop }
downstream { accept }
posture x-y   { upstream { ip saddr @a-b drop; accept } }
posture x_y   { upstream { ip saddr @a_b drop; accept } }
posture while { upstream { drop } }
",
    );
    for &engine in ENGINES {
        let verdicts = |options: &str| {
            let line = format!("replay p.weir --in t.pcap --engine {engine} --json --verdicts {options}");
            sandbox.run(&line).json()["verdicts"].to_string()
        };
        assert_eq!(verdicts(""), r#"["drop","accept","divert"]"#, "{engine}");
        assert_eq!(verdicts("--posture x-y"), r#"["accept","drop","accept"]"#, "{engine}");
        assert_eq!(verdicts("--posture x_y"), r#"["accept","accept","drop"]"#, "{engine}");
        assert_eq!(verdicts("--posture while"), r#"["drop","drop","drop"]"#, "{engine}");
    }
}

/// Standard output that is closed early, as with `| head -1`.
#[test]
fn nobody_reads_the_report() {
    let sandbox = Sandbox::new();
    sandbox.put("p.weir", POLICY).put("t.pcap", capture(TRAFFIC));
    for line in [
        "replay p.weir --in t.pcap --engine eval",
        "replay p.weir --in t.pcap --engine eval --json",
        "check p.weir --quick",
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(line.split_whitespace()).current_dir(sandbox.path("")).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        let mut child = command.spawn().expect("the program was built");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{line}: {stderr}");
    }
}
