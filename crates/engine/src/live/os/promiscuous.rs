//! Promiscuous mode for as long as a socket is open. Without it a card discards packets for other addresses, which a
//! bridge must forward.

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Makes the interface with that index promiscuous until the packet socket is closed, however its process ends.
pub(in crate::live) fn join(socket: impl AsFd, index: u32) -> io::Result<()> {
    // SAFETY: zeros are a valid value of this plain structure.
    let mut request: libc::packet_mreq = unsafe { zeroed() };
    request.mr_ifindex = index as c_int;
    request.mr_type = libc::PACKET_MR_PROMISC as u16;
    // SAFETY: the option takes a packet_mreq of the given size.
    let error = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            (&raw const request).cast(),
            size_of::<libc::packet_mreq>() as libc::socklen_t,
        )
    };
    if error == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the interface promiscuous until the returned socket is closed. The socket receives nothing.
pub(in crate::live) fn hold(index: u32) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    join(&socket, index).map(|()| socket)
}
