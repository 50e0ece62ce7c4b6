//! Dynamic tables that outlive Weir, whatever ends it.

use crate::control::Traced;
use crate::device_under_test::{Running, Setup};
use crate::hosts::Hosts;
use crate::tables::done;
use crate::traffic::{frames, put_on};
use crate::{check_account, put};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_control::{Client, GivenEntries, Request, TableOperation};

const POLICY: &str = "
table suspects { type ipv4; dynamic; size 100000 }
table geo { type ipv4 : label; dynamic; elements = { 192.0.2.0/24 : AA, 198.51.100.0/24 : BB } }
table bad { type ipv4; elements = { 203.0.113.5 } }
upstream { ip saddr @suspects drop; ip saddr @geo { AA } drop; ip saddr @bad drop; accept }
downstream { accept }
";
/// Each change that was acknowledged this many turns of saving before the end is there afterwards.
const TURNS: u64 = 3;
/// Pause between two looks at what was saved.
const LOOK: Duration = Duration::from_millis(50);
/// Time in which a change is written on an idle machine.
const USUAL: Duration = Duration::from_secs(1);

fn start(engine: &str, hosts: &Hosts, folder: &Path) -> Running {
    put(folder, "p.weir", POLICY);
    let more = vec!["--state".to_owned(), folder.join("state").display().to_string()];
    Running::start_as(&hosts.weir, folder, "p.weir", &Setup { more, ..Setup::new(engine) })
}

fn suspects(running: &Running) -> BTreeSet<String> {
    let listed = done(running, "suspects list --top 65536");
    let entries = listed["entries"].as_array().expect("a list");
    entries.iter().map(|entry| entry["entry"].as_str().expect("text").to_owned()).collect()
}

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// log2 of the number of different entries. An answer lists as many.
const ENTRIES_BITS: u32 = 16;

/// One change: what it adds and what it removes.
type Step = (Vec<String>, Vec<String>);

/// The change with a number: an address, several, or the removal of some.
fn step(number: u64) -> Step {
    // Hashed, so that no two tables after many changes are the same.
    let address = |n: u64| {
        let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ENTRIES_BITS);
        format!("10.9.{}.{}", n >> 8, n & 255)
    };
    match number % 4 {
        0 => ((0..40).map(|n| address(number * 40 + n)).collect(), vec![]),
        1 => (vec![], (0..17).map(|n| address((number - 1) * 40 + n)).collect()),
        2 => (vec![address(number * 40)], vec![]),
        _ => (vec![], vec![address((number - 1) * 40)]),
    }
}

/// Makes changes from `first` on until Weir ends. Counts those that are acknowledged.
fn change(control: &Path, first: u64, acknowledged: &Mutex<u64>, issued: &Mutex<u64>) {
    let Ok(mut client) = Client::connect(control) else { return };
    for number in first.. {
        let (added, removed) = step(number);
        let operation = match added.is_empty() {
            false => TableOperation::Add(GivenEntries {
                entries: added,
                timeout_ms: Some(3_600_000),
                ..GivenEntries::default()
            }),
            true => TableOperation::Del(GivenEntries { entries: removed, ..GivenEntries::default() }),
        };
        *issued.lock().expect("nobody panics") = number + 1;
        if client.ask(&Request::Table { table: "suspects".to_owned(), operation }).is_err() {
            return;
        }
        *acknowledged.lock().expect("nobody panics") += 1;
    }
}

test_on!([afpacket] and bundled [afpacket, xdp] changes_survive_a_kill_at_any_moment);
/// Kills Weir at random moments under changes, `WEIR_TEST_KILLS` times or a few.
fn changes_survive_a_kill_at_any_moment(engine: &str, hosts: &Hosts, folder: &Path) {
    let rounds = std::env::var("WEIR_TEST_KILLS").map_or(4, |text| text.parse().expect("a number"));
    let mut random = Random(std::process::id().into());
    // The table after all changes before `next`.
    let (mut known, mut next) = (BTreeSet::new(), 0);
    for round in 0..rounds {
        let running = start(engine, hosts, folder);
        assert_eq!(suspects(&running), known, "round {round}");
        let (acknowledged, issued) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(next)));
        let changing = {
            let (control, acknowledged, issued) = (running.control().to_owned(), acknowledged.clone(), issued.clone());
            std::thread::spawn(move || change(&control, next, &acknowledged, &issued))
        };
        // Changes that were acknowledged by then, and the turns of saving after that.
        let mut seen = vec![(0, 0)];
        let end = Instant::now() + Duration::from_millis(200 + random.below(2500));
        while Instant::now() < end {
            let made = *acknowledged.lock().expect("nobody panics");
            seen.push((made, running.status().state.expect("it saves").turns.tables));
            std::thread::sleep(LOOK);
        }
        running.kill();
        changing.join().expect("it ends with Weir");

        let running = start(engine, hosts, folder);
        let found = suspects(&running);
        let last = seen.last().expect("there is one").1;
        let early = seen.iter().rev().find(|(_, turns)| turns + TURNS <= last).map_or(0, |(made, _)| *made);
        let issued = *issued.lock().expect("nobody panics");
        let mut reached = None;
        for number in next..=issued {
            if number >= next + early && known == found {
                reached = Some(number);
                break;
            }
            let (added, removed) = step(number);
            known.extend(added);
            removed.iter().for_each(|one| _ = known.remove(one));
        }
        let log = running.log();
        assert!(reached.is_some(), "round {round}: {} of {} changes must be there\n{log}", early, issued - next);
        known = found;
        let made = reached.unwrap_or(next) - next;
        next += made;
        eprintln!("round {round}: {made} changes, at least {early}, {} entries", known.len());
        assert_eq!(running.stop(), 0);
    }
}

