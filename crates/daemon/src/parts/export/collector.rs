//! A collector, as a UDP socket. One that is away costs a system call for each datagram, and nothing waits for it.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use weir_control::CollectorStatus;

/// Where datagrams go.
pub struct Collector {
    address: SocketAddr,
    /// `None` after an error that a new socket may not have.
    socket: Option<UdpSocket>,
    datagrams: u64,
    errors: u64,
    problem: Option<String>,
}

impl Collector {
    /// A collector at an address, and this machine's own address towards it.
    ///
    /// # Errors
    /// There is no route to it.
    pub fn connect(address: SocketAddr) -> io::Result<(Self, IpAddr)> {
        let socket = open(address)?;
        let own = socket.local_addr()?.ip();
        let collector = Collector { address, socket: Some(socket), datagrams: 0, errors: 0, problem: None };
        Ok((collector, own))
    }

    /// Sends a datagram, or counts an error.
    ///
    /// A refused datagram is reported by the next call of the kernel, which then sends nothing. So that call is
    /// repeated once.
    pub fn send(&mut self, datagram: &[u8]) {
        if self.try_send(datagram) == Err(ErrorKind::ConnectionRefused) {
            let _counted = self.try_send(datagram);
        }
    }

    fn try_send(&mut self, datagram: &[u8]) -> Result<(), ErrorKind> {
        let Some(socket) = &self.socket else {
            self.errors += 1;
            return Err(ErrorKind::NotConnected);
        };
        let error = match socket.send(datagram) {
            Ok(_) => {
                self.datagrams += 1;
                return Ok(());
            }
            Err(error) => error,
        };
        self.errors += 1;
        self.problem = Some(error.to_string());
        // A full buffer or a refusal says nothing against the socket.
        if !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::WouldBlock) {
            self.socket = None;
        }
        Err(error.kind())
    }

    /// Opens another socket in place of one that failed.
    pub fn renew(&mut self) {
        if self.socket.is_none() {
            match open(self.address) {
                Ok(socket) => self.socket = Some(socket),
                Err(error) => self.problem = Some(error.to_string()),
            }
        }
    }

    /// What became of the datagrams so far.
    pub fn status(&self) -> CollectorStatus {
        CollectorStatus {
            address: self.address.to_string(),
            datagrams: self.datagrams,
            errors: self.errors,
            problem: self.problem.clone(),
        }
    }
}

/// A socket that is connected, so that the kernel reports refused datagrams. It never blocks.
fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The address of `HOST`, `HOST:PORT` or `[IPV6]:PORT`. A host may be a name.
///
/// # Errors
/// The name is not known.
pub fn resolve(text: &str, default_port: u16) -> io::Result<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, default_port));
    }
    let mut found = match text.contains(':') {
        true => text.to_socket_addrs()?,
        false => (text, default_port).to_socket_addrs()?,
    };
    found.next().ok_or_else(|| io::Error::new(ErrorKind::NotFound, "the name has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn addresses_have_the_usual_port_unless_another_is_given() {
        let of = |text: &str| resolve(text, 6343).map(|address| address.to_string()).map_err(|error| error.kind());
        assert_eq!(of("192.0.2.1").as_deref(), Ok("192.0.2.1:6343"));
        assert_eq!(of("192.0.2.1:7").as_deref(), Ok("192.0.2.1:7"));
        assert_eq!(of("::1").as_deref(), Ok("[::1]:6343"));
        assert_eq!(of("[2001:db8::1]").as_deref(), Ok("[2001:db8::1]:6343"));
        assert_eq!(of("[2001:db8::1]:7").as_deref(), Ok("[2001:db8::1]:7"));
        assert!(of("192.0.2.1:70000").is_err() && of("").is_err());
    }

    #[test]
    fn a_collector_that_is_away_costs_counts_and_gets_what_comes_later() {
        let listener = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let (mut collector, own) = Collector::connect(address).expect("loopback has a route");
        assert_eq!(own, IpAddr::from([127, 0, 0, 1]));
        drop(listener);
        // Each datagram is refused, which a later call reports.
        while collector.status().errors < 2 {
            collector.send(b"away");
            thread::yield_now();
        }
        assert!(collector.status().problem.is_some_and(|problem| problem.contains("refused")));
        let listener = UdpSocket::bind(address).expect("the same port");
        let datagrams = collector.status().datagrams;
        collector.send(b"back");
        assert_eq!(collector.status().datagrams, datagrams + 1, "a refusal of an earlier one does not lose it");
        let mut buffer = [0; 8];
        listener.set_read_timeout(Some(Duration::from_secs(20))).expect("it can");
        let received = listener.recv(&mut buffer).map(|length| buffer[..length].to_vec());
        assert_eq!(received.ok().as_deref(), Some(&b"back"[..]));
    }
}
