//! `weir run --card hybrid:` behind `weir card serve`: card and software together decide and count as the policy alone
//! does, also while policies change.

/// A test on each engine behind a card: `fn name(hosts: &Hosts, card: &Host, folder: &Path, setup: &Setup)`.
macro_rules! each_engine_behind_card {
    ($test:ident) => {
        mod $test {
            #[test]
            fn afpacket() {
                super::behind_card("afpacket", super::$test);
            }
            #[test]
            fn afxdp() {
                super::behind_card("afxdp", super::$test);
            }
            #[test]
            fn xdp() {
                super::behind_card("xdp", super::$test);
            }
            #[cfg(feature = "dpdk")]
            #[test]
            fn dpdk() {
                super::behind_card("dpdk", super::$test);
            }
        }
    };
}

#[path = "hybrid/epochs.rs"]
mod epochs;
#[path = "hybrid/follow.rs"]
mod follow;
#[path = "hybrid/reset.rs"]
mod reset;

use crate::device_under_test::{Running, Setup};
use crate::hosts::{Host, Hosts, Wires};
use crate::tables::done;
use crate::traffic::{Listener, frames, interpreted, send};
use crate::{check_account, put};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use weir_abi::card::Seal;
use weir_control::{CardFrames, CardReport, FromCard, HybridStatus, Request, Stats, Tally};

/// Rules that the card drops for, that it decides, that it begins to look up, and that it knows nothing of.
const POLICY: &str = "
table bad { type ipv4; elements = { 198.51.100.0/24, 203.0.113.7 } }
table slow { type ipv4; elements = { 10.66.0.0/16 } }
upstream {
  udp sport 53 drop
  tcp dport 23 drop
  ip saddr @bad drop
  ip ttl < 5 counter
  udp dport 7 counter drop
  ip saddr @slow udp dport 9 counter drop
  udp dport 9 accept
  ip6 nexthdr udp accept
  tcp dport 80 tcp flags & syn == syn counter
  tcp dport 80 accept
  drop
}
downstream { accept }
";

/// Packets of every kind, once.
const PACKETS: &str = "
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=53 dport=9 / payload 30
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / tcp sport=1 dport=23
eth / ip saddr=198.51.100.9 daddr=10.9.0.2 / udp sport=1 dport=9 / payload 18
eth / ip saddr=203.0.113.7 daddr=10.9.0.2 / tcp sport=1 dport=80
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 ttl=3 / udp sport=1 dport=9 / payload 18
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1 dport=7 / payload 18
eth / ip saddr=10.66.1.1 daddr=10.9.0.2 / udp sport=1 dport=9 / payload 18
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1 dport=9 / payload 700
eth / vlan id=7 / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=1 dport=9 / payload 18
eth / ip6 saddr=2001:db8::1 daddr=2001:db8::2 / udp sport=1 dport=99 / payload 2
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / tcp sport=1 dport=80
eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / icmp
";

/// Packets by the name of their reason.
type ByReason = BTreeMap<String, u64>;
/// Packets and bytes of each rule, by its citation.
type ByRule = Vec<(String, u64, u64)>;

/// A card in software, as a process on a host.
pub struct Served(Child);

