//! `weir run --confirm`: until the first policy is confirmed, everything passes as soon as Weir ends, in whatever way.

use crate::device_under_test::{HOST, Running, Setup, TIMEOUT, wait_until};
use crate::exits::{Echo, End, SILENCE, passes};
use crate::hosts::{CLIENT, Hosts, SERVER};
use crate::put;
use std::path::Path;
use weir_control::Request;

/// Shuts all clients out, also when Weir ends.
const SHUT: &str = "on-exit block\nupstream { drop }\ndownstream { drop }\n";
const BLOCK: &str = "on-exit block\nupstream { accept }\ndownstream { accept }\n";
const FORWARD: &str = "on-exit forward\nupstream { accept }\ndownstream { accept }\n";
/// Longer than a test.
const LONG: &str = "1h";

fn setup(engine: &str, more: &[&str]) -> Setup {
    Setup { more: more.iter().map(|&word| word.to_owned()).collect(), ..Setup::new(engine) }
}

fn start(engine: &str, hosts: &Hosts, folder: &Path, policy: &str, more: &[&str]) -> Running {
    put(folder, "first.weir", policy);
    Running::start_as(&hosts.weir, folder, "first.weir", &setup(engine, more))
}

test_on!([afpacket, afxdp, xdp, host] a_first_policy_that_nobody_confirms_ends_and_everything_passes);
fn a_first_policy_that_nobody_confirms_ends_and_everything_passes(engine: &str, hosts: &Hosts, folder: &Path) {
    let _echo = Echo::start(hosts);
    let mut running = start(engine, hosts, folder, SHUT, &["--confirm", "3s"]);
    assert_eq!(running.ends(), Some(1), "{}", running.log());
    let log = running.log();
    assert!(log.contains("on trial: unless `weir ctl confirm` comes within 3s"), "{log}");
    assert!(log.contains("the first policy was not confirmed: weir has ended and everything passes"), "{log}");
    assert!(passes(hosts, TIMEOUT), "{engine}: {log}");
}

test_on!([afpacket, afxdp, xdp, host] whatever_ends_a_first_policy_before_it_is_confirmed_everything_passes);
fn whatever_ends_a_first_policy_before_it_is_confirmed_everything_passes(engine: &str, hosts: &Hosts, folder: &Path) {
    let _echo = Echo::start(hosts);
    for end in [End::Told, End::Killed] {
        let running = start(engine, hosts, folder, SHUT, &["--confirm", LONG]);
        let status = running.status();
        assert!(status.confirm_left_s.is_some_and(|left| left > 0.0), "{status:?}");
        assert_eq!((status.on_exit.as_str(), status.rollback_to), ("forward", None));
        assert!(!passes(hosts, SILENCE), "{engine}: it decides");
        end.of(running);
        assert!(passes(hosts, TIMEOUT), "{engine} {end:?}");
        // A policy that is activated meanwhile is on trial too.
        let running = start(engine, hosts, folder, FORWARD, &["--confirm", LONG]);
        put(folder, "shut.weir", SHUT);
        let shut = running.load(&folder.join("shut.weir"));
        running.ask(&Request::Activate { generation: shut, confirm_s: None }).expect("it is ready");
        assert!(!passes(hosts, SILENCE), "{engine}: it decides");
        end.of(running);
        assert!(passes(hosts, TIMEOUT), "{engine} {end:?}: the second policy");
    }
    // The operator gives up without waiting.
    let mut running = start(engine, hosts, folder, SHUT, &["--confirm", LONG]);
    running.ask(&Request::Rollback).expect("that ends it");
    assert_eq!(running.ends(), Some(1));
    assert!(passes(hosts, TIMEOUT), "{engine}: {}", running.log());
}

