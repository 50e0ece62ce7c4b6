//! The host's interface, and the core that it pays with.
//!
//! ```text
//!   generator's core:  generator -> near ==veth== far  <- the host's core: receives, decides, drops
//! ```
//! The kernel polls `far` in a thread of its own (threaded NAPI), which is pinned to the host's core. So the host's CPU
//! time is the CPU time of this thread and of nothing else, and the sender's core does not pay for what the host does.

use crate::live::generating_core;
use crate::live::wire::{self, Port, call};
use crate::stateful::hosts::Host;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};
use weir_command::failure::Failure;

/// The core of the host. The generator has the last one.
pub const HOST_CORE: usize = 0;
/// Name and Ethernet address of the host's interface, and the address that is attacked.
const INTERFACE: &str = "eth0";
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
pub const VICTIM: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// Address and Ethernet address of clients.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);
const OUTSIDE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// After the last packet the kernel looks again so much later, and not at the next packet: cards interrupt it no more
/// often. At a million packets a second the interface's queue of 256 has room for as long.
const COALESCED_NS: u32 = 150_000;
/// How long the kernel may take to start the thread of an interface.
const START: Duration = Duration::from_secs(2);
/// Time without change after which all packets have been received.
const QUIET: Duration = Duration::from_millis(2);
const QUIET_MAX: Duration = Duration::from_secs(2);

/// The kernel's thread that receives the packets of an interface.
pub struct Receiver {
    process: PathBuf,
}

impl Receiver {
    /// Lets the kernel receive the packets of an interface of this thread's namespace in a thread on a core.
    ///
    /// # Errors
    /// The kernel cannot, or the process may not.
    pub fn start(interface: &str, core: usize) -> Result<Self, Failure> {
        let before = receivers(interface);
        set_device(interface, &format!("echo 1 > napi_defer_hard_irqs; echo {COALESCED_NS} > gro_flush_timeout"))?;
        set_device(interface, "echo 1 > threaded")?;
        let start = Instant::now();
        loop {
            let new: Vec<i32> = receivers(interface).difference(&before).copied().collect();
            if let [pid] = new[..] {
                pin(pid, core).map_err(|error| Failure::Runtime(format!("thread of {interface}: {error}")))?;
                return Ok(Receiver { process: format!("/proc/{pid}").into() });
            }
            if start.elapsed() > START {
                return Err(Failure::Runtime(format!("{interface}: the kernel has {} threads for it", new.len())));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// CPU time of the thread until it last slept, and how often it began to run.
    ///
    /// # Errors
    /// The interface does not exist anymore.
    fn spent(&self) -> Result<(Duration, u64), Failure> {
        let text = self.read("schedstat")?;
        // Time on the processor in ns, time in its queue, and number of runs.
        let mut numbers = text.split_whitespace().map_while(|number| number.parse().ok());
        let ns = numbers.next().unwrap_or_default();
        Ok((Duration::from_nanos(ns), numbers.nth(1).unwrap_or_default()))
    }

    /// Whether it waits for a processor. On a busy machine it may do so for longer than [`QUIET`].
    fn is_queued(&self) -> Result<bool, Failure> {
        let text = self.read("stat")?;
        // The state is behind the name, which may contain anything.
        Ok(text.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('R')))
    }

    fn read(&self, name: &str) -> Result<String, Failure> {
        let path = self.process.join(name);
        fs::read_to_string(&path).map_err(|error| Failure::file(&path, error))
    }

    /// Waits until it sleeps.
    ///
    /// # Errors
    /// The interface does not exist anymore.
    pub fn quiet(&self) -> Result<(Duration, u64), Failure> {
        let (start, mut last) = (Instant::now(), self.spent()?);
        loop {
            thread::sleep(QUIET);
            let now = self.spent()?;
            if now == last && !self.is_queued()? || start.elapsed() > QUIET_MAX {
                return Ok(now);
            }
            last = now;
        }
    }
}

/// Writes settings of an interface, with the commands of a shell.
fn set_device(interface: &str, commands: &str) -> Result<(), Failure> {
    // Of sysfs, a process sees the interfaces of the namespace in which it was mounted.
    let script = format!("set -e; mount -t sysfs sysfs /sys; cd /sys/class/net/{interface}; {commands}\n");
    call("unshare", "--mount sh", &script).map(drop)
}

/// Lets the kernel look at the interface as soon as a packet comes.
fn coalesce_nothing(interface: &str) -> Result<(), Failure> {
    set_device(interface, "echo 0 > napi_defer_hard_irqs; echo 0 > gro_flush_timeout")
}

/// Processes of the kernel that receive for an interface of that name, in any namespace.
fn receivers(interface: &str) -> BTreeSet<i32> {
    let prefix = format!("napi/{interface}-");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        fs::read_to_string(entry.path().join("comm")).ok()?.starts_with(&prefix).then_some(pid)
    });
    pids.collect()
}

fn pin(pid: i32, core: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(Pid::from_raw(pid), &set)
}

/// A host with its interface, and the wire to it.
pub struct Door {
    /// The host: a namespace of its own, so that rules of one host are not met by packets of another.
    pub host: Host,
    /// Where the generator sends, in the namespace of the thread that opened the door.
    pub near: Port,
    /// The host's interface.
    pub far: Port,
    receiver: Receiver,
    /// The namespace of the card in front of it.
    pub card: Option<Host>,
}

/// What a host has counted.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// Packets that its interface received.
    pub received: u64,
    /// Packets that reached the kernel's UDP, which has no socket for them.
    pub passed: u64,
    /// CPU time of its receiver.
    pub spent: Duration,
    /// How often its receiver began to run.
    pub woken: u64,
}