each_engine_and_form!(tables_and_timeouts_continue_after_a_restart);
fn tables_and_timeouts_continue_after_a_restart(engine: &str, hosts: &Hosts, folder: &Path) {
    let running = start(engine, hosts, folder);
    done(&running, "suspects add 10.1.0.1 10.2.0.0/16");
    done(&running, "suspects add 10.1.0.2 --timeout 5s");
    let added = Instant::now();
    done(&running, "suspects add 10.1.0.3 --timeout 1h");
    done(&running, "geo del 198.51.100.0/24");
    done(&running, "geo add 10.3.0.0/16,AA 10.4.0.0/16,BB");
    done(&running, "bad add 10.1.0.4");
    running.wait_until_saved();
    let status = running.status().state.expect("it saves");
    assert_eq!((status.folder, status.error), (folder.join("state").display().to_string(), None));
    running.kill();

    let running = start(engine, hosts, folder);
    let sources = ["10.1.0.1", "10.2.9.9", "10.1.0.2", "10.1.0.3", "10.3.0.1", "10.4.0.1", "192.0.2.1", "10.1.0.4"];
    let packets = frames(
        &sources.map(|source| format!("eth / ip saddr={source} daddr=10.9.0.2 / udp sport=1 dport=9\n")).concat(),
    );
    let passed = |running: &Running| {
        let before = running.stats().upstream.total;
        let (packets, count) = (packets.clone(), packets.len() as u64);
        hosts.client.start(move || put_on("c", &packets)).join().expect("all are sent");
        let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= before.packets + count);
        stats.upstream.total.passed - before.passed
    };
    // Two packets pass: the one with the label BB, and the one of the change of a table that is not dynamic.
    let early = passed(&running);
    assert!(early == 2 || added.elapsed() >= Duration::from_secs(5), "{engine}: {early}\n{}", running.log());
    let found = done(&running, "suspects get 10.1.0.3");
    let left = found["found"]["timeout_s"].as_f64().expect("it expires");
    assert!(left < 3600.0 && left > 3500.0, "{found}");
    std::thread::sleep((Duration::from_millis(5150)).saturating_sub(added.elapsed()));
    assert_eq!(passed(&running), 3, "{engine}: the timeout has continued");
    assert_eq!(done(&running, "geo count")["entries"], 3);
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_kind!(debts_of_limits_continue_after_a_kill);
fn debts_of_limits_continue_after_a_kill(engine: &str, hosts: &Hosts, folder: &Path) {
    let policy = "limits customers { elements = { 10.20.1.0/24 : 1/hour burst 7 } }\n\
                  upstream { ip saddr limit @customers; accept }\ndownstream { accept }\n";
    put(folder, "limits.weir", policy);
    let more = vec!["--state".to_owned(), folder.join("state").display().to_string()];
    let setup = Setup { more, ..Setup::new(engine) };
    let running = Running::start_as(&hosts.weir, folder, "limits.weir", &setup);
    let packets = frames(&"eth / ip saddr=10.20.1.5 daddr=10.9.0.2 / udp sport=1 dport=9\n".repeat(5));
    let passed = |running: &Running| {
        let before = running.stats().upstream.total;
        let packets = packets.clone();
        hosts.client.start(move || put_on("c", &packets)).join().expect("all are sent");
        let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= before.packets + 5);
        stats.upstream.total.passed - before.passed
    };
    assert_eq!(passed(&running), 5);
    // Debts are written each second.
    std::thread::sleep(Duration::from_secs(2));
    running.kill();
    let running = Running::start_as(&hosts.weir, folder, "limits.weir", &setup);
    assert_eq!(passed(&running), 2, "{engine}: a burst of 7\n{}", running.log());
    assert_eq!(passed(&running), 0);
    assert_eq!(running.stop(), 0);
}

