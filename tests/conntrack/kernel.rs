//! The kernel's conntrack in a network namespace, which says the state of each packet.
//!
//! ```text
//! in0 ---- in1   prerouting: conntrack, then rules that write the state into the DSCP field   out0 ---- out1
//! ```
//! Packets are sent at `in0`, forwarded, and received at `out1`. Each has its number in the IPv4 identification or the
//! IPv6 flow label. The namespace belongs to one thread and has no name. What the kernel itself sends is dropped before
//! conntrack sees it.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvfrom, sendto, setsockopt,
    socket,
};
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The states, in the order of their DSCP values from 1.
pub const STATES: [&str; 5] = ["invalid", "established", "related", "new", "untracked"];
/// Most packets that are sent before their states are read.
const BURST: usize = 128;
/// Maximum time until a packet arrives. All arrive, so it only matters on machines that stall.
const PATIENCE: Duration = Duration::from_secs(20);
const RULES: &str = "
table inet oracle {
  chain states {
    type filter hook prerouting priority mangle; policy accept;
    ct state invalid ip dscp set 1
    ct state established ip dscp set 2
    ct state related ip dscp set 3
    ct state new ip dscp set 4
    ct state untracked ip dscp set 5
    ct state invalid ip6 dscp set 1
    ct state established ip6 dscp set 2
    ct state related ip6 dscp set 3
    ct state new ip6 dscp set 4
    ct state untracked ip6 dscp set 5
  }
  chain silence {
    type filter hook output priority raw; policy drop;
  }
}";

/// Conntrack, and the way of packets through it.
pub struct Conntrack {
    socket: OwnedFd,
    netlink: OwnedFd,
    near: LinkAddr,
    /// Index of the interface where packets arrive.
    far: usize,
    buffer: Vec<u8>,
}

