//! The XDP program that hands an interface's packets to the sockets of its queues.
//!
//! Six instructions, so that a box without a compiler can load it. It is attached by a link, which goes with the process, however that ends.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    BPF_MAP_TYPE_XSKMAP, BPF_PROG_TYPE_XDP, BPF_XDP, bpf_link_create, bpf_link_create_opts, bpf_map_create,
    bpf_map_update_elem, bpf_prog_load,
};

use crate::EngineError;

/// linux/if_link.h
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// linux/bpf.h: what the helper returns for a queue without a socket.
const XDP_DROP: u64 = 1;
const REDIRECT_MAP: u64 = 51;

/// How the driver runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Where packets are received, before the kernel makes anything of them.
    Native,
    /// On what the kernel has made of them already, because the driver knows no XDP: not faster than raw sockets.
    Generic,
}

/// The program on one interface, detached when dropped.
pub(super) struct Attached {
    _link: OwnedFd,
    pub mode: Mode,
}

/// Attaches a program that gives packets of queue `i` to `sockets[i]`.
pub(super) fn attach(interface: &str, index: u32, sockets: &[(u32, impl AsFd)]) -> Result<Attached, EngineError> {
    let failed = |source| EngineError::Interface { interface: interface.to_owned(), source };
    let queues = sockets.iter().map(|(queue, _)| queue + 1).max().unwrap_or(1);
    let words = size_of::<u32>() as u32;
    // SAFETY: the name ends with a zero, no options are given.
    let map = owned(unsafe {
        bpf_map_create(BPF_MAP_TYPE_XSKMAP, c"weir_sockets".as_ptr(), words, words, queues, std::ptr::null())
    });
    let map = map.map_err(failed)?;
    for (queue, socket) in sockets {
        let socket = socket.as_fd().as_raw_fd();
        // SAFETY: key and value are words, as the map was made for.
        let error =
            unsafe { bpf_map_update_elem(map.as_raw_fd(), (&raw const *queue).cast(), (&raw const socket).cast(), 0) };
        if error != 0 {
            return Err(failed(io::Error::from_raw_os_error(-error)));
        }
    }
    let code = program(map.as_raw_fd());
    // SAFETY: name and license end with zeros; the instructions are as many as said, 8 bytes each; no options are given.
    let program = owned(unsafe {
        bpf_prog_load(
            BPF_PROG_TYPE_XDP,
            c"weir_afxdp".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as _,
            std::ptr::null_mut(),
        )
    });
    let program = program.map_err(failed)?;
    let link = |flags| {
        let options = bpf_link_create_opts {
            sz: size_of::<bpf_link_create_opts>() as _,
            flags,
            ..bpf_link_create_opts::default()
        };
        // SAFETY: the options have their size.
        owned(unsafe { bpf_link_create(program.as_raw_fd(), index as c_int, BPF_XDP, &raw const options) })
    };
    let not_known = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL));
    let (link, mode) = match link(XDP_FLAGS_DRV_MODE) {
        Err(error) if not_known(&error) => (link(XDP_FLAGS_SKB_MODE).map_err(failed)?, Mode::Generic),
        attached => (attached.map_err(failed)?, Mode::Native),
    };
    Ok(Attached { _link: link, mode })
}

/// ```text
/// r2 = ctx->rx_queue_index
/// r1 = map
/// r3 = XDP_DROP
/// call bpf_redirect_map
/// exit
/// ```
/// An instruction is `opcode | dst << 8 | src << 12 | offset << 16 | immediate << 32`.
fn program(map: c_int) -> [u64; 6] {
    const RX_QUEUE_INDEX: u64 = 16;
    const PSEUDO_MAP_FD: u64 = 1;
    [
        0x61 | 2 << 8 | 1 << 12 | RX_QUEUE_INDEX << 16,
        0x18 | 1 << 8 | PSEUDO_MAP_FD << 12 | (map as u64) << 32,
        0,
        0xb7 | 3 << 8 | XDP_DROP << 32,
        0x85 | REDIRECT_MAP << 32,
        0x95,
    ]
}

fn owned(fd: c_int) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
