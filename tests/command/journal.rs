//! Messages in the journal of systemd. Needs root, for a mount namespace with a journal of the test.

use crate::weir::Sandbox;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

/// Puts `$0` in the place of the folder of the journal's socket. Standard error goes to the file `log`.
const PRIVATE_JOURNAL: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
     mount --bind \"$0\" /run/systemd/journal && exec \"$@\" 2>>log";
/// A start that says something of the level info and then fails.
const START: &str = "run --config weir.toml --lower nosuch2 --control weir.sock";

/// Runs the program with standard error in `log`, which `JOURNAL_STREAM` names by its inode and `more`. Returns `log`.
fn run(sandbox: &Sandbox, more: u64) -> String {
    sandbox
        .put("edge.weir", "upstream { accept }\ndownstream { accept }\n")
        .put("weir.toml", "policy = \"edge.weir\"\nengine = \"afpacket\"\nlower = \"nosuch0\"\nupper = \"nosuch1\"\n");
    let log = File::create(sandbox.path("log")).and_then(|file| file.metadata()).expect("a new file");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", PRIVATE_JOURNAL]).arg(sandbox.path("journal"));
    command.arg(env!("CARGO_BIN_EXE_weir")).args(START.split(' ')).current_dir(sandbox.path(""));
    command.env("JOURNAL_STREAM", format!("{}:{}", log.dev(), log.ino() + more));
    let status = command.status().expect("unshare runs");
    assert_eq!(status.code(), Some(1));
    fs::read_to_string(sandbox.path("log")).expect("it is UTF-8")
}

#[test]
fn messages_are_entries_with_levels_and_the_last_one_is_a_line() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("journal")).expect("a new folder");
    let journal = UnixDatagram::bind(sandbox.path("journal/socket")).expect("a new socket");
    journal.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket has timeouts");
    let error = run(&sandbox, 0);
    assert!(error.starts_with("<3>") && error.contains("nosuch2") && error.lines().count() == 1, "{error}");
    let mut bytes = [0; 4096];
    let length = journal.recv(&mut bytes).expect("an entry");
    let info = bytes[..length].escape_ascii().to_string();
    assert!(info.starts_with("PRIORITY=6\\nSYSLOG_IDENTIFIER=weir\\nMESSAGE\\n"), "{info}");
    assert!(info.contains("weir: `--lower` of the command line"), "{info}");
    journal.set_nonblocking(true).expect("it is a socket");
    assert!(journal.recv(&mut bytes).is_err(), "the journal may read an entry after the process has ended");
}

#[test]
fn without_the_socket_of_the_journal_lines_have_levels() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("journal")).expect("a new folder");
    let log = run(&sandbox, 0);
    let levels: Vec<&str> = log.lines().filter_map(|line| line.get(..3)).collect();
    assert_eq!(levels, ["<6>", "<3>"], "{log}");
}

#[test]
fn another_stream_is_not_the_journal() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("journal")).expect("a new folder");
    let _journal = UnixDatagram::bind(sandbox.path("journal/socket")).expect("a new socket");
    let log = run(&sandbox, 1);
    assert!(log.starts_with("weir: `--lower` of the command line") && log.lines().count() == 2, "{log}");
}
