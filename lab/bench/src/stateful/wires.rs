//! Two veth pairs in one namespace, with a forwarder between them, and the flows that pass through it.
//!
//! ```text
//!   generator -> source ==veth== lower -> forwarder -> upper ==veth== sink, which drops
//! ```

use super::segments::{SERVER, Segment};
use crate::live::peers;
use crate::live::wire::{self, Port};
use std::fs;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;
use weir_abi::Link;
use weir_command::failure::Failure;
use weir_engine::clang::{BpfObject, Clang};
use weir_engine::frame_set::FrameSet;
use weir_engine::live::afpacket;
use weir_engine::live::programs::attach::Attached;
use weir_engine::traffic::SMALL_FRAME_BYTES;
use weir_engine::xdp::plain::PlainPrograms;
use weir_instruments::generate::Generator;

/// The program of peers.c that drops all packets.
pub const DROP_ALL: &str = "peer_drop_all";
/// The address of the forwarder's interfaces, to which hosts send.
const MAC: &str = "02:00:00:00:00:02";
/// Number of connections that are opened at the same time: fewer than a table lets be unanswered.
const HANDSHAKES: usize = 512;
/// Time after which all packets that were sent have arrived, unless each goes to a controller.
pub const SETTLE: Duration = Duration::from_millis(3);

/// The four interfaces.
pub struct Wires {
    /// The interface into which generators send.
    pub source: Port,
    /// The lower interface of the forwarder.
    pub lower: Port,
    /// The upper interface of the forwarder.
    pub upper: Port,
    /// The interface at which forwarded packets arrive. It drops them at once.
    pub sink: Port,
    /// The programs of peers.c.
    pub programs: std::sync::Arc<PlainPrograms>,
    /// The program of generators.
    generator: BpfObject,
    _drops: Attached,
}

impl Wires {
    /// Makes the interfaces in this thread's namespace.
    ///
    /// # Errors
    /// A program is missing, or the kernel refuses something.
    pub fn open() -> Result<Self, Failure> {
        let clang = Clang::find()?;
        let [source, lower] = wire::pair(["source", "lower"], 1)?;
        let [upper, sink] = wire::pair(["upper", "sink"], 1)?;
        for name in ["lower", "upper"] {
            wire::call("ip", &format!("link set {name} address {MAC}"), "")?;
        }
        let programs = peers::load(&clang, &[])?;
        let drops = programs.attach(DROP_ALL, sink.name, sink.index)?;
        Ok(Wires { source, lower, upper, sink, programs, generator: Generator::compile(&clang)?, _drops: drops })
    }

    /// Makes this namespace's kernel forward between `lower` and `upper`.
    ///
    /// # Errors
    /// `ip` fails.
    pub fn route(&self) -> Result<(), Failure> {
        wire::call("ip", "address add 10.255.255.2/24 dev lower", "")?;
        wire::call("ip", &format!("route add {} dev upper", Ipv4Addr::from(SERVER)), "")?;
        // One next hop for all clients, because the kernel remembers few.
        wire::call("ip", "route add default via 10.255.255.1 dev lower", "")?;
        let path = "/proc/sys/net/ipv4/ip_forward";
        fs::write(path, "1").map_err(|error| Failure::Runtime(format!("{path}: {error}")))
    }

    /// A generator of segments of established connections, in frames of `bytes` bytes.
    ///
    /// # Errors
    /// The kernel rejects the program.
    pub fn generator(&self, clients: &[u32], bytes: usize) -> Result<Generator, Failure> {
        let frame = Segment::ACK.frame(clients[0], bytes);
        Ok(Generator::load(&self.generator, self.source.index, &frame, clients)?)
    }

    /// Opens a connection of each client through the forwarder. Waits for `settle` between a segment and its answer.
    ///
    /// # Errors
    /// The interfaces failed.
    pub fn open_flows(&self, clients: &[u32], settle: Duration) -> Result<(), Failure> {
        let open = |port: &Port| afpacket::wire::Wire::open(port.name);
        let mut ends = [open(&self.source)?, open(&self.sink)?];
        for clients in clients.chunks(HANDSHAKES) {
            for segment in [Segment::SYN, Segment::SYN_ACK, Segment::ACK] {
                let frames: Vec<Vec<u8>> =
                    clients.iter().map(|&client| segment.frame(client, SMALL_FRAME_BYTES)).collect();
                let set = FrameSet::new(Link::Ethernet, frames.iter().map(|frame| (&frame[..], frame.len() as u32)));
                for burst in set.bursts() {
                    ends[usize::from(segment.from_server)].send(&burst)?;
                    // A veth has room for four bursts. The receiver may run in another thread.
                    thread::sleep(Duration::from_micros(50));
                }
                thread::sleep(settle);
            }
        }
        Ok(())
    }
}
