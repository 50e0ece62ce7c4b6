//! Fig. 4a and 4b: requests that a web server completes while its host is attacked, by the rate of the attack.
//!
//! ```text
//!   clients and generator, on the last core(s)  ==veth== (card) ==veth==  host on its core: receiver and server
//! ```
//! Clients request more than they could if the host did nothing else, but at a constant rate: the paper's clients and
//! attackers have machines of their own, and here the attack takes time from the clients. A request that is not
//! answered in five seconds has failed.

use super::door::{Door, HOST_CORE, VICTIM};
use super::drops::{Effort, NEAR, Stand};
use super::sources::Traffic;
use crate::live::generating_core;
use crate::row::Row;
use crate::stateful::http::{self, PORT, Server};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;
use weir_engine::cpu;
use weir_engine::measure::Spread;
use weir_instruments::generate::Generator;

/// Numbers of attackers: Fig. 4a and 4b.
const ATTACKERS: [(&str, usize); 2] = [("4a", 1 << 10), ("4b", 1 << 12)];
/// Requests in a second, bytes of a page, and requests at the same time, as many as the paper's.
const REQUESTS_PER_S: usize = 4000;
const PAGE_BYTES: usize = 1 << 10;
const CLIENTS: usize = 200;
/// When a request has failed, as in the paper.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The attack begins before the requests.
const AHEAD: Duration = Duration::from_millis(200);
/// Length of one call of the generator.
const CALL: Duration = Duration::from_millis(500);

/// Measures the named blockers one after the other, because they share the clients' addresses.
///
/// # Errors
/// A blocker cannot be started.
pub fn rows(
    names: &[&'static str],
    attackers: &[u32],
    generator: &mut Generator,
    effort: Effort,
) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let most = ATTACKERS[1].1.min(attackers.len());
    for (&name, near) in names.iter().zip(NEAR) {
        let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
        generator.set_pace(0)?;
        let mut stand = Stand::open(name, near, folder.path(), &attackers[..most], generator)?;
        stand.door.connect()?;
        let server = start_server(&stand.door)?;
        for (figure, count) in ATTACKERS {
            let sources = &attackers[..count.min(most)];
            stand.block(sources)?;
            generator.set_sources(&Traffic::Uniform.packets(sources))?;
            if stand.door.has_card() {
                generator.set_pace(1000)?;
                super::load::settle(&stand, generator, effort)?;
            }
            for &rate in effort.rates {
                let row = Row::default().of("part", "web").of("figure", figure).of("blocker", name);
                let row = row.of("sources", &count.to_string()).of("attack_pps", &rate.to_string());
                rows.push(under_attack(row, &stand.door, generator, rate, effort.during)?);
            }
        }
        drop(server);
    }
    Ok(rows)
}

/// The server, with all its threads on the host's core.
fn start_server(door: &Door) -> Result<Server, Failure> {
    let pinned = |error| Failure::Runtime(format!("pinning to a core: {error}"));
    cpu::pin_to(HOST_CORE).map_err(pinned)?;
    let server = Server::start(&door.host);
    generating_core()?;
    server
}

/// Requests pages for a while under an attack of `rate` packets per second.
fn under_attack(row: Row, door: &Door, generator: &mut Generator, rate: u64, during: Duration) -> Result<Row, Failure> {
    generator.leave_through(door.near.index);
    let before = door.count()?;
    let start = Instant::now() + if rate > 0 { AHEAD } else { Duration::ZERO };
    let end = start + during;
    let clients = request(start, end);
    let (begin, mut sent) = (Instant::now(), 0);
    if let Some(pace) = 1_000_000_000u64.checked_div(rate) {
        generator.set_pace(pace)?;
        while Instant::now() < end {
            let packets = (rate as f64 * CALL.as_secs_f64().min((end - Instant::now()).as_secs_f64())) as u32;
            generator.send(packets.max(64))?;
            sent += u64::from(packets.max(64));
        }
    }
    // Without an attack, requests alone reach the host.
    let attacked = begin.elapsed().max(during).as_secs_f64();
    let all = clients.into_iter().map(|client| client.join().expect("clients do not panic"));
    let (mut answered, mut asked, mut latencies) = (0, 0, Vec::new());
    for client in all {
        asked += client.asked;
        answered += client.answered_ms.len();
        latencies.extend(client.answered_ms);
    }
    let after = door.count()?;
    let mut row = row
        .number("completed_requests_per_s", answered as f64 / during.as_secs_f64())
        .number("wanted_requests_per_s", REQUESTS_PER_S as f64)
        .number("asked_requests", asked as f64)
        .number("attack_mpps", sent as f64 / attacked / 1e6)
        .number("reached_mpps", (after.received - before.received) as f64 / attacked / 1e6)
        .number("passed_packets", (after.passed - before.passed) as f64);
    if let Some(spread) = Spread::of(latencies) {
        row = row.spread("answered_ms", spread);
    }
    Ok(row)
}

/// What a client has done.
#[derive(Debug, Default)]
struct Client {
    asked: usize,
    /// Milliseconds of each answer that was complete before the end.
    answered_ms: Vec<f64>,
}

/// Starts clients that request pages at a constant rate from `start` to `end`.
fn request(start: Instant, end: Instant) -> Vec<thread::JoinHandle<Client>> {
    let next = Arc::new(AtomicUsize::new(0));
    let one = |_| {
        let next = next.clone();
        thread::spawn(move || {
            let (mut client, mut buffer) = (Client::default(), vec![0; 2 * PAGE_BYTES]);
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let due = start + Duration::from_secs(1) * number as u32 / REQUESTS_PER_S as u32;
                if due >= end {
                    return client;
                }
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let asked = Instant::now();
                if asked >= end {
                    return client;
                }
                client.asked += 1;
                let answer = http::get(SocketAddr::from((VICTIM, PORT)), PAGE_BYTES, &mut buffer, asked, TIMEOUT);
                if answer.is_ok() && Instant::now() < end {
                    client.answered_ms.push(asked.elapsed().as_secs_f64() * 1e3);
                }
            }
        })
    };
    (0..CLIENTS).map(one).collect()
}
