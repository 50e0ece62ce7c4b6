//! Failures around a running policy: removed interfaces, failing compilers, damaged bundles, clients without
//! permission.

use crate::device_under_test::{Running, Setup};
use crate::hosts::Hosts;
use crate::traffic::{Listener, flows, frames, send, send_on_queue};
use crate::{check_account, put};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use weir_command::failure::Failure;
use weir_control::Request;
use weir_test_support::program::{install, install_script};

const ALL: &str =
    "upstream { accept }\ndownstream { accept }\nposture shut { upstream { drop } downstream { drop } }\n";
/// Maximum number of simultaneous clients.
const CLIENTS_MAX: usize = 32;

each_kernel_engine!(an_interface_that_is_removed_ends_it_and_leaves_nothing);
fn an_interface_that_is_removed_ends_it_and_leaves_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    is_removed("lower", engine, hosts, folder);
    // These hosts do not have the removed interface.
    is_removed("upper", engine, &Hosts::new(), folder);
}

fn is_removed(gone: &str, engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let mut running = Running::start(&hosts.weir, folder, "all.weir", engine, 2);
    send(&hosts.client, "c", &flows(10, 1, 9));
    running.wait_for("packets pass", |stats| stats.upstream.total.packets >= 10);
    hosts.weir.ip(&format!("link del dev {gone}"));
    assert_eq!(running.ends(), Some(1), "{engine}, {gone}: {}", running.log());
    let log = running.log();
    assert!(log.contains(&format!("interface {gone}: it was removed")), "{engine}: {log}");
    assert!(!folder.join("control.sock").exists(), "{engine}, {gone}");
    let other = if gone == "lower" { "upper" } else { "lower" };
    let link = hosts.link(other);
    assert!(link["xdp"].is_null() && link["promiscuity"].as_u64().unwrap_or(0) == 0, "{engine}: {link:#}");
}

/// Checks that a policy is refused with these words, that nothing changes, and that packets pass as before.
fn check_refused(hosts: &Hosts, running: &Running, policy: &Path, words: &[&str]) {
    let before = running.status();
    let failure = running.ask(&Request::Load { policy: policy.to_owned() }).expect_err("it is refused").to_string();
    assert!(words.iter().all(|word| failure.contains(word)), "{words:?}: {failure}");
    let after = running.status();
    assert_eq!((after.generation, after.activations), (before.generation, before.activations));
    assert_eq!(after.generations.len(), before.generations.len());
    let (at_server, sent) = (Listener::at(&hosts.server, "s"), flows(10, 2, 9));
    let counted = running.stats().upstream.total.packets;
    send(&hosts.client, "c", &sent);
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= counted + 20);
    assert_eq!(stats.upstream.total.dropped, 0);
    check_account(&running.settled());
    assert_eq!(at_server.received(sent.len()), sent);
}

each_engine!(a_compiler_that_fails_changes_nothing);
fn a_compiler_that_fails_changes_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    // This compiler works until the file `broken` exists.
    let broken = folder.join("broken");
    let clang = folder.join("clang");
    let script = format!(
        "#!/bin/sh\nif [ $1 != --version -a -e {} ]; then echo broken on purpose >&2; exit 1; fi\nexec clang-19 \"$@\"\n",
        broken.display()
    );
    install_script(&script, &clang).expect("the folder can be written to");
    let environment = vec![("WEIR_CLANG".to_owned(), clang.display().to_string())];
    let setup = Setup { environment, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "all.weir", &setup);
    fs::write(&broken, "").expect("the folder can be written to");
    put(folder, "new.weir", "upstream { udp dport 9 drop; accept }\ndownstream { accept }\n");
    check_refused(hosts, &running, &folder.join("new.weir"), &["broken on purpose"]);
    // Once the compiler works again, policies load.
    fs::remove_file(&broken).expect("it is there");
    let new = running.load(&folder.join("new.weir"));
    running.ask(&Request::Activate { generation: new, confirm_s: None }).expect("it is ready");
    assert_eq!(running.stop(), 0);
}

