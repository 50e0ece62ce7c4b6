//! Upgrades in place, under traffic: packets, flows, tables, limits and trials continue.

use crate::captures::Capture;
use crate::device_under_test::{HOST, Running, Setup, TIMEOUT, wait_until};
use crate::exits::{Echo, guard_of, passes};
use crate::hosts::{Hosts, SERVER};
use crate::put;
use crate::stateful::Transfers;
use crate::tables::done;
use crate::traffic::{Listener, StopOnDrop, frames, put_on};
use std::collections::BTreeSet;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_abi::{ABI_VERSION, Link};
use weir_control::{
    FlowOperation, FlowsListed, Request, ShadowOperation, SlotListed, SlotOperation, Stats, Tally, UpgradeStatus,
};
use weir_engine::FrameBurst;
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;

/// Ports whose packets pass, and whose packets are dropped.
const PASSES: u16 = 9;
const DROPPED: u16 = 666;
const RULES: &str = "upstream { udp dport 666 drop; accept }\ndownstream { udp sport 666 drop; accept }\n";

/// Runs `weir ctl upgrade`. Returns the exit code, standard output and standard error.
fn upgrade(running: &Running) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["ctl", "--json", "--control"]).arg(running.control()).arg("upgrade").output();
    let output = output.expect("the program was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Upgrades to the same program. Returns what was carried over.
pub fn upgraded(running: &Running) -> UpgradeStatus {
    let (code, stdout, stderr) = upgrade(running);
    assert_eq!(code, 0, "{stderr}\n{}", running.log());
    serde_json::from_str(&stdout).expect("a status of upgrades")
}

fn asked(running: &Running) -> UpgradeStatus {
    let value = running.ask(&Request::Upgrade { begin: false }).expect("it answers");
    serde_json::from_value(value).expect("a status of upgrades")
}

/// Sends numbered packets to both ports in turns until it is told to stop. Returns the number of each.
fn send_numbered(interface: &str, stop: &AtomicBool) -> u64 {
    let mut pair = [PASSES, DROPPED].map(|port| {
        let line = format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1000 dport={port} / payload 32\n");
        frames(&line).remove(0)
    });
    let mut wire = Wire::open(interface).expect("the host has the wire");
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        for frame in &mut pair {
            let at = frame.len() - size_of::<u64>();
            frame[at..].copy_from_slice(&number.to_be_bytes());
            let before = wire.counters().tx_packets;
            let one = FrameSet::new(Link::Ethernet, [(frame.as_slice(), frame.len() as u32)]);
            while wire.counters().tx_packets == before {
                wire.send(&one.burst(0)).expect("the wire takes frames");
            }
        }
        number += 1;
        std::thread::sleep(crate::BETWEEN_BURSTS);
    }
    number
}

/// Notes port and number of the packets of [`send_numbered`].
fn note(notes: &mut Vec<(u16, u64)>, burst: &FrameBurst<'_>) -> usize {
    const UDP: (usize, u8) = (23, 17);
    const DPORT: usize = 36;
    for frame in (0..burst.len()).map(|index| burst.bytes(index)).filter(|frame| frame.len() > 60) {
        if frame[UDP.0] == UDP.1 {
            let number = frame[frame.len() - size_of::<u64>()..].try_into().expect("8 bytes");
            notes.push((u16::from_be_bytes([frame[DPORT], frame[DPORT + 1]]), u64::from_be_bytes(number)));
        }
    }
    notes.len()
}

