//! Ten thousand changes a second under a flood. Every packet is compared with a model of the tables.
//!
//! Takes two seconds for each engine. `WEIR_CHANGES_SECONDS=60 cargo test -p weir --test live change_load:: --
//! --nocapture` sets the duration and prints how soon packets saw changes.

use crate::device_under_test::Running;
use crate::hosts::Hosts;
use crate::traffic::{Listener, Pace};
use crate::{BETWEEN_BURSTS, check_account, put};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_control::{Client, GivenEntries, Request, TableOperation};
use weir_engine::FrameBurst;
use weir_engine::live::afpacket::wire::Wire;
use weir_engine::traffic::{self, SplitMix};

const SECONDS: u64 = 2;
/// Changes a second of each of the two tables.
const RATE: u64 = 5000;
/// Sources whose packets are watched: half of them in the range of each table, a burst together.
const WATCHED: u32 = 64;
/// Minimum time between two changes of a watched source.
const APART: Duration = Duration::from_millis(700);
/// A packet is decided at the latest this long after it was sent.
const DELAY_MAX: Duration = Duration::from_millis(300);
/// Offset of the number of a round in a packet: behind Ethernet, IPv4 and UDP.
const ROUND_AT: usize = 42;

/// The tables by name. Sources of each are 10.TABLE.x.y.
const TABLES: [&str; 2] = ["bad", "nets"];

/// Watched source `index`.
fn watched(index: u32) -> u32 {
    u32::from_be_bytes([10, (index % 2) as u8, 7, index as u8])
}

fn shown(address: u32) -> String {
    std::net::Ipv4Addr::from(address).to_string()
}

/// A change of a watched source.
struct Change {
    requested: Duration,
    answered: Duration,
    /// Whether the table has the source afterwards.
    is_in: bool,
}

/// A round of packets: one from each watched source.
struct Round {
    begun: Duration,
    ended: Duration,
}

/// Sends rounds until told to stop, as fast as Weir decides them.
fn flood(hosts: &Hosts, control: &Path, start: Instant, stop: &Arc<AtomicBool>) -> JoinHandle<Vec<Round>> {
    let (stop, mut pace) = (stop.clone(), Pace::of(control));
    hosts.client.start(move || {
        let mut wire = Wire::open("c").expect("the host has the wire");
        let mut frames = traffic::packets_from(&(0..WATCHED).map(watched).collect::<Vec<_>>());
        let mut rounds = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            for index in 0..WATCHED as usize {
                frames.frame_mut(index)[ROUND_AT..ROUND_AT + 4].copy_from_slice(&(rounds.len() as u32).to_be_bytes());
            }
            let begun = start.elapsed();
            wire.send(&frames.burst(0)).expect("the wire takes frames");
            rounds.push(Round { begun, ended: start.elapsed() });
            let sent = rounds.len() as u64 * u64::from(WATCHED);
            assert_eq!(wire.counters().tx_packets, sent, "{:?}", wire.counters());
            thread::sleep(BETWEEN_BURSTS);
            pace.wait(sent);
        }
        rounds
    })
}

/// Round and source of each packet that arrived.
fn note(arrived: &mut Vec<(u32, u8)>, burst: &FrameBurst<'_>) -> usize {
    for index in 0..burst.len() {
        let bytes = burst.bytes(index);
        let round = bytes[ROUND_AT..ROUND_AT + 4].try_into().expect("four bytes");
        arrived.push((u32::from_be_bytes(round), bytes[29]));
    }
    arrived.len()
}

/// Changes one table at the rate until told to stop. Returns the changes of watched sources with their index, and the
/// number of all changes.
fn change(table: usize, control: &Path, start: Instant, stop: &AtomicBool) -> (Vec<(u32, Change)>, u64) {
    let mut client = Client::connect(control).expect("it listens");
    let mut random = SplitMix::new(table as u64 + 1);
    let mut ask = |entry: String, is_in: bool| {
        let given = GivenEntries { entries: vec![entry], ..GivenEntries::default() };
        let operation = if is_in { TableOperation::Add(given) } else { TableOperation::Del(given) };
        let requested = start.elapsed();
        client.ask(&Request::Table { table: TABLES[table].to_owned(), operation }).expect("the change is made");
        Change { requested, answered: start.elapsed(), is_in }
    };
    let (mut last, mut states) = (vec![Duration::ZERO; WATCHED as usize], vec![false; WATCHED as usize]);
    let (mut others, mut watched_changes, mut made) = (Vec::<String>::new(), Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let ahead = Duration::from_secs_f64(made as f64 / RATE as f64).saturating_sub(start.elapsed());
        thread::sleep(ahead.saturating_sub(Duration::from_millis(1)));
        made += 1;
        let index = (random.below(u64::from(WATCHED) / 2) * 2) as u32 + table as u32;
        if random.below(50) == 0 && start.elapsed() > last[index as usize] + APART {
            let state = !states[index as usize];
            watched_changes.push((index, ask(shown(watched(index)), state)));
            (states[index as usize], last[index as usize]) = (state, start.elapsed());
            continue;
        }
        // Neighbours of the watched ones: in the same buckets, leaves and blocks.
        if others.len() < 2000 && random.below(2) == 0 || others.is_empty() {
            let host = format!("10.{table}.{}.{}", 8 + random.below(200), random.below(256));
            let net = format!("10.{table}.{}.{}/30", 8 + random.below(200), random.below(64) * 4);
            let entry = if TABLES[table] == "nets" { net } else { host };
            if !others.contains(&entry) {
                ask(entry.clone(), true);
                others.push(entry);
            }
        } else {
            let entry = others.swap_remove(random.below(others.len() as u64) as usize);
            ask(entry, false);
        }
    }
    (watched_changes, made)
}

