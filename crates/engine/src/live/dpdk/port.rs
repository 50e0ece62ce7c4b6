//! DPDK ports and the memory pools of their packets, which are opened and closed together.

use std::ffi::CString;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_abi::BURST_MAX;
use weir_abi::dpdk::{Facts, Lost, opening};

use super::eal::{Eal, kept_log};
use super::shim::{self, Mempool};
use super::sockets::Sockets;
use crate::EngineError;
use crate::live::checksum;
use crate::live::lane::{Access, LINK_BYTES, PortNature};
use crate::live::os::device::{Device, Presence};

/// Packet buffer sizes, tried in order. A driver that cannot split packets reports the size it needs only by refusing
/// smaller ones.
pub(super) const ROOMS: [u16; 3] = [2048, 4096, 16384];

/// Number of packets that a pool may cache for a thread, and a few for copies.
const POOL_SPARE: usize = 1024;

/// The driver of sockets of the kernel.
const AF_PACKET: &str = "net_af_packet";
/// Maximum number of packets that are discarded from a queue. A flood must not keep a port from opening.
const DISCARDED_MAX: u32 = 1 << 20;

/// Virtual drivers that deliver packets to all their queues, including unused ones.
const ALL_QUEUES: [&str; 4] = [AF_PACKET, "net_af_xdp", "net_pcap", "net_ring"];

/// The warning that packets which a sender leaves to a card to segment are lost, if there is no card.
const UNSEGMENTED: &str = "warning: packets that senders leave to a card to segment are lost, and connections are slow: \
     switch that off at its other end (`ethtool -K PEER tso off gso off`)";

/// Drivers whose packets come from another virtual machine.
const VIRTUAL: [&str; 3] = ["net_virtio", "net_virtio_user", "net_vhost"];

/// Number of pools so far, because each needs its own name.
static POOLS: AtomicU64 = AtomicU64::new(0);

/// A DPDK port that was found and is not open yet.
pub(super) struct Found {
    pub name: String,
    pub id: u16,
    facts: Facts,
    /// Number of queue pairs that it will have.
    pub queues: usize,
    /// Whether packets may come from a sender on this machine without having been on a wire.
    pub is_virtual: bool,
}

impl Found {
    /// Finds a port and determines its number of queue pairs.
    ///
    /// # Errors
    /// There is no such port, or it has too few queues.
    pub fn find(_: &Eal, name: &str, workers: usize) -> Result<Self, EngineError> {
        let text = CString::new(name).map_err(|_| failed(name, "a name has no zero in it".to_owned()))?;
        // SAFETY: the argument is a C string.
        let id = unsafe { shim::dpdk_find(text.as_ptr()) };
        let Ok(id) = u16::try_from(id) else {
            return Err(failed(name, format!("DPDK has no such port; it has: {}{}", names(), kept_log())));
        };
        let mut facts = Facts::default();
        // SAFETY: the port exists, and the facts are writable.
        let error = unsafe { shim::dpdk_facts(id, &raw mut facts) };
        if error < 0 {
            return Err(failed(name, shim::error_text(error)));
        }
        let (rx, tx) = (usize::from(facts.rx_queues), usize::from(facts.tx_queues));
        let queues = if ALL_QUEUES.contains(&facts.driver().as_str()) { rx.max(workers) } else { workers };
        if rx.min(tx) < queues {
            let problem = format!("{rx} receive and {tx} transmit queues, too few for {queues} queue pairs");
            return Err(failed(name, problem));
        }
        let is_virtual = VIRTUAL.contains(&facts.driver().as_str()) || is_virtual(facts.interface);
        Ok(Found { name: name.to_owned(), id, facts, queues, is_virtual })
    }

    /// What it is. A port keeps the MTU with which it was opened.
    pub fn nature(&self) -> PortNature {
        let longest = (self.facts.mtu > 0).then(|| u32::from(self.facts.mtu) + LINK_BYTES);
        PortNature { kernel_index: self.facts.interface, longest }
    }

