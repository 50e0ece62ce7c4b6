//! Cards whose drivers take filters of TC flower. Only a guest has such a driver (tests/guest/flowcard.c): `cargo xtask
//! guest` boots one and runs these tests there, on a kernel with TC flower and without clang.

use super::running::{arrive, counted_for_table, filled, frame, gaussian, in_card, round, source, status};
use crate::check_account;
use crate::device_under_test::{Running, Setup};
use crate::hosts::{Hosts, Wires};
use crate::tables::done;
use crate::traffic::send;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tempfile::TempDir;

/// The policy, compiled for any processor.
const POLICY: &str = "/guest/p.weirb";
const DRIVER: &str = "/guest/modules/flowcard.ko";
/// The preference of Weir's filters for IPv4.
const PREF: u64 = 5730;

/// Three hosts. The middle one has the card.
struct Lab {
    hosts: Hosts,
    folder: TempDir,
}

fn run(program: &str, line: &str) -> bool {
    Command::new(program).args(line.split(' ')).status().is_ok_and(|status| status.success())
}

impl Lab {
    /// A card whose driver has these parameters.
    fn new(parameters: &str) -> Self {
        // The driver of the test before, if any.
        if Path::new("/sys/module/flowcard").exists() {
            assert!(run("rmmod", "flowcard"));
        }
        assert!(run("insmod", &format!("{DRIVER} {parameters}")), "the driver can be loaded");
        let hosts = Hosts::with(Wires { lower: 0, ..Wires::default() });
        for (end, host, name) in [("card0", &hosts.weir, "lower"), ("wire0", &hosts.client, "c")] {
            assert!(run("ip", &format!("link set dev {end} netns {} name {name}", host.namespace().display())));
            host.ip(&format!("link set dev {name} arp off up"));
        }
        Lab { hosts, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn setup(&self, options: &str, period: &str) -> Setup {
        let more = ["--card", &format!("flower:{options}"), "--card-table", "bad,six", "--card-period", period];
        Setup { more: more.map(str::to_owned).to_vec(), ..Setup::new("afpacket") }
    }

    fn start(&self, options: &str, period: &str) -> Running {
        self.start_in(self.folder.path(), options, period)
    }

    fn start_in(&self, folder: &Path, options: &str, period: &str) -> Running {
        std::fs::copy(POLICY, folder.join("p.weirb")).expect("it was compiled");
        Running::start_as(&self.hosts.weir, folder, "p.weirb", &self.setup(options, period))
    }

    /// Starts Weir where it refuses. Returns what it says.
    fn refused(&self, options: &str) -> String {
        let (code, said) =
            Running::refused_as(&self.hosts.weir, self.folder.path(), POLICY, &self.setup(options, "1s"));
        assert_eq!(code, 1, "{said}");
        said
    }

    fn tc(&self, line: &str) -> String {
        self.hosts.weir.call("tc", line)
    }

    /// The filters of a preference, as another program sees them.
    fn filters(&self, pref: u64) -> Vec<Value> {
        let printed = self.tc("-s -j filter show dev lower ingress");
        let filters: Vec<Value> = serde_json::from_str(&printed).expect("tc prints JSON");
        filters.into_iter().filter(|one| one["pref"] == pref && one["options"]["handle"].is_number()).collect()
    }

    fn arrive(&self, source: &str, expected: usize) -> u64 {
        arrive(&self.hosts, source, expected)
    }
}

fn add_all(running: &Running, numbers: std::ops::RangeInclusive<u32>) {
    let entries: Vec<String> = numbers.map(source).collect();
    done(running, &format!("bad add {}", entries.join(" ")));
}

#[test]
#[ignore = "it needs a guest: cargo xtask guest"]
fn the_card_has_the_fastest_sources_of_those_that_fit_and_everything_is_counted() {
    const ROOM: usize = 16;
    let lab = Lab::new(&format!("entries={ROOM}"));
    let running = lab.start("dev=lower,entries=40", "300ms");
    assert!(running.log().contains("card: lower: flower in hardware, counters are read from the card"));
    add_all(&running, 1..=64);
    let truth = gaussian();
    let (all, frames) = (truth.values().sum::<u64>(), round(&truth));
    let mut best: Vec<u64> = truth.values().copied().collect();
    best.sort_unstable();
    let best: u64 = best.iter().rev().take(ROOM).sum();
    let mut rounds = 0;
    running.wait_until("the card has the fastest", |running| {
        send(&lab.hosts.client, "c", &frames);
        rounds += 1;
        let entries = in_card(running);
        entries.len() == ROOM && entries.iter().map(|entry| truth[entry]).sum::<u64>() * 20 >= best * 19
    });
    // The driver has said when it was full.
    let place = status(&running).places.remove(0);
    assert_eq!((place.capacity, place.entries), (ROOM, ROOM));
    assert!(place.refused > 0 && place.update_ms > 0.0, "{place:?}");
    let updates = place.updates;
    for _ in 0..4 {
        send(&lab.hosts.client, "c", &frames);
        rounds += 1;
    }
    let sent = rounds * all;
    let stats = running.wait_for("all are counted", |stats| counted_for_table(stats) >= sent);
    assert!(status(&running).places[0].updates <= updates + 2, "{:#?}", status(&running));
    check_account(&stats);
    assert_eq!(counted_for_table(&stats), sent, "{stats:#?}");
    let by_card = stats.card.as_ref().expect("there is a card").upstream.total;
    assert!(by_card.dropped > 0 && by_card.bytes == by_card.dropped * 60, "{by_card:?}");
    // The kernel has the filters of Weir, and tc counts the same.
    let filters = lab.filters(PREF);
    assert_eq!(filters.len(), ROOM);
    let is_in_hardware = |one: &Value| one["options"]["in_hw"] == true && one["options"]["skip_sw"] == true;
    assert!(filters.iter().all(is_in_hardware), "{filters:#?}");
    let list = done(&running, "bad list --by packets --top 1000");
    for entry in list["entries"].as_array().expect("a list") {
        let name = entry["entry"].as_str().expect("a source");
        assert_eq!(entry["packets"].as_u64(), Some(rounds * truth[name]), "{name}");
        assert!(!entry["last_s"].is_null());
    }
    assert_eq!(running.stop(), 0);
    assert_eq!(lab.filters(PREF), [] as [Value; 0]);
}

#[test]
#[ignore = "it needs a guest: cargo xtask guest"]
fn what_leaves_the_table_leaves_the_card_before_the_answer() {
    let lab = Lab::new("update_us=1000");
    let running = lab.start("dev=lower", "100ms");
    let all: Vec<String> = (1..=6).map(source).collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    done(&running, &format!("bad add {}", all.join(" ")));
    filled(&running, &lab.hosts, &all);
    assert_eq!(lab.arrive(all[0], 0), 0);
    done(&running, &format!("bad del {}", all[0]));
    assert_eq!((in_card(&running).contains(all[0]), lab.arrive(all[0], 5)), (false, 5));
    done(&running, &format!("vip add {}", all[1]));
    assert!(!in_card(&running).contains(all[1]), "nobody may block it");
    done(&running, &format!("bad update {} --timeout 300ms", all[2]));
    running.wait_until("it has left", |running| !in_card(running).contains(all[2]));
    assert_eq!(lab.arrive(all[2], 5), 5);
    let six = "2001:db8::66";
    done(&running, &format!("six add {six}"));
    filled(&running, &lab.hosts, &[six]);
    assert_eq!((lab.filters(PREF + 1).len(), lab.arrive(six, 0)), (1, 0));
    done(&running, &format!("six del {six}"));
    done(&running, "bad flush");
    assert!(in_card(&running).is_empty() && lab.filters(PREF).is_empty() && lab.filters(PREF + 1).is_empty());
    for source in all.iter().chain([&six]) {
        assert_eq!(lab.arrive(source, 5), 5, "{source}");
    }
    // All packets, also packets of entries that have left, are in the account.
    check_account(&running.settled());
    // The entry comes back, with counters from 0.
    done(&running, &format!("bad add {}", all[3]));
    filled(&running, &lab.hosts, &[all[3]]);
    let packets = || done(&running, &format!("bad get {}", all[3]))["found"]["packets"].as_u64().expect("a count");
    let before = packets();
    send(&lab.hosts.client, "c", &vec![frame(all[3]); 10]);
    running.wait_until("the card's packets are its", |_| packets() == before + 10);
}

/// The process that deletes the filters of a Weir.
fn sweeper(running: &Running) -> i32 {
    let folder = std::fs::read_dir("/proc").expect("it is mounted");
    let pids = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let is_its = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let has = |line: String| status.lines().any(|own| own == line);
        has("Name:\tweir-sweep".to_owned()) && has(format!("PPid:\t{}", running.pid()))
    };
    pids.into_iter().find(is_its).expect("it has one")
}

#[test]
#[ignore = "it needs a guest: cargo xtask guest"]
fn a_killed_weir_leaves_no_filter_and_those_of_others_stay() {
    let lab = Lab::new("");
    lab.tc("qdisc add dev lower clsact");
    lab.tc("filter add dev lower ingress pref 7 protocol ip flower skip_sw src_ip 10.66.3.3 action drop");
    let (one, two) = (source(1), source(2));
    let running = lab.start("dev=lower", "100ms");
    done(&running, &format!("bad add {one} {two}"));
    filled(&running, &lab.hosts, &[&one, &two]);
    running.kill();
    crate::wait_until("its filters are gone", || lab.filters(PREF).is_empty());
    // No process is left to delete them.
    let running = lab.start("dev=lower", "100ms");
    done(&running, &format!("bad add {one} {two}"));
    filled(&running, &lab.hosts, &[&one, &two]);
    let killed = nix::unistd::Pid::from_raw(sweeper(&running));
    nix::sys::signal::kill(killed, nix::sys::signal::Signal::SIGKILL).expect("it runs");
    running.kill();
    assert_eq!(lab.filters(PREF).len(), 2);
    // The next one deletes them, although they are another process's.
    let running = lab.start("dev=lower", "100ms");
    assert!(lab.filters(PREF).is_empty() && in_card(&running).is_empty());
    assert_eq!((lab.arrive(&one, 5), lab.arrive("10.66.3.3", 0)), (5, 0));
    // Another program deletes one while Weir runs: software drops its source.
    done(&running, &format!("bad add {one} {two}"));
    filled(&running, &lab.hosts, &[&one, &two]);
    lab.tc(&format!("filter del dev lower ingress pref {PREF}"));
    running.wait_until("it is told", |running| {
        running.log().contains("card: 2 of 2 filters are not in hardware any more")
    });
    assert_eq!(lab.arrive(&one, 0), 0);
    done(&running, &format!("bad del {one}"));
    assert_eq!(lab.arrive(&one, 5), 5);
    assert_eq!(running.stop(), 0);
    assert_eq!((lab.filters(7).len(), lab.filters(PREF).len()), (1, 0));
}

#[test]
#[ignore = "it needs a guest: cargo xtask guest"]
fn what_is_no_card_is_said() {
    let lab = Lab::new("");
    let said = lab.refused("dev=none");
    assert!(said.contains("interface none: No such device"), "{said}");
    let said = lab.refused("dev=upper");
    assert!(said.contains("interface upper: the driver takes no flower filters with skip_sw"), "{said}");
    lab.tc("qdisc add dev lower ingress");
    lab.tc("filter add dev lower ingress pref 9 protocol ipv6 flower skip_sw src_ip 2001:db8::1 action drop");
    let said = lab.refused("dev=lower,pref=8");
    assert!(said.contains("filters of preference 9 are not Weir's: choose another one with `pref=`"), "{said}");
    lab.hosts.weir.call("ethtool", "-K lower hw-tc-offload off");
    let said = lab.refused("dev=lower");
    assert!(said.contains("TC offload is disabled on net device"), "{said}");
    assert!(said.contains("`ethtool -K lower hw-tc-offload on`"), "{said}");
    lab.hosts.weir.call("ethtool", "-K lower hw-tc-offload on");
    // With another hook, and counters that the driver reads from time to time.
    std::fs::write("/sys/module/flowcard/parameters/delayed", "1").expect("it is a parameter");
    let running = lab.start("dev=lower", "100ms");
    assert!(running.log().contains("the driver reads counters from time to time"), "{}", running.log());
    done(&running, &format!("bad add {}", source(1)));
    filled(&running, &lab.hosts, &[&source(1)]);
    // Another Weir may not use the card meanwhile.
    lab.hosts.weir.ip("link add name third type veth peer name fourth");
    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    let [lower, upper] = ["third", "fourth"].map(|name| vec![name.to_owned()]);
    let setup = Setup { lower, upper, ..lab.setup("dev=lower", "1s") };
    let (code, said) = Running::refused_as(&lab.hosts.weir, elsewhere.path(), POLICY, &setup);
    assert!(code != 0 && said.contains(": another weir has it"), "{said}");
}

#[test]
#[ignore = "it needs a guest: cargo xtask guest"]
fn changes_take_half_of_a_period() {
    const UPDATE_MS: u128 = 10;
    const PERIOD_MS: u128 = 200;
    let lab = Lab::new(&format!("update_us={}", 1000 * UPDATE_MS));
    let running = lab.start("dev=lower", &format!("{PERIOD_MS}ms"));
    let begun = Instant::now();
    add_all(&running, 1..=64);
    let truth = gaussian();
    let frames = round(&truth);
    running.wait_until("the card has all", |running| {
        send(&lab.hosts.client, "c", &frames);
        in_card(running).len() == truth.len()
    });
    let place = status(&running).places.remove(0);
    // A measured change takes at least as long as the driver. The period that goes on may have had its changes already.
    let periods = begun.elapsed().as_millis() / PERIOD_MS + 2;
    assert!(place.update_ms >= UPDATE_MS as f64, "{place:?}");
    assert!(u128::from(place.updates) <= periods * PERIOD_MS / 2 / UPDATE_MS, "{place:?} in {periods} periods");
    // All leave at once.
    done(&running, "bad flush");
    assert!(in_card(&running).is_empty() && lab.filters(PREF).is_empty());
}
