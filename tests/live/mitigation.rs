//! `weir run --mitigate`: a flood beside real connections is found and stopped, and the rule leaves after it.

#[path = "mitigation/intruder.rs"]
mod intruder;
#[path = "mitigation/lasting.rs"]
mod lasting;
#[path = "mitigation/operators.rs"]
mod operators;
#[path = "mitigation/samples.rs"]
mod samples;
#[path = "mitigation/upgraded.rs"]
mod upgraded;
#[path = "mitigation/uploads.rs"]
mod uploads;

use crate::device_under_test::{Running, Setup};
use crate::hosts::{Host, Hosts, SERVER};
use crate::put;
use crate::traffic::frames;
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_abi::Link;
use weir_control::{AttackEntry, AttackOperation, AttacksListed, Request, Status};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket::wire::Wire;
use weir_test_support::program::install_script;

const POLICY: &str = "
table admin { type ipv4; elements = { 10.9.0.9 } }
table blocked { type ipv4; dynamic; size 100; protect @admin }
slot attacks { size 8 }
upstream { sample 1/1; ip saddr @blocked drop; slot attacks; accept }
downstream { sample 1/1; accept }
";
/// The port of the service.
const SERVICE: u16 = 8000;
/// Time in which the daemon learns what is usual.
const PEACE: Duration = Duration::from_secs(4);
/// Each step takes at most this long on a machine that others use too.
const STEP: Duration = Duration::from_secs(30);
/// Packets of the flood in a burst, and the pause behind it: at most 1,600 packets a second.
const BURST: usize = 40;
const PAUSE: Duration = Duration::from_millis(25);
/// Pause between two requests of the client.
const BETWEEN_REQUESTS: Duration = Duration::from_millis(20);
const ANSWER_TIME: Duration = Duration::from_secs(2);

fn setup(engine: &str, mode: &str) -> Setup {
    let options =
        ["--mitigate", mode, "--inside", "10.9.0.2/32", "--mitigate-table", "blocked", "--mitigate-hold", "3s"];
    Setup { more: options.map(str::to_owned).to_vec(), ..Setup::new(engine) }
}

