//! Tables that change while packets pass: by `weir ctl table`, across generations, and under load.

use crate::device_under_test::{Running, TIMEOUT};
use crate::form;
use crate::hosts::{Host, Hosts};
use crate::traffic::{Listener, Pace, frames, put_through, send};
use crate::{check_account, put};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_control::Request;
use weir_engine::live::afpacket::wire::Wire;

/// One source for each table, and one that no table names.
const SOURCES: [&str; 5] = ["10.20.1.1", "10.20.2.77", "10.20.3.9", "10.20.4.4", "10.9.0.1"];
const BAD: &str = SOURCES[0];
const IN_NET: &str = SOURCES[1];
const COUNTRY: &str = SOURCES[2];
const ADMIN: &str = SOURCES[3];
const FREE: &str = SOURCES[4];

/// Sets of addresses (fused), a set of prefixes, and labels.
const TABLES: &str = "
table bad { type ipv4; file \"bad.txt\" }
table admin { type ipv4; elements = { 10.20.4.4 } }
table nets { type ipv4; elements = { 172.16.0.0/12 } }
table geo { type ipv4 : label; elements = { 192.0.2.0/24 : AA, 198.51.100.0/24 : BB } }
";
const RULES: &str =
    "ip saddr @admin accept; ip saddr @bad drop; ip saddr @nets drop; ip saddr @geo { AA } drop; accept";

/// `weir ctl table`. Returns the exit code, standard output and standard error.
pub fn ctl(running: &Running, arguments: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(running.control()).arg("table").args(arguments.split(' '));
    let output = command.output().expect("the program was built");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The JSON answer to a request that succeeds.
#[track_caller]
pub fn done(running: &Running, arguments: &str) -> Value {
    let (code, stdout, stderr) = ctl(running, &format!("{arguments} --json"));
    assert_eq!(code, 0, "{arguments}: {stderr}{}", running.log());
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{arguments}: {error}: {stdout}"))
}

#[track_caller]
pub fn refused(running: &Running, arguments: &str, problem: &str) {
    let (code, stdout, stderr) = ctl(running, arguments);
    assert!(code == 2 && stderr.contains(problem) && stdout.is_empty(), "{arguments}: {code}: {stdout}{stderr}");
}

fn frame(source: &str) -> Vec<u8> {
    frames(&format!("eth / ip saddr={source} daddr=10.9.0.2 / udp sport=1000 dport=9\n")).remove(0)
}

/// The address in the IPv4 source of an Ethernet frame.
fn source(frame: &[u8]) -> String {
    frame[26..30].iter().map(u8::to_string).collect::<Vec<_>>().join(".")
}

/// Sends one packet from each source. Returns the sources whose packets arrive at the server.
fn passes(running: &Running, hosts: &Hosts) -> BTreeSet<String> {
    let before = running.stats().upstream.total;
    let at_server = Listener::at(&hosts.server, "s");
    send(&hosts.client, "c", &SOURCES.map(frame));
    let all = before.packets + SOURCES.len() as u64;
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= all);
    let passed = stats.upstream.total.passed - before.passed;
    let arrived = at_server.received(passed as usize);
    assert_eq!(arrived.len() as u64, passed);
    arrived.iter().map(|frame| source(frame)).collect()
}

#[track_caller]
fn all_but(running: &Running, hosts: &Hosts, dropped: &[&str]) {
    let expected: BTreeSet<String> =
        SOURCES.iter().filter(|source| !dropped.contains(source)).map(|source| (*source).to_owned()).collect();
    assert_eq!(passes(running, hosts), expected);
}

fn policy(folder: &Path, name: &str, rules: &str) {
    put(folder, name, &format!("{TABLES}upstream {{ {rules} }}\ndownstream {{ accept }}\n"));
}

fn activate(running: &Running, generation: u64) {
    running.ask(&Request::Activate { generation, confirm_s: None }).expect("it is ready");
}

each_engine_form_and_p4!(a_change_takes_effect_at_once_and_outlives_policies);
fn a_change_takes_effect_at_once_and_outlives_policies(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "bad.txt", "203.0.113.5\n203.0.113.6\n");
    policy(folder, "first.weir", RULES);
    // The tables are the same, but `bad` is alone in its image.
    policy(folder, "second.weir", &RULES.replace("ip saddr @admin accept; ", "ip daddr @admin drop; "));
    let running = Running::start(&hosts.weir, folder, "first.weir", engine, 2);
    all_but(&running, hosts, &[]);
    let second = running.load(&folder.join("second.weir"));

    // A reload undoes the changes of tables that follow lists. Tables of a bundle follow none.
    let changed = |table: &str, changed: u64, entries: u64| match table {
        "bad" if !form::is_bundle() => {
            json!({"table": table, "changed": changed, "entries": entries, "reload_undoes": true})
        }
        _ => json!({"table": table, "changed": changed, "entries": entries}),
    };
    assert_eq!(done(&running, &format!("bad add {BAD} 203.0.113.5")), changed("bad", 1, 3));
    all_but(&running, hosts, &[BAD]);
    assert_eq!(done(&running, "nets add 10.20.2.0/25 10.30.0.0-10.30.0.6"), changed("nets", 4, 5));
    assert_eq!(done(&running, "geo add 10.20.3.0/24,AA"), changed("geo", 1, 3));
    all_but(&running, hosts, &[BAD, IN_NET, COUNTRY]);
    assert_eq!(done(&running, "geo add 10.20.3.9,BB"), changed("geo", 1, 4));
    assert_eq!(done(&running, &format!("bad add {ADMIN}")), changed("bad", 1, 4));
    all_but(&running, hosts, &[BAD, IN_NET]);
    assert_eq!(
        done(&running, "geo get 10.20.3.9"),
        json!({"table": "geo", "found": {"entry": "10.20.3.9", "label": "BB"}})
    );
    assert_eq!(
        done(&running, "geo get 10.20.3.10"),
        json!({"table": "geo", "found": {"entry": "10.20.3.0/24", "label": "AA"}})
    );
    assert_eq!(done(&running, "bad get 10.20.1.2"), json!({"table": "bad", "found": null}));

    // The generation that was loaded before the changes has them too, also in an image of its own.
    activate(&running, second);
    all_but(&running, hosts, &[BAD, IN_NET, ADMIN]);
    assert_eq!(done(&running, &format!("bad del {BAD} 10.0.0.99")), changed("bad", 1, 3));
    all_but(&running, hosts, &[IN_NET, ADMIN]);
    running.ask(&Request::Rollback).expect("there is a target");
    all_but(&running, hosts, &[IN_NET]);

    // The lists are the same, so a policy that is loaded now continues with the changes. This holds even if its rules
    // put tables into other images. A list with other entries begins anew.
    policy(folder, "third.weir", &RULES.replace("@admin accept; ip saddr @bad", "@bad drop; ip daddr @bad"));
    let third = running.load(&folder.join("third.weir"));
    activate(&running, third);
    all_but(&running, hosts, &[IN_NET, ADMIN]);
    running.ask(&Request::Rollback).expect("there is a target");
    let again = running.load(&folder.join("second.weir"));
    put(folder, "bad.txt", &format!("{BAD}\n203.0.113.6\n"));
    let other = running.load(&folder.join("second.weir"));
    activate(&running, again);
    all_but(&running, hosts, &[IN_NET, ADMIN]);
    activate(&running, other);
    all_but(&running, hosts, &[BAD, IN_NET]);
    assert_eq!(done(&running, "bad count"), json!({"table": "bad", "entries": 2}));
    running.ask(&Request::Rollback).expect("there is a target");
    all_but(&running, hosts, &[IN_NET, ADMIN]);

    let stats = running.settled();
    check_account(&stats);
    assert_eq!(running.stop(), 0);
}