each_engine_and_form!(every_packet_meets_a_table_of_its_time);
fn every_packet_meets_a_table_of_its_time(engine: &str, hosts: &Hosts, folder: &Path) {
    let seconds = std::env::var("WEIR_CHANGES_SECONDS").ok().map(|text| text.parse().expect("a number of seconds"));
    let length = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let policy = "table bad { type ipv4; elements = { 192.0.2.1 }; layout exact-set }\n\
         table nets { type ipv4; elements = { 198.51.100.0/24 } }\n\
         upstream { ip saddr @bad drop; ip saddr @nets drop; accept }\ndownstream { accept }\n";
    put(folder, "p.weir", policy);
    let running = Running::start(&hosts.weir, folder, "p.weir", engine, 1);
    let (start, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let at_server = Listener::noting(&hosts.server, "s", note);
    let sender = flood(hosts, running.control(), start, &stop);
    let changers = [0, 1].map(|table| {
        let (stop, control): (_, PathBuf) = (stop.clone(), running.control().to_owned());
        thread::spawn(move || change(table, &control, start, &stop))
    });
    thread::sleep(length);
    stop.store(true, Ordering::Relaxed);
    let mut changes: Vec<Vec<Change>> = (0..WATCHED).map(|_| Vec::new()).collect();
    let mut made = 0;
    for changer in changers {
        let (of_watched, count) = changer.join().expect("every change is made");
        of_watched.into_iter().for_each(|(index, change)| changes[index as usize].push(change));
        made += count;
    }
    let rounds = sender.join().expect("all are sent");
    let sent = rounds.len() as u64 * u64::from(WATCHED);
    let stats = running.wait_for("all are counted", |stats| stats.upstream.total.packets >= sent);
    let passed = stats.upstream.total.passed;
    let arrived = at_server.notes(passed as usize);
    assert_eq!((stats.upstream.total.packets, arrived.len() as u64), (sent, passed), "no packet is lost");
    let mut has_arrived = vec![[false; WATCHED as usize]; rounds.len()];
    arrived.iter().for_each(|&(round, index)| has_arrived[round as usize][usize::from(index)] = true);
    let mut seen_after = Vec::new();
    for (index, changes) in changes.iter().enumerate() {
        compare(index, changes, &rounds, &has_arrived);
        seen_after.extend(delays(index, changes, &rounds, &has_arrived));
    }
    seen_after.sort();
    let at = |share: usize| seen_after[(seen_after.len() * share / 100).min(seen_after.len() - 1)];
    eprintln!(
        "{engine}: {sent} packets, {made} changes in {length:?}; {} changes of watched sources were seen after {:?} \
         (median), {:?} (99%), {:?} (last)",
        seen_after.len(),
        at(50),
        at(99),
        at(100)
    );
    assert!(made > 500 * length.as_secs() && seen_after.len() > 20, "{engine}: only {made} changes were made");
    check_account(&running.settled());
    assert_eq!(running.stop(), 0);
}

/// Compares every packet of a source with what the table may have held for it between sending and decision.
fn compare(index: usize, changes: &[Change], rounds: &[Round], has_arrived: &[[bool; WATCHED as usize]]) {
    for (number, Round { begun, ended }) in rounds.iter().enumerate() {
        let done = changes.partition_point(|change| change.answered <= *begun);
        let begun_until = changes.partition_point(|change| change.requested <= *ended + DELAY_MAX);
        let before = done.checked_sub(1).is_some_and(|last| changes[last].is_in);
        let mut possible = std::iter::once(before).chain(changes[done..begun_until].iter().map(|change| change.is_in));
        let passed = has_arrived[number][index];
        assert!(possible.any(|is_in| is_in != passed), "round {number}, {}: {passed}", shown(watched(index as u32)));
    }
}

/// For each change, the time from its request to the last packet that was sent before the next one and did not see it;
/// zero if all saw it.
fn delays(
    index: usize,
    changes: &[Change],
    rounds: &[Round],
    has_arrived: &[[bool; WATCHED as usize]],
) -> Vec<Duration> {
    let delay = |(number, change): (usize, &Change)| {
        let until = changes.get(number + 1).map_or(Duration::MAX, |next| next.requested);
        let from = rounds.partition_point(|round| round.begun < change.requested);
        let to = rounds.partition_point(|round| round.ended + DELAY_MAX < until);
        let late = (from..to.max(from)).rev().find(|&round| has_arrived[round][index] == change.is_in);
        late.map_or(Duration::ZERO, |round| rounds[round].ended - change.requested)
    };
    changes.iter().enumerate().map(delay).collect()
}
