//! XDP programs that send each packet where a map says, by one word of its context. Six instructions, so that a box without a compiler can
//! load them. They look into no packet, so that it may lie in several buffers.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null;

use libbpf_rs::libbpf_sys::{
    BPF_F_XDP_HAS_FRAGS, BPF_PROG_TYPE_XDP, bpf_map_create, bpf_map_type, bpf_map_update_elem, bpf_prog_load,
    bpf_prog_load_opts,
};

use crate::live::descriptor::owned;

/// linux/bpf.h: what the helper returns where the map has nothing.
const XDP_DROP: u64 = 1;
const REDIRECT_MAP: u64 = 51;

/// A word of `struct xdp_md` that the map is asked for, by its offset in bytes.
#[derive(Clone, Copy)]
pub(super) enum Key {
    /// The interface that the packet came in at.
    IngressIndex = 12,
    /// The receive queue.
    Queue = 16,
}

/// A map from words to words, for keys below `size` or for as many keys.
pub(super) fn map(kind: bpf_map_type, name: &CStr, size: u32) -> io::Result<OwnedFd> {
    let words = size_of::<u32>() as u32;
    // SAFETY: the name ends with a zero, no options are given.
    owned(unsafe { bpf_map_create(kind, name.as_ptr(), words, words, size, null()) })
}

/// Lets packets of that key go to a socket, by its descriptor, or to an interface, by its index.
pub(super) fn set(map: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    // SAFETY: key and value are words, as the map was made for.
    let error = unsafe { bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}

/// A program that redirects by the map, and drops what the map does not know.
pub(super) fn program(name: &CStr, map: &OwnedFd, key: Key) -> io::Result<OwnedFd> {
    let code = code(map.as_raw_fd(), key);
    // Linux 5.18 and newer; drivers that take only short packets to a program of before are content with that.
    load(name, &code, BPF_F_XDP_HAS_FRAGS).or_else(|_| load(name, &code, 0))
}

fn load(name: &CStr, code: &[u64], flags: u32) -> io::Result<OwnedFd> {
    let options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        prog_flags: flags,
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
            (&raw const options).cast_mut(),
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
