//! Ports of DPDK and the memory that their packets lie in, opened together and closed together.

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
use crate::live::device::{Device, Presence};
use crate::live::lane::Access;

/// Bytes for a packet, tried one after the other: what a driver needs that cannot part packets it says only by refusing.
pub(super) const ROOMS: [u16; 3] = [2048, 4096, 16384];

/// Packets that a pool may hold back for a thread, and a few to copy.
const POOL_SPARE: usize = 1024;

/// Virtual drivers whose queues all get packets, whether they are asked for or not.
const ALL_QUEUES: [&str; 4] = ["net_af_packet", "net_af_xdp", "net_pcap", "net_ring"];

/// What becomes of packets that a sender leaves to a card to part, where there is none.
const UNPARTED: &str = "warning: packets that senders leave to a card to part are lost, and connections are slow: switch that off at its other end \
     (`ethtool -K PEER tso off gso off`)";

/// Drivers whose packets come from another machine of this one.
const VIRTUAL: [&str; 3] = ["net_virtio", "net_virtio_user", "net_vhost"];

/// Pools so far: each has a name of its own.
static POOLS: AtomicU64 = AtomicU64::new(0);

/// A port of DPDK that nobody has opened yet.
pub(super) struct Found {
    pub name: String,
    pub id: u16,
    facts: Facts,
    /// Queue pairs that it gets.
    pub queues: usize,
    /// Whether its packets may come from another sender on this machine without having been on a wire.
    pub is_virtual: bool,
}

impl Found {
    /// Looks a port up and sees how many queue pairs it shall have.
    ///
    /// # Errors
    /// There is no such port, or it has too few queues.
    pub fn find(_: &Eal, name: &str, workers: usize) -> Result<Self, EngineError> {
        let text = CString::new(name).map_err(|_| failed(name, "a name has no zero in it".to_owned()))?;
        // SAFETY: a text of C.
        let id = unsafe { shim::dpdk_find(text.as_ptr()) };
        let Ok(id) = u16::try_from(id) else {
            return Err(failed(name, format!("DPDK has no such port; it has: {}{}", names(), kept_log())));
        };
        let mut facts = Facts::default();
        // SAFETY: the port exists, and the facts are written to.
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

    /// Packets that its queues of one worker hold at most.
    fn packets(&self, workers: usize) -> usize {
        let pair = usize::from(self.facts.rx_packets) + usize::from(self.facts.tx_packets) + 2 * BURST_MAX;
        self.queues.div_ceil(workers) * pair
    }

    /// Gives it queues; how far it got, and why no further.
    fn prepare(&self, pools: &[Pool]) -> Result<(), (i32, EngineError)> {
        let pools: Vec<*mut Mempool> = (0..self.queues).map(|queue| pools[queue % pools.len()].0).collect();
        let mut error = 0;
        // SAFETY: there is a pool for each queue; Ports frees them after the port, and no packet is taken from them before it is opened.
        let step = unsafe { shim::dpdk_prepare(self.id, self.queues as u16, pools.as_ptr(), &raw mut error) };
        if step == opening::DONE { Ok(()) } else { Err((step, self.failed(step, error))) }
    }

    fn open(&self) -> Result<Port, EngineError> {
        let mut error = 0;
        // SAFETY: it was prepared.
        let step = unsafe { shim::dpdk_open(self.id, &raw mut error) };
        if step != opening::DONE {
            return Err(self.failed(step, error));
        }
        let sockets = (self.facts.driver() == "net_af_packet").then(|| Sockets::of_interface(self.facts.interface));
        let port = Port { id: self.id, up: AtomicBool::new(false), sockets };
        port.look();
        Ok(port)
    }

    /// How its packets are had.
    fn access(&self, room: u16) -> Vec<Access> {
        let Found { name, facts, queues, .. } = self;
        let line = |way: String| Access { interface: name.clone(), index: 0, way };
        let finished = if self.is_virtual { checksum::FINISHED } else { "" };
        let way = format!("driver {}, {queues} queue pairs, buffers of {room} bytes{finished}", facts.driver());
        // A program that is attached to a virtual wire has the kernel part packets beforehand; a socket does not.
        let warned = self.is_virtual && facts.driver() == "net_af_packet";
        [line(way)].into_iter().chain(warned.then(|| line(UNPARTED.to_owned()))).collect()
    }

    fn failed(&self, step: i32, error: i32) -> EngineError {
        failed(&self.name, format!("{}: {}{}", shim::step(step), shim::error_text(error), kept_log()))
    }
}

/// An open port.
pub(super) struct Port {
    pub id: u16,
    /// Whether something is at its other end, as of the last look.
    up: AtomicBool,
    /// What is behind it, if its driver does not say what that loses.
    sockets: Option<Sockets>,
}

impl Port {
    pub fn is_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Looks whether something is at the other end. Returns how many packets were lost since it was opened.
    pub fn look(&self) -> Lost {
        let mut lost = Lost::default();
        // SAFETY: the port is open, and what it lost is written to.
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
        // SAFETY: it was opened, and nobody uses a queue any more: lanes own the ports together.
        unsafe { shim::dpdk_close(self.id) };
    }
}

/// Memory for the packets of one worker.
pub(super) struct Pool(pub *mut Mempool);

// SAFETY: a pool may be used by all threads.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    fn new(packets: usize, room: u16, node: i32) -> Result<Self, EngineError> {
        let name = format!("weir-{}", POOLS.fetch_add(1, Ordering::Relaxed));
        let text = CString::new(name.as_str()).expect("a name without zeros");
        let packets = u32::try_from(packets).expect("a port has few queues");
        let mut error = 0;
        // SAFETY: a text of C, and a number to write to.
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
        // SAFETY: it was made, and ports that take packets from it are closed.
        unsafe { shim::dpdk_free_pool(self.0) };
    }
}

/// Open ports, and a pool for each worker.
pub(super) struct Ports {
    pub ports: Vec<Port>,
    /// After the ports: they give packets back when they are closed.
    pub pools: Vec<Pool>,
    /// How packets of each port are had.
    pub access: Vec<Access>,
}

impl Ports {
    /// Opens all ports that were found, with the first of the rooms for a packet that all drivers take. Queue `q` of each takes packets from the pool of
    /// worker `q` modulo their number.
    ///
    /// # Errors
    /// A port cannot be opened, or there is no memory for its packets.
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
                    return Ok(ports);
                }
                Err((opening::NO_RX_QUEUE, error)) => refused = Some(error),
                Err((_, error)) => return Err(error),
            }
        }
        Err(refused.expect("there are rooms"))
    }
}

/// Whether there is an interface of the kernel behind a port, and it is virtual.
fn is_virtual(interface: u32) -> bool {
    let name = Presence::open().ok().and_then(|presence| presence.name(interface));
    name.and_then(|name| Device::open(&name).ok()).is_some_and(|device| device.driver().is_virtual())
}

/// All ports that DPDK knows.
fn names() -> String {
    let mut bytes = vec![0; 4096];
    // SAFETY: it fills at most as many bytes as there are.
    let length = unsafe { shim::dpdk_names(bytes.as_mut_ptr(), bytes.len()) };
    match length {
        0 => "none (virtual ones are made with --eal \"--vdev=...\")".to_owned(),
        length => String::from_utf8_lossy(&bytes[..length]).into_owned(),
    }
}

fn failed(port: &str, problem: String) -> EngineError {
    EngineError::Interface { interface: port.to_owned(), source: io::Error::other(problem) }
}