#[test]
fn a_disk_that_fails_is_told_and_stops_nothing() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    // The folder cannot be made, because there is a file.
    put(folder, "state", "a file");
    let running = start("afpacket", &hosts, folder);
    done(&running, "suspects add 10.1.0.1");
    let error = running.status().state.and_then(|state| state.error).expect("it is told");
    assert!(error.contains("File exists") || error.contains("Not a directory"), "{error}");
    assert!(running.log().contains("state: the state is not saved for now: "), "{}", running.log());
    let (_, text, _) = ctl_status(&running);
    assert!(text.contains("state is not saved to "), "{text}");
    fs::remove_file(folder.join("state")).expect("it is there");
    running
        .wait_until("it is saved again", |running| running.status().state.is_some_and(|state| state.error.is_none()));
    assert!(running.log().contains("the state is saved again"), "{}", running.log());
    running.kill();
    let running = start("afpacket", &hosts, folder);
    assert_eq!(suspects(&running), BTreeSet::from(["10.1.0.1".to_owned()]));
    running.stop();
    // A damaged journal and snapshot.
    for file in fs::read_dir(folder.join("state")).expect("it is there") {
        let path = file.expect("it can be read").path();
        let mut bytes = fs::read(&path).expect("it can be read");
        if let Some(last) = bytes.last_mut().filter(|_| path.extension().is_some_and(|one| one == "snapshot")) {
            *last ^= 1;
            fs::write(&path, bytes).expect("it can be written");
        }
    }
    let running = start("afpacket", &hosts, folder);
    assert!(running.log().contains(".snapshot: byte "), "{}", running.log());
    assert_eq!(running.stop(), 0);
}

fn ctl_status(running: &Running) -> (i32, String, String) {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["ctl", "--control"]).arg(running.control()).arg("status").output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn debts_on_a_slow_disk_delay_no_change() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "p.weir", &POLICY.replace("upstream {", "upstream { udp dport 9 limit rate 1000kpps accept;"));
    let more = vec!["--state".to_owned(), folder.join("state").display().to_string()];
    let setup = Setup { more, ..Setup::new("afpacket") };
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    running.wait_until("debts are written", |_| folder.join("state/debts").exists());
    // The slowest disk is one for which the thread waits for ever.
    let stopped = Traced::stop(&running, "weir-debts");
    done(&running, "suspects add 10.1.0.1");
    std::thread::sleep(USUAL);
    drop(stopped);
    running.kill();
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    assert_eq!(suspects(&running), BTreeSet::from(["10.1.0.1".to_owned()]), "{}", running.log());
    assert_eq!(running.stop(), 0);
}

#[test]
fn state_that_cannot_be_read_is_told_and_kept() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    let running = start("afpacket", &hosts, folder);
    done(&running, "suspects add 10.1.0.1");
    running.wait_until_saved();
    assert_eq!(running.stop(), 0);
    // A newer Weir wrote it: byte 8 is the lowest of the version.
    let state = folder.join("state");
    let mut newer = Vec::new();
    for file in fs::read_dir(&state).expect("it is there") {
        let path = file.expect("it can be read").path();
        let mut bytes = fs::read(&path).expect("it can be read");
        if bytes.is_empty() {
            continue;
        }
        bytes[8] = 9;
        fs::write(&path, &bytes).expect("it can be written");
        newer.push((format!("{}.unread", path.display()), bytes));
    }
    // A snapshot is made at each start.
    for round in 0..4 {
        let running = start("afpacket", &hosts, folder);
        running.wait_until_saved();
        let unread = running.status().state.expect("it saves").unread;
        assert!(unread.iter().any(|name| name.ends_with(".snapshot.unread")), "{unread:?}\n{}", running.log());
        let (_, text, _) = ctl_status(&running);
        assert!(text.contains(&format!("state that was not restored is kept as {}\n", unread[0])), "{text}");
        let is_told = running.log().contains("another version of Weir wrote it: format 9, not 2; it is kept as ");
        assert_eq!(is_told, round == 0, "{}", running.log());
        assert_eq!(running.stop(), 0);
    }
    for (path, bytes) in newer {
        let kept = fs::read(&path);
        // A journal without changes need not be kept.
        assert!(kept.is_ok_and(|kept| kept == bytes) || bytes.len() <= 28, "{path}");
    }
}

test_on!([afpacket] what_others_can_write_is_not_used);
/// A pipe does not stop the start, and a folder that others can write does.
fn what_others_can_write_is_not_used(engine: &str, hosts: &Hosts, folder: &Path) {
    let state = folder.join("state");
    assert_eq!(start(engine, hosts, folder).stop(), 0);
    let pipe = state.join("flows");
    let _former = fs::remove_file(&pipe);
    hosts.weir.call("mkfifo", &format!("-m 600 {}", pipe.display()));
    let running = start(engine, hosts, folder);
    let kept = running.status().state.expect("it saves").unread;
    assert_eq!(kept, ["flows.unread"], "{}", running.log());
    assert!(running.log().contains("flows: it is a pipe, not a regular file; it is kept as flows.unread"));
    assert_eq!(running.stop(), 0);
    fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let more = vec!["--state".to_owned(), state.display().to_string()];
    let (code, stderr) = Running::refused_as(&hosts.weir, folder, "p.weir", &Setup { more, ..Setup::new(engine) });
    let words = [state.to_str().expect("it is text"), "can be written by others", "chmod go-w"];
    assert!(code == 1 && words.iter().all(|word| stderr.contains(word)), "{code}: {stderr}");
}
