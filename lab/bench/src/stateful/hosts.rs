//! Three hosts in a row: a client, the device under test, and a server. Each is the network namespace of a thread,
//! which the kernel removes with the thread.
//!
//! ```text
//! client 10.9.0.1 (c) ==veth== (lower) device (upper) ==veth== (s) server 10.9.0.2 to 10.9.0.65
//! ```
//! `lower` has the Ethernet address of `s`, and `upper` that of `c`. So hosts send the same frames to a device that
//! routes and to one that is a bump in the wire.

use crate::live::wire::call;
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Display, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use weir_command::failure::Failure;

/// The client's address.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
/// The server's first address.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Number of addresses of the server. They keep clients from using a port again soon: nftables' proxy takes the
/// acknowledgement of a new connection for one of the old connection that conntrack still knows.
const SERVERS: u8 = 64;
/// Ethernet addresses of the client and of the server.
const CLIENT_MAC: &str = "02:00:00:00:00:01";
const SERVER_MAC: &str = "02:00:00:00:00:02";

/// All addresses of the server.
pub fn servers() -> impl Iterator<Item = Ipv4Addr> + Clone {
    let [a, b, c, first] = SERVER.octets();
    (first..first + SERVERS).map(move |last| Ipv4Addr::new(a, b, c, last))
}

/// Commands of `ip` that say where the server's addresses are.
fn neighbours(interface: &str) -> String {
    servers()
        .map(|address| format!("neigh replace {address} lladdr {SERVER_MAC} dev {interface} nud permanent\n"))
        .collect()
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and its thread.
pub struct Host {
    jobs: Sender<Job>,
    namespace: PathBuf,
}

impl Host {
    /// Makes a namespace.
    ///
    /// # Errors
    /// The process may not.
    pub fn new() -> Result<Self, Failure> {
        let (jobs, received) = channel::<Job>();
        let (sender, receiver) = channel();
        thread::spawn(move || {
            let made = unshare(CloneFlags::CLONE_NEWNET).map_err(|error| error.to_string());
            let own = made.and_then(|()| fs::canonicalize("/proc/thread-self").map_err(|error| error.to_string()));
            // There is no receiver if this process is ending.
            let _nobody = sender.send(own.map(|own| own.join("ns/net")));
            received.into_iter().for_each(|job| job());
        });
        let namespace = receiver.recv().unwrap_or_else(|_| Err("its thread ended".to_owned()));
        let namespace =
            namespace.map_err(|problem| Failure::Runtime(format!("network namespace: {problem}; run as root")))?;
        Ok(Host { jobs, namespace })
    }

    /// The file of the namespace, as `ip` takes it.
    pub fn namespace(&self) -> Display<'_> {
        self.namespace.display()
    }

    /// Runs a job in the namespace, with the threads and processes that it starts.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (give, given) = channel();
        let job = move || {
            let _nobody = give.send(job());
        };
        self.jobs.send(Box::new(job)).expect("the thread ends with this value");
        given.recv().expect("jobs return errors")
    }

    /// Starts a thread in the namespace.
    pub fn start<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
        self.run(move || thread::spawn(job))
    }

    /// Runs a program in the namespace with `input` on standard input. Returns its standard output.
    ///
    /// # Errors
    /// The program is missing or fails.
    pub fn call(&self, program: &'static str, arguments: &str, input: &str) -> Result<String, Failure> {
        let (arguments, input) = (arguments.to_owned(), input.to_owned());
        self.run(move || call(program, &arguments, &input))
    }

    /// Sets a value below /proc/sys/net.
    ///
    /// # Errors
    /// There is none, or it cannot be set.
    pub fn set(&self, name: &str, value: &'static str) -> Result<(), Failure> {
        let path = format!("/proc/sys/net/{name}");
        self.run(move || fs::write(&path, value).map_err(|error| Failure::Runtime(format!("{path}: {error}"))))
    }

    /// Reads a number below /proc/sys/net, if there is one.
    pub fn number(&self, name: &str) -> Option<f64> {
        let path = format!("/proc/sys/net/{name}");
        self.run(move || fs::read_to_string(path).ok()?.trim().parse().ok())
    }
}

/// The hosts.
pub struct Hosts {
    /// The host of clients and attackers.
    pub client: Host,
    /// The host of the device under test.
    pub device: Host,
    /// The host of the server.
    pub server: Host,
}

impl Hosts {
    /// Makes the hosts and their wires.
    ///
    /// # Errors
    /// The process may not make network namespaces, or `ip` or `ethtool` is missing.
    pub fn new() -> Result<Self, Failure> {
        let hosts = Hosts { client: Host::new()?, device: Host::new()?, server: Host::new()? };
        for host in [&hosts.client, &hosts.device, &hosts.server] {
            host.set("ipv6/conf/default/disable_ipv6", "1")?;
        }
        hosts.lay("lower", SERVER_MAC, &hosts.client, ("c", CLIENT, CLIENT_MAC))?;
        hosts.lay("upper", CLIENT_MAC, &hosts.server, ("s", SERVER, SERVER_MAC))?;
        hosts.client.call("ip", "-batch -", &neighbours("c"))?;
        let more = servers().skip(1).map(|address| format!("address add {address}/32 dev s\n"));
        hosts.server.call("ip", "-batch -", &more.collect::<String>())?;
        hosts.server.call("ip", &format!("neigh replace {CLIENT} lladdr {CLIENT_MAC} dev s nud permanent"), "")?;
        // Answers to forged sources leave the way that they came.
        hosts.server.call("ip", &format!("route add default via {CLIENT}"), "")?;
        hosts.client.set("ipv4/ip_local_port_range", "1024 65535")?;
        Ok(hosts)
    }

    /// Lays a wire from the device to a host.
    fn lay(&self, own: &str, own_mac: &str, host: &Host, far: (&str, Ipv4Addr, &str)) -> Result<(), Failure> {
        let ((far, address, mac), netns) = (far, host.namespace());
        let wire = format!("link add {own} address {own_mac} type veth peer {far} address {mac} netns {netns}");
        self.device.call("ip", &wire, "")?;
        self.device.call("ip", &format!("link set {own} arp off up"), "")?;
        host.call("ip", &format!("link set {far} up"), "")?;
        host.call("ip", &format!("address add {address}/24 dev {far}"), "")?;
        // A card completes checksums and sends segments. Its far end polls.
        host.call("ethtool", &format!("-K {far} tx off gro on"), "")?;
        Ok(())
    }

    /// Makes the device's kernel route between client and server.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn route(&self) -> Result<(), Failure> {
        // Forged sources are behind the client.
        for line in [
            "address add 10.8.0.1/24 dev lower".to_owned(),
            format!("route add {CLIENT} dev lower"),
            "route add 10.9.0.0/24 dev upper".to_owned(),
            format!("neigh replace {CLIENT} lladdr {CLIENT_MAC} dev lower nud permanent"),
            format!("route add default via {CLIENT} dev lower onlink"),
        ] {
            self.device.call("ip", &line, "")?;
        }
        self.device.call("ip", "-batch -", &neighbours("upper"))?;
        self.device.set("ipv4/ip_forward", "1")
    }
}