impl Served {
    pub fn start(host: &Host, folder: &Path) -> Self {
        let log = folder.join("card.log");
        let file = fs::File::create(&log).expect("the folder can be written to");
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["card", "serve", "open-nic", "--network", "outer", "--host", "inner", "--json"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        let served = Served(host.run(move || command.spawn()).expect("the program was built"));
        let is_there = || fs::read_to_string(&log).is_ok_and(|log| log.contains("between outer and inner"));
        crate::device_under_test::wait_until("the card is there", is_there);
        served
    }

    /// Ends it. Returns what it reports.
    pub fn stop(mut self) -> Value {
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGTERM).expect("it runs");
        let mut text = String::new();
        self.0.stdout.take().expect("it is a pipe").read_to_string(&mut text).expect("it ends");
        assert!(self.0.wait().expect("it ends").success());
        serde_json::from_str(&text).expect("a report")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Runs a test behind a card. Frames of the network have room for a trailer behind it.
pub fn behind_card(engine: &str, test: impl FnOnce(&Hosts, &Host, &Path, &Setup)) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (hosts, card) = Hosts::with_card(Wires::default());
    card.ip("link set outer mtu 1500");
    hosts.client.ip("link set c mtu 1500");
    let more = ["--card", "hybrid:profile=open-nic"].map(str::to_owned).to_vec();
    test(&hosts, &card, folder.path(), &Setup { more, ..Setup::new(engine) });
}

pub fn status(running: &Running) -> HybridStatus {
    let answer = running.ask(&Request::Card { top: 10 }).unwrap_or_else(|refused| panic!("{refused}"));
    match serde_json::from_value(answer).expect("a card") {
        CardReport::Hybrid(status) => status,
        CardReport::Tables(other) => panic!("{other:?}"),
    }
}

/// Packets by reason, but for control frames.
pub fn reasons(stats: &Stats) -> ByReason {
    let reasons = stats.upstream.total.reasons.iter();
    reasons
        .filter(|(name, packets)| **packets > 0 && *name != "card-control")
        .map(|(name, n)| (name.clone(), *n))
        .collect()
}

/// Each frame that the port has received is of one kind.
fn check_frames(stats: &Stats, status: &HybridStatus) {
    let kinds = |tally: &Tally| {
        let FromCard { answered, alone } = tally.from_card.expect("packets came from a card");
        let refused = |name: &str| tally.reasons.get(name).copied().unwrap_or_default();
        [answered, alone, refused("unsealed"), refused("card-control")]
    };
    let port = stats.interfaces.iter().find(|port| port.side == "lower" && !port.interface.starts_with("card:"));
    let (current, total) = (kinds(&stats.upstream.current), kinds(&stats.upstream.total));
    assert_eq!(total.iter().sum::<u64>(), port.expect("there is a lower side").rx_packets, "{total:?}");
    let CardFrames { answered, alone, control, unsealed } = status.frames;
    assert_eq!([answered, alone, unsealed].map(|kind| kind.frames), current[..3], "{status:#?}");
    // The status reads the card's counters, which takes control frames.
    assert!(control.frames > current[3], "{current:?} {status:#?}");
    let shares = [answered, alone, control, unsealed].map(|kind| kind.share);
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{status:#?}");
}

/// Packets and bytes by rule.
fn rules(stats: &Stats) -> ByRule {
    stats.upstream.total.rules.iter().map(|rule| (rule.at.clone(), rule.packets, rule.bytes)).collect()
}

/// Packets by reason, and packets and bytes by rule, of the policy alone, `times` times.
fn alone(report: &Value, times: u64) -> (ByReason, ByRule) {
    let number = |value: &Value| value.as_u64().expect("a number") * times;
    let reasons = report["reasons"].as_object().expect("reasons by name");
    let reasons = reasons.iter().map(|(name, n)| (name.clone(), number(n))).filter(|(_, n)| *n > 0).collect();
    let rules = report["rules"].as_array().expect("a list").iter();
    let at = |rule: &Value| rule["at"].as_str().expect("a citation").to_owned();
    (reasons, rules.map(|rule| (at(rule), number(&rule["packets"]), number(&rule["bytes"]))).collect())
}

each_engine_behind_card!(card_and_software_decide_and_count_as_the_policy_alone);
fn card_and_software_decide_and_count_as_the_policy_alone(hosts: &Hosts, card: &Host, folder: &Path, setup: &Setup) {
    const ROUNDS: usize = 20;
    put(folder, "p.weir", POLICY);
    let served = Served::start(card, folder);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", setup);
    let before = status(&running);
    assert!(before.sealed && before.alone.is_none() && before.problem.is_none(), "{before:#?}");
    assert_eq!(before.rules.iter().filter(|rule| rule.offload == "dropped").count(), 2, "{before:#?}");
    assert_eq!(before.lookups, ["bad", "slow"]);

    let once = frames(PACKETS);
    let (verdicts, report) = interpreted(folder, "p.weir", "upstream", &once);
    let passed: Vec<&Vec<u8>> = once.iter().zip(&verdicts).filter(|(_, v)| *v == "accept").map(|(f, _)| f).collect();
    let all: Vec<Vec<u8>> = std::iter::repeat_n(&once, ROUNDS).flatten().cloned().collect();
    let listener = Listener::noting(&hosts.server, "s", |notes: &mut Vec<Vec<u8>>, burst| {
        notes.extend((0..burst.len()).map(|at| burst.bytes(at).to_vec()));
        notes.len()
    });
    send(&hosts.client, "c", &all);
    let (by_reason, by_rule) = alone(&report, ROUNDS as u64);
    let stats = running.wait_for("all are counted", |stats| reasons(stats) == by_reason);
    check_account(&stats);
    assert_eq!(rules(&stats), by_rule);
    let by_card = stats.card.as_ref().expect("there is a card").upstream.total;
    assert_eq!((by_card.packets, by_card.dropped), (2 * ROUNDS as u64, 2 * ROUNDS as u64));
    // What passes has no trailer, and is in order.
    let arrived = listener.notes(passed.len() * ROUNDS);
    assert!(arrived.iter().eq(std::iter::repeat_n(passed, ROUNDS).flatten()), "{} arrived", arrived.len());

    let after = status(&running);
    check_frames(&stats, &after);
    // The card has answers for all of them.
    let answered = (once.len() as u64 - 2) * ROUNDS as u64;
    assert_eq!([after.frames.answered, after.frames.alone].map(|kind| kind.frames), [answered, 0], "{after:#?}");
    assert_eq!((after.packets, after.unsealed, after.changes), (2 * ROUNDS as u64, 0, 1));
    assert!(after.rules.iter().filter(|rule| rule.offload == "dropped").all(|rule| rule.dropped == ROUNDS as u64));
    assert_eq!(running.stop(), 0);
    // The card is a wire again.
    let listener = Listener::counting(&hosts.weir, "lower");
    send(&hosts.client, "c", &once);
    assert_eq!(listener.count(once.len()), once.len() as u64);
    let served = served.stop();
    assert_eq!(
        (&served["dropped"], &served["missed"], &served["unsent"]),
        (&(2 * ROUNDS).into(), &0.into(), &0.into())
    );
}

each_engine_behind_card!(nobody_but_the_card_gives_answers);
fn nobody_but_the_card_gives_answers(hosts: &Hosts, card: &Host, folder: &Path, setup: &Setup) {
    put(folder, "p.weir", POLICY);
    let served = Served::start(card, folder);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", setup);
    // Trailers that a sender appends are payload: each is decided as the policy alone decides it.
    let forged =
        |epoch| Seal { token: 0x12_3456_789a, control: false, answers: true, body: 7, epoch }.word().to_le_bytes();
    let with_trailers: Vec<Vec<u8>> = frames(PACKETS)
        .into_iter()
        .zip(0u16..)
        .map(|(frame, n)| [&frame[..], &[0xff; 7], &forged(n % 4)].concat())
        .collect();
    // So are control frames from the network: a commit.
    let mut commit = weir_card::control::Request::commit().frame(1);
    commit.extend(Seal { token: 0, control: true, answers: false, body: 0, epoch: 0 }.word().to_le_bytes());
    let sent: Vec<Vec<u8>> = with_trailers.iter().cloned().chain([commit.clone()]).collect();
    let (_, report) = interpreted(folder, "p.weir", "upstream", &sent);
    send(&hosts.client, "c", &sent);
    let (mut by_reason, by_rule) = alone(&report, 1);
    let stats = running.wait_for("all are counted", |stats| reasons(stats) == by_reason);
    assert_eq!(rules(&stats), by_rule);
    let is_as_before = |status: &HybridStatus| (status.changes, &status.problem, &status.alone) == (1, &None, &None);
    let now = status(&running);
    assert!(is_as_before(&now), "{now:#?}");

    // Frames around the card have no seal of it.
    drop(served);
    send(card, "inner", &with_trailers);
    let refused = with_trailers.len() as u64;
    by_reason.insert("unsealed".to_owned(), refused);
    running.wait_for("they are refused", |stats| reasons(stats) == by_reason);
    let now = status(&running);
    assert_eq!(now.frames.unsealed.frames, refused, "{now:#?}");

    // The seal of a card without a configuration is refused too, until the card's silence is noticed. Then such frames
    // may be its answers (daemon/src/parts/hybrid/reopening.rs). They are dropped, and change nothing.
    let kinds = |stats: &Stats| {
        let of = |name: &str| stats.upstream.total.reasons.get(name).copied().unwrap_or_default();
        [of("unsealed"), of("card-control")]
    };
    let before = kinds(&running.settled());
    let mut sent = 0;
    running.wait_until("they may be answers", |running| {
        send(card, "inner", std::slice::from_ref(&commit));
        sent += 1;
        let is_there = |stats: &Stats| kinds(stats).iter().sum::<u64>() == before.iter().sum::<u64>() + sent;
        kinds(&running.wait_for("it is dropped", is_there))[1] > before[1]
    });
    let now = status(&running);
    assert!((now.changes, now.reopened, now.sealed, &now.alone) == (1, 0, true, &None), "{now:#?}");
    let [refused, _] = kinds(&running.stats());
    send(card, "inner", &with_trailers);
    by_reason.insert("unsealed".to_owned(), refused + with_trailers.len() as u64);
    running.wait_for("others are refused as before", |stats| reasons(stats) == by_reason);
    running.kill();
}

each_engine_behind_card!(tables_postures_and_reloads_are_followed);
fn tables_postures_and_reloads_are_followed(hosts: &Hosts, card: &Host, folder: &Path, setup: &Setup) {
    const TEXT: &str = "
table bad { type ipv4; file \"bad.txt\" }
upstream { udp sport 53 drop; ip saddr @bad drop; accept }
downstream { accept }
posture open { upstream { accept } }
";
    put(folder, "bad.txt", "198.51.100.0/24\n");
    put(folder, "p.weir", TEXT);
    let _served = Served::start(card, folder);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", setup);
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    // One packet each: from port 53, of the list, of another source.
    let sent = frames(
        "eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / udp sport=53 dport=9 / payload 18
eth / ip saddr=198.51.100.9 daddr=10.9.0.2 / udp sport=1 dport=9 / payload 18
eth / ip saddr=192.0.2.9 daddr=10.9.0.2 / udp sport=1 dport=9 / payload 18
",
    );
    let mut decides = |running: &Running, what: &str, lines: [u8; 3]| {
        send(&hosts.client, "c", &sent);
        for line in lines {
            *expected.entry(format!("p.weir:{line}")).or_default() += 1;
        }
        let by_line = |stats: &Stats| {
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for (reason, packets) in reasons(stats) {
                // Rules of a line have columns.
                let line = reason.split(':').take(2).collect::<Vec<_>>().join(":");
                *counts.entry(line).or_default() += packets;
            }
            counts
        };
        running.wait_for(what, |stats| by_line(stats) == expected);
    };
    decides(&running, "the policy", [3, 3, 3]);
    running.ask(&Request::Posture { name: Some("open".to_owned()) }).expect("it is activated");
    assert!(status(&running).alone.is_some_and(|why| why.contains("open")));
    decides(&running, "a posture is the software's", [5, 5, 5]);
    running.ask(&Request::Posture { name: None }).expect("it is activated");
    assert_eq!(status(&running).alone, None);
    decides(&running, "the policy again", [3, 3, 3]);

    // A table that is changed by hand is decided by the software from then on.
    done(&running, "bad add 192.0.2.0/24");
    assert!(status(&running).alone.is_some_and(|why| why.contains("table bad was changed")));
    decides(&running, "a changed table", [3, 3, 3]);
    put(folder, "bad.txt", "192.0.2.0/24\n");
    running.ask(&Request::Reload { force: false }).expect("the list is read again");
    let after = status(&running);
    assert_eq!((after.alone, after.lookups), (None, vec!["bad".to_owned()]));
    decides(&running, "another list", [3, 3, 3]);
    assert_eq!(running.stop(), 0);
}

/// `rules=plan` offloads what `weir card plan` chooses.
#[test]
fn a_plan_is_followed() {
    behind_card("afpacket", |hosts, card, folder, setup| {
        // The card saves the parser, because it answers everything.
        let rules = "udp sport 53 counter accept; tcp dport { 80, 443 } counter accept; ip ttl < 5 counter; drop";
        put(folder, "p.weir", &format!("upstream {{ {rules} }}\ndownstream {{ accept }}\n"));
        let _served = Served::start(card, folder);
        let more = ["--card", "hybrid:profile=open-nic,rules=plan"].map(str::to_owned).to_vec();
        let running = Running::start_as(&hosts.weir, folder, "p.weir", &Setup { more, ..setup.clone() });
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let plan = weir.args(["card", "plan", "p.weir", "--card", "open-nic", "--json"]).current_dir(folder).output();
        let plan: Value = serde_json::from_slice(&plan.expect("the program was built").stdout).expect("a plan");
        let planned = plan["rules"].as_array().expect("a list").iter().map(|rule| rule["offload"] == "software");
        let status = status(&running);
        assert!(status.rules.iter().map(|rule| rule.offload == "software").eq(planned), "{status:#?}\n{plan:#}");
        assert!(status.rules.iter().any(|rule| rule.offload != "software"), "{status:#?}");
        assert_eq!(running.stop(), 0);
    });
}

#[test]
fn what_is_no_card_is_said() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let hosts = Hosts::new();
    put(folder.path(), "p.weir", POLICY);
    let refused = |card: &str| {
        let more = ["--card", card].map(str::to_owned).to_vec();
        Running::refused_as(&hosts.weir, folder.path(), "p.weir", &Setup { more, ..Setup::new("afpacket") })
    };
    let (code, text) = refused("hybrid:profile=open-nic,interface=upper");
    assert_eq!((code, text.contains("interface=upper: it is not one of --lower")), (2, true), "{text}");
    let (code, text) = refused("hybrid:profile=nothing.card");
    assert_eq!((code, text.contains("profiles that come with Weir")), (2, true), "{text}");
    let (code, text) = refused("wire:outer=o,inner=i");
    assert_eq!((code, text.contains("needs --card-table")), (2, true), "{text}");
    let (code, text) = refused("hybrid:profile=open-nic");
    assert_eq!((code, text.contains("the card has not answered for 10")), (1, true), "{text}");
}
