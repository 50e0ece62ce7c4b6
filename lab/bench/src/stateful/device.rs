//! The devices under test: no filter, the kernel's conntrack, its SYN proxy, and Weir on each engine without and with
//! its SYN proxy. As P4, without and with a controller, Weir is measured as in the paper only.

use super::hosts::Hosts;
use crate::need::Need;
use crate::process::Process;
use crate::scenario::Member;
use std::fs;
use std::path::Path;
use weir_command::failure::Failure;
use weir_control::{FlowOperation, FlowsCounted, Request};

/// All of them. The names of engines with Weir's SYN proxy end with [`PROXIED`].
pub const DEVICES: &[Member] = &[
    Member::plain(NONE),
    Member::with("conntrack", &[Need::Program("nft")]),
    Member::with("synproxy", &[Need::Program("nft")]),
    Member::with("xdp", &[Need::Weir]),
    Member::with("xdp-synproxy", &[Need::Weir]),
    Member::with("afxdp", &[Need::Weir]),
    Member::with("afxdp-synproxy", &[Need::Weir]),
    Member::with("afpacket", &[Need::Weir]),
    Member::with("afpacket-synproxy", &[Need::Weir]),
    #[cfg(feature = "dpdk")]
    Member::with("dpdk", &[Need::Weir]),
    #[cfg(feature = "dpdk")]
    Member::with("dpdk-synproxy", &[Need::Weir]),
    #[cfg(feature = "dpdk")]
    Member::with(P4, &[Need::Weir]),
    #[cfg(feature = "dpdk")]
    Member::with(SPLIT, &[Need::Weir]),
    #[cfg(feature = "dpdk")]
    Member::with(SLOW, &[Need::Weir]),
];

/// The device without a filter.
pub const NONE: &str = "none";
/// The end of the names of engines that answer SYNs.
const PROXIED: &str = "-synproxy";

/// The policy as P4, which tracks in the pipeline.
pub const P4: &str = "p4";
/// As P4, where a controller tracks the packets that change a state.
pub const SPLIT: &str = "p4-controller";
/// P4 with a controller as slow as the paper's. In the paper, 0.5 Mbit/s of pages of 1 KB are 61 connections a second.
/// Each has seven packets that change its state, so the controller takes 2.3 ms for each.
pub const SLOW: &str = "p4-controller-2ms";

/// The server's port.
pub const PORT: u16 = 80;
/// Number of flows of Weir's table: as many as the kernel's conntrack holds by default.
const SIZE: u32 = 1 << 18;

/// Who may open a connection, as rules of nftables.
const CONNTRACK: &str = "
add table ip weir
add chain ip weir forward { type filter hook forward priority 0; policy drop; }
add rule ip weir forward ct state established,related accept
add rule ip weir forward iif lower tcp dport 80 ct state new accept
";
/// The rules of `CONNTRACK` with a proxy, as in nft(8), but without timestamps. Linux 6.18 rejects the timestamps that
/// the proxy sends to the server (`TcpExtTSEcrRejected`), so connections would wait for a second.
const SYNPROXY: &str = "
add table ip weir
add chain ip weir before { type filter hook prerouting priority raw; policy accept; }
add rule ip weir before iif lower tcp dport 80 tcp flags & (fin | syn | rst | ack) == syn notrack
add chain ip weir forward { type filter hook forward priority 0; policy drop; }
add rule ip weir forward iif lower tcp dport 80 ct state invalid,untracked synproxy mss 1460 wscale 7 sack-perm
add rule ip weir forward ct state established,related accept
add rule ip weir forward iif lower tcp dport 80 ct state new accept
";

/// A running device.
pub struct Device {
    process: Option<Process>,
}

