//! What clients and servers say to each other, over the sockets of the standard library.

use crate::hosts::Host;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Ports of the server: it waits for a request, speaks first, and does not listen.
const ASKED: u16 = 80;
const SPEAKS: u16 = 81;
const CLOSED: u16 = 82;
/// More than a window, so that windows matter.
const PAGE_BYTES: usize = 400_000;
const UPLOAD_BYTES: usize = 200_000;
const BANNER: &[u8] = b"220 ready\r\n";
/// No step takes longer, also if a packet was lost.
const TIMEOUT: Duration = Duration::from_secs(10);

fn page(length: usize) -> Vec<u8> {
    (0..length as u32).map(|nth| (nth.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// Runs the servers at an address of a host. They end with its namespace.
pub fn serve(host: &Host, address: IpAddr) {
    host.run(move || {
        for (port, talk) in [(ASKED, answer as fn(TcpStream) -> io::Result<()>), (SPEAKS, speak)] {
            let listener = TcpListener::bind((address, port)).expect("the port is free");
            std::thread::spawn(move || {
                // The client says what went wrong.
                listener.incoming().flatten().for_each(|stream| _ = talk(stream));
            });
        }
    });
}

/// Waits for a request, and answers with a page.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut request = [0; 5];
    stream.read_exact(&mut request)?;
    stream.write_all(&page(PAGE_BYTES))
}

/// Speaks first, and counts what comes.
fn speak(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(BANNER)?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    let verdict: &[u8] = if received == page(UPLOAD_BYTES) { b"same" } else { b"different" };
    stream.write_all(verdict)
}

fn connect(server: IpAddr, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((server, port)), TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

fn wrong(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

/// A client that asks.
pub fn client_first(server: IpAddr) -> io::Result<()> {
    let mut stream = connect(server, ASKED)?;
    stream.write_all(b"GET 1")?;
    let mut received = Vec::new();
    stream.read_to_end(&mut received)?;
    if received == page(PAGE_BYTES) { Ok(()) } else { Err(wrong("another page")) }
}

/// A client that waits for a banner, and then sends much.
pub fn server_first(server: IpAddr) -> io::Result<()> {
    let mut stream = connect(server, SPEAKS)?;
    let mut banner = vec![0; BANNER.len()];
    stream.read_exact(&mut banner)?;
    if banner != BANNER {
        return Err(wrong("another banner"));
    }
    stream.write_all(&page(UPLOAD_BYTES))?;
    stream.shutdown(Shutdown::Write)?;
    let mut verdict = String::new();
    stream.read_to_string(&mut verdict)?;
    if verdict == "same" { Ok(()) } else { Err(wrong(&verdict)) }
}

/// A client of a port without a listener: it is connected, and then reset.
pub fn refused(server: IpAddr) -> io::Result<()> {
    // The reset may be there before the connection is returned.
    match connect(server, CLOSED).and_then(|mut stream| stream.read(&mut [0])) {
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(wrong("not reset")),
    }
}
