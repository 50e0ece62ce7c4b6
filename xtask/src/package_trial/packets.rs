//! What passes between the outer namespaces: numbered packets and a connection, by two processes of this program.
//!
//! | port | packets | the policy of the trial |
//! | --- | --- | --- |
//! | 9 | numbered, in turns with the next two | they pass |
//! | 666 | numbered | they are dropped |
//! | 13 | numbered, from an address that was added to a table by hand | they are dropped |
//! | 11 | [`FIRST`] before anything else, and [`LATER`] at the end | at most [`BURST`] pass in an hour |
//! | 12, TCP | numbers and their echoes, on one connection that is opened first and closed last | it is tracked |
//! | 10 | one, the last | it passes |

use clap::Subcommand;
use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PASSES: u16 = 9;
const END: u16 = 10;
const LIMITED: u16 = 11;
const SERVICE: u16 = 12;
const SUSPECTED: u16 = 13;
const DROPPED: u16 = 666;
/// Packets of one address that the limit of the policy lets pass at once.
pub const BURST: u64 = 5;
/// Packets to the limited port before everything else: more than may pass.
pub const FIRST: u64 = 8;
/// Packets to the limited port after everything else.
pub const LATER: u64 = 3;
/// The last byte of the address of the sender that the table names. The first three are the server's.
const SUSPECT: u8 = 3;
/// Pause between two rounds of packets.
const PAUSE: Duration = Duration::from_millis(1);
/// The longest wait for a packet, or for an answer of the connection. TCP doubles its pauses between two tries.
const PACKET_WAIT: Duration = Duration::from_secs(120);

/// What a process in a namespace does until its standard input ends.
#[derive(Clone, Copy, Subcommand)]
pub enum Packets {
    /// Sends packets to all ports, and prints how many to each and how many numbers came back.
    Send {
        /// Where to.
        server: Ipv4Addr,
    },
    /// Counts different packets on each port, and answers on the connection.
    Receive,
}

impl Packets {
    /// Runs in the namespace of this process.
    ///
    /// # Errors
    /// A socket cannot be used, the connection ends, or no packet comes.
    pub fn run(self) -> Result<(), String> {
        match self {
            Packets::Send { server } => send(server),
            Packets::Receive => receive(),
        }
        .map_err(|error| format!("packets: {error}"))
    }
}

fn send(server: Ipv4Addr) -> io::Result<()> {
    let [first, second, third, _] = server.octets();
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let suspect = UdpSocket::bind((IpAddr::from([first, second, third, SUSPECT]), 0))?;
    let done = Arc::new(AtomicBool::new(false));
    let connection = TcpStream::connect((server, SERVICE))?;
    let own = done.clone();
    let exchanging = thread::spawn(move || exchange(connection, &own));
    let limited = |numbers: std::ops::Range<u64>| {
        numbers
            .map(|number| socket.send_to(&number.to_be_bytes(), (server, LIMITED)))
            .try_for_each(|sent| sent.map(drop))
    };
    limited(0..FIRST)?;
    println!();
    let stop = told_to_stop();
    let mut number = 0u64;
    while !stop.load(Ordering::Relaxed) {
        for (from, port) in [(&socket, DROPPED), (&suspect, SUSPECTED), (&socket, PASSES)] {
            put(from, number, (server, port))?;
        }
        number += 1;
        thread::sleep(PAUSE);
    }
    done.store(true, Ordering::Relaxed);
    let exchanged = exchanging.join().expect("it does not panic")?;
    limited(FIRST..FIRST + LATER)?;
    socket.send_to(&[], (server, END))?;
    println!("{number} {exchanged}");
    Ok(())
}

/// Sends a number. If the way is closed at the moment, the packet is lost like others.
fn put(from: &UdpSocket, number: u64, to: (Ipv4Addr, u16)) -> io::Result<()> {
    match from.send_to(&number.to_be_bytes(), to) {
        Err(error) if !is_closed(error.kind()) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn is_closed(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkDown, NetworkUnreachable};
    matches!(kind, HostUnreachable | NetworkDown | NetworkUnreachable)
}

/// Sends numbers and waits for each to come back. The last one is sent after `done` was set.
fn exchange(mut connection: TcpStream, done: &AtomicBool) -> io::Result<u64> {
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PACKET_WAIT))?;
    let mut number = 0u64;
    loop {
        let is_last = done.load(Ordering::Relaxed);
        connection.write_all(&number.to_be_bytes())?;
        let mut answer = [0; 8];
        connection.read_exact(&mut answer)?;
        if answer != number.to_be_bytes() {
            return Err(io::Error::other("another number came back"));
        }
        number += 1;
        if is_last {
            return Ok(number);
        }
        thread::sleep(PAUSE);
    }
}

fn receive() -> io::Result<()> {
    let counted = [PASSES, DROPPED, SUSPECTED, LIMITED].map(|port| UdpSocket::bind(("0.0.0.0", port)));
    let (end, service) = (UdpSocket::bind(("0.0.0.0", END))?, TcpListener::bind(("0.0.0.0", SERVICE))?);
    // It ends with the process.
    let _echoing = thread::spawn(move || echo(&service));
    let done = Arc::new(AtomicBool::new(false));
    let counting = counted.map(|socket| counter(socket, done.clone()));
    println!();
    // The last packet comes after the sender was told to stop.
    let stop = told_to_stop();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(PAUSE);
    }
    end.set_read_timeout(Some(PACKET_WAIT))?;
    end.recv(&mut [0])?;
    done.store(true, Ordering::Relaxed);
    for thread in counting {
        println!("{}", thread.join().expect("it does not panic")?);
    }
    Ok(())
}

/// Counts different packets until `done`.
fn counter(socket: io::Result<UdpSocket>, done: Arc<AtomicBool>) -> JoinHandle<io::Result<u64>> {
    thread::spawn(move || {
        let socket = socket?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (mut seen, mut bytes) = (BTreeSet::new(), [0; 8]);
        loop {
            match socket.recv(&mut bytes) {
                Ok(_) => _ = seen.insert(bytes),
                Err(_) if done.load(Ordering::Relaxed) => return Ok(seen.len() as u64),
                Err(_) => {}
            }
        }
    })
}

/// Sends back what one client sends.
fn echo(service: &TcpListener) -> io::Result<()> {
    let (mut connection, _) = service.accept()?;
    connection.set_nodelay(true)?;
    let mut number = [0; 8];
    loop {
        connection.read_exact(&mut number)?;
        connection.write_all(&number)?;
    }
}

/// Set when standard input ends.
fn told_to_stop() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    thread::spawn(move || {
        // An error is an end too.
        let _read = io::stdin().read_to_end(&mut Vec::new());
        told.store(true, Ordering::Relaxed);
    });
    stop
}
