//! A network namespace with veth pairs and their counters.
//!
//! The namespace belongs to a thread. The kernel removes its interfaces, programs and nftables tables when the thread
//! ends, for whatever reason.

use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::io::Write;
use std::panic;
use std::process::{Command, Stdio};
use std::thread;
use weir_command::failure::Failure;

/// The external programs and their Debian packages.
const PACKAGES: [(&str, &str); 8] = [
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
    ("nft", "nftables"),
    ("ipset", "ipset"),
    ("iptables-legacy-restore", "iptables"),
    ("iptables-nft-restore", "iptables"),
    ("unshare", "util-linux"),
    ("verilator", "verilator"),
];

/// The interfaces of this thread's namespace.
const DEVICES: &str = "/proc/thread-self/net/dev";

/// Runs a job in a new network namespace, with the programs and threads that it starts.
///
/// # Errors
/// The process may not make namespaces, or the job fails.
pub fn in_namespace<R: Send>(job: impl FnOnce() -> Result<R, Failure> + Send) -> Result<R, Failure> {
    let body = || {
        unshare(CloneFlags::CLONE_NEWNET)
            .map_err(|error| Failure::Runtime(format!("network namespace: {error}; run as root")))?;
        // Otherwise the kernel would send IPv6 packets on the interfaces.
        for path in ["/proc/sys/net/ipv6/conf/all/disable_ipv6", "/proc/sys/net/ipv6/conf/default/disable_ipv6"] {
            // A kernel without IPv6 has no such file.
            let _none = fs::write(path, "1");
        }
        job()
    };
    thread::scope(|scope| scope.spawn(body).join()).unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

/// Runs a program in this thread's namespace with `input` on standard input. Returns its standard output.
///
/// # Errors
/// It is not installed, or fails. The message names its package or contains its first line on standard error.
pub fn call(program: &str, arguments: &str, input: &str) -> Result<String, Failure> {
    let failed = |problem: String| Failure::Runtime(format!("{program} {arguments}: {problem}"));
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(missing(program, &error)))?;
    let mut stdin = child.stdin.take().expect("standard input was asked for");
    let written = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(failed(stderr.lines().next().unwrap_or("failed without a message").to_owned()));
    }
    written.map_err(|error| failed(error.to_string()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The package of an external program.
pub fn package(program: &str) -> Option<&'static str> {
    PACKAGES.iter().find(|(name, _)| *name == program).map(|(_, package)| *package)
}

fn missing(program: &str, error: &std::io::Error) -> String {
    match package(program) {
        Some(package) => format!("{error}; install it with `apt-get install {package}`"),
        None => error.to_string(),
    }
}

/// An end of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Name of its interface.
    pub name: &'static str,
    /// Index of the interface.
    pub index: u32,
}

impl Port {
    /// Its packet counters.
    ///
    /// # Errors
    /// The interface does not exist anymore.
    pub fn count(&self) -> Result<Count, Failure> {
        let text = fs::read_to_string(DEVICES).map_err(|error| Failure::Runtime(format!("{DEVICES}: {error}")))?;
        Count::parse(&text, self.name).ok_or_else(|| Failure::Runtime(format!("{DEVICES}: no interface {}", self.name)))
    }
}

/// Makes a veth pair with `queues` queues. The second end polls, so that it accepts frames that XDP sends into the
/// first.
///
/// # Errors
/// `ip` or `ethtool` is missing or fails.
pub fn pair(names: [&'static str; 2], queues: usize) -> Result<[Port; 2], Failure> {
    let [near, far] = names;
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    call("ip", &format!("link add {near} {queues} type veth peer name {far} {queues}"), "")?;
    for name in names {
        call("ip", &format!("link set {name} arp off up"), "")?;
    }
    call("ethtool", &format!("-K {far} gro on"), "")?;
    Ok([port(near)?, port(far)?])
}

/// An interface of this thread's namespace.
///
/// # Errors
/// There is none with this name.
pub fn port(name: &'static str) -> Result<Port, Failure> {
    let index = if_nametoindex(name).map_err(|error| Failure::Runtime(format!("interface {name}: {error}")))?;
    Ok(Port { name, index })
}

/// Packet counters of an interface. The kernel also counts packets that are dropped later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
}

/// Columns of /proc/net/dev after the name.
const RECEIVED: usize = 1;
const SENT: usize = 9;

impl Count {
    /// Parses the line of an interface in /proc/net/dev.
    fn parse(text: &str, interface: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| {
            let (name, columns) = line.split_once(':')?;
            (name.trim() == interface).then_some(columns)
        })?;
        let column = |index: usize| line.split_whitespace().nth(index)?.parse().ok();
        Some(Count { received: column(RECEIVED)?, sent: column(SENT)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEV: &str = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
   far: 31457280  524288    1    2    0     0          0         0      120      3    0    7    0     0       0          0
 far2:1 9 0 0 0 0 0 0 1 8 0 0 0 0 0 0
";

    #[test]
    fn interfaces_are_found_by_their_whole_name() {
        assert_eq!(Count::parse(DEV, "far"), Some(Count { received: 524_288, sent: 3 }));
        assert_eq!(Count::parse(DEV, "far2"), Some(Count { received: 9, sent: 8 }));
        assert_eq!(Count::parse(DEV, "fa"), None);
        assert_eq!(Count::parse("far: 1 x\n", "far"), None);
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert!(missing("nft", &error).contains("apt-get install nftables"));
        let failure = call("no-such-program-of-weir", "-x", "").expect_err("there is none");
        assert!(failure.message().starts_with("no-such-program-of-weir -x: "), "{failure}");
    }
}
