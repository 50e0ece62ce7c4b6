//! A bridge between two interfaces, in which the interpreter decides each packet.

use crate::engines;
use crate::hosts::Host;
use nix::ifaddrs::getifaddrs;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recvfrom, send, socket,
};
use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;
use weir_abi::{Action, Link, Verdict};
use weir_engine::Filter;
use weir_engine::frame_set::FrameSet;
use weir_loading::eval::EvalFilter;
use weir_policy::ir::Direction;
use weir_policy::ir::eval::packet::{Frame, Packet, parse};

/// Most packets that a failure shows.
const SHOWN: usize = 60;
/// Longer than every frame here.
const FRAME_BYTES_MAX: usize = 16_384;
/// The type of address of a packet that this host sends (`PACKET_OUTGOING`).
const OUTGOING: u8 = 4;

/// The packet of the handshake that the bridge loses: the first of each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    Nothing,
    Syn,
    SynAck,
    SynToServer,
    SynAckOfServer,
    KeepAlive,
    AckToServer,
}

/// What a bridge has done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub replies: u32,
    pub translated: u32,
    pub dropped: u32,
    pub lost: u32,
}

/// A running bridge.
pub struct Bridge {
    stop: Arc<AtomicBool>,
    said: Arc<Mutex<String>>,
    runs: JoinHandle<Counts>,
}

impl Bridge {
    /// Starts a bridge in the namespace of a host, between `lower` and `upper`.
    pub fn start(host: &Host, offer: &str, lost: Lost) -> Self {
        let policy = format!(
            "tracking {{ pickup off; synproxy mss 1460 {offer} }}
upstream {{
  tcp synproxy
  ct state established accept
  ct state untracked accept
  ct state new tcp dport 80-89 accept
  drop
}}
downstream {{ tcp track; accept }}
"
        );
        let stop = Arc::new(AtomicBool::new(false));
        let said = Arc::new(Mutex::new(String::new()));
        let (stops, says) = (Arc::clone(&stop), Arc::clone(&said));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let runs = host.start(move || {
            let sockets = ["lower", "upper"].map(open);
            ready.send(()).expect("somebody waits");
            run(&policy, &sockets, lost, &stops, &says)
        });
        is_ready.recv().expect("the interfaces can be opened");
        Bridge { stop, said, runs }
    }

    /// The latest packets.
    pub fn said(&self) -> String {
        let said = self.said.lock().expect("nobody panics with the lock");
        let lines: Vec<&str> = said.lines().collect();
        lines[lines.len().saturating_sub(SHOWN)..].join("\n")
    }

    /// Ends the bridge.
    pub fn stop(self) -> Counts {
        self.stop.store(true, Ordering::Relaxed);
        self.runs.join().expect("the bridge runs")
    }
}

/// Opens an interface for frames.
fn open(name: &str) -> OwnedFd {
    let address = getifaddrs()
        .expect("interfaces can be listed")
        .filter(|interface| interface.interface_name == name)
        .find_map(|interface| interface.address?.as_link_addr().copied())
        .expect("the interface was made");
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let opened = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll).expect("root may do that");
    bind(opened.as_raw_fd(), &address).expect("the interface is there");
    opened
}

fn run(policy: &str, sockets: &[OwnedFd; 2], lost: Lost, stop: &AtomicBool, said: &Mutex<String>) -> Counts {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("p.weir");
    std::fs::write(&path, policy).expect("files can be written");
    let policy = engines::load(&path).unwrap_or_else(|error| panic!("{error}"));
    let mut filter = EvalFilter::new(&policy.program, policy.answers());
    let chains = Direction::BOTH.map(|direction| policy.program.chain(None, direction).expect("both have rules"));
    let mut losses = Losses { lost, ports: vec![] };
    let (mut counts, started) = (Counts::default(), Instant::now());
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        let mut waits = sockets.each_ref().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        poll(&mut waits, PollTimeout::from(50_u8)).expect("sockets can be waited for");
        for from in 0..2 {
            while let Ok((length, address)) = recvfrom::<LinkAddr>(sockets[from].as_raw_fd(), &mut buffer) {
                if address.is_none_or(|address| address.pkttype() == OUTGOING) {
                    continue;
                }
                let time_ns = 1_000_000_000_000 + started.elapsed().as_nanos() as u64;
                let frame = &buffer[..length];
                let (verdict, leaving) = decide(&mut filter, chains[from], frame, time_ns);
                let is_lost = losses.loses(frame, leaving.as_deref().unwrap_or(frame), verdict, from);
                say(said, time_ns, frame, leaving.as_deref(), verdict, is_lost);
                counts.lost += u32::from(is_lost);
                let action = verdict.action().expect("a verdict");
                counts.dropped += u32::from(action == Action::Drop);
                counts.replies += u32::from(action == Action::Reply);
                counts.translated += u32::from(action == Action::Accept && verdict.rewritten());
                let to = match action {
                    Action::Accept => 1 - from,
                    Action::Reply => from,
                    Action::Drop | Action::Divert => continue,
                };
                if !is_lost {
                    let sent = send(sockets[to].as_raw_fd(), leaving.as_deref().unwrap_or(frame), MsgFlags::empty());
                    // A full queue loses packets, as queues do.
                    let _ = sent;
                }
            }
        }
    }
    counts
}

