//! Rules that are put into slots while packets pass: what they drop, what they count, and across generations.

use crate::device_under_test::Running;
use crate::hosts::Hosts;
use crate::traffic::{Listener, Pace, StopOnDrop, frames, send};
use crate::{check_account, put};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_control::Request;

/// Destination ports of the packets that each round sends.
const PORTS: [u16; 4] = [53, 123, 4000, 4001];

const POLICY: &str = "
slot attacks { size 4 }
slot others { size 1 }
upstream { tcp dport 22 accept; slot attacks; meta length > 0 slot others accept }
downstream { accept }
";

/// Number of times that a change is tried again.
const TRIES: usize = 30;

/// `weir ctl slot`. Returns the exit code, standard output and standard error.
fn ctl(running: &Running, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(running.control()).arg("slot").args(arguments);
    let output = command.output().expect("the program was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The JSON answer to a request that succeeds.
#[track_caller]
fn done(running: &Running, arguments: &[&str]) -> Value {
    let arguments = &[arguments, &["--json"]].concat();
    let (mut code, mut stdout, mut stderr) = ctl(running, arguments);
    // On a busy machine, a reader may stay with the other copy of the rules for longer than a change waits.
    for _ in 0..TRIES {
        if stderr.contains("packets are still judged by the rules before the last change") {
            (code, stdout, stderr) = ctl(running, arguments);
        }
    }
    assert_eq!(code, 0, "{arguments:?}: {stderr}{}", running.log());
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {stdout}"))
}

#[track_caller]
fn refused(running: &Running, arguments: &[&str], problem: &str) {
    let (code, stdout, stderr) = ctl(running, arguments);
    assert!(code == 2 && stderr.contains(problem) && stdout.is_empty(), "{arguments:?}: {code}: {stdout}{stderr}");
}

fn packets() -> Vec<Vec<u8>> {
    let frame =
        |port: &u16| format!("eth / ip saddr=10.20.1.1 daddr=10.9.0.2 / udp sport=1000 dport={port} / payload 8\n");
    frames(&PORTS.iter().map(frame).collect::<String>())
}

/// Sends one packet to each port. Returns the ports whose packets arrive at the server.
fn passes(running: &Running, hosts: &Hosts) -> BTreeSet<u16> {
    let before = running.stats().upstream.total;
    let at_server = Listener::at(&hosts.server, "s");
    send(&hosts.client, "c", &packets());
    let all = before.packets + PORTS.len() as u64;
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
    let passed = stats.upstream.total.passed - before.passed;
    let arrived = at_server.received(passed as usize);
    assert_eq!(arrived.len() as u64, passed);
    arrived.iter().map(|frame| u16::from_be_bytes([frame[36], frame[37]])).collect()
}

#[track_caller]
fn all_but(running: &Running, hosts: &Hosts, dropped: &[u16]) {
    let expected: BTreeSet<u16> = PORTS.into_iter().filter(|port| !dropped.contains(port)).collect();
    assert_eq!(passes(running, hosts), expected, "{}", running.log());
}

/// Number, packets and dropped packets of each rule.
fn counts(running: &Running, slot: &str) -> Vec<(u64, u64, u64)> {
    let listed = done(running, &[slot, "list"]);
    let number = |rule: &Value, key: &str| rule[key].as_u64().expect("a number");
    let rules = listed["rules"].as_array().expect("a list").iter();
    rules.map(|rule| (number(rule, "number"), number(rule, "packets"), number(rule, "dropped"))).collect()
}

each_engine_and_form!(rules_take_effect_at_once_and_outlive_policies);
fn rules_take_effect_at_once_and_outlive_policies(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "first.weir", POLICY);
    put(folder, "second.weir", &POLICY.replace("tcp dport 22 accept; ", "").replace("size 4", "size 3"));
    put(folder, "small.weir", &POLICY.replace("size 4", "size 1"));
    put(folder, "none.weir", "upstream { accept }\ndownstream { accept }\n");
    let running = Running::start(&hosts.weir, folder, "first.weir", engine, 2);
    all_but(&running, hosts, &[]);
    let changed = |number: Option<u64>, rules: u64, size: u64| match number {
        Some(number) => json!({"number": number, "rules": rules, "size": size}),
        None => json!({"rules": rules, "size": size}),
    };

    assert_eq!(done(&running, &["attacks", "add", "ip daddr 10.9.0.2 udp dport 53 drop"]), changed(Some(1), 1, 4));
    all_but(&running, hosts, &[53]);
    assert_eq!(done(&running, &["attacks", "add", "udp", "dport", "4000-4001", "drop"]), changed(Some(2), 2, 4));
    assert_eq!(done(&running, &["attacks", "add", "ip saddr 10.20.1.0/24 counter"]), changed(Some(3), 3, 4));
    all_but(&running, hosts, &[53, 4000, 4001]);
    assert_eq!(counts(&running, "attacks"), [(1, 2, 2), (2, 2, 2), (3, 1, 0)]);
    let dropped = running.stats().upstream.total;
    assert_eq!(dropped.reasons.get("slot"), Some(&4));

    // What is wrong changes nothing.
    refused(&running, &["attacks", "add", "udp dport 53 accept"], "cannot have `accept`");
    refused(&running, &["attacks", "del", "9"], "it has no rule 9");
    refused(&running, &["none", "list"], "has no slot `none`; it has attacks, others");
    assert_eq!(done(&running, &["others", "add", "udp dport 123 drop"]), changed(Some(1), 1, 1));
    refused(&running, &["others", "add", "udp dport 123 drop"], "it is full: the policy reserves 1 rules");
    all_but(&running, hosts, &PORTS);

    // Another policy has the same rules with their counters.
    let second = running.load(&folder.join("second.weir"));
    running.ask(&Request::Activate { generation: second, confirm_s: None }).expect("it is ready");
    all_but(&running, hosts, &PORTS);
    assert_eq!(counts(&running, "attacks"), [(1, 4, 4), (2, 6, 6), (3, 3, 0)]);
    let too_small = running.ask(&Request::Load { policy: folder.join("small.weir") });
    let problem = too_small.expect_err("it has no room").to_string();
    assert!(problem.contains("slot attacks: it has 3 rules, and the policy reserves 1"), "{problem}");

    assert_eq!(done(&running, &["attacks", "replace", "2", "udp dport 4000 drop"]), changed(Some(2), 3, 3));
    assert_eq!(done(&running, &["others", "flush"]), changed(None, 0, 1));
    all_but(&running, hosts, &[53, 4000]);
    assert_eq!(counts(&running, "attacks"), [(1, 5, 5), (2, 1, 1), (3, 5, 0)]);
    assert_eq!(done(&running, &["attacks", "del", "1"]), changed(None, 2, 3));
    all_but(&running, hosts, &[4000]);
    running.ask(&Request::Rollback).expect("there is a target");
    all_but(&running, hosts, &[4000]);
    let (_, text, _) = ctl(&running, &["attacks", "list"]);
    assert!(text.contains("attacks: 2 of 3 rules") && text.contains("udp dport 4000 drop"), "{text}");

    // Rules leave by themselves.
    done(&running, &["attacks", "flush"]);
    done(&running, &["attacks", "add", "udp drop", "--timeout", "1s"]);
    let begun = Instant::now();
    while !counts(&running, "attacks").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the rule stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    all_but(&running, hosts, &[]);

    let stats = running.settled();
    check_account(&stats);
    assert_eq!(running.stop(), 0);
}

each_engine!(changes_under_load_judge_every_packet_by_one_set_of_rules);
fn changes_under_load_judge_every_packet_by_one_set_of_rules(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "first.weir", POLICY);
    let running = Running::start(&hosts.weir, folder, "first.weir", engine, 2);
    // One of the two rules is always there, and both drop the same packets.
    done(&running, &["attacks", "add", "udp dport 53 drop"]);
    let (stop, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let at_server = Listener::at(&hosts.server, "s");
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            let burst: Vec<Vec<u8>> = packets().into_iter().cycle().take(64).collect();
            let mut pace = Pace::of(running.control());
            while !stop.load(Ordering::Relaxed) {
                send(&hosts.client, "c", &burst);
                pace.wait(sent.fetch_add(burst.len() as u64, Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        for round in 0..20 {
            done(&running, &["attacks", "add", "udp dport 53 drop"]);
            done(&running, &["attacks", "del", &(round + 1).to_string()]);
        }
    });
    let sent = sent.load(Ordering::Relaxed);
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent);
    let to_53 = sent / PORTS.len() as u64;
    assert_eq!(stats.upstream.total.reasons.get("slot"), Some(&to_53), "each packet to port 53, and no other");
    let arrived = at_server.received((sent - to_53) as usize);
    assert!(arrived.iter().all(|frame| frame[36..38] != 53u16.to_be_bytes()));
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}
