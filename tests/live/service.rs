//! `weir run` as a service: readiness, watchdog and status text on the socket of a service manager, and reloads.

use crate::device_under_test::{Running, Setup, TIMEOUT};
use crate::hosts::Hosts;
use crate::put;
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::cell::RefCell;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use weir_command::failure::Failure;
use weir_control::Request;

const OPEN: &str = "upstream { accept }\ndownstream { accept }\nposture high { upstream { drop } }\n";
const OTHER: &str = "upstream { udp drop; accept }\ndownstream { accept }\nposture high { upstream { drop } }\n";
/// Without the posture.
const PLAIN: &str = "upstream { tcp drop; accept }\ndownstream { accept }\n";
const BROKEN: &str = "upstream { udp dorp }\n";

/// What a service manager receives.
struct Manager {
    socket: UnixDatagram,
    /// All messages so far, each a list of lines.
    received: RefCell<Vec<String>>,
}

impl Manager {
    fn listen(folder: &Path) -> Self {
        let socket = UnixDatagram::bind(folder.join("notify.sock")).expect("a new socket");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a socket has timeouts");
        Manager { socket, received: RefCell::default() }
    }

    fn next(&self) -> String {
        let mut bytes = [0; 4096];
        let length = self.socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{error}: {:?}", self.received));
        let text = String::from_utf8(bytes[..length].to_vec()).expect("UTF-8").trim_end().to_owned();
        self.received.borrow_mut().push(text.clone());
        text
    }

    /// Waits for a message that begins so. Returns the messages from then on.
    fn wait_for(&self, begin: &str) -> String {
        loop {
            let message = self.next();
            if message.starts_with(begin) {
                return message;
            }
        }
    }
}

/// Weir between `lower` and `upper`, with the options of `weir.toml` and these.
fn command(folder: &Path, engine: &str, more: &[&str]) -> Command {
    let base = format!("policy = \"edge.weir\"\nengine = \"{engine}\"\nlower = \"lower\"\nupper = \"upper\"\n");
    if !folder.join("weir.toml").exists() {
        put(folder, "weir.toml", &base);
    }
    let mut command = Setup::new(engine).plain();
    command.args(["run", "--config", "weir.toml", "--control", "control.sock"]).args(more);
    command.current_dir(folder).stdin(Stdio::null()).env("NO_COLOR", "1");
    command.env("NOTIFY_SOCKET", folder.join("notify.sock")).env("WATCHDOG_USEC", "300000").env_remove("WATCHDOG_PID");
    command
}

fn start(hosts: &Hosts, folder: &Path, engine: &str, more: &[&str]) -> Running {
    let command = command(folder, engine, more);
    Running::spawn(folder, command, |mut command| hosts.weir.run(move || command.spawn()))
}

fn ctl(folder: &Path, line: &str) -> Output {
    let mut command = Setup::new("").plain();
    command.args(["ctl", "--control", "control.sock"]).args(line.split(' ')).current_dir(folder);
    command.output().expect("the program was built")
}

fn reconfigure(running: &Running) -> Result<Value, Failure> {
    running.ask(&Request::Reconfigure { confirm_s: None })
}

test_on!([afpacket, xdp] a_service_manager_is_told_what_weir_does);
fn a_service_manager_is_told_what_weir_does(engine: &str, hosts: &Hosts, folder: &Path) {
    let manager = Manager::listen(folder);
    put(folder, "edge.weir", OPEN);
    let running = start(hosts, folder, engine, &[]);
    assert_eq!(manager.next(), "READY=1");
    let status = manager.wait_for("STATUS=");
    assert!(status.starts_with("STATUS=generation 1; ") && status.ends_with(" dropped"), "{status}");
    manager.wait_for("WATCHDOG=1");
    manager.wait_for("WATCHDOG=1");
    reconfigure(&running).unwrap_or_else(|failure| panic!("{failure}"));
    let reloading = manager.wait_for("RELOADING=1");
    let (_, usec) = reloading.split_once("\nMONOTONIC_USEC=").expect("the time follows");
    assert!(usec.parse::<u64>().is_ok_and(|usec| usec > 0), "{reloading}");
    manager.wait_for("READY=1");
    assert_eq!(running.status().generation, 2);
    // A reload that fails ends too.
    put(folder, "edge.weir", BROKEN);
    reconfigure(&running).expect_err("the policy is broken");
    manager.wait_for("RELOADING=1");
    manager.wait_for("READY=1");
    assert_eq!(running.stop(), 0);
    manager.wait_for("STOPPING=1");
}

