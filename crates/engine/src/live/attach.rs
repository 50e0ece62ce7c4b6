//! XDP programs on interfaces.
//!
//! A program is attached by a link. When the link's descriptor is closed, however the process ends, the program is
//! detached. Replacing a program leaves no moment without one.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::null;

use libbpf_rs::libbpf_sys::{BPF_XDP, bpf_link_create, bpf_link_create_opts, bpf_link_update};

use crate::EngineError;
use crate::live::descriptor::owned;
use crate::live::{bypass, promiscuous};

/// linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Where the kernel runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel allocates anything for the packet.
    Native,
    /// In the kernel, after it has built its own packet structure, because the driver does not support XDP. This is no
    /// faster than raw sockets.
    Generic,
}

/// A program on one interface. It is detached on drop.
pub struct Attached {
    link: OwnedFd,
    /// Drivers run programs only on packets that the card accepts.
    _promiscuous: OwnedFd,
    interface: String,
    /// Where the kernel runs it.
    pub mode: Mode,
}

impl Attached {
    /// Attaches a program to the interface with that index and makes it promiscuous. `interface` is its name, for
    /// messages. A bypass on the interface is removed.
    ///
    /// # Errors
    /// Another program is attached there, or the process lacks the right to attach one.
    pub fn attach(interface: &str, index: u32, program: impl AsFd) -> Result<Self, EngineError> {
        let program = program.as_fd().as_raw_fd();
        // This precedes the removal of a bypass that keeps the interface promiscuous.
        let promiscuous = promiscuous::hold(index).map_err(|source| failed(interface, source))?;
        let link = |flags| {
            let options = bpf_link_create_opts {
                sz: size_of::<bpf_link_create_opts>() as _,
                flags,
                ..bpf_link_create_opts::default()
            };
            // SAFETY: the options contain their own size.
            owned(unsafe { bpf_link_create(program, index as c_int, BPF_XDP, &raw const options) })
        };
        let not_known = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL));
        let attach = || match link(XDP_FLAGS_DRV_MODE) {
            Err(error) if not_known(&error) => link(XDP_FLAGS_SKB_MODE).map(|link| (link, Mode::Generic)),
            attached => attached.map(|link| (link, Mode::Native)),
        };
        let taken = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        let attached = match attach() {
            // The bypass is removed at the last moment; until then every packet passed.
            Err(error) if taken(&error) && bypass::lift(interface, index)? => attach(),
            attached => attached,
        };
        let (link, mode) = attached.map_err(|source| failed(interface, source))?;
        Ok(Attached { link, _promiscuous: promiscuous, interface: interface.to_owned(), mode })
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Replaces the program atomically.
    pub fn replace(&self, program: impl AsFd) -> Result<(), EngineError> {
        // SAFETY: no options are passed.
        let error = unsafe { bpf_link_update(self.link.as_raw_fd(), program.as_fd().as_raw_fd(), null()) };
        if error == 0 { Ok(()) } else { Err(failed(&self.interface, io::Error::from_raw_os_error(-error))) }
    }
}

fn failed(interface: &str, source: io::Error) -> EngineError {
    EngineError::Interface { interface: interface.to_owned(), source }
}
