//! The operator's login connection, as sshd passes it to the shell in `SSH_CONNECTION`.
//!
//! `sudo` and others do not pass this variable on, so the environments of the parent processes count too.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

const VARIABLE: &str = "SSH_CONNECTION";
/// Limit on the parent processes that are asked.
const PARENTS_MAX: usize = 64;

/// A connection from a client to this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The operator's end.
    pub client: SocketAddr,
    /// The end at this machine.
    pub here: SocketAddr,
}

impl Session {
    /// The connection of this process, or of the nearest parent process that has one.
    pub fn find() -> Option<Self> {
        let own = std::env::var(VARIABLE).ok().and_then(|text| Session::read(&text));
        own.or_else(|| Session::of_parents(Path::new("/proc"), std::os::unix::process::parent_id()))
    }

    /// The connection of a process or the nearest parent that has one.
    fn of_parents(proc: &Path, mut process: u32) -> Option<Self> {
        for _ in 0..PARENTS_MAX {
            let folder = proc.join(process.to_string());
            // Environments of other users cannot be read, but their parents can be found.
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            let assigned = environment.split(|&byte| byte == 0).filter_map(|one| std::str::from_utf8(one).ok());
            let mut values = assigned.filter_map(|one| one.strip_prefix(VARIABLE)?.strip_prefix('='));
            if let Some(session) = values.find_map(Session::read) {
                return Some(session);
            }
            process = parent(&fs::read_to_string(folder.join("stat")).ok()?)?;
        }
        None
    }

    /// `198.51.100.7 50000 192.0.2.1 22`
    fn read(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [client, client_port, here, port] = words[..] else { return None };
        let end = |addr: &str, port: &str| {
            let addr: IpAddr = addr.split('%').next()?.parse().ok()?;
            Some(SocketAddr::new(addr.to_canonical(), port.parse().ok().filter(|&port| port > 0)?))
        };
        let session = Session { client: end(client, client_port)?, here: end(here, port)? };
        (session.client.is_ipv4() == session.here.is_ipv4()).then_some(session)
    }
}

/// The parent in `/proc/PID/stat`. The name of the program, in parentheses, may contain anything.
fn parent(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok().filter(|&parent| parent > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(client: &str, here: &str) -> Option<Session> {
        Some(Session { client: client.parse().expect("an end"), here: here.parse().expect("an end") })
    }

    #[test]
    fn what_sshd_says_is_read() {
        let read = Session::read;
        assert_eq!(read("198.51.100.7 50000 192.0.2.1 22"), session("198.51.100.7:50000", "192.0.2.1:22"));
        assert_eq!(read("2001:db8::7 50000 2001:db8::1 22"), session("[2001:db8::7]:50000", "[2001:db8::1]:22"));
        assert_eq!(read("fe80::7%eth0 50000 fe80::1%eth0 22"), session("[fe80::7]:50000", "[fe80::1]:22"));
        assert_eq!(read("::ffff:192.0.2.7 50000 ::ffff:192.0.2.1 22"), session("192.0.2.7:50000", "192.0.2.1:22"));
        for text in
            ["", "x", "1.2.3.4 5 6.7.8.9", "1.2.3.4 0 6.7.8.9 22", "1.2.3.4 65536 6.7.8.9 22", "1.2.3.4 5 ::1 22"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn the_nearest_parent_with_a_connection_counts() {
        let proc = tempfile::tempdir().expect("a temporary folder");
        let put = |process: u32, parent: u32, environment: &str| {
            let folder = proc.path().join(process.to_string());
            fs::create_dir(&folder).expect("it is new");
            fs::write(folder.join("stat"), format!("{process} (a) b) S {parent} 1 1")).expect("it can be written");
            fs::write(folder.join("environ"), environment).expect("it can be written");
        };
        put(9, 8, "A=1\0XSSH_CONNECTION=198.51.100.7 1 192.0.2.1 22\0");
        put(8, 7, "SSH_CONNECTION=nonsense\0");
        put(7, 6, "PATH=/bin\0SSH_CONNECTION=198.51.100.7 2 192.0.2.1 22\0");
        put(6, 1, "SSH_CONNECTION=198.51.100.7 3 192.0.2.1 22\0");
        put(1, 0, "");
        let of = |process: u32| Session::of_parents(proc.path(), process).map(|session| session.client.port());
        assert_eq!((of(9), of(6), of(1), of(5)), (Some(2), Some(3), None, None));
    }
}
