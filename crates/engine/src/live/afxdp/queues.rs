//! How many receive queues an interface has: asked of the driver (linux/ethtool.h), since /sys shows the interfaces of one namespace only.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

/// `ETHTOOL_GCHANNELS`
const GET_CHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`
#[derive(Default)]
#[repr(C)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// The interface's index, and its receive queues.
pub(super) fn of(interface: &str) -> io::Result<(u32, u32)> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let index = netdevice::name_to_index(&any, interface)?;
    let mut channels = Channels { cmd: GET_CHANNELS, ..Channels::default() };
    // SAFETY: zeros are a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as _;
    }
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    // SAFETY: the request names an interface, with a zero at the end since the kernel knew the name, and points to what GET_CHANNELS fills.
    let failed = unsafe { libc::ioctl(any.as_fd().as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    // Drivers that do not know the question have one queue.
    let queues = if failed == 0 { channels.combined_count + channels.rx_count } else { 1 };
    Ok((index, queues.max(1)))
}