fn decide(filter: &mut EvalFilter<'_>, chain: usize, frame: &[u8], time_ns: u64) -> (Verdict, Option<Vec<u8>>) {
    let set = FrameSet::new(Link::Ethernet, [(frame, frame.len() as u32)]).with_times([time_ns]);
    let mut verdicts = [Verdict(u32::MAX); weir_abi::BURST_MAX];
    let burst = set.burst(0);
    filter.decide(chain, &burst, &mut verdicts).expect("it decides");
    let mut leaving = None;
    filter.rewritten(&burst, &verdicts, &mut |_, bytes, _| leaving = Some(bytes.to_vec()));
    (verdicts[0], leaving)
}

fn parsed(bytes: &[u8]) -> Packet {
    parse(Frame { bytes, wire_len: bytes.len() as u32, link: Link::Ethernet, time_ns: 0 }).0
}

/// Which connections have lost their packet.
struct Losses {
    lost: Lost,
    ports: Vec<u16>,
}

impl Losses {
    fn loses(&mut self, frame: &[u8], leaving: &[u8], verdict: Verdict, from: usize) -> bool {
        const SYN: u8 = 2;
        const SYN_ACK: u8 = 18;
        const ACK: u8 = 16;
        let (received, leaves) = (parsed(frame), parsed(leaving));
        let flags = [received.tcp_flags, leaves.tcp_flags].map(|flags| flags & 0x17);
        let is_it = match self.lost {
            Lost::Nothing => false,
            Lost::Syn => flags[0] == SYN,
            Lost::SynAck => verdict.action() == Some(Action::Reply),
            Lost::SynToServer => flags == [ACK, SYN],
            Lost::SynAckOfServer => from == 1 && flags[0] == SYN_ACK,
            Lost::KeepAlive => flags == [SYN_ACK, ACK],
            Lost::AckToServer => from == 0 && flags == [ACK, ACK] && verdict.rewritten(),
        };
        // The SYN and the SYN-ACK of the server are lost before Weir sees them, the others behind it. To the state that
        // makes no difference: the packet comes again.
        let port = if from == 0 { received.sport } else { received.dport };
        if !is_it || self.ports.contains(&port) {
            return false;
        }
        self.ports.push(port);
        true
    }
}

/// Notes a packet for the message of a failure.
fn say(said: &Mutex<String>, time_ns: u64, frame: &[u8], leaving: Option<&[u8]>, verdict: Verdict, is_lost: bool) {
    let one = |bytes: &[u8]| {
        let packet = parsed(bytes);
        let letters = "FSRPAU".chars().enumerate().filter(|(bit, _)| packet.tcp_flags >> bit & 1 != 0);
        let flags: String = letters.map(|(_, letter)| letter).collect();
        let length = u32::from(packet.l4_length) - u32::from(packet.doff) * 4;
        format!("{flags} {} {} win {} len {length}", packet.seq, packet.ack, packet.window)
    };
    if parsed(frame).proto != 6 {
        return;
    }
    let mut said = said.lock().expect("nobody panics with the lock");
    let ports = (parsed(frame).sport, parsed(frame).dport);
    let becomes = leaving.map(|bytes| format!(" => {}", one(bytes))).unwrap_or_default();
    let action = verdict.action().map_or("?", Action::name);
    let lost = if is_lost { " LOST" } else { "" };
    let _ = writeln!(said, "{:9} us {ports:?} {}{becomes} {action}{lost}", time_ns / 1000 % 1_000_000_000, one(frame));
}
