//! The XDP program that hands an interface's packets to the sockets of its queues.
//!
//! Six instructions, so that a box without a compiler can load it. They look into no packet, so that it may lie in several buffers.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    BPF_F_XDP_HAS_FRAGS, BPF_MAP_TYPE_XSKMAP, BPF_PROG_TYPE_XDP, bpf_map_create, bpf_map_update_elem, bpf_prog_load,
    bpf_prog_load_opts,
};

use crate::EngineError;
use crate::live::attach::{Attached, owned};

/// linux/bpf.h: what the helper returns for a queue without a socket.
const XDP_DROP: u64 = 1;
const REDIRECT_MAP: u64 = 51;

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
    // Linux 5.18 and newer; drivers that take only short packets to a program of before are content with that.
    let program = load(map.as_raw_fd(), BPF_F_XDP_HAS_FRAGS).or_else(|_| load(map.as_raw_fd(), 0)).map_err(failed)?;
    Attached::attach(interface, index, program)
}

fn load(map: c_int, flags: u32) -> io::Result<OwnedFd> {
    let code = program(map);
    let options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        prog_flags: flags,
        ..bpf_prog_load_opts::default()
    };
    // SAFETY: name and license end with zeros; the instructions are as many as said, 8 bytes each; the options have their size.
    owned(unsafe {
        bpf_prog_load(
            BPF_PROG_TYPE_XDP,
            c"weir_afxdp".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as _,
            (&raw const options).cast_mut(),
        )
    })
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