impl Door {
    /// Makes a host and its wire. `near` is the name of the generator's end.
    ///
    /// # Errors
    /// A program is missing, or the kernel refuses something.
    pub fn open(near: &'static str) -> Result<Self, Failure> {
        let host = namespace()?;
        call("ip", &format!("link add {near} type veth {}", peer(&host)), "")?;
        Door::up(near, host, None)
    }

    /// A door with a card between its two ends: a namespace with the interfaces `outer` and `inner`, which Weir joins.
    ///
    /// # Errors
    /// See [`Door::open`].
    pub fn with_card(near: &'static str) -> Result<Self, Failure> {
        let (host, card) = (namespace()?, namespace()?);
        call("ip", &format!("link add {near} type veth peer name outer netns {}", card.namespace()), "")?;
        card.call("ip", &format!("link add inner type veth {}", peer(&host)), "")?;
        for interface in ["outer", "inner"] {
            card.call("ip", &format!("link set {interface} arp off up"), "")?;
        }
        card.call("ethtool", "-K outer gro on", "")?;
        Door::up(near, host, Some(card))
    }

    fn up(near: &'static str, host: Host, card: Option<Host>) -> Result<Self, Failure> {
        call("ip", &format!("link set {near} arp off up"), "")?;
        host.call("ip", &format!("link set {INTERFACE} arp off up"), "")?;
        // Only an interface that is up tells its peer that it takes frames from programs.
        host.call("ethtool", &format!("-K {INTERFACE} gro on tx off"), "")?;
        host.call("ip", &format!("address add {VICTIM}/32 dev {INTERFACE}"), "")?;
        if card.is_some() {
            call("ethtool", &format!("-K {near} gro on"), "")?;
        }
        let near = wire::port(near)?;
        let (far, receiver) =
            host.run(|| Ok::<_, Failure>((wire::port(INTERFACE)?, Receiver::start(INTERFACE, HOST_CORE)?)))?;
        Ok(Door { host, near, far, receiver, card })
    }

    /// Gives both ends of the wire what TCP needs. The end outside is received by a thread on the calling thread's
    /// core, not by the sender on the host's.
    ///
    /// # Errors
    /// `ip` or `ethtool` fails.
    pub fn connect(&self) -> Result<(), Failure> {
        let near = self.near.name;
        call("ethtool", &format!("-K {near} gro on tx off"), "")?;
        Receiver::start(near, generating_core()?)?;
        // At the highest rates the queue has no room for packets that arrive meanwhile, and clients' packets would be
        // lost.
        coalesce_nothing(near)?;
        self.host.run(|| coalesce_nothing(INTERFACE))?;
        for line in [
            format!("link set {near} address {}", text(OUTSIDE_MAC)),
            format!("address add {CLIENT}/24 dev {near}"),
            format!("neigh replace {VICTIM} lladdr {} dev {near} nud permanent", text(MAC)),
        ] {
            call("ip", &line, "")?;
        }
        for line in [
            format!("route add {CLIENT} dev {INTERFACE} src {VICTIM}"),
            format!("neigh replace {CLIENT} lladdr {} dev {INTERFACE} nud permanent", text(OUTSIDE_MAC)),
        ] {
            self.host.call("ip", &line, "")?;
        }
        Ok(())
    }

    /// Whether there is a card in front of the host.
    pub fn has_card(&self) -> bool {
        self.card.is_some()
    }

    /// Waits until the host has nothing to do, and counts.
    ///
    /// # Errors
    /// The interface does not exist anymore.
    pub fn count(&self) -> Result<Counted, Failure> {
        let (spent, woken) = self.receiver.quiet()?;
        let far = self.far.clone();
        let (received, passed) = self.host.run(move || Ok::<_, Failure>((far.count()?.received, without_port()?)))?;
        Ok(Counted { received, passed, spent, woken })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The kernel removes the wire with the host's namespace, but some time later.
        let _gone = call("ip", &format!("link delete {}", self.near.name), "");
    }
}

/// A namespace whose kernel sends nothing by itself and takes packets of any source.
fn namespace() -> Result<Host, Failure> {
    let host = Host::new()?;
    for (name, value) in [
        ("ipv6/conf/default/disable_ipv6", "1"),
        ("ipv4/conf/default/rp_filter", "0"),
        ("ipv4/conf/all/rp_filter", "0"),
    ] {
        host.set(name, value)?;
    }
    Ok(host)
}

/// The host's end of a pair, as `ip` takes it.
fn peer(host: &Host) -> String {
    format!("peer name {INTERFACE} address {} netns {}", text(MAC), host.namespace())
}

/// An Ethernet address as text.
fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// UDP packets of this thread's namespace for which there was no socket.
fn without_port() -> Result<u64, Failure> {
    const SNMP: &str = "/proc/thread-self/net/snmp";
    let text = fs::read_to_string(SNMP).map_err(|error| Failure::Runtime(format!("{SNMP}: {error}")))?;
    no_ports(&text).ok_or_else(|| Failure::Runtime(format!("{SNMP}: no NoPorts of UDP")))
}

/// The number below `NoPorts` in the two lines of UDP.
fn no_ports(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|name| name == "NoPorts")?;
    numbers.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::no_ports;

    #[test]
    fn packets_without_a_socket_are_found() {
        let text = "Tcp: A B\nTcp: 1 2\nUdp: InDatagrams NoPorts InErrors\nUdp: 5 17 9\nUdpLite: NoPorts\nUdpLite: 3\n";
        assert_eq!(no_ports(text), Some(17));
        assert_eq!(no_ports("Udp: InDatagrams\nUdp: 5\n"), None);
    }
}