    /// Maximum number of packets in its queues of one worker.
    fn packets(&self, workers: usize) -> usize {
        let pair = usize::from(self.facts.rx_packets) + usize::from(self.facts.tx_packets) + 2 * BURST_MAX;
        self.queues.div_ceil(workers) * pair
    }

    /// Sets up the queues. Returns how far it got, and why it failed.
    fn prepare(&self, pools: &[Pool]) -> Result<(), (i32, EngineError)> {
        let pools: Vec<*mut Mempool> = (0..self.queues).map(|queue| pools[queue % pools.len()].0).collect();
        let mut error = 0;
        // SAFETY: there is a pool for each queue. Ports frees them after the port, and no packet is taken from them
        // before the port is opened.
        let step = unsafe { shim::dpdk_prepare(self.id, self.queues as u16, pools.as_ptr(), &raw mut error) };
        if step == opening::DONE { Ok(()) } else { Err((step, self.failed(step, error))) }
    }

    fn open(&self) -> Result<Port, EngineError> {
        let mut error = 0;
        // SAFETY: the port was prepared.
        let step = unsafe { shim::dpdk_open(self.id, &raw mut error) };
        if step != opening::DONE {
            return Err(self.failed(step, error));
        }
        let sockets = (self.facts.driver() == AF_PACKET).then(|| Sockets::of_interface(self.facts.interface));
        let port = Port { name: self.name.clone(), id: self.id, up: AtomicBool::new(false), sockets };
        port.look();
        Ok(port)
    }

    /// Discards what the sockets of an open port have received so far. Until a socket is bound to its interface, it
    /// receives packets of all interfaces. Returns what to say about it.
    fn discard_strays(&self) -> Option<Access> {
        let queues = if self.facts.driver() == AF_PACKET { self.queues } else { 0 };
        // SAFETY: the port is open, and no worker uses the queue yet.
        let discard = |queue| u64::from(unsafe { shim::dpdk_discard(self.id, queue as u16, DISCARDED_MAX) });
        let discarded: u64 = (0..queues).map(discard).sum();
        let way = format!("{discarded} packets from before the start are discarded: some may be from other interfaces");
        (discarded > 0).then(|| Access { interface: self.name.clone(), index: 0, way })
    }

    /// How its packets reach the lanes.
    fn access(&self, room: u16) -> Vec<Access> {
        let Found { name, facts, queues, .. } = self;
        let line = |way: String| Access { interface: name.clone(), index: 0, way };
        let finished = if self.is_virtual { checksum::FINISHED } else { "" };
        let way = format!("driver {}, {queues} queue pairs, buffers of {room} bytes{finished}", facts.driver());
        // For a program on a virtual link the kernel segments packets beforehand; for a socket it does not.
        let warned = self.is_virtual && facts.driver() == AF_PACKET;
        [line(way)].into_iter().chain(warned.then(|| line(UNSEGMENTED.to_owned()))).collect()
    }

    fn failed(&self, step: i32, error: i32) -> EngineError {
        failed(&self.name, format!("{}: {}{}", shim::step(step), shim::error_text(error), kept_log()))
            .caused_by(&io::Error::from_raw_os_error(error.abs()))
    }
}

/// An open port.
pub(super) struct Port {
    pub name: String,
    pub id: u16,
    /// Whether the link was up at the last check.
    up: AtomicBool,
    /// The kernel's sockets behind the port, if its driver does not report their losses.
    sockets: Option<Sockets>,
}

impl Port {
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Checks the link. Returns the number of packets lost since the port was opened.
    pub fn look(&self) -> Lost {
        let mut lost = Lost::default();
        // SAFETY: the port is open, and `lost` is writable.
        let up = unsafe {
            shim::dpdk_lost(self.id, &raw mut lost);
            shim::dpdk_is_up(self.id) != 0
        };
        if up != self.is_up() {
            self.up.store(up, Ordering::Relaxed);
        }
        lost.missed += self.sockets.as_ref().map_or(0, Sockets::lost);
        lost
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the port was opened, and no queue is in use any more, because lanes own the ports together.
        unsafe { shim::dpdk_close(self.id) };
    }
}

