//! A web server and its clients, on the sockets of two hosts: HTTP/1.0, one request for each connection.

use super::hosts::{Host, servers};

pub use super::device::PORT;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_command::failure::Failure;

/// Number of threads of the server: connections that it serves at the same time.
const THREADS: usize = 256;
/// Longest time that a client waits for a connection or for data. Then the request has failed.
pub const TIMEOUT: Duration = Duration::from_secs(2);
/// Most bytes of a request.
const REQUEST_BYTES_MAX: usize = 256;
/// Bytes that a client reads at a time.
const READ_BYTES: usize = 1 << 16;

/// A running server. `GET /N` is answered with N bytes.
pub struct Server {
    listener: Arc<TcpListener>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts the server on its host.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub fn start(host: &Host) -> Result<Self, Failure> {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let listener = host.run(move || TcpListener::bind(address));
        let listener = Arc::new(listener.map_err(|error| Failure::Runtime(format!("{address}: {error}")))?);
        let threads = (0..THREADS).map(|_| {
            let listener = listener.clone();
            thread::spawn(move || {
                let page = vec![b'x'; READ_BYTES];
                while let Ok((stream, _)) = listener.accept() {
                    // The client counts what fails.
                    let _failed = serve(stream, &page);
                }
            })
        });
        let threads = threads.collect();
        Ok(Server { listener, threads })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ends all waiting calls of accept().
        let _ended = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

/// Serves one connection.
fn serve(mut stream: TcpStream, page: &[u8]) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (mut request, mut length) = ([0; REQUEST_BYTES_MAX], 0);
    while !request[..length].ends_with(b"\r\n\r\n") {
        let more = stream.read(&mut request[length..])?;
        if more == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        length += more;
    }
    let bytes = wanted(&request[..length]).ok_or(ErrorKind::InvalidData)?;
    let mut head = format!("HTTP/1.0 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    let first = bytes.min(page.len());
    head.extend_from_slice(&page[..first]);
    stream.write_all(&head)?;
    let mut left = bytes - first;
    while left > 0 {
        let part = left.min(page.len());
        stream.write_all(&page[..part])?;
        left -= part;
    }
    stream.shutdown(Shutdown::Write)
}

/// The number of bytes that a request wants.
fn wanted(request: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(request).ok()?.lines().next()?;
    line.strip_prefix("GET /")?.split(' ').next()?.parse().ok()
}

/// What clients measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Milliseconds from connecting until the first byte, and until the last, of each request that succeeded.
    pub first_ms: Vec<f64>,
    /// See `first_ms`.
    pub last_ms: Vec<f64>,
    /// Requests that were not answered completely, among them connections that were refused.
    pub failed: u64,
}

/// Requests pages of `bytes` bytes over `connections` connections at the same time, for a while.
pub fn request(client: &Host, connections: usize, bytes: usize, during: Duration) -> Measured {
    let start = Instant::now();
    let threads = client.run(move || {
        let one = |number| thread::spawn(move || repeat(number, bytes, start + during));
        (0..connections).map(one).collect::<Vec<_>>()
    });
    let mut all = Measured::default();
    for thread in threads {
        let own = thread.join().expect("clients do not panic");
        all.first_ms.extend(own.first_ms);
        all.last_ms.extend(own.last_ms);
        all.failed += own.failed;
    }
    all.seconds = start.elapsed().as_secs_f64();
    all
}

/// Requests one page after the other until the end, from one address of the server after the other.
fn repeat(number: usize, bytes: usize, end: Instant) -> Measured {
    let mut addresses = servers().cycle().skip(number % servers().count());
    let mut measured = Measured::default();
    let mut buffer = vec![0; READ_BYTES];
    while Instant::now() < end {
        let start = Instant::now();
        let address = SocketAddr::from((addresses.next().expect("it is a cycle"), PORT));
        match get(address, bytes, &mut buffer, start, TIMEOUT) {
            Ok(first_ms) => {
                measured.first_ms.push(first_ms);
                measured.last_ms.push(start.elapsed().as_secs_f64() * 1e3);
            }
            Err(_) => measured.failed += 1,
        }
    }
    measured
}

/// Requests a page. Returns the milliseconds from `start` until its first byte. It waits no longer than `timeout` for a
/// connection or for data.
pub fn get(
    address: SocketAddr,
    bytes: usize,
    buffer: &mut [u8],
    start: Instant,
    timeout: Duration,
) -> std::io::Result<f64> {
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.write_all(format!("GET /{bytes} HTTP/1.0\r\n\r\n").as_bytes())?;
    let (mut received, mut first_ms) = (0, 0.0);
    loop {
        match stream.read(buffer)? {
            0 => break,
            more if received == 0 => (received, first_ms) = (more, start.elapsed().as_secs_f64() * 1e3),
            more => received += more,
        }
    }
    if received > bytes { Ok(first_ms) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_bytes_that_are_wanted() {
        assert_eq!(wanted(b"GET /1024 HTTP/1.0\r\n\r\n"), Some(1024));
        assert_eq!(wanted(b"GET /x HTTP/1.0\r\n\r\n"), None);
        assert_eq!(wanted(b"POST /1 HTTP/1.0\r\n\r\n"), None);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has an address");
        let server = thread::spawn(move || {
            let page = vec![b'x'; READ_BYTES];
            for _ in 0..3 {
                serve(listener.accept().expect("a client").0, &page).expect("the client reads");
            }
        });
        let mut buffer = vec![0; 4096];
        for bytes in [1, 1024, 3 * READ_BYTES + 5] {
            get(address, bytes, &mut buffer, Instant::now(), TIMEOUT).expect("the server answers");
        }
        server.join().expect("it served all");
    }
}
