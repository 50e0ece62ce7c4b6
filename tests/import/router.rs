//! The kernel as a router in a network namespace, which says of each packet whether its ruleset lets it pass.
//!
//! ```text
//! w0 ---- eth0   the rules of nftables or iptables   eth1 ---- l1
//! ```
//! Packets from outside are sent at `w0` and forwarded to `eth1`, packets from inside the other way. Each has its
//! number in the IPv4 identification or the IPv6 flow label. One processor handles them in order, so a frame behind them that
//! has arrived says that all before it are decided. What the kernel itself sends is dropped.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, unshare};
use nix::sys::socket::sockopt::RcvBufForce;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recvfrom, sendto, setsockopt,
    socket,
};
use nix::unistd::Pid;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Most packets that are sent before their fates are read.
const BURST: usize = 256;
/// Maximum time until a packet arrives. All arrive, so it only matters on machines that stall.
const PATIENCE: Duration = Duration::from_secs(20);
/// `PACKET_OUTGOING` of packet(7).
const OUTGOING: u8 = 4;
/// The EtherType for experiments, which no router forwards.
const LAST: [u8; 2] = [0x88, 0xb5];
const SILENCE: &str = "table inet silence { chain out { type filter hook output priority -500; policy drop; }; }";

/// The kernel between two wires.
pub struct Router {
    socket: OwnedFd,
    netlink: OwnedFd,
    /// The near ends of the wires, outside first.
    near: [LinkAddr; 2],
    /// Indices of the router's interfaces, outside first.
    ports: [usize; 2],
    buffer: Vec<u8>,
}

/// Runs `test` in a thread with its own namespace.
pub fn with_router(test: impl FnOnce(Router) + Send) {
    std::thread::scope(|scope| {
        let ran = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .unwrap_or_else(|error| panic!("this test makes a network namespace and needs root: {error}"));
            test(Router::new());
        });
        ran.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

impl Router {
    fn new() -> Self {
        stay_on_one_processor();
        for (name, peer) in [("w0", "eth0"), ("l1", "eth1")] {
            run("ip", &format!("link add {name} mtu 65535 type veth peer name {peer} mtu 65535"), "");
        }
        for (at, name) in ["w0", "eth0", "eth1", "l1"].into_iter().enumerate() {
            set(&format!("ipv6/conf/{name}/accept_dad"), "0");
            set(&format!("ipv6/conf/{name}/addr_gen_mode"), "1");
            run("ip", &format!("link set {name} arp off address 02:00:00:00:00:0{at} up"), "");
        }
        let settings = ["ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"].map(|name| (name, "1"));
        let filters = ["ipv4/conf/all/rp_filter", "ipv4/conf/eth0/rp_filter", "ipv4/conf/eth1/rp_filter"];
        for (what, value) in settings.into_iter().chain(filters.map(|name| (name, "0"))) {
            set(what, value);
        }
        for family in ["-4", "-6"] {
            run("ip", &format!("{family} route add default dev eth1"), "");
            run("ip", &format!("{family} route add default dev eth0 table 100"), "");
            run("ip", &format!("{family} rule add iif eth1 lookup 100"), "");
        }
        let address = |name: &str| {
            getifaddrs()
                .expect("interfaces can be listed")
                .filter(|interface| interface.interface_name == name)
                .find_map(|interface| interface.address?.as_link_addr().copied())
                .expect("the wire was just made")
        };
        let raw = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::EthAll);
        let raw = raw.expect("root may have raw sockets");
        setsockopt(&raw, RcvBufForce, &(64 << 20)).expect("root may have large buffers");
        let port = |name: &str| if_nametoindex(name).expect("the wire was just made") as usize;
        let ports = [port("eth0"), port("eth1")];
        let netlink = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::empty(), SockProtocol::NetlinkNetFilter);
        let netlink = netlink.expect("netlink is there");
        Router { socket: raw, netlink, near: [address("w0"), address("l1")], ports, buffer: vec![0; 70_000] }
    }

    /// Removes all rules and flows.
    pub fn clear(&mut self) {
        // At once, so that the kernel never sends a packet of its own.
        run("nft", "-f -", &format!("flush ruleset; {SILENCE}"));
        // struct nlmsghdr: length, type (subsystem conntrack, delete), flags (request), sequence, port; struct
        // nfgenmsg.
        let mut message = 20u32.to_ne_bytes().to_vec();
        message.extend((1u16 << 8 | 2).to_ne_bytes());
        message.extend(1u16.to_ne_bytes());
        message.extend([0; 12]);
        let sent = sendto(self.netlink.as_raw_fd(), &message, &NetlinkAddr::new(0, 0), MsgFlags::empty());
        assert_eq!(sent.expect("the kernel takes requests"), message.len());
        set("netfilter/nf_conntrack_checksum", "0");
    }

    /// Gives a program rules on standard input.
    pub fn load(&mut self, program: &str, arguments: &str, rules: &str) {
        run(program, arguments, rules);
    }

    /// Whether each packet passes. Packets of `true` come from outside.
    pub fn judge(&mut self, packets: &[(bool, Vec<u8>)]) -> Vec<bool> {
        packets.chunks(BURST).flat_map(|burst| self.judge_burst(burst)).collect()
    }

    fn judge_burst(&mut self, packets: &[(bool, Vec<u8>)]) -> Vec<bool> {
        let mut passed = vec![false; packets.len()];
        for (number, (is_upstream, packet)) in packets.iter().enumerate() {
            let side = usize::from(!is_upstream);
            self.send(side, &framed(&numbered(packet, number_of(number)), side));
        }
        let mut last = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0];
        last.extend(LAST);
        last.extend([0; 46]);
        self.send(0, &last);
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < PATIENCE, "the last frame does not arrive");
            match recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut self.buffer) {
                Ok((length, Some(from))) => {
                    let frame = &self.buffer[..length];
                    let is_sent = from.pkttype() == OUTGOING;
                    if !is_sent && from.ifindex() == self.ports[0] && frame[12..14] == LAST {
                        return passed;
                    }
                    let Some(number) = identified(frame).filter(|_| is_sent) else { continue };
                    let Some(at) = usize::from(number).checked_sub(1).filter(|&at| at < packets.len()) else {
                        continue;
                    };
                    passed[at] |= from.ifindex() == self.ports[usize::from(packets[at].0)];
                }
                Ok(_) => {}
                Err(nix::errno::Errno::EAGAIN) => std::thread::yield_now(),
                Err(error) => panic!("a packet cannot be received: {error}"),
            }
        }
    }

    fn send(&self, side: usize, frame: &[u8]) {
        let sent = sendto(self.socket.as_raw_fd(), frame, &self.near[side], MsgFlags::empty());
        assert_eq!(sent.unwrap_or_else(|error| panic!("{} bytes: {error}", frame.len())), frame.len());
    }
}

