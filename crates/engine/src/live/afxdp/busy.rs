//! Busy polling: the worker runs the driver's receive loop itself instead of waiting for an interrupt
//! (Documentation/networking/napi.rst).

use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, socklen_t};
use rustix::io::Errno;

/// How a worker waits for packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Sleeps.
    #[default]
    Sleep,
    /// Polls the driver continuously. This takes a whole core, and the driver needs no interrupts.
    BusyPoll,
}

/// asm-generic/socket.h; libc does not define them.
const SO_BUSY_POLL: c_int = 46;
const SO_PREFER_BUSY_POLL: c_int = 69;
const SO_BUSY_POLL_BUDGET: c_int = 70;

/// How long a call looks for packets. It does not wait, but the kernel treats 0 as "off".
const BUSY_POLL_US: c_int = 20;
/// Maximum number of packets per call: a burst.
const BUDGET: c_int = weir_abi::BURST_MAX as c_int;

/// Makes calls on the socket run the driver's receive loop, if the worker waits by busy polling.
pub(super) fn prefer(socket: impl AsFd, waiting: Waiting) -> Result<(), Errno> {
    if waiting == Waiting::Sleep {
        return Ok(());
    }
    let options = [(SO_PREFER_BUSY_POLL, 1), (SO_BUSY_POLL, BUSY_POLL_US), (SO_BUSY_POLL_BUDGET, BUDGET)];
    for (option, value) in options {
        let bytes = size_of_val(&value) as socklen_t;
        // SAFETY: the value is an int that lives during the call.
        let failed = unsafe {
            libc::setsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, option, (&raw const value).cast(), bytes)
        };
        if failed != 0 {
            return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL));
        }
    }
    Ok(())
}
