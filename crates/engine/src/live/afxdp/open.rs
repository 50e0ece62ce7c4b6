//! How a lane comes to its sockets: what is asked of the kernel, and what was got.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::xdp::SocketAddrXdpFlags;

use super::AfXdpLane;
use super::busy::Waiting;
use super::port::{Port, RING};
use super::program;
use super::umem::{PACKET_BYTES, Umem};
use crate::EngineError;
use crate::live::attach::{Attached, Mode};
use crate::live::bond;
use crate::live::checksum;
use crate::live::device::Device;
use crate::live::divert::Divert;
use crate::live::lane::{Interfaces, PortCounters, Side, Sides};

/// Bytes of a link header with one VLAN tag: what an interface sends beside its MTU.
pub(super) const LINK_BYTES: u32 = 18;
/// Frames of the memory for each socket: what its rings hold, and a burst in our hands.
const FRAMES_A_PORT: usize = 2 * RING as usize + weir_abi::BURST_MAX;

/// How long a queue may be taken: the kernel takes its time to free that of a socket that was closed, by a Weir that was killed, say.
const BUSY_MAX: Duration = Duration::from_secs(5);
const BUSY_POLL: Duration = Duration::from_millis(20);

/// Which queue of which interface.
#[derive(Clone)]
pub(super) struct Place {
    pub device: Arc<Device>,
    /// The interface's number on its side.
    pub interface: usize,
    pub queue: u32,
}

/// Who copies packets between the card and our memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// The card writes into our memory and reads from it.
    Nobody,
    /// The kernel, once each way.
    Kernel,
}

/// How many frames of our memory a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffers {
    /// One, whatever its length.
    One,
    /// As many as it needs (Linux 6.6). The first holds the headers.
    Several,
}

/// What is asked of the kernel.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub workers: usize,
    pub buffers: Buffers,
    pub waiting: Waiting,
    copy: SocketAddrXdpFlags,
}

impl How {
    /// Flags of the first socket of a lane.
    pub fn flags(&self) -> SocketAddrXdpFlags {
        let several = match self.buffers {
            Buffers::One => SocketAddrXdpFlags::empty(),
            Buffers::Several => SocketAddrXdpFlags::XDP_USE_SG,
        };
        self.copy | several | SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
    }
}

/// How packets of an interface reach the lanes.
pub(super) struct Way<'a> {
    /// The program that hands them to us.
    pub program: &'a Attached,
    pub copying: Copying,
    pub buffers: Buffers,
    /// Whether senders leave checksums to a card that is not there.
    pub unfinished: bool,
    /// Whether it gives both directions of a flow to one worker, if that matters and is known.
    pub symmetric: Option<bool>,
}

impl fmt::Display for Way<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = match self.program.mode {
            Mode::Native => "native XDP",
            Mode::Generic => "generic XDP (its driver knows none, which is slow)",
        };
        let copying = match self.copying {
            Copying::Nobody => "zero-copy",
            Copying::Kernel => "copied",
        };
        let buffers = match self.buffers {
            Buffers::One => "",
            Buffers::Several => ", several buffers a packet",
        };
        let interface = self.program.interface();
        let finished = if self.unfinished { checksum::FINISHED } else { "" };
        write!(f, "{mode}, {copying}{buffers}{finished}")?;
        if self.symmetric == Some(false) {
            write!(
                f,
                "; a flow's two directions may come to different workers (`ethtool -X {interface} xfrm symmetric-xor`)"
            )?;
        }
        Ok(())
    }
}

/// Bytes of the longest packet that an interface sends.
pub(super) fn longest_packet(device: &Device) -> Result<u32, EngineError> {
    Ok(device.mtu()?.saturating_add(LINK_BYTES))
}

