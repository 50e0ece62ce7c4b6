//! `weir run --card`: the card drops the fastest sources of a table, follows the table and the policy, and its packets
//! are counted like all others.

use crate::device_under_test::{HOST, Running, Setup};
use crate::hosts::{Host, Hosts, Wires};
use crate::tables::done;
use crate::traffic::{Listener, frames, send};
use crate::{check_account, put};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use weir_control::{CardStatus, Request, Stats};

/// 10.66.0.9 is in both tables, and rules in front accept or count.
pub const POLICY: &str = "
table admin { type ipv4; elements = { 10.66.0.9 } }
table vip { type ipv4; elements = { 10.66.0.8 } }
table bad { type ipv4; dynamic; size 1000; counters; protect @vip; elements = { 10.66.0.9, 10.67.0.0/16 } }
upstream {
  ip saddr @admin accept
  ip saddr 192.0.2.0/24 accept
  udp dport 99 counter
  ip saddr @bad drop
  ip6 saddr @six drop
  accept
}
downstream { accept }
table six { type ipv6; dynamic; size 100; counters }
";
/// Drops nothing, or UDP only.
const OPEN: &str = "
table bad { type ipv4; dynamic; size 1000; counters }
upstream { ip saddr @bad udp dport 7 drop; accept }
downstream { accept }
posture strict { upstream { ip saddr @bad drop; accept } }
";
const ENTRIES: usize = 16;
const SOURCES: u32 = 64;
/// Bytes of the test frames.
const BYTES: u64 = 60;

/// Runs a test behind a card, between interfaces or on a host.
pub fn behind_card(engine: &str, test: impl FnOnce(&Hosts, &Host, &Path)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let wires = Wires::default();
    let (hosts, card) = if engine == HOST { Hosts::of_host_with_card(wires) } else { Hosts::with_card(wires) };
    test(&hosts, &card, folder.path());
}

fn setup(engine: &str, card: &Host, options: &str) -> Setup {
    let card = format!("wire:netns={},outer=outer,inner=inner,{options}", card.namespace().display());
    let more = ["--card", &card, "--card-table", "bad,six", "--card-period", "100ms"];
    Setup { more: more.map(str::to_owned).to_vec(), ..Setup::new(engine) }
}

pub fn status(running: &Running) -> CardStatus {
    let answer = running.ask(&Request::Card { top: 1000 }).unwrap_or_else(|refused| panic!("{refused}"));
    serde_json::from_value(answer).expect("a card")
}

pub fn in_card(running: &Running) -> BTreeSet<String> {
    status(running).entries.into_iter().map(|entry| entry.entry).collect()
}

pub fn source(number: u32) -> String {
    format!("10.66.1.{number}")
}

pub fn frame(source: &str) -> Vec<u8> {
    let network = match source.contains(':') {
        true => format!("ip6 saddr={source} daddr=2001:db8::2"),
        false => format!("ip saddr={source} daddr=10.9.0.2"),
    };
    frames(&format!("eth / {network} / udp sport=1000 dport=9 / payload 18\n")).remove(0)
}

/// Packets of each source in a round, normally distributed among the sources.
pub fn gaussian() -> BTreeMap<String, u64> {
    let packets = |number: u32| {
        let deviations = (f64::from(number) - f64::from(SOURCES) / 2.0) / (f64::from(SOURCES) / 6.0);
        (40.0 * (-deviations * deviations / 2.0).exp()).ceil() as u64
    };
    (1..=SOURCES).map(|number| (source(number), packets(number))).collect()
}

/// The frames of a round in an order in which no source comes first.
pub fn round(truth: &BTreeMap<String, u64>) -> Vec<Vec<u8>> {
    let all: Vec<Vec<u8>> = truth.iter().flat_map(|(source, packets)| vec![frame(source); *packets as usize]).collect();
    let step = (1..).map(|step| 2 * step + 377).find(|step| gcd(*step, all.len()) == 1).expect("there are many");
    (0..all.len()).map(|at| all[at * step % all.len()].clone()).collect()
}

