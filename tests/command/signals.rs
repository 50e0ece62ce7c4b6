//! Commands that are terminated while clang compiles: they leave no processes and no files behind.

use crate::weir::{Sandbox, between};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use weir_test_support::program::install_script;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A sandbox with a policy that clang compiles for seconds, and a folder for temporary files.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    let rule = |n: u32| format!("  tcp dport {} tcp sport {} ip ttl {} drop\n", n + 1, n + 2000, n % 200 + 1);
    let rules: String = (0..1500).map(rule).collect();
    sandbox.put("p.weir", format!("upstream {{\n{rules}  accept\n}}\ndownstream {{ accept }}\n"));
    sandbox.put_capture("t.pcap", "eth / arp");
    fs::create_dir(sandbox.path("tmp")).expect("the sandbox can be written");
    sandbox
}

fn start(sandbox: &Sandbox, line: &str) -> Child {
    let mut command = between(line);
    command.current_dir(sandbox.path("")).env("TMPDIR", sandbox.path("tmp"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program was built")
}

/// Processes whose command line contains the folder.
fn compilers(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().expect("a plain name");
    let processes = fs::read_dir("/proc").expect("/proc is there").flatten();
    let command_line = |process: fs::DirEntry| fs::read(process.path().join("cmdline")).ok();
    let lines = processes.filter_map(command_line).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}

fn entries(folder: &Path) -> usize {
    fs::read_dir(folder).expect("it is there").count()
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < TIMEOUT, "not so in time: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn send(signal: Signal, child: &Child) {
    kill(Pid::from_raw(child.id() as i32), signal).expect("it is our child");
}

/// Terminates the command as soon as clang runs.
fn end(sandbox: &Sandbox, line: &str, signal: Signal) -> std::process::ExitStatus {
    let tmp = sandbox.path("tmp");
    let mut child = start(sandbox, line);
    wait_for("clang runs", || compilers(&tmp).iter().any(|line| line.contains(".c ")));
    send(signal, &child);
    child.wait().expect("it ends")
}

#[test]
fn a_signal_ends_compilers_and_removes_their_folders() {
    let sandbox = sandbox();
    let tmp = sandbox.path("tmp");
    let run = "run p.weir --engine afpacket --lower lower --upper upper --control weir.sock";
    for (line, signal, number) in [
        ("check p.weir", Signal::SIGTERM, Some(15)),
        ("check p.weir", Signal::SIGINT, Some(2)),
        ("check p.weir", Signal::SIGHUP, Some(1)),
        ("replay p.weir --in t.pcap --engine native --out out.pcap", Signal::SIGTERM, Some(15)),
        ("replay p.weir --in t.pcap --engine xdp", Signal::SIGINT, Some(2)),
        ("diff p.weir p.weir --in t.pcap", Signal::SIGTERM, Some(15)),
        ("compile p.weir -o b", Signal::SIGTERM, Some(15)),
        // It ends in order.
        (run, Signal::SIGTERM, None),
        (run, Signal::SIGINT, None),
    ] {
        let status = end(&sandbox, line, signal);
        assert_eq!(status.signal(), number, "{line} {signal}: {status}");
        assert_eq!(entries(&tmp), 0, "{line} {signal}");
        assert_eq!(compilers(&tmp), Vec::<String>::new(), "{line} {signal}");
    }
    let left: Vec<bool> = ["out.pcap", "b", "weir.sock"].iter().map(|name| sandbox.path(name).exists()).collect();
    assert_eq!(left, [false; 3]);
}

/// SIGKILL prevents all cleanup. The kernel ends the compiler, and the next command removes the folder.
#[test]
fn what_a_killed_command_leaves_goes_with_the_next() {
    let sandbox = sandbox();
    let tmp = sandbox.path("tmp");
    for line in ["check p.weir", "replay p.weir --in t.pcap --engine xdp"] {
        end(&sandbox, line, Signal::SIGKILL);
        wait_for("the compiler ends", || compilers(&tmp).is_empty());
        assert_eq!(entries(&tmp), 1);
        sandbox.put("small.weir", "upstream { accept }\ndownstream { accept }\n");
        assert!(start(&sandbox, "replay small.weir --in t.pcap --engine native").wait().unwrap().success());
        assert_eq!(entries(&tmp), 0, "{line}");
    }
}

/// `nohup weir check` survives its terminal.
#[test]
fn an_ignored_signal_stays_ignored() {
    let sandbox = sandbox();
    sandbox.put("small.weir", "upstream { accept }\ndownstream { accept }\n");
    let slow = "#!/bin/sh\ncase $1 in *.c) touch started; sleep 1;; esac\nexec clang-19 \"$@\"\n";
    install_script(slow, &sandbox.path("slow")).expect("the sandbox can be written");
    let script =
        format!("trap '' HUP; exec {} replay small.weir --in t.pcap --engine native", env!("CARGO_BIN_EXE_weir"));
    let mut command = Command::new("sh");
    command
        .args(["-c", &script])
        .current_dir(sandbox.path(""))
        .env("WEIR_CLANG", sandbox.path("slow"))
        .stdout(Stdio::null());
    let mut child = command.spawn().expect("sh is there");
    wait_for("clang runs", || sandbox.path("started").exists());
    send(Signal::SIGHUP, &child);
    assert!(child.wait().unwrap().success());
}