/// Opens lanes; without copying, where all drivers can.
pub(super) fn open(interfaces: &Interfaces, workers: usize, waiting: Waiting) -> Result<Vec<AfXdpLane>, EngineError> {
    let sides = [places(&interfaces.lower, workers)?, places(&interfaces.upper, workers)?];
    let mut buffers = Buffers::One;
    for place in sides.iter().flatten() {
        if longest_packet(&place.device)? > PACKET_BYTES {
            buffers = Buffers::Several;
        }
    }
    // Some drivers can do without copying, and others of the same lane cannot: then all copy.
    let free = How { workers, buffers, waiting, copy: SocketAddrXdpFlags::empty() };
    let copied = How { copy: SocketAddrXdpFlags::XDP_COPY, ..free };
    let divert = interfaces.divert.as_deref();
    let start = Instant::now();
    loop {
        match open_with(&sides, divert, &free).or_else(|_| open_with(&sides, divert, &copied)) {
            Err(error) if is_busy(&error) && start.elapsed() < BUSY_MAX => thread::sleep(BUSY_POLL),
            opened => return opened,
        }
    }
}

/// Whether another socket has a queue.
fn is_busy(error: &EngineError) -> bool {
    matches!(error, EngineError::Interface { source, .. } if source.raw_os_error() == Some(libc::EBUSY))
}

/// All queues of a side's interfaces.
fn places(interfaces: &[String], workers: usize) -> Result<Vec<Place>, EngineError> {
    let mut places = Vec::new();
    for (interface, name) in interfaces.iter().enumerate() {
        let device = Arc::new(Device::open(name)?);
        bond::refuse(&device)?;
        let queues = device.queues();
        if (queues as usize) < workers {
            let problem = format!("{queues} receive queues, too few for {workers} workers");
            return Err(device.failed(std::io::Error::other(problem)));
        }
        places.extend((0..queues).map(|queue| Place { device: device.clone(), interface, queue }));
    }
    Ok(places)
}

fn open_with(sides: &[Vec<Place>; 2], divert: Option<&str>, how: &How) -> Result<Vec<AfXdpLane>, EngineError> {
    let mut lanes = Vec::new();
    for worker in 0..how.workers {
        let own = |places: &Vec<Place>| -> Vec<Place> {
            places.iter().filter(|place| place.queue as usize % how.workers == worker).cloned().collect()
        };
        lanes.push(open_lane(sides.each_ref().map(own), divert.map(Divert::open).transpose()?, how)?);
    }
    let mut programs = Vec::new();
    for first in sides.iter().flatten().filter(|place| place.queue == 0) {
        let device = &first.device;
        let ports = lanes.iter().flat_map(|lane| lane.sides.iter());
        let own: Vec<&Port> = ports.filter(|port| port.place.device.index() == device.index()).collect();
        let sockets: Vec<(u32, BorrowedFd<'_>)> =
            own.iter().map(|port| (port.place.queue, port.socket.as_fd())).collect();
        programs.push(program::attach(device.name(), device.index(), &sockets)?);
    }
    let programs = Arc::new(programs);
    lanes.iter_mut().for_each(|lane| lane.programs = programs.clone());
    Ok(lanes)
}

/// A lane of these queues. Its program is not there yet.
fn open_lane(places: [Vec<Place>; 2], divert: Option<Divert>, how: &How) -> Result<AfXdpLane, EngineError> {
    let sockets: usize = places.iter().map(Vec::len).sum();
    let memory = |errno: Errno| EngineError::Interface { interface: "memory".to_owned(), source: errno.into() };
    let mut umem = Umem::new(sockets * FRAMES_A_PORT).map_err(memory)?;
    let mut sides: [Vec<Vec<(u32, Port)>>; 2] = Default::default();
    for (side, places) in Side::BOTH.into_iter().zip(places) {
        for place in places {
            let counters = PortCounters::new(place.device.name(), place.device.index(), side);
            let first = sides.iter().flatten().flatten().next().map(|(_, port)| port);
            let (interface, queue) = (place.interface, place.queue);
            let mut port = Port::open(place, counters, &umem, first, how)?;
            port.refill(&mut umem, RING);
            let side = &mut sides[side as usize];
            side.resize_with(side.len().max(interface + 1), Vec::new);
            side[interface].push((queue, port));
        }
    }
    Ok(AfXdpLane::new(Sides::new(sides), divert, umem, how))
}