each_engine_and_form!(a_list_replaces_a_table_and_what_does_not_fit_changes_nothing);
fn a_list_replaces_a_table_and_what_does_not_fit_changes_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "bad.txt", "203.0.113.5\n");
    policy(folder, "p.weir", RULES);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 2);
    let many: String = (0..100_000).map(|n: u32| format!("100.{}.{}.{}\n", n >> 16, n >> 8 & 255, n & 255)).collect();
    let list = |name: &str, text: &str| {
        put(folder, name, text);
        folder.join(name).display().to_string()
    };
    let good = list("good.txt", &format!("{many}{BAD}\n"));
    assert_eq!(
        done(&running, &format!("bad replace {good}")),
        match form::is_bundle() {
            false => json!({"table": "bad", "changed": 100_002, "entries": 100_001, "reload_undoes": true}),
            true => json!({"table": "bad", "changed": 100_002, "entries": 100_001}),
        }
    );
    all_but(&running, hosts, &[BAD]);

    let wrong = list("wrong.txt", &format!("{}{BAD}x\n", &many[..many.len() / 2]));
    let lines = many[..many.len() / 2].lines().count();
    refused(&running, &format!("bad replace {wrong}"), &format!("wrong.txt:{lines}: "));
    refused(&running, &format!("bad replace {good}.gone"), "No such file");
    refused(&running, "bad add 10.20.3.0/24", "exact-set");
    refused(&running, &format!("bad add {FREE} 10.0.0.1/33"), "`10.0.0.1/33`");
    refused(&running, &format!("bad add {FREE} 2001:db8::1"), "`2001:db8::1`");
    refused(&running, &format!("bad add {FREE},AA"), ",AA");
    refused(&running, &format!("geo add {FREE}"), "label missing");
    refused(&running, &format!("geo add {FREE},CC"), "no entry had the label CC");
    refused(&running, &format!("none add {FREE}"), "has no table none; it has admin, bad, geo, nets");
    // An entry that may mean a network or one address is refused wherever it enters.
    let two = "write `203.0.113.0/24` for the network, or `203.0.113.77` for the one address";
    let host_bits = list("host-bits.txt", "203.0.113.77/24\n");
    for change in ["add", "update", "del"] {
        refused(&running, &format!("nets {change} 10.9.9.0/24 203.0.113.77/24"), two);
        refused(&running, &format!("nets {change} --file {host_bits}"), two);
    }
    refused(&running, &format!("nets replace {host_bits}"), two);
    refused(&running, "geo add 203.0.113.77/24,AA", two);
    refused(&running, "bad get here", "`here` is not an address");
    refused(&running, "bad get 2001:db8::1", "address of the other family");
    let prefixes = list("prefixes.txt", "10.0.0.0/8\n");
    refused(&running, &format!("bad replace {prefixes}"), "prefixes.txt: table bad: ");
    assert_eq!(done(&running, "bad count")["entries"], 100_001);
    all_but(&running, hosts, &[BAD]);

    let first = done(&running, "bad list --top 2");
    assert_eq!(
        (&first["total"], &first["entries"]),
        (&json!(100_001), &json!([{"entry": BAD}, {"entry": "100.0.0.0"}]))
    );
    let (code, text, _) = ctl(&running, "geo list");
    assert_eq!((code, text.as_str()), (0, "192.0.2.0/24,AA\n198.51.100.0/24,BB\n"));
    assert_eq!(done(&running, "bad flush")["changed"], 100_001);
    all_but(&running, hosts, &[]);
    assert_eq!(running.stop(), 0);
}