test_on!([xdp, host] no_packet_is_lost_and_none_passes_unfiltered);
fn no_packet_is_lost_and_none_passes_unfiltered(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", &format!("on-exit block\n{RULES}"));
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &Setup::new(engine));
    let (pid, listener) = (running.pid(), Listener::noting(&hosts.server, "s", note));
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let sending = hosts.client.start(move || send_numbered("c", &told));
    {
        let _stop = StopOnDrop(&stop);
        for number in 1..=2 {
            let status = upgraded(&running);
            assert_eq!((status.upgrades, status.pid), (number, pid.as_raw() as u32), "{status:?}");
            assert_eq!(status.carried.as_ref().map(|carried| carried.interfaces), Some(2), "{status:?}");
        }
    }
    let sent = sending.join().expect("all are sent");
    let notes = listener.notes(sent as usize);
    assert!(notes.iter().all(|&(port, _)| port == PASSES), "{engine}: a dropped packet has passed");
    let numbers: Vec<u64> = notes.into_iter().map(|(_, number)| number).collect();
    assert!(numbers.iter().copied().eq(0..sent), "{engine}: {} of {sent} packets have arrived", numbers.len());
    assert_eq!(running.status().on_exit, "block");
    // Counts go on, also of packets that were decided while a program started.
    let stats = running.wait_for("all are counted", |stats| dropped_by_rule(stats)[0] >= sent);
    assert_eq!(dropped_by_rule(&stats), [sent; 2], "{engine}: {stats:#?}");
    assert!(stats.upstream.total.passed >= sent && stats.upstream.current.packets == stats.upstream.total.packets);
    let received = stats.interfaces.iter().find(|one| one.side == "lower").expect("there is one").rx_packets;
    assert!(received >= 2 * sent && received >= stats.upstream.total.packets, "{engine}: {received} of {sent}");
    assert_eq!(running.status().activations, 1);
    // What the new program has taken over ends with it, as usual.
    running.kill();
    let listener = Listener::noting(&hosts.server, "s", note);
    let late = "eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1 dport=9 / payload 32\n";
    hosts.client.run(move || put_on("c", &frames(late)));
    // Raw sockets of a host see packets in front of its gate.
    if engine != HOST {
        assert_eq!(listener.notes(0).len(), 0, "{engine}: nothing passes");
    }
}

/// Packets that the rule in front drops: since the start, and since the activation.
fn dropped_by_rule(stats: &Stats) -> [u64; 2] {
    let counted = |tally: &Tally| {
        tally.rules.iter().filter(|rule| rule.rule.contains("dport 666")).map(|rule| rule.packets).sum()
    };
    [counted(&stats.upstream.total), counted(&stats.upstream.current)]
}

/// The flows of the active generation: their ports and states.
fn flows(running: &Running) -> BTreeSet<String> {
    let operation = FlowOperation::List { top: 100, state: None, matches: None };
    let value = running.ask(&Request::Flows { operation }).expect("it tracks");
    let listed: FlowsListed = serde_json::from_value(value).expect("flows");
    let text = |flow: &weir_control::FlowEntry| {
        format!("{} {:?} {:?} {} {} {}", flow.protocol, flow.sport, flow.dport, flow.state, flow.replied, flow.liberal)
    };
    listed.flows.iter().map(text).collect()
}