test_on!([afpacket, afxdp, xdp, host] a_first_policy_that_is_confirmed_holds_however_weir_ends);
fn a_first_policy_that_is_confirmed_holds_however_weir_ends(engine: &str, hosts: &Hosts, folder: &Path) {
    let _echo = Echo::start(hosts);
    for end in [End::Told, End::Killed] {
        let running = start(engine, hosts, folder, BLOCK, &["--confirm", LONG]);
        assert!(passes(hosts, TIMEOUT), "{engine}: {}", running.log());
        running.ask(&Request::Confirm).expect("it is on trial");
        let status = running.status();
        assert_eq!((status.on_exit.as_str(), status.confirm_left_s), ("block", None));
        end.of(running);
        wait_until("nothing passes", || !passes(hosts, SILENCE));
        // The next trial has nothing to go back to but that everything passes.
        let running = start(engine, hosts, folder, SHUT, &["--confirm", LONG]);
        end.of(running);
        assert!(passes(hosts, TIMEOUT), "{engine} {end:?}: after a block");
    }
}

test_on!([afpacket, xdp, host] while_a_policy_is_on_trial_the_confirmed_one_says_what_happens_at_the_end);
fn while_a_policy_is_on_trial_the_confirmed_one_says_what_happens_at_the_end(
    engine: &str,
    hosts: &Hosts,
    folder: &Path,
) {
    let _echo = Echo::start(hosts);
    put(folder, "shut.weir", SHUT);
    let running = start(engine, hosts, folder, FORWARD, &[]);
    let shut = running.load(&folder.join("shut.weir"));
    running.ask(&Request::Activate { generation: shut, confirm_s: Some(3600.0) }).expect("it is ready");
    assert_eq!(running.status().on_exit, "forward");
    assert!(!passes(hosts, SILENCE), "{engine}: it decides");
    running.kill();
    assert!(passes(hosts, TIMEOUT), "{engine}");
    // Confirmed, it counts.
    let running = start(engine, hosts, folder, FORWARD, &[]);
    let shut = running.load(&folder.join("shut.weir"));
    running.ask(&Request::Activate { generation: shut, confirm_s: Some(3600.0) }).expect("it is ready");
    running.ask(&Request::Confirm).expect("it is on trial");
    assert_eq!(running.status().on_exit, "block");
    running.kill();
    wait_until("nothing passes", || !passes(hosts, SILENCE));
}

/// The client is logged in to the host by ssh.
fn logged_in(mut setup: Setup) -> Setup {
    setup.environment.push(("SSH_CONNECTION".to_owned(), format!("{CLIENT} 50000 {SERVER} 22")));
    setup
}

test_on!([host] a_start_that_would_shut_the_operator_out_is_refused);
fn a_start_that_would_shut_the_operator_out_is_refused(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "first.weir", "upstream {\n  tcp dport 80 accept\n  drop\n}\ndownstream { accept }\n");
    let (code, stderr) = Running::refused_as(&hosts.weir, folder, "first.weir", &logged_in(setup(engine, &[])));
    let words = ["first.weir:3", "drop", "10.9.0.1:50000", "10.9.0.2:22", "--drop-own-connection"];
    assert!(code == 2 && words.iter().all(|word| stderr.contains(word)), "{code}: {stderr}");
    assert_eq!(hosts.link("s")["xdp"], serde_json::Value::Null, "nothing was attached");
    // The operator can force the start.
    let told = logged_in(setup(engine, &["--drop-own-connection", "--confirm", LONG]));
    assert_eq!(Running::start_as(&hosts.weir, folder, "first.weir", &told).stop(), 0);
    // A connection through another interface is no concern of this policy.
    hosts.weir.ip("link add other type veth peer name opposite");
    hosts.weir.ip("addr add 192.0.2.1/24 dev other");
    hosts.weir.ip("link set other up");
    hosts.weir.ip("link set opposite up");
    let mut elsewhere = setup(engine, &[]);
    elsewhere.environment.push(("SSH_CONNECTION".to_owned(), "192.0.2.9 50000 192.0.2.1 22".to_owned()));
    assert_eq!(Running::start_as(&hosts.weir, folder, "first.weir", &elsewhere).stop(), 0);
    // A policy that lets the connection pass.
    put(folder, "first.weir", "upstream {\n  tcp dport 22 accept\n  drop\n}\ndownstream { accept }\n");
    let running = Running::start_as(&hosts.weir, folder, "first.weir", &logged_in(setup(HOST, &[])));
    assert_eq!(running.stop(), 0);
}
