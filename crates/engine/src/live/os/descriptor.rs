//! File descriptors from libbpf, which returns them as numbers.

use std::ffi::c_int;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// The descriptor or error that a function of libbpf returned.
pub(in crate::live) fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
