//! XDP programs that no process holds. They are attached by netlink and stay until detached.

use std::ffi::{CString, c_int};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    bpf_prog_get_fd_by_id, bpf_prog_get_info_by_fd, bpf_prog_info, bpf_xdp_attach, bpf_xdp_attach_opts, bpf_xdp_query,
    bpf_xdp_query_opts,
};

use crate::live::os::descriptor::owned;
use crate::xdp::log;

/// linux/if_link.h
const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1 << 0;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_FLAGS_HW_MODE: u32 = 1 << 3;
/// linux/netdev.h
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 1 << 2;

/// Where the kernel runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::live) enum AttachMode {
    /// In the driver.
    Driver,
    /// In the kernel, after the driver.
    Kernel,
    /// On the card.
    Card,
}

impl AttachMode {
    /// The name in ip-link(8).
    pub fn name(self) -> &'static str {
        match self {
            AttachMode::Driver => "xdpdrv",
            AttachMode::Kernel => "xdpgeneric",
            AttachMode::Card => "xdpoffload",
        }
    }

    fn flags(self) -> u32 {
        match self {
            AttachMode::Driver => XDP_FLAGS_DRV_MODE,
            AttachMode::Kernel => XDP_FLAGS_SKB_MODE,
            AttachMode::Card => XDP_FLAGS_HW_MODE,
        }
    }
}

/// A program on an interface, attached by any process, by netlink or by a link.
pub(in crate::live) struct Resident {
    /// Index of the interface.
    index: u32,
    pub id: u32,
    /// The name that its author gave it. Empty if the process lacks the right to ask (CAP_SYS_ADMIN).
    pub name: CString,
    pub mode: AttachMode,
    program: Option<OwnedFd>,
}

impl Resident {
    /// The program on the interface with that index. If there are several, the one in the driver.
    pub fn on(index: u32) -> io::Result<Option<Self>> {
        let found = query(index)?;
        let modes = [
            (AttachMode::Driver, found.drv_prog_id),
            (AttachMode::Kernel, found.skb_prog_id),
            (AttachMode::Card, found.hw_prog_id),
        ];
        let Some((mode, id)) = modes.into_iter().find(|(_, id)| *id != 0) else { return Ok(None) };
        // SAFETY: the call takes no pointers.
        let program = match owned(unsafe { bpf_prog_get_fd_by_id(id) }) {
            Ok(program) => Some(program),
            // It was detached at this moment.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(_) => None,
        };
        let name = program.as_ref().map(name_of).transpose()?.unwrap_or_default();
        Ok(Some(Resident { index, id, name, mode, program }))
    }

    /// Replaces the program atomically.
    pub fn replace(&self, program: impl AsFd) -> io::Result<()> {
        self.change(program.as_fd().as_raw_fd())
    }

    /// Detaches the program.
    pub fn detach(&self) -> io::Result<()> {
        self.change(-1)
    }

    /// Moves the program to another mode. There is a moment in which it does not run.
    pub fn move_to(&self, mode: AttachMode) -> io::Result<()> {
        self.detach()?;
        match &self.program {
            Some(program) => attach(self.index, program, mode),
            None => Ok(()),
        }
    }

    /// Fails if the program is no longer attached, or if a link holds it.
    fn change(&self, to: c_int) -> io::Result<()> {
        let old = self.program.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM))?;
        set(self.index, to, self.mode.flags(), old.as_raw_fd())
    }
}

/// Attaches a program to an interface without one.
pub(in crate::live) fn attach(index: u32, program: impl AsFd, mode: AttachMode) -> io::Result<()> {
    set(index, program.as_fd().as_raw_fd(), mode.flags() | XDP_FLAGS_UPDATE_IF_NOEXIST, 0)
}

/// Whether the driver of an interface accepts packets that programs of other interfaces redirect to it.
pub(in crate::live) fn takes_redirected(index: u32) -> io::Result<bool> {
    Ok(query(index)?.feature_flags & NETDEV_XDP_ACT_NDO_XMIT != 0)
}

/// `old` of 0 means no previous program.
fn set(index: u32, program: c_int, flags: u32, old: c_int) -> io::Result<()> {
    let options = bpf_xdp_attach_opts {
        sz: size_of::<bpf_xdp_attach_opts>() as _,
        old_prog_fd: old,
        ..bpf_xdp_attach_opts::default()
    };
    // SAFETY: the options contain their own size.
    let (error, _) = log::listen(|| unsafe { bpf_xdp_attach(index as c_int, program, flags, &raw const options) });
    result(error)
}

fn query(index: u32) -> io::Result<bpf_xdp_query_opts> {
    let mut found = bpf_xdp_query_opts { sz: size_of::<bpf_xdp_query_opts>() as _, ..bpf_xdp_query_opts::default() };
    // SAFETY: the kernel writes the answer into `found`, which contains its own size.
    let (error, _) = log::listen(|| unsafe { bpf_xdp_query(index as c_int, 0, &raw mut found) });
    result(error).map(|()| found)
}

/// The name that the author of a program gave it.
pub(in crate::live) fn name_of(program: &OwnedFd) -> io::Result<CString> {
    let mut info = bpf_prog_info::default();
    let mut bytes = size_of::<bpf_prog_info>() as u32;
    // SAFETY: `info` is writable for `bytes`. It is all zeros, so the kernel writes through no pointer in it.
    let error = unsafe { bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut bytes) };
    result(error)?;
    let name: Vec<u8> = info.name.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    Ok(CString::new(name).expect("it was cut at the first zero"))
}

fn result(error: c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}