impl Device {
    /// Starts a device by its name between the interfaces of its host. Files are written to the folder.
    ///
    /// # Errors
    /// It does not start, or something that it needs is missing.
    pub fn start(name: &str, hosts: &Hosts, folder: &Path) -> Result<Self, Failure> {
        match name {
            NONE => hosts.route()?,
            "conntrack" => {
                hosts.route()?;
                hosts.device.set("netfilter/nf_conntrack_tcp_loose", "0")?;
                hosts.device.call("nft", "-f -", CONNTRACK)?;
            }
            "synproxy" => {
                hosts.route()?;
                hosts.device.set("netfilter/nf_conntrack_tcp_loose", "0")?;
                hosts.device.call("nft", "-f -", SYNPROXY)?;
            }
            weir => {
                let policy = folder.join("device.weir");
                let (engine, text) = match weir.strip_suffix(PROXIED) {
                    Some(engine) => (engine, proxying_policy()),
                    None => (weir, tracking_policy()),
                };
                fs::write(&policy, text).map_err(|error| Failure::file(&policy, error))?;
                let (folder, arguments) = (folder.to_owned(), engine_arguments(engine));
                let process = hosts.device.run(move || Process::start(&folder, &policy, &arguments))?;
                return Ok(Device { process: Some(process) });
            }
        }
        Ok(Device { process: None })
    }

    /// Number of flows that it tracks, if it does.
    pub fn flows(&self, hosts: &Hosts) -> Option<f64> {
        let Some(process) = &self.process else { return hosts.device.number("netfilter/nf_conntrack_count") };
        let counted = weir_control::ask(process.control(), &Request::Flows { operation: FlowOperation::Count }).ok()?;
        Some(weir_control::read::<FlowsCounted>(counted).ok()?.flows as f64)
    }
}

/// Whether the device is an engine, or the kernel, with a SYN proxy.
pub fn is_proxy(device: &str) -> bool {
    device.ends_with(&PROXIED[1..])
}

/// Whether the device runs P4. Such devices are measured as in the paper: throughput, and pages without a flood.
pub fn is_p4(device: &str) -> bool {
    device.starts_with(P4)
}

fn tracking_policy() -> String {
    format!(
        "tracking {{ size {SIZE}; pickup off }}
upstream {{ ct state established,related accept; tcp dport {PORT} ct state new accept; drop }}
downstream {{ ct state established,related accept; drop }}
"
    )
}

/// The policy with a proxy that offers the options that Linux offers.
fn proxying_policy() -> String {
    format!(
        "tracking {{ size {SIZE}; pickup off; synproxy mss 1460 wscale 7 sack-perm timestamp }}
upstream {{ ct state established,related accept; tcp dport {PORT} ct state new tcp synproxy accept; drop }}
downstream {{ ct state established,related accept; drop }}
"
    )
}

/// The arguments of `weir run` on an engine between `lower` and `upper`, with one worker.
pub fn engine_arguments(engine: &str) -> Vec<String> {
    let (engine, controller) = match engine.strip_prefix(SPLIT) {
        Some(takes) => (P4, Some(takes.strip_prefix('-').unwrap_or("0s"))),
        None => (engine, None),
    };
    let uses_dpdk = ["dpdk", P4].contains(&engine);
    let port = |wire: &str| if uses_dpdk { format!("net_af_packet_{wire}") } else { wire.to_owned() };
    let (lower, upper) = (port("lower"), port("upper"));
    let mut arguments =
        ["--engine", engine, "--workers", "1", "--lower", &lower, "--upper", &upper].map(str::to_owned).to_vec();
    arguments.extend(controller.into_iter().flat_map(|takes| ["--p4-controller", takes].map(str::to_owned)));
    if uses_dpdk {
        // Rings of 4096 packets.
        let ring = "qpairs=1,blocksz=65536,framesz=2048,framecnt=4096";
        let ports = ["lower", "upper"].map(|wire| format!(" --vdev={},iface={wire},{ring}", port(wire)));
        arguments.extend(["--eal".to_owned(), format!("--no-huge -m 256 --no-pci{}", ports.concat())]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_arguments_of_p4() {
        let given = |device: &str| {
            let arguments = engine_arguments(device);
            let takes = arguments.iter().position(|word| word == "--p4-controller").map(|at| arguments[at + 1].clone());
            (arguments[1].clone(), takes, arguments.iter().any(|word| word == "--eal"))
        };
        assert_eq!(given("afxdp"), ("afxdp".to_owned(), None, false));
        assert_eq!(given(P4), ("p4".to_owned(), None, true));
        assert_eq!(given(SPLIT), ("p4".to_owned(), Some("0s".to_owned()), true));
        assert_eq!(given(SLOW), ("p4".to_owned(), Some("2ms".to_owned()), true));
    }
}