/// The memory pool for one worker's packets.
pub(super) struct Pool(pub *mut Mempool);

// SAFETY: all threads may use a pool.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    fn new(packets: usize, room: u16, node: i32) -> Result<Self, EngineError> {
        let name = format!("weir-{}", POOLS.fetch_add(1, Ordering::Relaxed));
        let text = CString::new(name.as_str()).expect("a name without zeros");
        let packets = u32::try_from(packets).expect("a port has few queues");
        let mut error = 0;
        // SAFETY: the arguments are a C string and a writable number.
        let pool = unsafe { shim::dpdk_pool(text.as_ptr(), packets, room, node, &raw mut error) };
        if pool.is_null() {
            let memory = (packets as usize * usize::from(room)) >> 20;
            let problem = format!("no memory for {packets} packets (about {memory} MB, see `-m`)");
            return Err(EngineError::Dpdk { problem: format!("{problem}: {}{}", shim::error_text(error), kept_log()) });
        }
        Ok(Pool(pool))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the pool exists, and the ports that take packets from it are closed.
        unsafe { shim::dpdk_free_pool(self.0) };
    }
}

/// Open ports, and a pool for each worker.
pub(super) struct Ports {
    pub ports: Vec<Port>,
    /// Declared after the ports, which return packets when they are closed.
    pub pools: Vec<Pool>,
    /// How packets of each port reach the lanes.
    pub access: Vec<Access>,
}

impl Ports {
    /// Opens all ports in `found`, with the first packet buffer size of `rooms` that all drivers accept. Queue `q` of
    /// each port takes packets from the pool of worker `q` modulo their number.
    ///
    /// # Errors
    /// A port cannot be opened, or there is not enough memory for its packets.
    pub fn open(found: &[Found], workers: usize, rooms: &[u16]) -> Result<Self, EngineError> {
        if let Some(twice) = found.iter().enumerate().find_map(|(at, one)| found[..at].iter().find(|o| o.id == one.id))
        {
            return Err(failed(&twice.name, "given twice".to_owned()));
        }
        let packets = POOL_SPARE + found.iter().map(|port| port.packets(workers)).sum::<usize>();
        let node = found.first().map_or(-1, |port| port.facts.node);
        let mut refused = None;
        for &room in rooms {
            let pools: Vec<Pool> = (0..workers).map(|_| Pool::new(packets, room, node)).collect::<Result<_, _>>()?;
            match found.iter().try_for_each(|port| port.prepare(&pools)) {
                Ok(()) => {
                    let access = found.iter().flat_map(|port| port.access(room)).collect();
                    let mut ports = Ports { ports: Vec::new(), pools, access };
                    found.iter().try_for_each(|port| port.open().map(|port| ports.ports.push(port)))?;
                    ports.access.extend(found.iter().filter_map(Found::discard_strays));
                    return Ok(ports);
                }
                Err((opening::NO_RX_QUEUE, error)) => refused = Some(error),
                Err((_, error)) => return Err(error),
            }
        }
        Err(refused.expect("there are rooms"))
    }
}

/// Whether the port uses an interface of the kernel that is virtual.
fn is_virtual(interface: u32) -> bool {
    let name = Presence::open().ok().and_then(|presence| presence.name(interface));
    name.and_then(|name| Device::open(&name).ok()).is_some_and(|device| device.driver().is_virtual())
}

/// The names of all DPDK ports.
fn names() -> String {
    let mut bytes = vec![0; 4096];
    // SAFETY: the call fills at most the given number of bytes.
    let length = unsafe { shim::dpdk_names(bytes.as_mut_ptr(), bytes.len()) };
    match length {
        0 => "none (virtual ones are made with --eal \"--vdev=...\")".to_owned(),
        length => String::from_utf8_lossy(&bytes[..length]).into_owned(),
    }
}

fn failed(port: &str, problem: String) -> EngineError {
    EngineError::Interface { interface: port.to_owned(), source: io::Error::other(problem) }
}