each_engine_and_form!(a_dynamic_table_is_bounded_and_outlives_policies_that_fill_it_otherwise);
fn a_dynamic_table_is_bounded_and_outlives_policies_that_fill_it_otherwise(engine: &str, hosts: &Hosts, folder: &Path) {
    let with = |settings: &str| {
        format!(
            "table suspects {{ type ipv4; dynamic; {settings} }}\n\
             upstream {{ ip saddr @suspects drop; accept }}\ndownstream {{ accept }}\n"
        )
    };
    put(folder, "three.weir", &with("size 3"));
    put(folder, "four.weir", &with("size 4; elements = { 192.0.2.9 }"));
    let running = Running::start(&hosts.weir, folder, "three.weir", engine, 2);
    done(&running, &format!("suspects add {BAD} 10.20.2.0/24"));
    let problem = "table suspects is full: it has 2 entries, 2 more would exceed its size of 3";
    refused(&running, &format!("suspects add {BAD} 10.0.0.1 10.0.0.2"), problem);
    all_but(&running, hosts, &[BAD, IN_NET]);
    let four = running.load(&folder.join("four.weir"));
    refused(&running, &format!("suspects add {ADMIN} 192.0.2.1"), "exceed its size of 3");
    activate(&running, four);
    done(&running, &format!("suspects add {ADMIN} 192.0.2.1"));
    all_but(&running, hosts, &[BAD, IN_NET, ADMIN]);
    let count = json!({"table": "suspects", "entries": 4, "size": 4, "refused": 4});
    assert_eq!(done(&running, "suspects count"), count, "2 and 2 more at a size of 3");
    assert_eq!(done(&running, "suspects del 10.20.2.0/24")["entries"], 3);
    all_but(&running, hosts, &[BAD, ADMIN]);
    assert_eq!(running.stop(), 0);
}

