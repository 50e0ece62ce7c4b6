//! A real web server with a constant demand, less than it can serve, under floods of SYNs, ACKs and forged resets:
//! which part of the requests is answered. The server has no SYN cookies of its own.

use super::device::{Device, PORT, is_p4};
use super::flood::{Flood, Kind};
use super::hosts::{Hosts, servers};
use super::http::{self, Server};
use crate::row::Row;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;

/// Requests in a second, and bytes of the page.
const REQUESTS_PER_S: usize = 200;
const PAGE_BYTES: usize = 1 << 10;
/// Clients: so many requests may wait at the same time. Each gives up after two seconds.
const CLIENTS: usize = 512;
/// No flood, and all others.
pub const FLOODS: [Option<Kind>; 4] = [None, Some(Kind::Syn), Some(Kind::Ack), Some(Kind::Reset)];

/// How much is measured.
#[derive(Clone, Copy)]
pub struct Effort {
    /// The floods. `None` measures without a flood.
    pub floods: &'static [Option<Kind>],
    /// How long each flood is measured.
    pub during: Duration,
    /// Time after which a flood has filled every queue.
    pub filling: Duration,
}

/// Measures the devices for a while under each flood.
///
/// # Errors
/// The process may not make network namespaces, or something that a device needs is missing.
pub fn rows(devices: &[&str], effort: Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for device in devices.iter().filter(|device| !is_p4(device)) {
        rows.extend(of_device(device, effort)?);
    }
    Ok(rows)
}

fn of_device(name: &str, effort: Effort) -> Result<Vec<Row>, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Runtime(format!("temporary directory: {error}")))?;
    let hosts = Hosts::new()?;
    hosts.server.set("ipv4/tcp_syncookies", "0")?;
    let device = Device::start(name, &hosts, folder.path())?;
    let _server = Server::start(&hosts.server)?;
    // The first requests warm up.
    http::request(&hosts.client, 8, PAGE_BYTES, Duration::from_millis(200));
    let mut rows = Vec::new();
    for &kind in effort.floods {
        let flood = kind.map(|kind| Flood::start(&hosts, kind));
        if flood.is_some() {
            thread::sleep(effort.filling);
        }
        let sent = || flood.as_ref().map_or(0, Flood::sent);
        let before = sent();
        let wanted = (effort.during.as_secs_f64() * REQUESTS_PER_S as f64) as usize;
        let answered = answered(&hosts, wanted);
        let packets_per_s = (sent() - before) as f64 / effort.during.as_secs_f64();
        let row = Row::default().of("part", "demand").of("device", name).of("flood", kind.map_or("none", Kind::name));
        let row = row.number("requests", wanted as f64).number("answered_requests", answered as f64);
        let row = row.number("answered_percent", 100.0 * answered as f64 / wanted as f64);
        let row = row.number("flood_packets_per_s", packets_per_s);
        rows.push(match device.flows(&hosts) {
            Some(flows) => row.number("flows", flows),
            None => row,
        });
        if let Some(flood) = flood {
            flood.stop()?;
        }
    }
    Ok(rows)
}

/// Requests `wanted` pages, each at its time, whether earlier ones were answered or not. Returns how many were.
fn answered(hosts: &Hosts, wanted: usize) -> usize {
    let (next, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let clients = hosts.client.run(move || {
        let one = |_| {
            let next = next.clone();
            thread::spawn(move || ask(&next, wanted, start))
        };
        (0..CLIENTS).map(one).collect::<Vec<_>>()
    });
    clients.into_iter().map(|client| client.join().expect("clients do not panic")).sum()
}

/// One client: takes the next request, waits for its time, and asks.
fn ask(next: &AtomicUsize, wanted: usize, start: Instant) -> usize {
    let mut buffer = vec![0; 2 * PAGE_BYTES];
    let mut answered = 0;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= wanted {
            return answered;
        }
        let due = start + Duration::from_secs(1) * number as u32 / REQUESTS_PER_S as u32;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let address = servers().nth(number % servers().count()).expect("it is one of them");
        let asked =
            http::get(SocketAddr::from((address, PORT)), PAGE_BYTES, &mut buffer, Instant::now(), http::TIMEOUT);
        answered += usize::from(asked.is_ok());
    }
}