test_on!([afpacket, xdp] a_service_manager_is_told_of_an_upgrade);
fn a_service_manager_is_told_of_an_upgrade(engine: &str, hosts: &Hosts, folder: &Path) {
    let manager = Manager::listen(folder);
    put(folder, "edge.weir", OPEN);
    let running = start(hosts, folder, engine, &[]);
    assert_eq!(manager.next(), "READY=1");
    // Messages are read meanwhile, as a service manager does.
    std::thread::scope(|scope| {
        let upgrading = scope.spawn(|| ctl(folder, "upgrade"));
        let reloading = manager.wait_for("RELOADING=1");
        assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
        // The new program tells the watchdog of its progress before it is ready.
        assert_eq!(manager.next(), "WATCHDOG=1", "{:?}", manager.received);
        manager.wait_for("READY=1");
        let done = upgrading.join().expect("no panic");
        assert!(done.status.success(), "{done:?}\n{}", running.log());
    });
    // A refused one changes nothing, and the status text says why.
    put(folder, "edge.weir", OTHER);
    std::thread::scope(|scope| {
        let upgrading = scope.spawn(|| ctl(folder, "upgrade").status.code());
        let status = manager.wait_for("STATUS=not upgraded: ");
        assert!(status.contains("has changed since it was loaded"), "{status}");
        assert_eq!(upgrading.join().expect("no panic"), Some(2));
    });
    assert_eq!(running.stop(), 0);
    manager.wait_for("STOPPING=1");
}

test_on!([afpacket, xdp] a_reload_with_a_broken_policy_keeps_the_old_one_and_fails);
fn a_reload_with_a_broken_policy_keeps_the_old_one_and_fails(engine: &str, hosts: &Hosts, folder: &Path) {
    let _manager = Manager::listen(folder);
    put(folder, "edge.weir", OPEN);
    let running = start(hosts, folder, engine, &[]);
    running.ask(&Request::Posture { name: Some("high".to_owned()) }).expect("it has this posture");
    put(folder, "edge.weir", BROKEN);
    let failed = ctl(folder, "reconfigure");
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(2) && said.contains("edge.weir:1") && said.contains("dorp"), "{said}");
    let status = running.status();
    assert_eq!((status.generation, status.posture.as_deref()), (1, Some("high")));
    assert_eq!(status.generations.len(), 1, "{status:?}");
    // SIGHUP does the same, and the log has the reason.
    kill(running.pid(), Signal::SIGHUP).expect("it runs");
    running.wait_until("the reason is in the log", |running| running.log().contains("SIGHUP: the configuration"));
    assert!(running.log().contains("dorp") && running.status().generation == 1, "{}", running.log());
    // A correct one is activated in the same posture.
    put(folder, "edge.weir", OTHER);
    kill(running.pid(), Signal::SIGHUP).expect("it runs");
    running.wait_until("another generation", |running| running.status().generation > 1);
    let status = running.status();
    assert_eq!((status.posture.as_deref(), status.rollback_to), (Some("high"), Some(1)), "{status:?}");
    assert!(status.generations.last().is_some_and(|last| last.rules == 4), "{status:?}");
    // Without the posture, the base policy decides, and the answer says so.
    put(folder, "edge.weir", PLAIN);
    let done = ctl(folder, "reconfigure");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("has no posture high any more"), "{said}");
    assert_eq!(running.status().posture, None);
    assert_eq!(running.stop(), 0);
}

