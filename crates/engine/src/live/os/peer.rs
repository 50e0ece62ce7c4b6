//! The process at the other end of a Unix socket.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The user of the process that has connected the socket (`SO_PEERCRED`). The process itself may be outside of this
/// PID namespace, and then its number is 0, which rustix takes for a failure.
///
/// # Errors
/// The kernel refuses: this is no Unix socket.
pub fn user(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which `peer` has.
    let failed = unsafe {
        let at = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, at, &raw mut bytes)
    };
    if failed == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}
