//! XDP programs that send each packet where a map says, by one word of its context. Six instructions, so that a box without a compiler can
//! load them.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    BPF_F_XDP_HAS_FRAGS, BPF_PROG_TYPE_XDP, bpf_map_create, bpf_map_type, bpf_map_update_elem, bpf_prog_load,
    bpf_prog_load_opts,
};

use crate::live::attach::owned;

/// linux/bpf.h: what the helper returns where the map has nothing.
const XDP_DROP: u64 = 1;
const REDIRECT_MAP: u64 = 51;

/// A word of `struct xdp_md` that the map is asked for, by its offset in bytes.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// The interface that the packet came in at.
    IngressIndex = 12,
}

/// A map from words to words: sockets, or indices of interfaces.
pub(super) fn map(kind: bpf_map_type, name: &CStr, entries: &[(u32, u32)]) -> io::Result<OwnedFd> {
    let words = size_of::<u32>() as u32;
    // SAFETY: the name ends with a zero, no options are given.
    let map =
        owned(unsafe { bpf_map_create(kind, name.as_ptr(), words, words, entries.len() as u32, std::ptr::null()) })?;
    for (key, value) in entries {
        // SAFETY: key and value are words, as the map was made for.
        let error =
            unsafe { bpf_map_update_elem(map.as_raw_fd(), (&raw const *key).cast(), (&raw const *value).cast(), 0) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(-error));
        }
    }
    Ok(map)
}

/// A program that redirects by the map, and drops what the map does not know. Packets in several pieces are packets like others.
pub(super) fn program(name: &CStr, map: impl AsFd, key: Key) -> io::Result<OwnedFd> {
    let code = code(map.as_fd().as_raw_fd(), key);
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        prog_flags: BPF_F_XDP_HAS_FRAGS,
        ..bpf_prog_load_opts::default()
    };
    // SAFETY: name and license end with zeros; the instructions are as many as said, 8 bytes each; the options have their size.
    owned(unsafe {
        bpf_prog_load(
            BPF_PROG_TYPE_XDP,
            name.as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as _,
            &raw mut options,
        )
    })
}

/// ```text
/// r2 = ctx->key
/// r1 = map
/// r3 = XDP_DROP
/// call bpf_redirect_map
/// exit
/// ```
/// An instruction is `opcode | dst << 8 | src << 12 | offset << 16 | immediate << 32`.
fn code(map: c_int, key: Key) -> [u64; 6] {
    const PSEUDO_MAP_FD: u64 = 1;
    [
        0x61 | 2 << 8 | 1 << 12 | (key as u64) << 16,
        0x18 | 1 << 8 | PSEUDO_MAP_FD << 12 | (map as u64) << 32,
        0,
        0xb7 | 3 << 8 | XDP_DROP << 32,
        0x85 | REDIRECT_MAP << 32,
        0x95,
    ]
}
