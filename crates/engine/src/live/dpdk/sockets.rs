//! Packets that the kernel's sockets behind a port lost. The driver `net_af_packet` did not report them before DPDK
//! 23.11.
//!
//! The sockets belong to the driver. They are found among the descriptors of this process by their interface. Reading
//! the kernel's counts resets them; a driver that reads them too counts those that are missing here.

use std::fs;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{sockaddr_ll, socklen_t};

/// Sockets that receive from one interface.
pub(super) struct Sockets {
    own: Vec<OwnedFd>,
    lost: AtomicU64,
}

impl Sockets {
    /// The sockets of this process on that interface, if any. They stay open while this value lives.
    pub fn of_interface(index: u32) -> Self {
        let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers = descriptors.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
        let receiving = numbers.filter(|&number| receives_from(number) == Some(index));
        let own = receiving.filter_map(|number| {
            // SAFETY: the descriptor was just open, and belongs to a port that is not closed meanwhile.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            rustix::io::fcntl_dupfd_cloexec(descriptor, 0).ok()
        });
        Sockets { own: own.collect(), lost: AtomicU64::new(0) }
    }

    /// Number of packets that they had no room for so far.
    pub fn lost(&self) -> u64 {
        let now: u64 = self.own.iter().map(lost_since_asked).sum();
        self.lost.fetch_add(now, Ordering::Relaxed) + now
    }
}

/// The interface from which a packet socket receives.
fn receives_from(descriptor: RawFd) -> Option<u32> {
    // SAFETY: zeros are a valid value of this plain structure.
    let mut address: sockaddr_ll = unsafe { zeroed() };
    let mut length = size_of::<sockaddr_ll>() as socklen_t;
    // SAFETY: the address has the given length; a descriptor that is not a socket is an error.
    let failed = unsafe { libc::getsockname(descriptor, (&raw mut address).cast(), &raw mut length) };
    let receives = failed == 0 && i32::from(address.sll_family) == libc::AF_PACKET && address.sll_protocol != 0;
    receives.then_some(address.sll_ifindex as u32)
}

fn lost_since_asked(socket: &OwnedFd) -> u64 {
    // SAFETY: zeros are a valid value of this plain structure.
    let mut stats: libc::tpacket_stats_v3 = unsafe { zeroed() };
    let mut length = size_of::<libc::tpacket_stats_v3>() as socklen_t;
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    // SAFETY: the value has the given length; older rings fill less of it.
    let failed =
        unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut stats).cast(), &raw mut length) };
    if failed == 0 { stats.tp_drops.into() } else { 0 }
}