#[test]
fn rules_that_are_too_much_for_one_program_run_in_parts() {
    const RULES: usize = 4000;
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "all.weir", ALL);
    let rules: String = (0..RULES).map(|n| format!("udp dport {} udp sport {} drop\n", 10 + n, n + 1)).collect();
    put(folder, "long.weir", &format!("upstream {{\n{rules}accept\n}}\ndownstream {{ accept }}\n"));
    let running = Running::start(&hosts.weir, folder, "all.weir", "xdp", 1);
    let long = running.load(&folder.join("long.weir"));
    running.ask(&Request::Activate { generation: long, confirm_s: None }).expect("it is ready");
    let packet = |sport: usize, dport: usize| {
        frames(&format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport={sport} dport={dport}\n"))
    };
    // The first rule, the last rule, and packets that no rule drops.
    for (sport, dport) in [(1, 10), (RULES, 9 + RULES), (9, 9)] {
        send(&hosts.client, "c", &packet(sport, dport));
    }
    let stats = running.wait_for("all are counted", |stats| stats.upstream.current.packets >= 3);
    let current = &stats.upstream.current;
    assert_eq!((current.dropped, current.passed), (2, 1), "{stats:#?}");
    let hits = |rule: usize| current.rules[rule].packets;
    assert_eq!((hits(0), hits(RULES - 1), hits(RULES)), (1, 1, 1), "{stats:#?}");
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_engine!(a_damaged_bundle_changes_nothing);
fn a_damaged_bundle_changes_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let bundle = folder.join("all.weirb");
    let compiled = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["compile", "all.weir", "-o"])
        .arg(&bundle)
        .current_dir(folder)
        .output()
        .expect("the program was built");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let whole = fs::read(&bundle).expect("it was written");
    let damaged = folder.join("damaged.weirb");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 0x40;
    for bytes in [&whole[..whole.len() / 2], &flipped, &whole[..600]] {
        fs::write(&damaged, bytes).expect("the folder can be written to");
        check_refused(hosts, &running, &damaged, &["damaged.weirb"]);
    }
    running.load(&bundle);
    assert_eq!(running.stop(), 0);
}

each_kernel_engine!(only_trusted_bundles_are_loaded);
/// `run --trust` also applies to `ctl load`. Without it, the owner of the bundle's file decides.
fn only_trusted_bundles_are_loaded(engine: &str, hosts: &Hosts, folder: &Path) {
    let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA3B3suLY3rC/fMiyuuS9bUSQR5QniSXxieq/L31A4BVg=\n-----END PUBLIC KEY-----\n";
    let private = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAvXjbCCml6XIxcjWFG8xW9xL4jwXft+6MSSXTWOjLst\n-----END PRIVATE KEY-----\n";
    let compile = |folder: &Path, more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let compiled = command.args(["compile", "all.weir"]).args(more).current_dir(folder).output();
        assert!(compiled.expect("the program was built").status.success(), "{more:?}");
    };
    put(folder, "all.weir", ALL);
    put(folder, "weir.pub", public);
    put(folder, "weir.key", private);
    compile(folder, &["-o", "signed.weirb", "--sign", "weir.key"]);
    compile(folder, &["-o", "plain.weirb"]);
    let more = vec!["--trust".to_owned(), "weir.pub".to_owned()];
    let setup = Setup { more, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "signed.weirb", &setup);
    check_refused(hosts, &running, &folder.join("plain.weirb"), &["plain.weirb: is not signed"]);
    let loaded = running.load(&folder.join("signed.weirb"));
    running.ask(&Request::Activate { generation: loaded, confirm_s: None }).expect("it is ready");
    assert_eq!(running.stop(), 0);

    let running = Running::start(&hosts.weir, folder, "plain.weirb", engine, 1);
    let opened = fs::Permissions::from_mode(0o666);
    fs::set_permissions(folder.join("plain.weirb"), opened).expect("it is ours");
    check_refused(hosts, &running, &folder.join("plain.weirb"), &["its code is not run", "mode 0666"]);
    assert_eq!(running.stop(), 0);
}

