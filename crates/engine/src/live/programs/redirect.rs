//! XDP programs that redirect each packet by a map, with one word of the program's context as the key. They have six
//! instructions, so that a machine without a compiler can load them. They do not access the packet, which may lie in
//! several buffers.

use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::null;

use libbpf_rs::libbpf_sys::{
    BPF_F_XDP_HAS_FRAGS, BPF_PROG_TYPE_XDP, bpf_map_create, bpf_map_type, bpf_map_update_elem, bpf_prog_load,
    bpf_prog_load_opts, bpf_prog_type,
};

use crate::live::os::descriptor::owned;

/// linux/bpf.h: what the helper returns if the map has no entry.
const XDP_DROP: u64 = 1;
const REDIRECT_MAP: u64 = 51;

/// The key: a word of `struct xdp_md`, by its byte offset.
#[derive(Clone, Copy)]
pub(in crate::live) enum Key {
    /// The index of the receiving interface.
    IngressIndex = 12,
    /// The receive queue.
    Queue = 16,
}

/// Creates a map from words to words, for keys below `size` or for `size` keys.
pub(in crate::live) fn map(kind: bpf_map_type, name: &CStr, size: u32) -> io::Result<OwnedFd> {
    let words = size_of::<u32>() as u32;
    // SAFETY: the name ends with a zero, and no options are passed.
    owned(unsafe { bpf_map_create(kind, name.as_ptr(), words, words, size, null()) })
}

/// Redirects packets with that key to a socket (by descriptor) or to an interface (by index).
pub(in crate::live) fn set(map: &OwnedFd, key: u32, value: u32) -> io::Result<()> {
    // SAFETY: key and value are words, as the map was created for.
    let error = unsafe { bpf_map_update_elem(map.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-error)) }
}

/// A program that redirects by the map and drops packets without an entry.
pub(in crate::live) fn program(name: &CStr, map: &OwnedFd, key: Key) -> io::Result<OwnedFd> {
    let code = code(map.as_raw_fd(), key);
    // Linux 5.18 and newer support fragments. Drivers that give only short packets to programs without that support
    // also accept such a program.
    load(BPF_PROG_TYPE_XDP, name, &code, BPF_F_XDP_HAS_FRAGS).or_else(|_| load(BPF_PROG_TYPE_XDP, name, &code, 0))
}

/// Loads a program of a kind from its instructions.
pub(in crate::live) fn load(kind: bpf_prog_type, name: &CStr, code: &[u64], flags: u32) -> io::Result<OwnedFd> {
    let options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        prog_flags: flags,
        ..bpf_prog_load_opts::default()
    };
    // SAFETY: name and license end with zeros. The instructions have the given number, 8 bytes each. The options
    // contain their own size.
    owned(unsafe {
        bpf_prog_load(
            kind,
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