fn gcd(one: usize, other: usize) -> usize {
    if other == 0 { one } else { gcd(other, one % other) }
}

fn add_sources(running: &Running) {
    let entries: Vec<String> = (1..=SOURCES).map(source).collect();
    done(running, &format!("bad add {}", entries.join(" ")));
}

/// Packets that rules with a table have dropped.
pub fn counted_for_table(stats: &Stats) -> u64 {
    let rules = stats.upstream.total.rules.iter().filter(|rule| rule.rule.contains("@bad"));
    rules.map(|rule| rule.packets).sum()
}

each_kind_and_host_behind_card!(the_card_has_the_fastest_sources_and_everything_is_counted);
fn the_card_has_the_fastest_sources_and_everything_is_counted(engine: &str) {
    behind_card(engine, |hosts, card, folder| {
        put(folder, "p.weir", POLICY);
        let setup = setup(engine, card, &format!("entries={ENTRIES},update=100us"));
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
        let fast = running.log().matches("XDP in the driver").count() >= 2;
        assert!(fast, "{}", running.log());
        add_sources(&running);
        let truth = gaussian();
        let (all, frames) = (truth.values().sum::<u64>(), round(&truth));
        let mut best: Vec<u64> = truth.values().copied().collect();
        best.sort_unstable();
        let best: u64 = best.iter().rev().take(ENTRIES).sum();

        // The card gets the fastest ones.
        let mut rounds = 0;
        running.wait_until("the card has the fastest", |running| {
            send(&hosts.client, "c", &frames);
            rounds += 1;
            let entries = in_card(running);
            let share: u64 = entries.iter().map(|entry| truth[entry]).sum();
            entries.len() == ENTRIES && share * 20 >= best * 19
        });
        // With constant rates, at most one entry is exchanged.
        let updates = |running: &Running| status(running).places[0].updates;
        let before = updates(&running);
        for _ in 0..4 {
            send(&hosts.client, "c", &frames);
            rounds += 1;
        }
        assert!(updates(&running) <= before + 2, "{:#?}", status(&running));
        // Others pass: one that the table does not have, and one that a rule in front accepts.
        send(&hosts.client, "c", &[frame("10.66.2.1"), frame("10.66.0.9"), frame("10.66.0.9")]);
        let sent = rounds * all;
        let stats = running.wait_for("all are counted", |stats| {
            counted_for_table(stats) >= sent && stats.upstream.total.packets >= sent + 3
        });
        let stats = if engine == HOST { stats } else { running.settled() };
        check_account(&stats);
        assert_eq!(counted_for_table(&stats), sent, "{stats:#?}");
        let reasons = &stats.upstream.total.reasons;
        assert_eq!(reasons.iter().filter(|(at, _)| at.contains("p.weir:9")).map(|one| *one.1).sum::<u64>(), sent);
        let by_card = stats.card.as_ref().expect("there is a card").upstream.total;
        assert!(
            by_card.dropped > 0 && by_card.dropped < sent && by_card.bytes == by_card.dropped * BYTES,
            "{by_card:?}"
        );
        let ports = stats.interfaces.iter().find(|port| port.interface == "card:outer").expect("the card is listed");
        assert_eq!((ports.rx_packets, ports.side.as_str()), (by_card.packets, "lower"));

        // Each entry counts all packets that were sent, dropped by the card or by software.
        let list = done(&running, "bad list --by packets --top 1000");
        for entry in list["entries"].as_array().expect("a list") {
            let (name, packets) = (entry["entry"].as_str().expect("a source"), entry["packets"].as_u64());
            assert_eq!(packets, Some(rounds * truth[name]), "{name}");
            assert!(entry["bytes"].as_u64() == packets.map(|packets| packets * BYTES) && !entry["last_s"].is_null());
        }
        let status = status(&running);
        assert_eq!(status.places[0].packets, by_card.packets);
        assert!(
            status.tables[0].problem.is_none() && status.tables[0].rule.as_deref().is_some_and(|at| at.ends_with(":9"))
        );
        assert!(status.tables[0].unseen.len() == 1 && status.share > 0.0, "{status:?}");
        assert!(!in_card(&running).contains("10.66.0.9"), "it is exempt");
        shown(&running);
        assert_eq!(running.stop(), 0);
    });
}

