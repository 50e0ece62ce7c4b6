//! Tables and limits that follow their list files: `weir ctl reload`, SIGHUP, `watch`, and what is refused.

use crate::device_under_test::Running;
use crate::hosts::Hosts;
use crate::traffic::{Listener, frames, send};
use crate::{check_account, put};
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use weir_control::{RefusedUpdate, Request};

/// Sources of packets.
const ONE: &str = "10.20.1.1";
const TWO: &str = "10.20.2.77";
const THREE: &str = "10.20.3.9";
const ADMIN: &str = "10.20.4.4";
const FREE: &str = "10.9.0.1";
const SOURCES: [&str; 5] = [ONE, TWO, THREE, ADMIN, FREE];

/// `weir ctl`. Returns the exit code, standard output and standard error.
fn ctl(running: &Running, arguments: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(running.control()).args(arguments.split(' '));
    let output = command.output().expect("the program was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The JSON answer to a request that succeeds.
#[track_caller]
fn done(running: &Running, arguments: &str) -> Value {
    let (code, stdout, stderr) = ctl(running, &format!("{arguments} --json"));
    assert_eq!(code, 0, "{arguments}: {stderr}{}", running.log());
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{arguments}: {error}: {stdout}"))
}

#[track_caller]
fn refused(running: &Running, arguments: &str, problem: &str) {
    let (code, stdout, stderr) = ctl(running, arguments);
    assert!(code == 2 && stderr.contains(problem) && stdout.is_empty(), "{arguments}: {code}: {stdout}{stderr}");
}

/// Sends one packet from each source, and checks whose packets do not arrive at the server.
#[track_caller]
fn dropped(running: &Running, hosts: &Hosts, expected: &[&str]) {
    let before = running.stats().upstream.total;
    let at_server = Listener::at(&hosts.server, "s");
    let frame =
        |source: &str| frames(&format!("eth / ip saddr={source} daddr=10.9.0.2 / udp sport=1000 dport=9\n")).remove(0);
    send(&hosts.client, "c", &SOURCES.map(frame));
    let all = before.packets + SOURCES.len() as u64;
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
    let passed = stats.upstream.total.passed - before.passed;
    let arrived = at_server.received(passed as usize);
    let source = |frame: &Vec<u8>| frame[26..30].iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    let arrived: BTreeSet<String> = arrived.iter().map(source).collect();
    let others = SOURCES.iter().filter(|source| !arrived.contains(**source)).copied();
    assert_eq!(others.collect::<Vec<_>>(), expected, "{}", running.log());
}

/// `{"table": "bad", "entries_before": 2, "entries": 3}`
fn changed(table: &str, entries_before: usize, entries: usize) -> Value {
    json!({ "table": table, "entries_before": entries_before, "entries": entries })
}

/// The refused update that the status shows.
#[track_caller]
fn refusal(running: &Running) -> RefusedUpdate {
    let refusals = running.status().updates.refusals;
    let [refusal] = &refusals[..] else { panic!("{refusals:?}: {}", running.log()) };
    refusal.clone()
}

fn wait_for_entries(running: &Running, table: &str, entries: usize) {
    running.wait_until(&format!("{table} has {entries} entries"), |running| {
        let last = running.status().updates.last;
        last.iter().any(|update| {
            update.changed.list.to_string() == format!("table {table}") && update.changed.entries == entries
        })
    });
}

each_kind!(a_reload_applies_what_has_changed_in_all_lists);
fn a_reload_applies_what_has_changed_in_all_lists(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "bad.txt", "203.0.113.5\n203.0.113.6\n");
    put(folder, "geo.csv", "192.0.2.0/24,AA\n10.20.3.0/24,BB\n");
    put(folder, "each.csv", "192.0.2.0/24,1/hour,1\n");
    let policy = "
table bad { type ipv4; file \"bad.txt\" }
table geo { type ipv4 : label; file \"geo.csv\" }
table fixed { type ipv4; elements = { 192.0.2.9 } }
limits each { file \"each.csv\" }
upstream { ip saddr @bad drop; ip saddr @geo { AA } drop; ip saddr @fixed drop; ip saddr limit @each; accept }
posture high { upstream { ip saddr @bad drop; ip saddr 10.9.0.1 drop; ip saddr limit @each; accept } }
downstream { accept }
";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    dropped(&running, hosts, &[]);
    assert_eq!(done(&running, "reload"), json!({ "generation": null, "lists": [] }));
    // The text of the policy on disk is not read again.
    put(folder, "p.weir", "broken");

    put(folder, "bad.txt", &format!("203.0.113.6\n{ONE}\n{TWO}\n"));
    let in_place = ctl(&running, "table bad count").0 == 0;
    if in_place {
        assert_eq!(done(&running, &format!("table bad add {FREE}"))["entries"], 3);
        dropped(&running, hosts, &[FREE]);
    }
    let reloaded = done(&running, "reload");
    assert_eq!(reloaded["lists"], json!([changed("bad", if in_place { 3 } else { 2 }, 3)]));
    assert_eq!(reloaded["generation"], if in_place { Value::Null } else { json!(2) });
    dropped(&running, hosts, &[ONE, TWO]);

    // A label that no entry had, and limits, need a new generation. It is in the same posture. A table that was
    // changed by hand has the contents of its file, although the file has not changed.
    put(folder, "geo.csv", "192.0.2.0/24,CC\n10.20.3.0/24,AA\n");
    put(folder, "each.csv", "192.0.2.0/24,1/hour,1\n10.20.4.0/24,1/hour,1\n");
    if in_place {
        done(&running, &format!("table bad del {ONE}"));
        done(&running, "table fixed add 10.9.0.1");
    }
    running.ask(&Request::Posture { name: Some("high".into()) }).expect("there is one");
    let reloaded = done(&running, "reload");
    let by_hand = if in_place { vec![changed("bad", 2, 3)] } else { vec![] };
    let lists: Vec<Value> = by_hand
        .into_iter()
        .chain([changed("geo", 2, 2), json!({ "limits": "each", "entries_before": 1, "entries": 2 })])
        .collect();
    let status = running.status();
    assert_eq!((&reloaded["lists"], &reloaded["generation"]), (&json!(lists), &json!(status.generation)));
    assert!(reloaded["notices"].to_string().contains("the policy was loaded again"), "{reloaded}");
    assert_eq!(status.posture.as_deref(), Some("high"));
    assert_eq!(status.updates.last.len(), 3);
    let target = (status.rollback_to, status.rollback_posture.as_deref());
    assert_eq!(target, (Some(status.generation), None), "the base policy, with the new lists");
    dropped(&running, hosts, &[ONE, TWO, FREE]);
    running.ask(&Request::Posture { name: None }).expect("there is one");
    // The first packet from the address with a limit has passed. Manual changes of other tables stay.
    dropped(&running, hosts, if in_place { &[ONE, TWO, THREE, ADMIN, FREE] } else { &[ONE, TWO, THREE, ADMIN] });

    only_changes_in_place_during_a_trial(&running, folder, policy);
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

fn only_changes_in_place_during_a_trial(running: &Running, folder: &Path, policy: &str) {
    put(folder, "other.weir", policy);
    let other = running.load(&folder.join("other.weir"));
    running.ask(&Request::Activate { generation: other, confirm_s: Some(600.0) }).expect("it is ready");
    put(folder, "each.csv", "192.0.2.0/24,1/hour,1\n");
    refused(running, "reload", "a policy is on trial: confirm it or roll back first");
    assert_eq!(refusal(running).list.to_string(), "limits each");
    running.ask(&Request::Confirm).expect("it is on trial");
    assert_eq!(done(running, "reload")["lists"].as_array().map(Vec::len), Some(1));
    assert!(running.status().updates.refusals.is_empty());
}

each_engine!(a_policy_that_is_loaded_after_a_reload_continues);
fn a_policy_that_is_loaded_after_a_reload_continues(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "bad.txt", "203.0.113.5\n");
    put(folder, "each.csv", "192.0.2.0/24,1pps,1\n");
    let policy = "
table bad { type ipv4; file \"bad.txt\" }
limits each { file \"each.csv\" }
upstream { ip saddr @bad drop; ip saddr limit @each; accept }
downstream { accept }
";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    put(folder, "bad.txt", &format!("{ONE}\n"));
    done(&running, "reload");
    done(&running, &format!("table bad add {TWO}"));
    dropped(&running, hosts, &[ONE, TWO]);
    // The list is the same as at the reload, so the change by hand stays.
    let second = running.load(&folder.join("p.weir"));
    running.ask(&Request::Activate { generation: second, confirm_s: None }).expect("it is ready");
    dropped(&running, hosts, &[ONE, TWO]);
    // Limits need a new generation, in which the change by hand is undone.
    put(folder, "each.csv", "192.0.2.0/24,2pps,1\n");
    assert_eq!(done(&running, "reload")["generation"], second + 1);
    dropped(&running, hosts, &[ONE]);
    assert_eq!(running.stop(), 0);
}

each_kind!(a_list_that_outgrows_its_room_is_applied_with_all_others_or_not_at_all);
fn a_list_that_outgrows_its_room_is_applied_with_all_others_or_not_at_all(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "first.txt", "203.0.113.5\n");
    put(folder, "second.txt", "203.0.113.6\n");
    let policy = "
table first { type ipv4; file \"first.txt\" }
table second { type ipv4; file \"second.txt\" }
upstream { ip saddr @first drop; ip daddr @second drop; accept }
downstream { accept }
";
    put(folder, "p.weir", policy);
    put(folder, "other.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    let other = running.load(&folder.join("other.weir"));
    running.ask(&Request::Activate { generation: other, confirm_s: Some(600.0) }).expect("it is ready");
    put(folder, "first.txt", &format!("{ONE}\n{TWO}\n"));
    // Addresses far apart, because neighbours share words.
    let far = |n: u32| Ipv4Addr::from(1 << 30 | n.wrapping_mul(2_654_435_761) >> 2);
    let many = (0..400_000).map(|n| format!("{}\n", far(n))).collect::<String>();
    put(folder, "second.txt", &many);
    let lists = json!([changed("first", 1, 2), changed("second", 1, 400_000)]);
    if engine == "xdp" {
        // The kernel has no room, and no generation can succeed one that is on trial.
        refused(&running, "reload", "table second: the image needs ");
        let refusals = running.status().updates.refusals;
        let is_clear = |one: &RefusedUpdate| {
            one.reason.contains("table second: the image needs ") && one.reason.contains("a policy is on trial")
        };
        assert!(refusals.len() == 2 && refusals.iter().all(is_clear), "{refusals:?}");
        dropped(&running, hosts, &[]);
        assert_eq!(done(&running, "table first count")["entries"], 1);
        running.ask(&Request::Confirm).expect("it is on trial");
        let reloaded = done(&running, "reload");
        assert_eq!((&reloaded["lists"], &reloaded["generation"]), (&lists, &json!(other + 1)));
        assert!(reloaded["notices"].to_string().contains("table second: the image needs "), "{reloaded}");
    } else {
        assert_eq!(done(&running, "reload"), json!({ "generation": null, "lists": lists }));
    }
    assert!(running.status().updates.refusals.is_empty());
    dropped(&running, hosts, &[ONE, TWO]);
    assert_eq!(done(&running, "table second count")["entries"], 400_000);
    assert_eq!(done(&running, "reload"), json!({ "generation": null, "lists": [] }));
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_kind!(a_feed_keeps_out_of_generations_with_another_list);
fn a_feed_keeps_out_of_generations_with_another_list(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "bad.txt", &format!("{ONE}\n"));
    let policy = "
table bad { type ipv4; file \"bad.txt\" }
upstream { ip saddr @bad drop; accept }
downstream { accept }
";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    put(folder, "bad.txt", &format!("{TWO}\n"));
    let second = running.load(&folder.join("p.weir"));
    running.ask(&Request::Activate { generation: second, confirm_s: None }).expect("it is ready");
    dropped(&running, hosts, &[TWO]);
    put(folder, "bad.txt", &format!("{TWO}\n{THREE}\n"));
    assert_eq!(done(&running, "reload")["lists"], json!([changed("bad", 1, 2)]));
    dropped(&running, hosts, &[TWO, THREE]);
    done(&running, &format!("table bad add {FREE}"));
    running.ask(&Request::Rollback).expect("there is a target");
    dropped(&running, hosts, &[ONE, FREE]);
    assert_eq!(running.stop(), 0);
}

each_kind!(a_watched_table_follows_its_file);
fn a_watched_table_follows_its_file(engine: &str, hosts: &Hosts, folder: &Path) {
    fs::create_dir(folder.join("lists")).expect("the folder can be written to");
    let at = |name: &str| folder.join("lists").join(name);
    put(folder, "lists/bad.txt", "203.0.113.5\n");
    put(folder, "more.txt", "# none\n");
    let policy = "
table bad { type ipv4; file \"lists/bad.txt\"; file \"more.txt\"; watch }
table still { type ipv4; file \"more.txt\" }
upstream { ip saddr @bad drop; ip saddr @still drop; accept }
downstream { accept }
";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    assert_eq!(running.status().updates.watched, ["bad"]);
    dropped(&running, hosts, &[]);
    // Rewritten in place.
    fs::write(at("bad.txt"), format!("203.0.113.5\n{ONE}\n")).expect("it can be written");
    wait_for_entries(&running, "bad", 2);
    dropped(&running, hosts, &[ONE]);
    // Renamed over.
    fs::write(at("new"), format!("{TWO}\n{THREE}\n203.0.113.7\n")).expect("it can be written");
    fs::rename(at("new"), at("bad.txt")).expect("it can be renamed");
    wait_for_entries(&running, "bad", 3);
    dropped(&running, hosts, &[TWO, THREE]);
    // Written piece by piece: a list that is still open is not taken.
    let mut file = fs::File::create(at("bad.txt")).expect("it can be written");
    writeln!(file, "{ONE}").expect("it can be written");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(done(&running, "status")["updates"]["last"][0]["entries"], 3);
    writeln!(file, "203.0.113.1\n203.0.113.2\n203.0.113.3").expect("it can be written");
    drop(file);
    wait_for_entries(&running, "bad", 4);
    dropped(&running, hosts, &[ONE]);
    // The second file. The other table has no copy of it, because it is not watched.
    put(folder, "more.txt", &format!("{FREE}\n"));
    wait_for_entries(&running, "bad", 5);
    dropped(&running, hosts, &[ONE, FREE]);
    done(&running, "reload");
    let update = &done(&running, "status")["updates"]["last"][1];
    assert_eq!((&update["table"], &update["by"]), (&json!("still"), &json!("reload")));
    // Deleted: the entries stay, and the status says so until the file is there again.
    fs::remove_file(at("bad.txt")).expect("it is there");
    running.wait_until("it is missing", |running| !running.status().updates.refusals.is_empty());
    let missing = refusal(&running);
    assert!(missing.file.ends_with("lists/bad.txt") && missing.reason.contains("No such file"), "{missing:?}");
    dropped(&running, hosts, &[ONE, FREE]);
    fs::write(at("bad.txt"), format!("{TWO}\n")).expect("it can be written");
    wait_for_entries(&running, "bad", 2);
    assert!(running.status().updates.refusals.is_empty());
    dropped(&running, hosts, &[TWO, FREE]);
    // A directory that is replaced.
    fs::rename(folder.join("lists"), folder.join("old")).expect("it can be renamed");
    fs::create_dir(folder.join("lists")).expect("the folder can be written to");
    fs::write(at("bad.txt"), format!("{ONE}\n{TWO}\n{THREE}\n")).expect("it can be written");
    wait_for_entries(&running, "bad", 4);
    dropped(&running, hosts, &[ONE, TWO, THREE, FREE]);
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_kind!(refused_updates_change_nothing_and_the_status_says_why);
fn refused_updates_change_nothing_and_the_status_says_why(engine: &str, hosts: &Hosts, folder: &Path) {
    const LINES: u32 = 1_000_000;
    let feed = |bad_line: Option<u32>, last: &str| {
        let line = |n: u32| match bad_line {
            Some(bad) if bad == n + 1 => "198.51.100.x\n".to_owned(),
            _ => format!("100.{}.{}.{}\n", n >> 16, n >> 8 & 255, n & 255),
        };
        (0..LINES).map(line).chain([last.to_owned()]).collect::<String>()
    };
    put(folder, "admin.txt", "10.20.4.0/28\n");
    put(folder, "bad.txt", &feed(None, ONE));
    let policy = "
table admin { type ipv4; file \"admin.txt\" }
table bad { type ipv4; file \"bad.txt\"; watch; protect @admin; max-change 20% }
upstream { ip saddr @bad drop; accept }
downstream { accept }
";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    dropped(&running, hosts, &[ONE]);
    let replace = |text: &str| {
        put(folder, "new.txt", text);
        fs::rename(folder.join("new.txt"), folder.join("bad.txt")).expect("it can be renamed");
    };
    let is_refused = |times: u64, reason: &str| {
        running.wait_until(reason, |running| running.status().updates.refused >= times);
        let refusal = refusal(&running);
        assert!(refusal.reason.contains(reason), "{refusal:?}");
        assert_eq!((refusal.list.to_string().as_str(), refusal.file.ends_with("bad.txt")), ("table bad", true));
        dropped(&running, hosts, &[ONE]);
    };
    replace(&feed(Some(77_001), TWO));
    is_refused(1, "bad.txt:77001: ");
    replace(&feed(None, ADMIN));
    is_refused(2, "table bad: 10.20.4.4 overlaps 10.20.4.0/28 of the protected table admin");
    replace(&format!("{TWO}\n"));
    is_refused(3, "table bad: 1,000,001 entries would become 1, `max-change 20%` allows less");
    let (code, text, _) = ctl(&running, "status");
    assert!(code == 0 && text.contains("refused: table bad from bad.txt, for "), "{text}");
    assert!(text.contains(", 3 times: table bad: 1,000,001 entries would become 1"), "{text}");

    // An operator may force a large change, but no protected address.
    refused(&running, "reload", "bad.txt: table bad: 1,000,001 entries would become 1");
    replace("0.0.0.0/0\n");
    is_refused(5, "0.0.0.0/0 overlaps 10.20.4.0/28");
    refused(&running, "reload --force", "0.0.0.0/0 overlaps 10.20.4.0/28");
    replace(&format!("{TWO}\n"));
    is_refused(7, "would become 1");
    assert_eq!(done(&running, "reload --force")["lists"], json!([changed("bad", 1_000_001, 1)]));
    assert!(running.status().updates.refusals.is_empty());
    dropped(&running, hosts, &[TWO]);

    // An address may move from one list to the other, but not be on both.
    put(folder, "admin.txt", "192.0.2.1\n");
    put(folder, "bad.txt", &format!("{ADMIN}\n"));
    running.wait_until("the protected list is the old one", |running| running.status().updates.refused >= 8);
    assert_eq!(done(&running, "reload")["lists"], json!([changed("admin", 1, 1), changed("bad", 1, 1)]));
    dropped(&running, hosts, &[ADMIN]);
    put(folder, "admin.txt", &format!("{ADMIN}\n{FREE}\n"));
    done(&running, "reload");
    put(folder, "bad.txt", &format!("{ADMIN}\n{FREE}\n"));
    running.wait_until("a new address", |running| running.status().updates.refused >= 9);
    assert!(refusal(&running).reason.contains("10.9.0.1 overlaps 10.9.0.1 of the protected table admin"));
    // The file is back at what was loaded.
    put(folder, "bad.txt", &format!("{ADMIN}\n"));
    running.wait_until("it is resolved", |running| running.status().updates.refusals.is_empty());
    dropped(&running, hosts, &[ADMIN]);
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

each_engine_and_form!(guard_rails_hold_for_changes_by_hand);
fn guard_rails_hold_for_changes_by_hand(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "bad.txt", "203.0.113.5\n");
    let policy = "
table admin { type ipv4; elements = { 10.20.4.0/28, 192.0.2.7 } }
table bad { type ipv4; file \"bad.txt\"; layout rank-leaf; protect @admin; max-change 100% }
upstream { ip saddr @admin accept; ip saddr @bad drop; accept }
downstream { accept }
";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    let problem = "10.20.0.0/16 overlaps 10.20.4.0/28 of the protected table admin";
    refused(&running, &format!("table bad add {ONE} 10.20.0.0/16"), problem);
    refused(&running, "table bad add 10.20.4.7 192.0.2.7", "admin (and 1 more)");
    assert_eq!(done(&running, &format!("table bad add {ONE}"))["entries"], 2);
    assert_eq!(done(&running, &format!("table admin add {TWO}"))["entries"], 3);
    refused(&running, &format!("table bad add {TWO}"), "10.20.2.77 overlaps 10.20.2.77 of the protected table admin");
    let list = |name: &str, text: &str| {
        put(folder, name, text);
        folder.join(name).display().to_string()
    };
    let overlapping = list("overlapping.txt", &format!("{THREE}\n192.0.2.7\n"));
    refused(
        &running,
        &format!("table bad replace {overlapping} --force"),
        "overlapping.txt: table bad: 192.0.2.7 overlaps",
    );
    assert!(refusal(&running).file.ends_with("overlapping.txt"));
    let large = list("large.txt", &format!("{THREE}\n203.0.113.0\n203.0.113.2\n203.0.113.4\n203.0.113.6\n"));
    refused(&running, &format!("table bad replace {large}"), "2 entries would become 5, `max-change 100%` allows less");
    assert_eq!(refusal(&running).times, 2);
    dropped(&running, hosts, &[ONE]);
    assert_eq!(done(&running, &format!("table bad replace {large} --force"))["entries"], 5);
    assert!(running.status().updates.refusals.is_empty());
    dropped(&running, hosts, &[THREE]);
    assert_eq!(running.stop(), 0);
}

each_kind!(a_hang_up_reloads_all_lists);
fn a_hang_up_reloads_all_lists(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "bad.txt", "203.0.113.5\n");
    let policy =
        "table bad { type ipv4; file \"bad.txt\" }\nupstream { ip saddr @bad drop; accept }\ndownstream { accept }\n";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    let hang_up = || kill(running.pid(), Signal::SIGHUP).expect("it runs");
    put(folder, "bad.txt", &format!("{ONE}\n{TWO}\n"));
    hang_up();
    wait_for_entries(&running, "bad", 2);
    assert_eq!(running.status().updates.last[0].by, "SIGHUP");
    dropped(&running, hosts, &[ONE, TWO]);
    put(folder, "bad.txt", &format!("{THREE}\nx\n"));
    hang_up();
    running.wait_until("it is refused", |running| !running.status().updates.refusals.is_empty());
    assert!(refusal(&running).reason.contains("bad.txt:2: "), "{:?}", refusal(&running));
    assert!(running.log().contains("weir: SIGHUP: nothing is changed: bad.txt:2: "), "{}", running.log());
    dropped(&running, hosts, &[ONE, TWO]);
    // The list is not watched, but the refusal is resolved when the file is as it was loaded.
    put(folder, "bad.txt", &format!("{ONE}\n{TWO}\n"));
    running.wait_until("it is resolved", |running| running.status().updates.refusals.is_empty());
    hang_up();
    running.wait_until("nothing is new", |running| running.log().contains("weir: SIGHUP: no list has changed"));
    assert_eq!(running.stop(), 0);
}

#[test]
fn a_bundle_has_no_lists_to_reload() {
    let (hosts, folder) = (Hosts::new(), tempfile::tempdir().expect("a temporary folder"));
    let folder = folder.path();
    put(folder, "bad.txt", "203.0.113.5\n");
    let policy = "table bad { type ipv4; file \"bad.txt\"; watch }\nupstream { ip saddr @bad drop; accept }\ndownstream { accept }\n";
    put(folder, "p.weir", policy);
    let compiled = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["compile", "p.weir", "-o", "p.weirb"])
        .current_dir(folder)
        .output()
        .expect("the program was built");
    let stderr = String::from_utf8_lossy(&compiled.stderr);
    assert!(
        compiled.status.success() && stderr.contains("note: table bad: `watch` has no effect in a bundle"),
        "{stderr}"
    );
    let running = Running::start(&hosts.weir, folder, "p.weirb", "afpacket", 1);
    refused(&running, "reload", "generation 1 is a bundle, which has no list files; load a new bundle instead");
    assert!(running.status().updates.watched.is_empty());
    kill(running.pid(), Signal::SIGHUP).expect("it runs");
    running.wait_until("it says so", |running| {
        running.log().contains("SIGHUP: nothing is changed: generation 1 is a bundle")
    });
    assert_eq!(running.stop(), 0);
}