test_on!([afpacket] what_needs_a_restart_is_said_by_key);
fn what_needs_a_restart_is_said_by_key(engine: &str, hosts: &Hosts, folder: &Path) {
    let _manager = Manager::listen(folder);
    put(folder, "edge.weir", OPEN);
    put(folder, "new.weir", OTHER);
    let running = start(hosts, folder, engine, &["--workers", "1"]);
    let base = format!("policy = \"new.weir\"\nengine = \"{engine}\"\nlower = \"lower\"\nupper = \"upper\"\n");
    // The command line still says how many workers there are.
    put(folder, "weir.toml", &format!("{base}workers = 3\nlimits-log = \"log.json\"\ncarry-link = true\n"));
    let answer = reconfigure(&running).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(answer["restart"], serde_json::json!(["carry-link", "limits-log"]), "{answer}");
    assert!(answer["policy"].as_str().is_some_and(|policy| policy.ends_with("/new.weir")), "{answer}");
    // A mistake in the file changes nothing.
    put(folder, "weir.toml", &format!("{base}worker = 3\n"));
    let refused = reconfigure(&running).expect_err("there is no such key").to_string();
    assert!(refused.contains("did you mean `workers`?") && refused.contains("weir.toml:5:1"), "{refused}");
    fs::remove_file(folder.join("weir.toml")).expect("it is there");
    let refused = reconfigure(&running).expect_err("there is no file").to_string();
    assert!(refused.contains("weir.toml") && refused.contains("No such file"), "{refused}");
    // A trial is not extended by a reload.
    put(folder, "weir.toml", &base);
    running.ask(&Request::Activate { generation: 1, confirm_s: Some(3600.0) }).expect("it is ready");
    let refused = reconfigure(&running).expect_err("a policy is on trial").to_string();
    assert!(refused.contains("a policy is on trial"), "{refused}");
    running.ask(&Request::Confirm).expect("it is on trial");
    let answer = running.ask(&Request::Reconfigure { confirm_s: Some(3600.0) }).expect("nothing is on trial");
    assert_eq!(Some(running.status().generation), answer["generation"].as_u64());
    assert!(running.status().confirm_left_s.is_some());
    assert_eq!(running.stop(), 0);
}

test_on!([afpacket] without_a_configuration_there_is_nothing_to_read_again);
fn without_a_configuration_there_is_nothing_to_read_again(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", OPEN);
    let running = Running::start(&hosts.weir, folder, "edge.weir", engine, 1);
    let refused = reconfigure(&running).expect_err("there is no configuration").to_string();
    assert!(refused.contains("start Weir with --config"), "{refused}");
    assert_eq!(running.stop(), 0);
}

/// Waits until the generation is kept.
fn wait_until_kept(running: &Running, generation: u64) {
    running.wait_until("the policy is kept", |running| {
        let kept = running.status().kept.expect("it keeps policies");
        assert_eq!(kept.error, None);
        kept.generation == Some(generation)
    });
}

const LISTED: &str = "table bad { type ipv4; file \"bad.txt\" }\nupstream { ip saddr @bad drop; accept }\n\
                      downstream { accept }\n";
const KEEP: [&str; 3] = ["--state", "state", "--keep-confirmed"];