test_on!([xdp, host] flows_debts_and_tables_continue);
fn flows_debts_and_tables_continue(engine: &str, hosts: &Hosts, folder: &Path) {
    let policy = "
        tracking { size 4096; pickup off; timeout udp 1h }
        table suspects { type ipv4; dynamic; size 1000 }
        upstream {
          udp dport 9 limit rate 1/hour burst 5 accept
          ip saddr @suspects drop
          tcp track; udp track
          ct state established,related accept
          ct state new tcp dport 8000 accept
          ct state new udp dport 8001 accept
          drop
        }
        downstream { tcp track; udp track; ct state established,related accept; drop }\n";
    put(folder, "edge.weir", policy);
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &Setup::new(engine));
    done(&running, "suspects add 203.0.113.5");
    done(&running, "suspects add 203.0.113.6 --timeout 1h");
    let udp = |port: u16, times: usize| {
        frames(
            &format!("eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=7 dport={port} / payload 32\n").repeat(times),
        )
    };
    // Without the socket, an error would answer.
    let _silent = hosts.server.run(|| UdpSocket::bind((SERVER, 8001)).expect("the server has the address"));
    // Only a flow that was answered is saved to disk, and this one never is.
    let unanswered = udp(8001, 1);
    hosts.client.run(move || put_on("c", &unanswered));
    let transfers = Transfers::start(hosts, 3);
    transfers.wait(3);
    let exceed = udp(PASSES, 8);
    hosts.client.run(move || put_on("c", &exceed));
    let limited = |running: &Running, packets: u64| {
        let count = |running: &Running| running.stats().upstream.total.reasons.get("limit").copied().unwrap_or(0);
        running.wait_until("packets exceed the limit", |running| count(running) == packets);
    };
    limited(&running, 3);
    let before = flows(&running);
    assert!(before.iter().any(|flow| flow == "udp Some(7) Some(8001) unreplied false false"), "{before:?}");
    assert_eq!(before.iter().filter(|flow| flow.starts_with("tcp")).count(), 3, "{before:?}");
    for upgrade in 0..2 {
        let carried = upgraded(&running).carried.expect("it was upgraded");
        assert_eq!((carried.flow_tables, carried.flows_from_file, carried.tables), (1, false, 1), "{upgrade}");
        assert_eq!(flows(&running), before, "{upgrade}");
        transfers.wait(3);
        let exceed = udp(PASSES, 3);
        hosts.client.run(move || put_on("c", &exceed));
        limited(&running, 3 * (upgrade + 2));
        let suspects = done(&running, "suspects list --top 10");
        let entries = suspects["entries"].as_array().expect("a list");
        let timeouts: Vec<bool> = entries.iter().map(|entry| entry["timeout_s"].is_number()).collect();
        assert_eq!(timeouts, [false, true], "{suspects}");
    }
    transfers.stop();
    assert_eq!(running.stop(), 0);
}

test_on!([xdp] a_trial_continues_and_can_be_rolled_back);
fn a_trial_continues_and_can_be_rolled_back(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", &format!("on-exit block\n{RULES}"));
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &Setup::new(engine));
    put(
        folder,
        "next.weir",
        "on-exit forward\nposture hard { upstream { drop } }\nupstream { accept }\ndownstream { accept }\n",
    );
    let next = running.load(&folder.join("next.weir"));
    running.ask(&Request::Activate { generation: next, confirm_s: Some(3600.0) }).expect("it is ready");
    let before = running.status();
    upgraded(&running);
    let status = running.status();
    assert_eq!((status.generation, status.rollback_to, status.on_exit.as_str()), (next, Some(1), "block"));
    assert!(status.confirm_left_s < before.confirm_left_s && status.confirm_left_s.is_some(), "{status:?}");
    running.ask(&Request::Rollback).expect("there is a trial");
    assert_eq!((running.status().generation, running.status().confirm_left_s), (1, None));
    // Its end comes in the new program too.
    running.ask(&Request::Activate { generation: next, confirm_s: Some(8.0) }).expect("it is ready");
    upgraded(&running);
    running.wait_until("the trial ends", |running| running.status().generation == 1);
    // A policy that was edited since is not activated by an upgrade.
    put(folder, "edge.weir", "upstream { accept }\ndownstream { accept }\n");
    let (code, _, stderr) = upgrade(&running);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("edge.weir has changed since it was loaded"), "{stderr}");
}

/// Makes a file executable.
fn script(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("files can be written");
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).expect("it is ours");
    fs::rename(&new, path).expect("the folder is ours");
}