/// Frames then pass in the order in which they are sent.
fn stay_on_one_processor() {
    let allowed = nix::sched::sched_getaffinity(Pid::from_raw(0)).expect("the processors of a thread are known");
    let first = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu).unwrap_or(false)).expect("it runs on one");
    let mut one = CpuSet::new();
    one.set(first).expect("it is a processor");
    sched_setaffinity(Pid::from_raw(0), &one).expect("a thread may stay where it may run");
}

fn framed(packet: &[u8], side: usize) -> Vec<u8> {
    // The hardware address of the router's interface.
    let mut frame = vec![2, 0, 0, 0, 0, [1, 2][side], 2, 0, 0, 0, 0, 0];
    frame.extend(if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0] });
    frame.extend(packet);
    frame
}

/// The number of a packet. No packet has 0, which is the flow label of packets that the kernel sends itself.
pub fn number_of(at: usize) -> u16 {
    (at % BURST) as u16 + 1
}

/// An IP packet with a number, and a lifetime that lasts for forwarding.
pub fn numbered(packet: &[u8], number: u16) -> Vec<u8> {
    let mut ip = packet.to_vec();
    if ip[0] >> 4 == 6 {
        ip[..4].copy_from_slice(&(6u32 << 28 | u32::from(number)).to_be_bytes());
        ip[7] = 64;
        return ip;
    }
    let header = usize::from(ip[0] & 15) * 4;
    ip[8] = 64;
    ip[4..6].copy_from_slice(&number.to_be_bytes());
    ip[10..12].copy_from_slice(&[0; 2]);
    let sum: u32 = ip[..header].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let sum = !((folded & 0xffff) + (folded >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip
}

/// The number of a frame.
fn identified(frame: &[u8]) -> Option<u16> {
    let ip = frame.get(14..34)?;
    match (ip[0] >> 4, &frame[12..14]) {
        (4, [0x08, 0]) => Some(u16::from_be_bytes([ip[4], ip[5]])),
        (6, [0x86, 0xdd]) => Some(u16::from_be_bytes([ip[2], ip[3]])),
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
    assert!(output.status.success(), "{program} {arguments}: {}\n{input}", String::from_utf8_lossy(&output.stderr));
}