/// Runs `test` in a thread with its own namespace.
pub fn with_conntrack<R: Send>(test: impl FnOnce(Conntrack) -> R + Send) -> R {
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|error| panic!("this test makes a network namespace and needs root: {error}"));
            test(Conntrack::new())
        });
        ran.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl Conntrack {
    fn new() -> Self {
        for (name, peer) in [("in0", "in1"), ("out0", "out1")] {
            run("ip", &format!("link add {name} mtu 65535 type veth peer name {peer} mtu 65535"), "");
        }
        for (at, name) in ["in0", "in1", "out0", "out1"].into_iter().enumerate() {
            set(&format!("ipv6/conf/{name}/accept_dad"), "0");
            set(&format!("ipv6/conf/{name}/addr_gen_mode"), "1");
            run("ip", &format!("link set {name} arp off address 02:00:00:00:00:0{at} up"), "");
        }
        for (what, value) in [
            ("ipv4/conf/all/forwarding", "1"),
            ("ipv6/conf/all/forwarding", "1"),
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/in1/rp_filter", "0"),
        ] {
            set(what, value);
        }
        run("ip", "route add default dev out0", "");
        run("ip", "-6 route add default dev out0", "");
        run("nft", "-f -", RULES);
        // Captures have packets whose checksums a card would have completed.
        set("netfilter/nf_conntrack_checksum", "0");
        let near = getifaddrs()
            .expect("interfaces can be listed")
            .filter(|interface| interface.interface_name == "in0")
            .find_map(|interface| interface.address?.as_link_addr().copied())
            .expect("the wire was just made");
        let raw = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll);
        let raw = raw.expect("root may have raw sockets");
        setsockopt(&raw, RcvBufForce, &(64 << 20)).expect("root may have large buffers");
        let netlink = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::empty(), SockProtocol::NetlinkNetFilter);
        let far = if_nametoindex("out1").expect("the wire was just made") as usize;
        Conntrack { socket: raw, netlink: netlink.expect("netlink is there"), near, far, buffer: vec![0; 70_000] }
    }

    /// Forgets all flows.
    pub fn flush(&mut self) {
        // struct nlmsghdr: length, type (subsystem conntrack, delete), flags (request), sequence, port; struct
        // nfgenmsg.
        let mut message = 20u32.to_ne_bytes().to_vec();
        message.extend((1u16 << 8 | 2).to_ne_bytes());
        message.extend(1u16.to_ne_bytes());
        message.extend([0; 12]);
        let sent = sendto(self.netlink.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty());
        assert_eq!(sent.expect("the kernel takes requests"), message.len());
        let left = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").expect("conntrack is there");
        assert_eq!(left.trim(), "0", "conntrack forgets");
    }

    /// The state of each IP packet, in order. `None` for packets that the kernel does not forward.
    pub fn judge(&mut self, packets: &[Vec<u8>]) -> Vec<Option<&'static str>> {
        packets.chunks(BURST).flat_map(|burst| self.judge_burst(burst)).collect()
    }

    fn judge_burst(&mut self, packets: &[Vec<u8>]) -> Vec<Option<&'static str>> {
        let mut states = vec![None; packets.len()];
        let mut missing = packets.len();
        for (number, packet) in packets.iter().enumerate() {
            let frame = numbered(packet, number as u16);
            let sent = sendto(self.socket.as_raw_fd(), &frame, &self.near, MsgFlags::empty());
            assert_eq!(sent.unwrap_or_else(|error| panic!("{} bytes: {error}", frame.len())), frame.len());
        }
        let begin = Instant::now();
        while missing > 0 && begin.elapsed() < PATIENCE {
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut self.buffer) {
                Ok((length, Some(from))) if from.ifindex() == self.far => {
                    let Some((number, dscp)) = identified(&self.buffer[..length]) else { continue };
                    let state = dscp.checked_sub(1).and_then(|at| STATES.get(usize::from(at)));
                    if let (Some(known), Some(state)) = (states.get_mut(usize::from(number)), state) {
                        missing -= usize::from(known.is_none());
                        *known = Some(*state);
                    }
                }
                Ok(_) => {}
                Err(nix::errno::Errno::EAGAIN) => std::thread::yield_now(),
                Err(error) => panic!("a packet cannot be received: {error}"),
            }
        }
        states
    }
}

/// A packet with a link header, a number, a lifetime that lasts for forwarding, and no DSCP.
fn numbered(packet: &[u8], number: u16) -> Vec<u8> {
    let is_ipv6 = packet[0] >> 4 == 6;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 8, 0];
    if is_ipv6 {
        frame[12..].copy_from_slice(&[0x86, 0xdd]);
    }
    frame.extend(packet);
    let ip = &mut frame[14..];
    if is_ipv6 {
        ip[..4].copy_from_slice(&(6u32 << 28 | u32::from(number)).to_be_bytes());
        ip[7] = 64;
    } else {
        let header = usize::from(ip[0] & 15) * 4;
        (ip[1], ip[8]) = (0, 64);
        ip[4..6].copy_from_slice(&number.to_be_bytes());
        ip[10..12].copy_from_slice(&[0; 2]);
        let sum: u32 = ip[..header].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let sum = !((folded & 0xffff) + (folded >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// The number and the DSCP of a received frame.
fn identified(frame: &[u8]) -> Option<(u16, u8)> {
    let ip = frame.get(14..34)?;
    match ip[0] >> 4 {
        4 => Some((u16::from_be_bytes([ip[4], ip[5]]), ip[1] >> 2)),
        6 => Some((u16::from_be_bytes([ip[2], ip[3]]), (u16::from_be_bytes([ip[0], ip[1]]) >> 6) as u8 & 63)),
        _ => None,
    }
}

fn set(what: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{what}"), value).unwrap_or_else(|error| panic!("{what}: {error}"));
}

/// Runs a program with `input` on standard input.
fn run(program: &str, arguments: &str, input: &str) {
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/install-deps.sh installs what this test needs"));
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads its input");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}
