//! `weir top` without a terminal: recordings, one screen, one snapshot.

use crate::weir::Sandbox;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// After this time, what has not ended hangs.
const HANGS: Duration = Duration::from_secs(60);

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
        ("top --picture a.svg", 2, "--from"),
        ("top --from r.jsonl --picture a.svg --once", 2, "cannot be used with"),
        ("top --from r.jsonl --picture a.svg --captions r.jsonl", 2, "r.jsonl:1: a caption begins with its time"),
        ("top --from r.jsonl --picture none/a.svg", 1, "none/a.svg: No such file"),
        ("top --size 80x24", 2, "required"),
        ("top --once --size 0x9", 2, "80x24"),
    ] {
        sandbox.run(line).fails(code, &[word]);
    }
}

#[test]
fn a_recording_is_drawn() {
    let sandbox = Sandbox::new();
    sandbox.put("r.jsonl", RECORDING).put("captions", "1.5 it is gone\n");
    let ran = sandbox.run("top --from r.jsonl --picture a.svg --captions captions --size 60x20");
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
    let svg = std::fs::read_to_string(sandbox.path("a.svg")).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.contains(">it is gone</text>"), "{svg}");
}

/// The terminal of a screen is closed without a signal, as for a process without a controlling terminal.
#[test]
fn the_screen_ends_with_its_terminal() {
    let sandbox = Sandbox::new();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(&size, None).expect("a terminal");
    for end in [&pty.master, &pty.slave] {
        fcntl_setfd(end, FdFlags::CLOEXEC).expect("descriptors have flags");
    }
    let [input, output] = [(); 2].map(|()| Stdio::from(pty.slave.try_clone().expect("a descriptor")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["top", "--control"]).arg(sandbox.path("none.sock")).stdin(input).stdout(output).stderr(pty.slave);
    let mut child = command.spawn().expect("the program was built");
    // The command holds the terminal too.
    drop(command);
    let (mut terminal, mut shown) = (File::from(pty.master), Vec::new());
    while !String::from_utf8_lossy(&shown).contains("none.sock") {
        let mut part = [0; 4096];
        let length = terminal.read(&mut part).expect("the screen is drawn");
        shown.extend_from_slice(&part[..length]);
    }
    drop(terminal);
    let pid = Pid::from_raw(child.id() as i32);
    let (ended, ends) = channel();
    thread::spawn(move || ended.send(child.wait().expect("it was started")));
    let status = ends.recv_timeout(HANGS).unwrap_or_else(|_| {
        kill(pid, Signal::SIGKILL).expect("it is there");
        panic!("it reads a terminal that is closed");
    });
    assert_eq!(status.code(), Some(1), "{status}");
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