/// `weir ctl card` and `weir ctl stats` as text.
fn shown(running: &Running) {
    let ctl = |command: &str| {
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        weir.args(["ctl", "--control"]).arg(running.control()).args(command.split(' '));
        let output = weir.output().expect("the program was built");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let text = ctl("card --top 1");
    assert!(text.starts_with("wire between outer and inner in /proc/"), "{text}");
    assert!(text.contains("table: 16 of 16 entries") && text.contains("packets dropped"), "{text}");
    assert_eq!(text.matches(" of bad in the table: ").count(), 1, "{text}");
    assert!(ctl("stats").contains("card: "), "{}", ctl("stats"));
}

/// Fills the card with some sources that send.
pub fn filled(running: &Running, hosts: &Hosts, sources: &[&str]) {
    let frames: Vec<Vec<u8>> = sources.iter().flat_map(|source| vec![frame(source); 4]).collect();
    running.wait_until("they are in the card", |running| {
        send(&hosts.client, "c", &frames);
        sources.iter().all(|source| in_card(running).contains(*source))
    });
}

/// Waits until packets of a source arrive. Those that are sent too early never do.
fn passes_again(hosts: &Hosts, source: &str) {
    crate::wait_until("everything passes", || arrive(hosts, source, 0) > 0);
    assert!(arrive(hosts, source, 5) >= 5);
}

/// Packets of a source that arrive at the server, of five; at least `expected`, unless they do not come for long.
pub fn arrive(hosts: &Hosts, source: &str, expected: usize) -> u64 {
    let listener = Listener::counting(&hosts.server, "s");
    send(&hosts.client, "c", &vec![frame(source); 5]);
    listener.count(expected)
}

each_kind_and_host_behind_card!(what_leaves_the_table_leaves_the_card_before_the_answer);
fn what_leaves_the_table_leaves_the_card_before_the_answer(engine: &str) {
    behind_card(engine, |hosts, card, folder| {
        put(folder, "p.weir", POLICY);
        // Changes take so long that many entries leave at once.
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, card, "entries=8,update=2ms"));
        let all: Vec<String> = (1..=6).map(source).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        done(&running, &format!("bad add {}", all.join(" ")));
        filled(&running, hosts, &all);
        done(&running, &format!("bad del {}", all[0]));
        assert!(!in_card(&running).contains(all[0]));
        assert_eq!(arrive(hosts, all[0], 5), 5, "it is not blocked any more");
        // An entry expires without a request.
        done(&running, &format!("bad update {} --timeout 300ms", all[1]));
        running.wait_until("it has left", |running| !in_card(running).contains(all[1]));
        assert_eq!(done(&running, &format!("bad get {}", all[1]))["found"]["entry"], serde_json::Value::Null);
        assert_eq!(arrive(hosts, all[1], 5), 5);
        done(&running, "bad flush");
        assert_eq!(in_card(&running), BTreeSet::new());
        for source in all {
            assert_eq!(arrive(hosts, source, 5), 5, "{source}");
        }
        // IPv6, in another table.
        let six = "2001:db8::66";
        done(&running, &format!("six add {six}"));
        filled(&running, hosts, &[six]);
        done(&running, &format!("six del {six}"));
        assert_eq!((in_card(&running), arrive(hosts, six, 5)), (BTreeSet::new(), 5));
        // The source comes back, with counters from 0.
        done(&running, &format!("bad add {} 10.66.0.9", source(1)));
        filled(&running, hosts, &[&source(1)]);
        let before = done(&running, &format!("bad get {}", source(1)))["found"]["packets"].as_u64().expect("a count");
        send(&hosts.client, "c", &vec![frame(&source(1)); 10]);
        running.wait_until("the card's packets are its", |running| {
            done(running, &format!("bad get {}", source(1)))["found"]["packets"].as_u64() == Some(before + 10)
        });
        put(folder, "list", "10.66.0.9\n");
        done(&running, &format!("bad replace {}", folder.join("list").display()));
        assert_eq!((in_card(&running), arrive(hosts, &source(1), 5)), (BTreeSet::new(), 5));
    });
}

