//! Programs on interfaces: for what they receive (XDP), and for what a host sends (tcx).
//!
//! A program is attached by a link. When the link's descriptor is closed, however the process ends, the program is
//! detached. Replacing a program leaves no moment without one.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null;

use libbpf_rs::libbpf_sys::{
    BPF_F_BEFORE, BPF_LINK_TYPE_TCX, BPF_LINK_TYPE_XDP, BPF_TCX_EGRESS, BPF_XDP, bpf_attach_type, bpf_link_create,
    bpf_link_create_opts, bpf_link_get_info_by_fd, bpf_link_info, bpf_link_update, bpf_prog_query_opts,
};
use serde::{Deserialize, Serialize};

use crate::EngineError;
use crate::live::os::descriptor::owned;
use crate::live::os::promiscuous;
use crate::live::programs::bypass;
use crate::xdp::needs::running_release;

/// linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Where the kernel runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// In the driver, before the kernel allocates anything for the packet.
    Native,
    /// In the kernel, after it has built its own packet structure, because the driver does not support XDP. This is no
    /// faster than raw sockets.
    Generic,
}

/// A link that the program before this one in its process has made. Its program goes on until it is replaced.
pub struct HeldLink {
    /// The link.
    pub link: OwnedFd,
    /// Keeps the interface promiscuous.
    pub promiscuous: Option<OwnedFd>,
    /// Where the kernel runs the program; `None` for packets that a host sends.
    pub mode: Option<Mode>,
}

/// A program on one interface. It is detached on drop.
pub struct Attached {
    link: OwnedFd,
    /// Drivers run programs only on packets that the card accepts.
    _promiscuous: Option<OwnedFd>,
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
        // This precedes the removal of a bypass that keeps the interface promiscuous.
        let promiscuous = promiscuous::hold(index).map_err(|source| failed(interface, source))?;
        let attached = Self::attach_for_host(interface, index, program)?;
        Ok(Attached { _promiscuous: Some(promiscuous), ..attached })
    }

    /// Attaches a program like [`Attached::attach`], for packets to this host only.
    ///
    /// # Errors
    /// As for [`Attached::attach`].
    pub fn attach_for_host(interface: &str, index: u32, program: impl AsFd) -> Result<Self, EngineError> {
        let link = |flags| link(&program, index, BPF_XDP, flags);
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
        Ok(Attached { link, _promiscuous: None, interface: interface.to_owned(), mode })
    }

    /// Replaces the program of a held link, without a moment in between.
    ///
    /// # Errors
    /// It is not a link of an XDP program to this interface.
    pub fn take_over(held: HeldLink, interface: &str, index: u32, program: impl AsFd) -> Result<Self, EngineError> {
        let failed = |source| failed(interface, source);
        let info = link_info(&held.link).map_err(failed)?;
        // SAFETY: the kernel has set this member, because the type says so.
        let is_own = info.type_ == BPF_LINK_TYPE_XDP && unsafe { info.__bindgen_anon_1.xdp.ifindex } == index;
        let Some(mode) = held.mode.filter(|_| is_own) else { return Err(failed(not_held("XDP"))) };
        update(&held.link, program).map_err(failed)?;
        Ok(Attached { link: held.link, _promiscuous: held.promiscuous, interface: interface.to_owned(), mode })
    }

    /// Its descriptors: the link, and what keeps the interface promiscuous.
    pub fn descriptors(&self) -> (BorrowedFd<'_>, Option<BorrowedFd<'_>>) {
        (self.link.as_fd(), self._promiscuous.as_ref().map(AsFd::as_fd))
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Replaces the program atomically.
    pub fn replace(&self, program: impl AsFd) -> Result<(), EngineError> {
        update(&self.link, program).map_err(|source| failed(&self.interface, source))
    }
}

/// A program on the packets that a host sends out of one interface. It is detached on drop.
pub struct Egress {
    link: OwnedFd,
    interface: String,
}