/// Addresses that are in the table throughout, and addresses that never are.
const ALWAYS: [&str; 2] = ["10.20.1.1", "10.20.7.7"];
const NEVER: [&str; 2] = ["10.20.1.2", "10.9.0.1"];
/// Pause between two changes of a table.
const PAUSE: Duration = Duration::from_micros(200);
/// Duration of the load.
const LOAD: Duration = Duration::from_secs(2);

/// Sends packets from all addresses until told to stop, as fast as Weir decides them. Returns their number.
fn flood(host: &Host, control: &Path, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<u64> {
    let (stop, mut pace) = (stop.clone(), Pace::of(control));
    host.start(move || {
        let mut wire = Wire::open("c").expect("the host has the wire");
        let round: Vec<Vec<u8>> = ALWAYS.iter().chain(&NEVER).map(|source| frame(source)).collect();
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            sent += put_through(&mut wire, &round);
            pace.wait(sent);
        }
        sent
    })
}

each_engine_and_form!(packets_under_thousands_of_changes_see_no_wrong_table);
fn packets_under_thousands_of_changes_see_no_wrong_table(engine: &str, hosts: &Hosts, folder: &Path) {
    // Changes in both layouts move addresses that share a bucket, a leaf or a block with the constant ones.
    let nets: String = (0..256).map(|n| format!("10.{n}.0.0/16 ")).collect::<String>().trim().replace(' ', ", ");
    let with = |rules: &str| {
        format!(
            "table bad {{ type ipv4; elements = {{ 10.20.1.1, 10.20.7.7 }} }}\n\
             table nets {{ type ipv4; elements = {{ {nets}, 192.0.2.0/25 }} }}\n\
             upstream {{ ip saddr @bad drop; ip saddr != @nets drop; {rules}accept }}\ndownstream {{ accept }}\n"
        )
    };
    put(folder, "p.weir", &with(""));
    put(folder, "q.weir", &with("udp dport 7 drop; "));
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 2);
    let (stop, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let at_server = Listener::at(&hosts.server, "s");
    let sender = flood(&hosts.client, running.control(), &stop);
    let changers: Vec<_> = [("bad", "10.20"), ("nets", "10.20")]
        .into_iter()
        .map(|(table, start)| {
            let (stop, changes, control) = (stop.clone(), changes.clone(), running.control().to_owned());
            std::thread::spawn(move || change_until(&stop, &changes, &control, table, start))
        })
        .collect();
    let begun = Instant::now();
    while begun.elapsed() < LOAD {
        let generation = running.load(&folder.join("q.weir"));
        activate(&running, generation);
    }
    stop.store(true, Ordering::Relaxed);
    changers.into_iter().for_each(|changer| changer.join().expect("every change is made"));
    let sent = sender.join().expect("all are sent");
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent);
    let arrived = at_server.received(stats.upstream.total.passed as usize);
    let mut by_source: BTreeMap<String, u64> = BTreeMap::new();
    arrived.iter().for_each(|frame| *by_source.entry(source(frame)).or_default() += 1);
    let expected: BTreeMap<String, u64> = NEVER.iter().map(|source| ((*source).to_owned(), sent / 4)).collect();
    assert_eq!(by_source, expected, "{engine}");
    check_account(&running.settled());
    let made = changes.load(Ordering::Relaxed);
    assert!(made > 200, "{engine}: only {made} changes were made");
    eprintln!("{engine}: {sent} packets, {made} changes");
    assert_eq!(running.stop(), 0);
}