#[test]
fn a_broken_program_is_refused_or_ends_as_on_exit_says() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a folder"));
    let (folder, _echo) = (folder.path().to_owned(), Echo::start(&hosts));
    put(&folder, "edge.weir", &format!("on-exit forward\n{RULES}"));
    let program = folder.join("weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &program).expect("it was built");
    let given = Setup::new("xdp").command(&folder, "edge.weir");
    let mut command = Command::new(&program);
    command.args(given.get_args()).current_dir(&folder).env("NO_COLOR", "1");
    let weir = hosts.weir.clone();
    let mut running = Running::spawn(&folder, command, move |mut command| weir.run(move || command.spawn()));
    assert!(passes(&hosts, TIMEOUT));
    let (before, guard) = (running.status(), guard_of(&running));
    let decided = running.stats().upstream.total.packets;
    for (text, problem) in [
        ("#!/bin/sh\necho out of order >&2\nexit 1\n", "out of order"),
        ("#!/bin/sh\nexit 0\n", "it gives no answer"),
        ("#!/bin/sh\necho '{\"upgrade\":99,\"abi\":1,\"version\":\"9\"}'\n", "version 9 takes over in another way"),
        ("no program", "Exec format error"),
    ] {
        script(&program, text);
        let (code, stdout, stderr) = upgrade(&running);
        assert!(code == 2 && stdout.contains("exit_code") && stderr.contains(problem), "{problem}: {code} {stderr}");
        assert!(asked(&running).refused.is_some_and(|why| why.contains(problem)), "{problem}");
        assert!(running.log().contains(problem), "{}", running.log());
    }
    let status = running.status();
    assert_eq!((status.generation, status.activations), (before.generation, before.activations));
    assert!(status.uptime_s > before.uptime_s && running.stats().upstream.total.packets >= decided);
    assert_eq!(guard_of(&running), guard);
    assert!(passes(&hosts, TIMEOUT));
    // It can load the policy, and fails when it begins.
    let tried = format!("{{\"upgrade\":2,\"abi\":{ABI_VERSION},\"version\":\"9\"}}");
    script(
        &program,
        &format!("#!/bin/sh\ncase \"$*\" in *--try-policy*) echo '{tried}';; *) echo it fails >&2; exit 3;; esac\n"),
    );
    let (code, _, stderr) = upgrade(&running);
    assert!(code == 1 && stderr.contains("weir has ended during the upgrade"), "{code} {stderr}");
    assert_eq!(running.ends(), Some(3), "{}", running.log());
    assert!(passes(&hosts, TIMEOUT), "{}", running.log());
    wait_until("the guard has gone", || nix::sys::signal::kill(guard, None).is_err());
}

test_on!([afpacket] an_engine_in_user_space_begins_again_with_its_flows_and_tables);
fn an_engine_in_user_space_begins_again_with_its_flows_and_tables(engine: &str, hosts: &Hosts, folder: &Path) {
    put(
        folder,
        "edge.weir",
        "on-exit block
        tracking { size 4096; pickup off }
        table suspects { type ipv4; dynamic; size 1000 }
        upstream { tcp track; ct state established,related accept; ct state new tcp dport 8000 accept; ip saddr @suspects drop; drop }
        downstream { tcp track; ct state established,related accept; drop }\n",
    );
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &Setup::new(engine));
    done(&running, "suspects add 203.0.113.5");
    let transfers = Transfers::start(hosts, 2);
    transfers.wait(2);
    nix::sys::signal::kill(running.pid(), nix::sys::signal::Signal::SIGUSR2).expect("it runs");
    running.wait_until("it is upgraded", |running| {
        let status = running.ask(&Request::Upgrade { begin: false });
        status.is_ok_and(|status| status["upgrades"] == 1)
    });
    let carried = asked(&running).carried.expect("it was upgraded");
    assert_eq!((carried.interfaces, carried.flow_tables, carried.flows_from_file), (0, 0, true), "{carried:?}");
    transfers.wait(2);
    assert_eq!(done(&running, "suspects list --top 10")["entries"].as_array().map(Vec::len), Some(1));
    transfers.stop();
    assert_eq!(running.stop(), 0);
}

fn slot(running: &Running, operation: SlotOperation) -> serde_json::Value {
    running.ask(&Request::Slot { slot: "attacks".to_owned(), operation }).expect("there is one")
}