/// Work that a host repeats until this is dropped.
pub struct Repeated {
    stop: Arc<AtomicBool>,
    /// How often it was done, and how often it failed.
    done: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Repeated {
    pub fn on<W: FnMut() -> bool>(host: &Host, work: impl FnOnce() -> W + Send + 'static) -> Self {
        let (stop, done, failed) = <(Arc<AtomicBool>, Arc<AtomicU64>, Arc<AtomicU64>)>::default();
        let own = (stop.clone(), done.clone(), failed.clone());
        let thread = host.start(move || {
            let mut work = work();
            while !own.0.load(Ordering::Relaxed) {
                let count = if work() { &own.1 } else { &own.2 };
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Repeated { stop, done, failed, thread: Some(thread) }
    }

    pub fn counts(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

impl Drop for Repeated {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().expect("it is joined once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "a host's work failed");
    }
}

/// A service that answers each connection with what it receives.
fn serve(hosts: &Hosts) {
    let (ready, is_ready) = channel();
    let _until_the_end = hosts.server.start(move || {
        let listener = TcpListener::bind((SERVER, SERVICE)).expect("the server has the address");
        ready.send(()).expect("somebody waits");
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let mut request = [0; 64];
            // A client that gives up is no failure of the service.
            let _gone = stream.read_exact(&mut request).and_then(|()| stream.write_all(&request));
        }
    });
    is_ready.recv().expect("the server listens");
}

/// A client that sends requests, each on a connection of its own.
fn requests(hosts: &Hosts) -> Repeated {
    Repeated::on(&hosts.client, || {
        || {
            std::thread::sleep(BETWEEN_REQUESTS);
            let ask = || -> std::io::Result<bool> {
                let mut stream = TcpStream::connect_timeout(&(SERVER, SERVICE).into(), ANSWER_TIME)?;
                stream.set_read_timeout(Some(ANSWER_TIME))?;
                let (request, mut answer) = ([7; 64], [0; 64]);
                stream.write_all(&request)?;
                stream.read_exact(&mut answer)?;
                Ok(answer == request)
            };
            ask().unwrap_or(false)
        }
    })
}

/// Answers without questions, from many sources to unused ports.
fn flood_frames() -> Vec<Vec<u8>> {
    let frame = |at: u32| {
        let (high, low, port) = (at * 7 % 200, at * 13 % 250 + 1, 1024 + at * 31 % 50_000);
        format!("eth / ip saddr=10.20.{high}.{low} daddr=10.9.0.2 ttl=54 / udp sport=53 dport={port} / payload 400\n")
    };
    frames(&(0..2000).map(frame).collect::<String>())
}

/// Sends them at a moderate rate.
fn flood(hosts: &Hosts) -> Repeated {
    Repeated::on(&hosts.client, || {
        let all = flood_frames();
        let (mut wire, mut at) = (Wire::open("c").expect("the client has the wire"), 0);
        move || {
            for _ in 0..BURST {
                let bytes = &all[at % all.len()];
                let one = FrameSet::new(Link::Ethernet, [(bytes.as_slice(), bytes.len() as u32)]);
                wire.send(&one.burst(0)).expect("the wire takes frames");
                at += 1;
            }
            std::thread::sleep(PAUSE);
            true
        }
    })
}

pub fn attacks(running: &Running) -> AttacksListed {
    let listed = running.ask(&Request::Attacks { operation: AttackOperation::List });
    let listed = listed.unwrap_or_else(|failure| panic!("{failure}: {}", running.log()));
    serde_json::from_value(listed).expect("a list of attacks")
}

fn slot_rules(running: &Running) -> usize {
    let operation = weir_control::SlotOperation::List;
    let listed = running.ask(&Request::Slot { slot: "attacks".to_owned(), operation }).expect("there is one");
    listed["rules"].as_array().expect("a list").len()
}

/// Waits until an attack on the server fulfils a condition.
pub fn wait_for_attack(running: &Running, what: &str, holds: impl Fn(&AttackEntry) -> bool) -> AttackEntry {
    let begun = Instant::now();
    loop {
        let listed = attacks(running);
        if let Some(attack) = listed.attacks.iter().find(|attack| holds(attack)) {
            return attack.clone();
        }
        assert!(begun.elapsed() < STEP, "{what}: {listed:#?}\n{}", running.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn has(state: &str) -> impl Fn(&AttackEntry) -> bool {
    let state = state.to_owned();
    move |attack| attack.actions.iter().any(|action| action.state == state)
}

/// `weir ctl attacks`. Returns the exit code and what it prints.
fn ctl(running: &Running, arguments: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ctl", "--control"]).arg(running.control()).arg("attacks").args(arguments);
    let output = command.output().expect("the program was built");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// Lets the daemon learn what is usual. Returns the client.
fn in_peace(hosts: &Hosts, running: &Running) -> Repeated {
    serve(hosts);
    let client = requests(hosts);
    std::thread::sleep(PEACE);
    let listed = attacks(running);
    assert_eq!(listed.attacks, [], "{}", running.log());
    assert!(listed.samples.seen > 100 && listed.samples.problem.is_none(), "{listed:#?}");
    client
}

/// Packets that the slot has dropped.
fn dropped(running: &Running) -> u64 {
    running.stats().upstream.total.reasons.get("slot").copied().unwrap_or(0)
}

each_engine_and_host!(a_flood_is_stopped_and_the_rule_leaves_after_it);
fn a_flood_is_stopped_and_the_rule_leaves_after_it(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let notify = "#!/bin/sh\necho \"$@\" >> told\n[ \"$4\" = unban ] || cat > details\n";
    install_script(notify, &folder.join("notify.sh")).expect("the folder can be written to");
    let mut setup = setup(engine, "act");
    let path = |name: &str| folder.join(name).display().to_string();
    let notify = ["--mitigate-log", &path("events"), "--mitigate-notify", &path("notify.sh")];
    setup.more.extend(notify.into_iter().chain(["--mitigate-export", &path("exports")]).map(str::to_owned));
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup);
    let client = in_peace(hosts, &running);
    let flood = flood(hosts);
    let attack = wait_for_attack(&running, "it acts", has("active"));
    assert_eq!((attack.victim.as_str(), attack.kind.as_str()), ("10.9.0.2", "udp-reflection"), "{attack:#?}");
    let rule = &attack.actions[0];
    assert!(rule.rule.contains("ip daddr 10.9.0.2") && rule.rule.ends_with("drop"), "{attack:#?}");
    assert_eq!(rule.sample_legitimate, 0, "{attack:#?}");

    // The flood is dropped while requests are answered.
    let (before, answered) = (dropped(&running), client.counts());
    std::thread::sleep(Duration::from_secs(3));
    let (after, now) = (dropped(&running), client.counts());
    assert!(after - before > 500, "{engine}: {before} {after}: {}", running.log());
    assert!(now.0 > answered.0 + 10, "{engine}: {answered:?} {now:?}");
    assert!((now.1 - answered.1) * 20 <= now.0 - answered.0, "{engine}: {answered:?} {now:?}");
    let (code, shown) = ctl(&running, &["show", &attack.attack.to_string()]);
    assert!(code == 0 && shown.contains("UDP from service ports") && shown.contains("in slot attacks"), "{shown}");
    assert!(shown.contains("its rule has dropped") && shown.contains("in the victim's sample"), "{shown}");

    drop(flood);
    let attack = wait_for_attack(&running, "it is released", has("quiet"));
    assert!(!has("active")(&attack) && !has("collateral")(&attack), "{attack:#?}");
    assert!(attack.actions[0].dropped.is_some_and(|dropped| dropped >= after - before), "{attack:#?}");
    assert_eq!(slot_rules(&running), 0, "{engine}: {attack:#?}");
    wait_for_attack(&running, "it is over", |attack| attack.is_over);
    let listed = attacks(&running);
    assert!(listed.not_carried_out.is_empty() && listed.attacks.len() == 1, "{listed:#?}");
    drop(client);
    assert_eq!(running.stop(), 0);

    // The event log and the program tell it.
    let events = fs::read_to_string(folder.join("events")).expect("it was written");
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().expect("a word")).collect();
    assert_eq!((names[0], names[1], names[names.len() - 1]), ("attack-began", "action-taken", "attack-ended"));
    assert!(names.contains(&"action-released") && !names.contains(&"action-undone"), "{events:#?}");
    assert_eq!((&events[1]["victim"], &events[1]["action"]["action"]), (&"10.9.0.2".into(), &"drop".into()));
    let told = fs::read_to_string(folder.join("told")).expect("it was called");
    let calls: Vec<&str> = told.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!((calls[0], calls[1], calls[calls.len() - 1]), ("attack_details", "ban", "unban"), "{told}");
    assert!(told.lines().all(|line| line.starts_with("10.9.0.2 incoming ")), "{told}");
    let details = fs::read_to_string(folder.join("details")).expect("it was called");
    assert!(details.contains("IP: 10.9.0.2") && details.contains("Attack type: udp-reflection"), "{details}");
    replays_what_was_exported(&folder.join("exports"), &attack.actions[0].rule);
}

/// The attack was exported as a regression test, which passes, and fails without the rule against it.
fn replays_what_was_exported(exports: &Path, rule: &str) {
    let entries: Vec<_> = fs::read_dir(exports).expect("it exists").map(|entry| entry.expect("it is there")).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    let attack = entries[0].path();
    let policy = fs::read_to_string(attack.join("policy.weir")).expect("it was exported");
    assert!(policy.contains("daddr 10.9.0.2") && policy.contains("sample 1/1"), "{policy}");
    let replay = |policy: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.current_dir(&attack).args(["replay", policy, "--in", "attack.pcapng", "--engine", "eval"]);
        let ran = command.args(["--expect", "expected.json"]).output().expect("the program was built");
        let text = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
        (ran.status.code(), text)
    };
    let (code, said) = replay("policy.weir");
    assert!(code == Some(0) && said.contains("The counts are as expected."), "{said}");
    let without: String = policy.lines().filter(|line| !line.contains("udp")).map(|line| format!("{line}\n")).collect();
    put(&attack, "without.weir", &without);
    let (code, said) = replay("without.weir");
    assert!(code == Some(1) && said.contains("dropped: ") && said.contains("there is none"), "{rule}: {said}");
}

/// Accepts the actions that wait against an attack, until some are accepted. Returns what could not be carried out.
fn accept(running: &Running) -> (AttackEntry, Vec<String>) {
    let attack = wait_for_attack(running, "it proposes", has("proposed"));
    let operation = AttackOperation::Accept { attack: attack.attack };
    let changed = running.ask(&Request::Attacks { operation }).unwrap_or_else(|refused| panic!("{refused}"));
    assert!(changed["changed"].as_u64() >= Some(1), "{changed}");
    let problems: Vec<String> = serde_json::from_value(changed["problems"].clone()).expect("a list");
    (attack, problems)
}

each_kind!(a_proposal_waits_and_what_cannot_be_done_is_said);
fn a_proposal_waits_and_what_cannot_be_done_is_said(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", &POLICY.replace("size 8", "size 1"));
    put(folder, "bare.weir", "upstream { sample 1/1 accept }\ndownstream { accept }\n");
    put(folder, "unseen.weir", "upstream { accept }\ndownstream { accept }\n");
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "propose"));
    let _client = in_peace(hosts, &running);
    let slot = |operation| running.ask(&Request::Slot { slot: "attacks".to_owned(), operation });
    let counter = "udp dport 1 counter".to_owned();
    slot(weir_control::SlotOperation::Add { rule: counter, timeout_ms: None }).expect("there is room");
    let _flood = flood(hosts);

    // The slot is full.
    let (attack, problems) = accept(&running);
    assert_eq!((dropped(&running), slot_rules(&running)), (0, 1), "{engine}: {}", running.log());
    assert_eq!(problems, ["slot attacks: it is full: the policy reserves 1 rules"], "{engine}");
    assert_eq!(attacks(&running).not_carried_out.get(&problems[0]), Some(&1), "{}", running.log());
    let failed = wait_for_attack(&running, "it says so", has("failed"));
    assert!(failed.actions.iter().any(|action| action.problem.as_ref() == Some(&problems[0])), "{failed:#?}");

    // It is proposed again. A script learns from the exit code that nothing was done.
    let again = wait_for_attack(&running, "it is proposed again", has("proposed"));
    let (code, said) = ctl(&running, &["accept", &again.attack.to_string()]);
    assert!(code == 1 && said.contains("not carried out: slot attacks: it is full"), "{code}: {said}");

    // It is carried out when there is room.
    slot(weir_control::SlotOperation::Flush).expect("it is there");
    let (_, problems) = accept(&running);
    assert_eq!(problems, Vec::<String>::new());
    wait_for_attack(&running, "it acts", has("active"));
    let before = dropped(&running);
    running.wait_until("the flood is dropped", |running| dropped(running) > before + 300);
    let (code, said) = ctl(&running, &["accept", "99"]);
    assert!(code == 2 && said.contains("there is no attack 99"), "{said}");

    // What an operator removes stays away.
    slot(weir_control::SlotOperation::Flush).expect("it is there");
    let removed = wait_for_attack(&running, "it is noticed", has("removed"));
    let gone = removed.actions.iter().find(|action| action.state == "removed").expect("there is one");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(slot_rules(&running), 0, "{engine}");
    let now = wait_for_attack(&running, "it lasts", |now| now.attack == attack.attack);
    let again = now.actions.iter().filter(|action| action.rule == gone.rule && action.state == "proposed");
    assert_eq!(again.count(), 0, "{engine}: {now:#?}");

    // Policies without a slot, and without samples.
    let activate = |name: &str| {
        let generation = running.load(&folder.join(name));
        running.ask(&Request::Activate { generation, confirm_s: None }).expect("it is ready");
    };
    activate("unseen.weir");
    let says = |part: &str| attacks(&running).samples.problem.is_some_and(|problem| problem.contains(part));
    running.wait_until("it is blind", |_| says("nothing is measured"));
    assert!(attacks(&running).samples.blind_windows > 0);
    activate("bare.weir");
    running.wait_until("it sees again", |running| attacks(running).samples.problem.is_none());
    assert_eq!(running.stop(), 0);
}

each_kind!(watching_changes_nothing_and_stopping_leaves_nothing);
fn watching_changes_nothing_and_stopping_leaves_nothing(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "watch"));
    let _client = in_peace(hosts, &running);
    let _flood = flood(hosts);
    let attack = wait_for_attack(&running, "it is seen", has("watched"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((slot_rules(&running), dropped(&running)), (0, 0), "{engine}");
    let number = attack.attack.to_string();
    let (code, said) = ctl(&running, &["accept", &number]);
    assert!(code == 2 && said.contains("the mode is `watch`"), "{said}");
    let (code, said) = ctl(&running, &[]);
    assert!(code == 0 && said.contains("mode watch; samples 1/1") && said.contains("1 watched"), "{said}");

    // In another mode it acts at once, and back in this one nothing is left.
    let (code, said) = ctl(&running, &["mode", "act"]);
    assert_eq!((code, said.as_str()), (0, "mode act; 0 actions undone\n"));
    wait_for_attack(&running, "it acts", has("active"));
    running.wait_until("the flood is dropped", |running| dropped(running) > 100);
    let (code, said) = ctl(&running, &["mode", "watch"]);
    assert!(code == 0 && said.starts_with("mode watch; ") && !said.contains("; 0 "), "{said}");
    assert_eq!(slot_rules(&running), 0, "{engine}: {}", running.log());
    let stopped = wait_for_attack(&running, "it only watches", has("stopped"));
    assert!(!has("active")(&stopped), "{stopped:#?}");
    let (code, said) = ctl(&running, &["mode", "defend"]);
    assert!(code == 2 && said.contains("[possible values: watch, propose, act]"), "{said}");
    let refused = running.ask(&Request::Attacks { operation: AttackOperation::Mode { mode: "defend".to_owned() } });
    let refused = refused.expect_err("there is no such mode").to_string();
    assert!(refused.contains("`defend` is not a mode"), "{refused}");
    assert_eq!(running.stop(), 0);
    let left = hosts.weir.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").expect("there are interfaces"));
    assert!(!left.contains("weir"), "{left}");
}

each_kind!(policies_that_cannot_be_measured_are_refused);
fn policies_that_cannot_be_measured_are_refused(engine: &str, hosts: &Hosts, folder: &Path) {
    let cases = [
        ("upstream { accept } downstream { accept }", "no rule upstream has `sample 1/N`"),
        ("slot attacks { size 1 } upstream { slot attacks; sample 1/1 accept } downstream { accept }", "stands before"),
        (
            "table blocked { type ipv4; dynamic } upstream { ip saddr @blocked drop; sample 1/1 accept } downstream { accept }",
            "a rule with `@blocked` stands before `sample`",
        ),
        ("upstream { sample 1/2 accept } downstream { sample 1/3 accept }", "samples 1/3, and another rule 1/2"),
    ];
    for (policy, problem) in cases {
        put(folder, "p.weir", policy);
        let (code, said) = Running::refused_as(&hosts.weir, folder, "p.weir", &setup(engine, "act"));
        assert!(code == 2 && said.contains(problem), "{policy}: {code}: {said}");
    }
    put(folder, "p.weir", POLICY);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    let (code, said) = ctl(&running, &[]);
    assert!(code == 0 && said.contains("start Weir with --mitigate"), "{code}: {said}");
    assert_eq!(running.stop(), 0);
}

/// Entries of the table of blocked sources.
fn blocked(running: &Running) -> Value {
    let table = "blocked".to_owned();
    let operation = weir_control::TableOperation::Get { address: "10.9.0.1".to_owned() };
    running.ask(&Request::Table { table, operation }).expect("there is one")["found"].clone()
}

each_kind_and_host!(a_real_source_that_floods_its_connection_is_blocked_for_a_while);
fn a_real_source_that_floods_its_connection_is_blocked_for_a_while(engine: &str, hosts: &Hosts, folder: &Path) {
    put(folder, "p.weir", POLICY);
    let running = Running::start_as(&hosts.weir, folder, "p.weir", &setup(engine, "act"));
    let client = in_peace(hosts, &running);
    drop(client);
    // A connection that stands, and segments on it that the server ignores.
    let sport = hosts.client.run(|| {
        let stream = TcpStream::connect((SERVER, SERVICE)).expect("the service listens");
        let port = stream.local_addr().expect("it is connected").port();
        std::mem::forget(stream);
        port
    });
    let flood = Repeated::on(&hosts.client, move || {
        let frame = |seq: u32| {
            format!(
                "eth / ip saddr=10.9.0.1 daddr=10.9.0.2 / tcp sport={sport} dport={SERVICE} flags=ack,psh seq={} / \
                 payload 100\n",
                seq * 100 + 1
            )
        };
        let all = frames(&(0..8 * BURST as u32).map(frame).collect::<String>());
        let mut wire = Wire::open("c").expect("the client has the wire");
        move || {
            for bytes in &all {
                let one = FrameSet::new(Link::Ethernet, [(bytes.as_slice(), bytes.len() as u32)]);
                wire.send(&one.burst(0)).expect("the wire takes frames");
            }
            std::thread::sleep(PAUSE);
            true
        }
    });
    let is_blocked =
        |attack: &AttackEntry| attack.actions.iter().any(|action| action.action == "block" && action.state == "active");
    let attack = wait_for_attack(&running, "it blocks", is_blocked);
    let block = attack.actions.iter().find(|action| action.action == "block").expect("there is one");
    assert_eq!((block.rule.as_str(), block.place.as_deref()), ("10.9.0.1 timeout 30s", Some("table blocked")));
    let left = blocked(&running)["timeout_s"].as_f64();
    // It ends with the tick of 10 ms in which 30 seconds are over.
    assert!(left.is_some_and(|left| left <= 30.01), "{engine}: {left:?}: {}", running.log());
    running.wait_until("packets are dropped", |running| running.stats().upstream.total.dropped > 300);

    drop(flood);
    running.wait_until("it is released", |running| blocked(running).is_null());
    let served = hosts.client.run(|| TcpStream::connect_timeout(&(SERVER, SERVICE).into(), ANSWER_TIME).is_ok());
    assert!(served, "{engine}: {}", running.log());
    let attack = wait_for_attack(&running, "it says so", |attack| !is_blocked(attack));
    assert!(attack.actions.iter().all(|action| action.problem.is_none()), "{attack:#?}");
    assert_eq!(running.stop(), 0);
}