/// Adds and removes entries around the constant ones, by a stream, until told to stop.
fn change_until(stop: &AtomicBool, changes: &AtomicU64, control: &Path, table: &str, start: &str) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(control).args(["table", table, "stream"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program was built");
    let mut input = child.stdin.take().expect("it is piped");
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let begun = Instant::now();
    for round in 0u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // Neither 1 nor 7 in the third place.
        let entry = match table {
            "bad" => format!("{start}.{}.{}", 16 + round % 200, round % 250),
            _ => format!("{start}.{}.0/24", round % 256),
        };
        for verb in ["add", "del"] {
            writeln!(input, "{verb} {entry}").expect("it reads");
            let answer = answers.next().expect("an answer").expect("text");
            assert!(answer.starts_with(&format!("{table}: 1 changed, ")), "{verb} {entry}: {answer}");
            changes.fetch_add(1, Ordering::Relaxed);
        }
        // The policies are loaded on the same cores.
        std::thread::sleep(PAUSE);
        assert!(begun.elapsed() < 3 * TIMEOUT);
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());
}

each_kind!(a_bundle_continues_with_the_tables_of_a_text_and_gives_them_back);
fn a_bundle_continues_with_the_tables_of_a_text_and_gives_them_back(engine: &str, hosts: &Hosts, folder: &Path) {
    // What a list has twice does not make it another list.
    put(folder, "bad.txt", "203.0.113.5\n203.0.113.6\n203.0.113.5\n");
    policy(folder, "first.weir", RULES);
    policy(folder, "second.weir", &RULES.replace("ip saddr @admin accept; ", "ip daddr @admin drop; "));
    let running = Running::start(&hosts.weir, folder, "first.weir", engine, 2);
    done(&running, &format!("bad add {BAD}"));
    done(&running, "geo add 10.20.3.0/24,AA --timeout 1h");
    let bundle = running.load(&form::compiled(&folder.join("second.weir")));
    done(&running, "nets add 10.20.2.0/25");
    activate(&running, bundle);
    all_but(&running, hosts, &[BAD, IN_NET, COUNTRY]);
    done(&running, &format!("bad del {BAD}"));
    done(&running, &format!("bad add {ADMIN}"));
    all_but(&running, hosts, &[IN_NET, COUNTRY, ADMIN]);
    let found = done(&running, "geo get 10.20.3.9")["found"].clone();
    assert!(found["timeout_s"].as_f64().is_some_and(|left| left > 3500.0 && left < 3600.0), "{found}");
    let text = running.load(&folder.join("first.weir"));
    activate(&running, text);
    all_but(&running, hosts, &[IN_NET, COUNTRY]);
    assert_eq!(done(&running, "bad count")["entries"], 3);
    assert_eq!(running.stop(), 0);
}

test_on!([xdp] and bundled [xdp] tables_beyond_the_first_64_change_in_the_kernel);
/// A program has at most 64 maps, so a policy with more tables is in parts.
fn tables_beyond_the_first_64_change_in_the_kernel(engine: &str, hosts: &Hosts, folder: &Path) {
    let mut text = String::new();
    for table in 0..70 {
        text += &format!("table t{table} {{ type ipv4; layout rank-leaf; elements = {{ 192.0.2.{table} }} }}\n");
    }
    let rules: String = (0..70).map(|table| format!("ip saddr @t{table} drop; ")).collect();
    put(folder, "p.weir", &format!("{text}upstream {{ {rules}accept }}\ndownstream {{ accept }}\n"));
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    all_but(&running, hosts, &[]);
    for (table, source) in [("t2", BAD), ("t66", IN_NET), ("t69", ADMIN)] {
        done(&running, &format!("{table} add {source}"));
    }
    all_but(&running, hosts, &[BAD, IN_NET, ADMIN]);
    // The first change of each table was a new image in the other half; these are in place, and then another image.
    done(&running, &format!("t66 del {IN_NET}"));
    done(&running, &format!("t2 add --atomic {COUNTRY} 192.0.2.99"));
    all_but(&running, hosts, &[BAD, COUNTRY, ADMIN]);
    assert_eq!(running.stop(), 0);
}
