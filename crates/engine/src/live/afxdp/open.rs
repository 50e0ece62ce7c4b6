//! Opens lanes: their sockets on all queues, and the programs that redirect packets to the sockets.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::xdp::SocketAddrXdpFlags;

use super::busy::Waiting;
use super::lane::AfXdpLane;
use super::options::{Buffers, How};
use super::port::{Port, RING};
use super::program;
use super::queue::{DeviceQueue, longest_packet};
use super::umem::{PACKET_BYTES, Umem};
use crate::EngineError;
use crate::live::divert::Divert;
use crate::live::lane::{Interfaces, PortCounters, PortNature, Side, Sides};
use crate::live::os::bond;
use crate::live::os::device::Device;

/// Number of frames per socket: all frames of its rings, and a burst being processed.
const FRAMES_A_PORT: usize = 2 * RING as usize + weir_abi::BURST_MAX;

/// How long to retry a busy queue. The kernel takes time to free the queue of a closed socket, for example after Weir
/// was killed.
const BUSY_MAX: Duration = Duration::from_secs(5);
const BUSY_POLL: Duration = Duration::from_millis(20);

impl AfXdpLane {
    /// Opens a lane for each of `workers`. Queue `q` of each interface goes to worker `q` modulo their number. The
    /// lanes use zero-copy if all drivers support it.
    ///
    /// # Errors
    /// There is no such interface, it has fewer queues than there are workers, its MTU is too long, or the process
    /// lacks the right to XDP (CAP_NET_ADMIN, CAP_BPF).
    pub fn open(interfaces: &Interfaces, workers: usize, waiting: Waiting) -> Result<Vec<Self>, EngineError> {
        Self::open_by(interfaces, workers, waiting, attempts)
    }

    /// Opens lanes as kernels before Linux 6.6 do: a packet takes one frame, and a longer one is lost.
    ///
    /// # Errors
    /// The errors of [`AfXdpLane::open`].
    pub fn open_with_one_frame(interfaces: &Interfaces, workers: usize) -> Result<Vec<Self>, EngineError> {
        let copied: &[_] = &[(SocketAddrXdpFlags::XDP_COPY, Buffers::One)];
        Self::open_by(interfaces, workers, Waiting::Sleep, |_| copied)
    }

    fn open_by(
        interfaces: &Interfaces,
        workers: usize,
        waiting: Waiting,
        attempts: impl Fn(bool) -> &'static [(SocketAddrXdpFlags, Buffers)],
    ) -> Result<Vec<Self>, EngineError> {
        let sides = [queues_of(&interfaces.lower, workers)?, queues_of(&interfaces.upper, workers)?];
        let mut is_long = false;
        for device_queue in sides.iter().flatten() {
            is_long |= longest_packet(&device_queue.device)? > PACKET_BYTES;
        }
        let divert = interfaces.divert.as_deref();
        let start = Instant::now();
        loop {
            let mut opened = Err(EngineError::Stopping);
            for &(copy, buffers) in attempts(is_long) {
                opened = opened.or_else(|_| open_with(&sides, divert, &How { workers, buffers, waiting, copy }));
            }
            match opened {
                Err(error) if is_busy(&error) && start.elapsed() < BUSY_MAX => thread::sleep(BUSY_POLL),
                opened => return opened,
            }
        }
    }
}

/// The options to try, in order. If only some drivers of a lane support zero-copy, all copy. A kernel that copies takes
/// packets in several buffers at no cost, so an MTU may be raised later. Few cards do so with zero-copy.
fn attempts(is_long: bool) -> &'static [(SocketAddrXdpFlags, Buffers)] {
    const ANY: SocketAddrXdpFlags = SocketAddrXdpFlags::empty();
    const ZERO_COPY: SocketAddrXdpFlags = SocketAddrXdpFlags::XDP_ZEROCOPY;
    const COPY: SocketAddrXdpFlags = SocketAddrXdpFlags::XDP_COPY;
    match is_long {
        true => &[(ANY, Buffers::Several), (COPY, Buffers::Several)],
        false => &[(ZERO_COPY, Buffers::One), (COPY, Buffers::Several), (COPY, Buffers::One)],
    }
}