each_kind_and_host_behind_card!(the_card_follows_the_policy);
fn the_card_follows_the_policy(engine: &str) {
    behind_card(engine, |hosts, card, folder| {
        put(folder, "p.weir", POLICY);
        put(folder, "open.weir", OPEN);
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, card, "entries=8,update=1ms"));
        let source = source(1);
        done(&running, &format!("bad add {source}"));
        filled(&running, hosts, &[&source]);
        // The source becomes one that a rule in front accepts.
        done(&running, &format!("admin add {source}"));
        assert_eq!((in_card(&running), arrive(hosts, &source, 5)), (BTreeSet::new(), 5));
        done(&running, &format!("admin del {source}"));
        filled(&running, hosts, &[&source]);
        // Or it becomes one that must not be blocked from now on.
        done(&running, &format!("vip add {source}"));
        assert_eq!(in_card(&running), BTreeSet::new());
        done(&running, &format!("vip del {source}"));
        // A table that the next policy does not have.
        let six = "2001:db8::66";
        done(&running, &format!("six add {six}"));
        filled(&running, hosts, &[six, &source]);
        let open = running.load(&folder.join("open.weir"));
        let activate =
            |generation| running.ask(&Request::Activate { generation, confirm_s: None }).expect("it is ready");
        activate(open);
        assert_eq!((in_card(&running), arrive(hosts, &source, 5)), (BTreeSet::new(), 5));
        let told = status(&running).tables.remove(0).problem.expect("the card drops nothing");
        assert!(told.starts_with("table bad: no rule upstream is `ip saddr @bad drop`"), "{told}");
        running.ask(&Request::Posture { name: Some("strict".to_owned()) }).expect("there is one");
        done(&running, &format!("bad add {source}"));
        filled(&running, hosts, &[&source]);
        running.ask(&Request::Posture { name: None }).expect("there is one");
        assert_eq!((in_card(&running), arrive(hosts, &source, 5)), (BTreeSet::new(), 5));
        running.ask(&Request::Rollback).expect("there is one before");
        filled(&running, hosts, &[&source]);
        // What was dropped in each policy is in the totals.
        let stats = running.settled();
        check_account(&stats);
        assert!(stats.upstream.total.rules.iter().filter(|rule| rule.rule == "ip saddr @bad drop").count() >= 2);
    });
}

#[test]
fn a_killed_weir_leaves_a_card_that_passes_everything() {
    behind_card(HOST, |hosts, card, folder| {
        put(folder, "p.weir", &format!("on-exit forward\n{POLICY}"));
        let setup = setup(HOST, card, "entries=8,update=1ms");
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
        done(&running, &format!("bad add {}", source(1)));
        filled(&running, hosts, &[&source(1)]);
        // No other program may use the card meanwhile.
        let other = Setup { host: vec!["c".to_owned()], ..setup.clone() };
        let elsewhere = tempfile::tempdir().expect("a temporary folder");
        put(elsewhere.path(), "p.weir", POLICY);
        let (code, said) = Running::refused_as(&hosts.client, elsewhere.path(), "p.weir", &other);
        assert!(code != 0 && said.contains(": another weir has it"), "{said}");
        assert!(in_card(&running).contains(&source(1)));
        running.kill();
        passes_again(hosts, &source(1));
        // The next one takes over.
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
        done(&running, &format!("bad add {}", source(1)));
        filled(&running, hosts, &[&source(1)]);
        assert_eq!((arrive(hosts, &source(1), 0), running.stop()), (0, 0));
        passes_again(hosts, &source(1));
    });
}