impl Egress {
    /// Asks the kernel whether it has tcx. Without the right to ask, the answer is left to [`Egress::attach`].
    ///
    /// # Errors
    /// The kernel has no tcx (before Linux 6.6).
    pub fn check(interface: &str, index: u32) -> Result<(), EngineError> {
        let mut options = bpf_prog_query_opts { sz: size_of::<bpf_prog_query_opts>() as _, ..Default::default() };
        // SAFETY: the options contain their own size, and no pointer to be written to.
        let error = unsafe { bpf_prog_query_opts(index as c_int, BPF_TCX_EGRESS, &raw mut options) };
        match -error {
            libc::EINVAL => Err(failed(interface, no_tcx())),
            _ => Ok(()),
        }
    }

    /// Attaches a program to the interface with that index. It is the first of the programs there, because one that
    /// accepts a packet for good would keep it from those behind it.
    ///
    /// # Errors
    /// The kernel has no tcx (before Linux 6.6), or the process lacks the right to attach a program.
    pub fn attach(interface: &str, index: u32, program: impl AsFd) -> Result<Self, EngineError> {
        let link = link(&program, index, BPF_TCX_EGRESS, BPF_F_BEFORE).map_err(|source| {
            let unknown = source.raw_os_error() == Some(libc::EINVAL);
            failed(interface, if unknown { no_tcx() } else { source })
        })?;
        Ok(Egress { link, interface: interface.to_owned() })
    }

    /// Replaces the program of a held link, without a moment in between.
    ///
    /// # Errors
    /// It is not a link of a program at tcx egress of this interface.
    pub fn take_over(held: HeldLink, interface: &str, index: u32, program: impl AsFd) -> Result<Self, EngineError> {
        let failed = |source| failed(interface, source);
        let info = link_info(&held.link).map_err(failed)?;
        // SAFETY: the kernel has set this member, if the type says so.
        let tcx = unsafe { info.__bindgen_anon_1.tcx };
        if (info.type_, tcx.ifindex, tcx.attach_type) != (BPF_LINK_TYPE_TCX, index, BPF_TCX_EGRESS) {
            return Err(failed(not_held("tcx")));
        }
        update(&held.link, program).map_err(failed)?;
        Ok(Egress { link: held.link, interface: interface.to_owned() })
    }

    /// The link.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Replaces the program atomically.
    pub fn replace(&self, program: impl AsFd) -> Result<(), EngineError> {
        update(&self.link, program).map_err(|source| failed(&self.interface, source))
    }
}

/// Replaces the program of a link atomically.
fn update(link: &OwnedFd, program: impl AsFd) -> io::Result<()> {
    // SAFETY: no options are passed.
    let error = unsafe { bpf_link_update(link.as_raw_fd(), program.as_fd().as_raw_fd(), null()) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}

/// A link of a program to an interface.
fn link(program: &impl AsFd, index: u32, hook: bpf_attach_type, flags: u32) -> io::Result<OwnedFd> {
    let options =
        bpf_link_create_opts { sz: size_of::<bpf_link_create_opts>() as _, flags, ..bpf_link_create_opts::default() };
    let program = program.as_fd().as_raw_fd();
    // SAFETY: the options contain their own size.
    owned(unsafe { bpf_link_create(program, index as c_int, hook, &raw const options) })
}

/// What a link is.
fn link_info(link: &OwnedFd) -> io::Result<bpf_link_info> {
    let mut info = bpf_link_info::default();
    let mut bytes = size_of::<bpf_link_info>() as u32;
    // SAFETY: `info` is writable for `bytes`. It is all zeros, so the kernel writes through no pointer in it.
    let error = unsafe { bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut bytes) };
    if error == 0 { Ok(info) } else { Err(io::Error::from_raw_os_error(-error)) }
}

fn not_held(hook: &str) -> io::Error {
    io::Error::other(format!("the descriptor that was handed over is no {hook} link of this interface"))
}

/// The refusal of a kernel without tcx.
fn no_tcx() -> io::Error {
    let release = running_release();
    io::Error::other(format!(
        "--host needs Linux 6.6 or newer for packets that the host sends (tcx), and this is {release}"
    ))
}

fn failed(interface: &str, source: io::Error) -> EngineError {
    EngineError::Interface { interface: interface.to_owned(), source }
}