each_engine!(several_clients_are_answered_at_once);
fn several_clients_are_answered_at_once(engine: &str, hosts: &Hosts, folder: &Path) {
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 40;
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let running = &running;
            scope.spawn(move || {
                for number in 0..REQUESTS {
                    let request = match (client + number) % 4 {
                        0 => Request::Status,
                        1 => Request::Stats,
                        2 => Request::Posture { name: Some("shut".to_owned()) },
                        _ => Request::Posture { name: None },
                    };
                    running.ask(&request).unwrap_or_else(|failure| panic!("{engine}: {failure}"));
                }
            });
        }
    });
    assert_eq!(running.status().activations, 1 + (CLIENTS * REQUESTS / 2) as u64);

    // Idle clients count too, and release their slots when they disconnect.
    let mut idle = Vec::new();
    running.wait_until("those that are done have gone", |running| {
        idle.extend(connect(running.control()));
        idle.len() == CLIENTS_MAX
    });
    let failure = running.ask(&Request::Status).expect_err("there are too many");
    assert!(matches!(&failure, Failure::Runtime(stderr) if stderr.contains("more than 32 clients")), "{failure}");
    drop(idle);
    running.wait_until("there is room again", |running| running.ask(&Request::Status).is_ok());
    assert_eq!(running.stop(), 0);
}

/// A client that was answered once and stays connected. None if there are too many clients.
fn connect(control: &Path) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(control).expect("it listens");
    // A refused client may be disconnected before it sends its request.
    let _hung_up = stream.write_all(b"\"status\"\n");
    let mut start = [0; 5];
    stream.read_exact(&mut start).expect("it answers");
    (&start == b"{\"ok\"").then_some(stream)
}

each_engine!(only_the_owner_and_root_are_answered);
fn only_the_owner_and_root_are_answered(engine: &str, hosts: &Hosts, folder: &Path) {
    const NOBODY: u32 = 65534;
    put(folder, "all.weir", ALL);
    let running = Running::start(&hosts.weir, folder, "all.weir", engine, 1);
    let control = running.control().to_owned();
    let own = fs::metadata(folder).expect("it is there").uid();
    let socket = fs::metadata(&control).expect("it is there");
    assert_eq!((socket.mode() & 0o777, socket.uid()), (0o600, own));
    let program = folder.join("weir");
    install(env!("CARGO_BIN_EXE_weir").as_ref(), &program).expect("the program was built");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let ask = |uid: u32| {
        let mut command = Command::new(&program);
        command.args(["ctl", "--control"]).arg(&control).arg("status").uid(uid).gid(uid);
        command.output().expect("it was copied")
    };
    assert_eq!(ask(0).status.code(), Some(0));
    let refused = ask(NOBODY);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    let help =
        format!("Permission denied (os error 13); the socket belongs to user {own}: run as root or as that user");
    assert!(refused.status.code() == Some(1) && stderr.contains(&help), "{engine}: {stderr}");
    // Even if the socket's mode permits every user to connect.
    fs::set_permissions(&control, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let refused = ask(NOBODY);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    let expected = format!("permission denied to user {NOBODY}: run as root or as user {own}, who started Weir");
    assert!(refused.status.code() == Some(1) && stderr.contains(&expected), "{engine}: {stderr}");
    assert_eq!(running.stop(), 0);
}

#[test]
fn a_worker_that_polls_passes_what_one_that_sleeps_does() {
    let busy = |engine: &str| Setup { more: vec!["--busy-poll".to_owned()], workers: 2, ..Setup::new(engine) };
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "all.weir", ALL);
    let running = Running::start_as(&hosts.weir, folder, "all.weir", &busy("afxdp"));
    let (at_server, at_client) = (Listener::at(&hosts.server, "s"), Listener::at(&hosts.client, "c"));
    let sent = flows(16, 64, 9);
    for queue in 0..2 {
        send_on_queue(&hosts.client, "c", queue, &sent);
        send_on_queue(&hosts.server, "s", queue, &sent);
    }
    let all = 2 * sent.len() as u64;
    running.wait_for("all are counted", |stats| {
        stats.upstream.total.packets >= all && stats.downstream.total.packets >= all
    });
    check_account(&running.settled());
    let all = 2 * sent.len();
    assert_eq!((at_server.received(all).len(), at_client.received(all).len()), (all, all));
    assert_eq!(running.stop(), 0);

    let other = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["run", "all.weir", "--engine", "afpacket", "--lower", "a", "--upper", "b", "--busy-poll"])
        .current_dir(folder)
        .output()
        .expect("the program was built");
    let stderr = String::from_utf8_lossy(&other.stderr);
    assert!(other.status.code() == Some(2) && stderr.contains("--busy-poll is only for the engine afxdp"), "{stderr}");
}