#[test]
fn the_cpu_of_the_card_drops_the_rest_or_all() {
    for (place, entries) in [("card,entries=4", 4), ("card-cpu", 0)] {
        behind_card("xdp", |hosts, card, folder| {
            put(folder, "p.weir", POLICY);
            let setup = setup(
                "xdp",
                card,
                &format!("update=1ms,cpu-entries=1000,cpu-slowdown=1us,place={place}")
                    .replace("update=1ms,", if entries == 0 { "" } else { "update=1ms," }),
            );
            let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
            add_sources(&running);
            let (truth, mut rounds) = (gaussian(), 0);
            running.wait_until("the card has all", |running| {
                send(&hosts.client, "c", &round(&truth));
                rounds += 1;
                let places = status(running).places;
                let places: Vec<(&str, usize)> = places.iter().map(|one| (one.place.as_str(), one.entries)).collect();
                let cpu = ("cpu", SOURCES as usize);
                if entries == 0 { places == [cpu] } else { places == [("table", entries), cpu] }
            });
            let software =
                |stats: &Stats| stats.upstream.total.packets - stats.card.as_ref().expect("one").upstream.total.packets;
            let before = software(&running.settled());
            send(&hosts.client, "c", &round(&truth));
            rounds += 1;
            let sent = rounds * truth.values().sum::<u64>();
            running.wait_for("all are counted", |stats| counted_for_table(stats) >= sent);
            let stats = running.settled();
            check_account(&stats);
            assert_eq!((counted_for_table(&stats), software(&stats)), (sent, before), "{stats:#?}");
            done(&running, "bad flush");
            assert_eq!((in_card(&running), arrive(hosts, &source(5), 5)), (BTreeSet::new(), 5));
        });
    }
}

#[test]
fn tables_that_a_card_must_not_drop_by_are_refused() {
    let (hosts, card) = Hosts::with_card(Wires::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let table = "table bad { type ipv4; dynamic; size 10; counters }\n";
    for (policy, problem) in [
        (
            format!("{table}upstream {{ tcp dport 22 accept; ip saddr @bad drop; accept }}"),
            "p.weir:2: `tcp dport 22 accept` stands before its rule, and accepts packets of its sources",
        ),
        (
            format!("{}upstream {{ ip saddr @bad drop; accept }}", table.replace("; counters", "")),
            "it has no `counters`",
        ),
        (format!("{table}upstream {{ limit rate 10mpps; ip saddr @bad drop; accept }}"), "and limits packets"),
    ] {
        put(folder.path(), "p.weir", &format!("{policy}\ndownstream {{ accept }}\n"));
        let setup = setup("afpacket", &card, "entries=8");
        let (code, said) = Running::refused_as(&hosts.weir, folder.path(), "p.weir", &setup);
        assert!(code == 2 && said.contains("--card-table: table bad: ") && said.contains(problem), "{code} {said}");
    }
}

#[test]
fn an_interface_whose_driver_has_no_table_is_no_card() {
    let hosts = Hosts::with(Wires::default());
    let folder = tempfile::tempdir().expect("a temporary folder");
    put(folder.path(), "p.weir", POLICY);
    let more = ["--card", "flower:dev=lower", "--card-table", "bad"].map(str::to_owned).to_vec();
    let setup = Setup { more, ..Setup::new("afpacket") };
    let (code, said) = Running::refused_as(&hosts.weir, folder.path(), "p.weir", &setup);
    // The kernel has TC flower or not.
    let is_named = ["the kernel has no flower", "the kernel has no clsact", "the driver takes no flower filters"]
        .iter()
        .any(|problem| said.contains(&format!("interface lower: {problem}")));
    assert!(code == 1 && is_named, "{said}");
}