/// Whether the error says that another socket uses the queue.
fn is_busy(error: &EngineError) -> bool {
    matches!(error, EngineError::Interface { source, .. } if source.raw_os_error() == Some(libc::EBUSY))
}

/// All queues of the interfaces on a side.
fn queues_of(interfaces: &[String], workers: usize) -> Result<Vec<DeviceQueue>, EngineError> {
    let mut device_queues = Vec::new();
    for (interface, name) in interfaces.iter().enumerate() {
        let device = Arc::new(Device::open(name)?);
        bond::refuse(&device)?;
        let queues = device.queues();
        if (queues as usize) < workers {
            let problem = format!("{queues} receive queues, too few for {workers} workers");
            return Err(device.failed(std::io::Error::other(problem)));
        }
        device_queues.extend((0..queues).map(|queue| DeviceQueue { device: device.clone(), interface, queue }));
    }
    Ok(device_queues)
}

fn open_with(sides: &[Vec<DeviceQueue>; 2], divert: Option<&str>, how: &How) -> Result<Vec<AfXdpLane>, EngineError> {
    let mut lanes = Vec::new();
    for worker in 0..how.workers {
        let own = |device_queues: &Vec<DeviceQueue>| -> Vec<DeviceQueue> {
            device_queues
                .iter()
                .filter(|device_queue| device_queue.queue as usize % how.workers == worker)
                .cloned()
                .collect()
        };
        lanes.push(open_lane(sides.each_ref().map(own), divert.map(Divert::open).transpose()?, how)?);
    }
    let mut programs = Vec::new();
    for first in sides.iter().flatten().filter(|device_queue| device_queue.queue == 0) {
        let device = &first.device;
        let ports = lanes.iter().flat_map(|lane| lane.sides.iter());
        let own: Vec<&Port> = ports.filter(|port| port.device_queue.device.index() == device.index()).collect();
        let sockets: Vec<(u32, BorrowedFd<'_>)> =
            own.iter().map(|port| (port.device_queue.queue, port.socket.as_fd())).collect();
        programs.push(program::attach(device.name(), device.index(), &sockets)?);
    }
    let programs = Arc::new(programs);
    lanes.iter_mut().for_each(|lane| lane.programs = programs.clone());
    Ok(lanes)
}

/// Opens a lane on these queues. Its program is not attached yet.
fn open_lane(
    device_queues: [Vec<DeviceQueue>; 2],
    divert: Option<Divert>,
    how: &How,
) -> Result<AfXdpLane, EngineError> {
    let sockets: usize = device_queues.iter().map(Vec::len).sum();
    let memory = |errno: Errno| EngineError::Interface { interface: "memory".to_owned(), source: errno.into() };
    let mut umem = Umem::new(sockets * FRAMES_A_PORT).map_err(memory)?;
    let mut sides: [Vec<Vec<(u32, Port)>>; 2] = Default::default();
    for (side, device_queues) in Side::BOTH.into_iter().zip(device_queues) {
        for device_queue in device_queues {
            let (name, index) = (device_queue.device.name(), device_queue.device.index());
            let longest = (how.buffers == Buffers::One).then_some(PACKET_BYTES);
            let counters = PortCounters::of(name, index, side, PortNature { kernel_index: index, longest });
            let first = sides.iter().flatten().flatten().next().map(|(_, port)| port);
            let (interface, queue) = (device_queue.interface, device_queue.queue);
            let mut port = Port::open(device_queue, counters, &umem, first, how)?;
            port.refill(&mut umem, RING);
            let side = &mut sides[side as usize];
            side.resize_with(side.len().max(interface + 1), Vec::new);
            side[interface].push((queue, port));
        }
    }
    Ok(AfXdpLane::new(Sides::new(sides), divert, umem, how))
}
