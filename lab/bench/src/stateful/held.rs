//! Connections that are open at the same time (RFC 9411, section 7.5): all are opened, then each must still transfer.

use super::device::{Device, PORT};
use super::hosts::{Hosts, SERVER};
use crate::row::Row;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;

/// Longest time that a client waits for a connection or for data.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Descriptors that other things need.
const OTHERS: u64 = 400;
/// What either side sends over each connection.
const MESSAGE: [u8; 64] = [b'm'; 64];

/// Opens up to `wanted` connections at the same time, as many as the limit of descriptors permits.
///
/// # Errors
/// The server's port cannot be opened.
pub fn rows(row: &Row, hosts: &Hosts, device: &Device, wanted: usize) -> Result<Vec<Row>, Failure> {
    let wanted = wanted.min(permitted());
    let address = SocketAddr::from((SERVER, PORT));
    let listener = hosts.server.run(move || TcpListener::bind(address));
    let listener = listener.map_err(|error| Failure::Runtime(format!("{address}: {error}")))?;
    let accepting = thread::spawn(move || accept(&listener, wanted));
    let start = Instant::now();
    let mut near: Vec<TcpStream> = hosts
        .client
        .run(move || (0..wanted).map_while(|_| TcpStream::connect_timeout(&address, TIMEOUT).ok()).collect());
    let seconds = start.elapsed().as_secs_f64();
    let mut far = accepting.join().expect("it returns what it has");
    let flows = device.flows(hosts);
    let alive = near.iter_mut().map(transfer_there).filter(Result::is_ok).count();
    let answered = far.iter_mut().map(transfer_back).filter(Result::is_ok).count();
    let opened = near.len() as f64;
    let row = row.clone().number("wanted_connections", wanted as f64).number("held_connections", opened);
    let row = row.number("opened_per_s", opened / seconds).number("alive_connections", alive.min(answered) as f64);
    Ok(vec![match flows {
        Some(flows) => row.number("flows", flows),
        None => row,
    }])
}

/// Number of connections, with two descriptors each, after the limit was raised as far as it goes.
fn permitted() -> usize {
    let limit = getrlimit(Resource::Nofile);
    // The lower limit stays if it may not be raised.
    let _stays = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (most.saturating_sub(OTHERS) / 2) as usize
}

/// Accepts connections until there are as many as wanted, or none comes for a while.
fn accept(listener: &TcpListener, wanted: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    let mut last = Instant::now();
    if listener.set_nonblocking(true).is_err() {
        return streams;
    }
    while streams.len() < wanted && last.elapsed() < 2 * TIMEOUT {
        match listener.accept() {
            Ok((stream, _)) => {
                streams.push(stream);
                last = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(_) => {}
        }
    }
    streams
}

/// The client's side sends.
fn transfer_there(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.write_all(&MESSAGE)
}

/// The server's side receives, and answers.
fn transfer_back(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut message = [0; MESSAGE.len()];
    stream.read_exact(&mut message)?;
    stream.write_all(&message)
}