test_on!([xdp, afpacket] rules_of_slots_stay_and_clients_are_told);
fn rules_of_slots_stay_and_clients_are_told(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "edge.weir", "slot attacks { size 8 }\nupstream { slot attacks; accept }\ndownstream { accept }\n");
    put(folder, "shadow.weir", "upstream { udp drop; accept }\ndownstream { accept }\n");
    let running = Running::start_as(&hosts.weir, folder, "edge.weir", &Setup::new(engine));
    let add = |rule: &str, timeout_ms| slot(&running, SlotOperation::Add { rule: rule.to_owned(), timeout_ms });
    add("udp dport 7 counter", None);
    slot(&running, SlotOperation::Del { number: 1 });
    add("udp dport 666 drop", Some(3_600_000));
    let operation = ShadowOperation::Load { policy: folder.join("shadow.weir"), every: 1, posture: None };
    running.ask(&Request::Shadow { operation }).expect("it is loaded");
    let file = folder.join("all.pcapng");
    let capture = Capture::begin(&running, &["-o", &file.display().to_string()]);
    let listener = Listener::noting(&hosts.server, "s", note);
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let sending = hosts.client.start(move || send_numbered("c", &told));
    running.wait_until("the rule drops", |running| running.stats().upstream.total.dropped > 0);
    {
        let _stop = StopOnDrop(&stop);
        upgraded(&running);
        assert_eq!(slot(&running, SlotOperation::List)["rules"][0]["number"], 2);
    }
    let sent = sending.join().expect("all are sent");
    let report = capture.ends();
    assert!(report.contains("ended by an upgrade of Weir"), "{engine}: {report}");
    assert_eq!(running.stats().upstream.total.dropped, running.stats().upstream.total.reasons["slot"]);
    let listed: SlotListed = serde_json::from_value(slot(&running, SlotOperation::List)).expect("rules");
    assert!(listed.rules[0].timeout_s.is_some_and(|left| left < 3600.0), "{listed:?}");
    if engine == "xdp" {
        running.wait_for("all are counted", |stats| stats.upstream.total.reasons["slot"] >= sent);
        assert_eq!(listed.rules[0].dropped, sent, "{engine}: none has passed, and all are counted");
        assert!(listener.notes(sent as usize).iter().all(|&(port, _)| port == PASSES), "{engine}");
    }
    running.wait_until("the shadow judges again", |running| {
        let shown = running.ask(&Request::Shadow { operation: ShadowOperation::Show }).expect("it answers");
        shown["shadow"]["every"] == 1
    });
    assert_eq!(add("udp dport 8 counter", None)["number"], 3, "{engine}: a number is never used again");
    assert_eq!(running.stop(), 0);
}

#[test]
fn what_is_handed_over_and_damaged_ends_weir_as_on_exit_says() {
    let hosts = Hosts::new();
    let _echo = Echo::start(&hosts);
    for (damage, problem) in [
        ("truncate -s 100 $F", "EOF"),
        ("sed -i 's/\"format\":2/\"format\":1/' $F", "format 1 is not known"),
        ("sed -i 's/\"control\":[0-9]*/\"control\":999/' $F", "descriptor 999 was not handed over"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().to_owned();
        fs::create_dir_all(&folder).expect("a folder");
        put(&folder, "edge.weir", &format!("on-exit forward\n{RULES}"));
        let (program, real) = (folder.join("weir"), env!("CARGO_BIN_EXE_weir"));
        fs::copy(real, &program).expect("it was built");
        let given = Setup::new("xdp").command(&folder, "edge.weir");
        let mut command = Command::new(&program);
        command.args(given.get_args()).current_dir(&folder).env("NO_COLOR", "1");
        let weir = hosts.weir.clone();
        let mut running = Running::spawn(&folder, command, move |mut command| weir.run(move || command.spawn()));
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *--try-policy*) ;; *) F=$(echo /run/weir/upgrade-$$-*)/handed.json; {damage};; esac\n\
             exec {real} \"$@\"\n"
        );
        script(&program, &text);
        let (code, _, stderr) = upgrade(&running);
        assert!(code == 1 && stderr.contains("weir has ended during the upgrade"), "{damage}: {code} {stderr}");
        assert!(running.ends().is_some_and(|code| code != 0), "{damage}: {}", running.log());
        assert!(running.log().contains(problem), "{damage}: {}", running.log());
        assert!(passes(&hosts, TIMEOUT), "{damage}: {}", running.log());
    }
}
