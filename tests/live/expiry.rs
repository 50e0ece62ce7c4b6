//! Entries of tables with a timeout: when they are gone, what keeps them, and what is told about them.

use crate::device_under_test::Running;
use crate::form;
use crate::hosts::Hosts;
use crate::tables::{ctl, done, refused};
use crate::traffic::{frames, send};
use crate::{check_account, put};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const POLICY: &str = "
table brief { type ipv4; dynamic; size 2000; timeout 2s }
table bad { type ipv4; file \"bad.txt\" }
table geo { type ipv4 : label; elements = { 192.0.2.0/24 : AA } }
upstream { ip saddr @brief drop; ip saddr @bad drop; ip saddr @geo { AA } drop; accept }
downstream { accept }
";
/// The timeout of `brief`.
const TIMEOUT: Duration = Duration::from_secs(2);
/// An entry is gone within this time after its timeout.
const LATE_MAX: Duration = Duration::from_millis(100);

fn start(engine: &str, hosts: &Hosts, folder: &Path) -> Running {
    put(folder, "bad.txt", "203.0.113.5\n");
    put(folder, "p.weir", POLICY);
    Running::start(&hosts.weir, folder, "p.weir", engine, 2)
}

fn address(n: usize) -> String {
    format!("10.30.{}.{}", n / 250, 1 + n % 250)
}

fn from(sources: &[String]) -> Vec<Vec<u8>> {
    let frame = |source: &String| format!("eth / ip saddr={source} daddr=10.9.0.2 / udp sport=1000 dport=9\n");
    frames(&sources.iter().map(frame).collect::<String>())
}

/// Sends packets. Returns how many pass.
fn passed(running: &Running, hosts: &Hosts, packets: &[Vec<u8>]) -> u64 {
    let before = running.stats().upstream.total;
    send(&hosts.client, "c", packets);
    let all = before.packets + packets.len() as u64;
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
    stats.upstream.total.passed - before.passed
}

fn sleep_until(instant: Instant) {
    std::thread::sleep(instant.saturating_duration_since(Instant::now()));
}

each_engine_and_form!(a_thousand_entries_are_gone_within_100_ms_of_their_time);
fn a_thousand_entries_are_gone_within_100_ms_of_their_time(engine: &str, hosts: &Hosts, folder: &Path) {
    let running = start(engine, hosts, folder);
    let entries: Vec<String> = (0..1000).map(address).collect();
    let packets = from(&entries);
    put(folder, "brief.txt", &entries.join("\n"));
    let kept = address(1500);
    let asked = Instant::now();
    let added = done(&running, &format!("brief add {kept} --file {}", folder.join("brief.txt").display()));
    let answered = Instant::now();
    assert_eq!((&added["changed"], &added["entries"]), (&json!(1001), &json!(1001)));
    assert_eq!(passed(&running, hosts, &packets), 0);
    sleep_until(asked + TIMEOUT / 2);
    let updated = done(&running, &format!("brief update {kept}"));
    let again = Instant::now();
    assert_eq!((&updated["changed"], &updated["refreshed"]), (&json!(0), &json!(1)));
    assert_eq!(done(&running, &format!("brief add {}", entries[0]))["changed"], 0, "an addition prolongs nothing");
    // Just before the end, on a machine that is fast enough.
    sleep_until(asked + TIMEOUT - Duration::from_millis(300));
    let before = passed(&running, hosts, &packets);
    assert!(before == 0 || asked.elapsed() >= TIMEOUT, "{engine}: {before} entries are gone too early");
    sleep_until(answered + TIMEOUT + LATE_MAX);
    assert_eq!(passed(&running, hosts, &packets), 1000, "{engine}: some entries are still there");
    let kept_packet = from(std::slice::from_ref(&kept));
    assert!(passed(&running, hosts, &kept_packet) == 0 || again.elapsed() >= TIMEOUT, "{engine}: it was updated");
    sleep_until(again + TIMEOUT + LATE_MAX);
    assert_eq!(passed(&running, hosts, &kept_packet), 1);
    assert_eq!(done(&running, "brief count"), json!({"table": "brief", "entries": 0, "size": 2000, "refused": 0}));
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

fn seconds(entry: &Value) -> f64 {
    entry["timeout_s"].as_f64().unwrap_or(f64::NAN)
}

/// Sends lines to `weir ctl table NAME stream`. Returns the answers.
fn stream(running: &Running, table: &str, lines: &str) -> Vec<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(running.control()).args(["table", table, "stream", "--atomic"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program was built");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(lines.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

each_engine_and_form!(every_table_takes_timeouts_and_answers_say_how_long);
fn every_table_takes_timeouts_and_answers_say_how_long(engine: &str, hosts: &Hosts, folder: &Path) {
    let running = start(engine, hosts, folder);
    done(&running, "brief add 10.1.0.1");
    done(&running, "brief add 10.1.0.2 10.1.0.3 --timeout 1h30m");
    done(&running, "brief add 10.1.0.4 --timeout 0s --atomic");
    let found = |address: &str| done(&running, &format!("brief get {address}"))["found"].clone();
    let left = [found("10.1.0.1"), found("10.1.0.2"), found("10.1.0.3")].map(|entry| seconds(&entry));
    assert!(left[0] > 0.0 && left[0] <= 2.01 && left[1] > 5390.0 && left[1] <= 5400.01, "{left:?}");
    assert_eq!(found("10.1.0.4"), json!({"entry": "10.1.0.4"}));
    let listed = done(&running, "brief list");
    assert!(seconds(&listed["entries"][1]) > 5390.0, "{listed}");
    let (_, text, _) = ctl(&running, "brief get 10.1.0.2");
    assert!(text.starts_with("brief: 10.1.0.2: 10.1.0.2 expires in 53"), "{text}");

    // Tables without a declared timeout, from a file and with labels.
    let added = done(&running, "bad add 10.1.0.1 --timeout 300ms");
    // A bundle has no list files.
    assert_eq!(added["reload_undoes"].as_bool(), (!form::is_bundle()).then_some(true));
    // Within one tick it would be the same deadline.
    std::thread::sleep(Duration::from_millis(20));
    let (_, text, _) = ctl(&running, "bad update 10.1.0.1 --timeout 300ms");
    let until = if form::is_bundle() { "" } else { " (until the lists are read again)" };
    assert_eq!(text, format!("bad: 0 changed, 1 refreshed, 2 entries now{until}\n"));
    done(&running, "geo add 10.1.0.0/24,AA --timeout 200ms");
    std::thread::sleep(Duration::from_millis(300) + LATE_MAX);
    assert_eq!(
        (&done(&running, "bad count")["entries"], &done(&running, "geo count")["entries"]),
        (&json!(1), &json!(1))
    );

    refused(&running, "brief add 10.1.0.1 --timeout 366d", "a time of at most 365d like 500ms");
    refused(&running, "brief add 10.1.0.1 --timeout 10", "a time of at most 365d like 500ms");
    refused(&running, "brief add", "required arguments were not provided");
    let list = folder.join("wrong.txt");
    put(folder, "wrong.txt", "10.0.0.1\n10.0.0.x\n");
    refused(&running, &format!("brief add -f {}", list.display()), "wrong.txt:2: ");
    let nets: Vec<String> = (0..2000).map(address).collect();
    put(folder, "many.txt", &nets.join("\n"));
    let problem = "table brief is full: it has";
    refused(&running, &format!("brief add 10.2.0.1 -f {}", folder.join("many.txt").display()), problem);
    assert_eq!(done(&running, "brief count")["refused"], 2001);
    let (_, text, _) = ctl(&running, "brief count");
    assert!(text.ends_with(" of 2,000 entries, 2,001 refused\n"), "{text}");
    done(&running, "brief flush");
    let answers = stream(
        &running,
        "brief",
        "add 10.3.0.1 10.3.0.2 timeout 1h\nupdate 10.3.0.1 10.3.0.3 timeout 2h\n\
        add 10.3.0.4 timeout soon\nadd timeout 1h\ndel 10.3.0.2\n",
    );
    let expected = [
        "brief: 2 changed, 2 entries now",
        "brief: 1 changed, 1 refreshed, 3 entries now",
        "error: `timeout soon`: not a time of at most 365d like 500ms, 30s, 10m, 1h30m; 0s for none",
        "error: table brief: `timeout`: not an IPv4 address",
        "brief: 1 changed, 2 entries now",
    ];
    for (answer, expected) in answers.iter().zip(expected) {
        assert!(answer.starts_with(expected), "{answers:#?}");
    }
    assert!(seconds(&found("10.3.0.1")) > 7100.0);
    done(
        &running,
        &format!("brief replace {} --atomic", folder.join("brief.txt").display()).replace("brief.txt", "bad.txt"),
    );
    assert!(seconds(&done(&running, "brief list")["entries"][0]) <= 2.01, "a list's entries have the table's timeout");
    assert_eq!(running.stop(), 0);
}