test_on!([afpacket, xdp] after_a_crash_the_last_confirmed_policy_decides_if_the_file_is_broken);
fn after_a_crash_the_last_confirmed_policy_decides_if_the_file_is_broken(engine: &str, hosts: &Hosts, folder: &Path) {
    let manager = Manager::listen(folder);
    put(folder, "bad.txt", "192.0.2.0/24\n");
    put(folder, "edge.weir", LISTED);
    let running = start(hosts, folder, engine, &KEEP);
    wait_until_kept(&running, 1);
    // What is on trial is not kept.
    put(folder, "edge.weir", OTHER);
    let answer = running.ask(&Request::Reconfigure { confirm_s: Some(3600.0) }).expect("nothing is on trial");
    assert_eq!(running.status().kept.and_then(|kept| kept.generation), Some(1), "{answer}");
    running.kill();
    // Neither the policy nor its list are left.
    put(folder, "edge.weir", BROKEN);
    fs::remove_file(folder.join("bad.txt")).expect("it is there");
    let running = start(hosts, folder, engine, &KEEP);
    let status = running.status();
    let kept = status.kept.expect("it keeps policies");
    assert!(kept.policy.as_ref().is_some_and(|policy| policy.ends_with("/edge.weir")), "{kept:?}");
    assert!(kept.in_place_of.as_ref().is_some_and(|why| why.contains("edge.weir:1")), "{kept:?}");
    assert_eq!(status.generations[0].rules, 3, "{:?}", status.generations);
    let found = ctl(folder, "table bad get 192.0.2.7");
    assert!(found.status.success(), "its list is in it: {found:?}");
    let text = ctl(folder, "status");
    let text = String::from_utf8_lossy(&text.stdout);
    assert!(text.contains("STARTED WITH THE LAST CONFIRMED POLICY") && text.contains("edge.weir:1"), "{text}");
    let log = running.log();
    assert!(log.contains("dorp") && log.contains("starts with the last confirmed policy, which was /"), "{log}");
    let said = loop {
        let said = manager.wait_for("STATUS=");
        if !said.starts_with("STATUS=generation") {
            break said;
        }
    };
    assert!(said.starts_with("STATUS=the last confirmed policy decides"), "{said}");
    // The kept policy stays kept, and a corrected one takes its place.
    put(folder, "edge.weir", PLAIN);
    let answer = reconfigure(&running).unwrap_or_else(|failure| panic!("{failure}"));
    wait_until_kept(&running, answer["generation"].as_u64().expect("a number"));
    assert_eq!(running.status().kept.and_then(|kept| kept.in_place_of), None);
    let files = fs::read_dir(folder.join("state/confirmed")).expect("a folder").count();
    assert_eq!(files, 2, "one bundle and its description");
    assert_eq!(running.stop(), 0);
}

test_on!([afpacket] without_a_kept_policy_a_broken_one_is_refused);
fn without_a_kept_policy_a_broken_one_is_refused(engine: &str, hosts: &Hosts, folder: &Path) {
    let refused = |words: &[&str]| {
        let mut command = command(folder, engine, &KEEP);
        let output = hosts.weir.run(move || command.output()).expect("the program was built");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
        output.status.code()
    };
    put(folder, "edge.weir", BROKEN);
    assert_eq!(refused(&["edge.weir:1", "dorp", "no confirmed policy is kept"]), Some(2));
    // What others can write is not used: neither the folder nor the bundle.
    put(folder, "edge.weir", OPEN);
    let _manager = Manager::listen(folder);
    let running = start(hosts, folder, engine, &KEEP);
    wait_until_kept(&running, 1);
    assert_eq!(running.stop(), 0);
    put(folder, "edge.weir", BROKEN);
    let confirmed = folder.join("state/confirmed");
    let bundle = fs::read_dir(&confirmed).expect("a folder").map(|entry| entry.expect("an entry").path());
    let bundle = bundle.into_iter().find(|path| path.extension().is_some_and(|end| end == "weirb")).expect("a bundle");
    let set_mode = |path: &Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).expect("it is ours");
    };
    set_mode(&confirmed, 0o777);
    assert_eq!(refused(&["no confirmed policy can be read", "mode 0777", "dorp"]), Some(2));
    set_mode(&confirmed, 0o700);
    set_mode(&bundle, 0o666);
    assert_eq!(refused(&["dorp", "does not load either", "mode 0666"]), Some(1));
    // A damaged one neither.
    set_mode(&bundle, 0o600);
    fs::write(&bundle, "upstream { accept }").expect("it is ours");
    assert!(refused(&["dorp", "does not load either"]).is_some_and(|code| code > 0));
}
