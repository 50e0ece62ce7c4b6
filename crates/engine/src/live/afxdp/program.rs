//! The XDP program that redirects an interface's packets to the sockets of its queues.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::BPF_MAP_TYPE_XSKMAP;

use crate::EngineError;
use crate::live::programs::attach::Attached;
use crate::live::programs::redirect::{self, Key};

/// Attaches a program that redirects packets of each queue to the socket with that queue number in `sockets`.
pub(super) fn attach(interface: &str, index: u32, sockets: &[(u32, impl AsFd)]) -> Result<Attached, EngineError> {
    let failed = |source| EngineError::Interface { interface: interface.to_owned(), source };
    let queues = sockets.iter().map(|(queue, _)| queue + 1).max().unwrap_or(1);
    let map = redirect::map(BPF_MAP_TYPE_XSKMAP, c"weir_sockets", queues).map_err(failed)?;
    for (queue, socket) in sockets {
        redirect::set(&map, *queue, socket.as_fd().as_raw_fd() as u32).map_err(failed)?;
    }
    let program = redirect::program(c"weir_afxdp", &map, Key::Queue).map_err(failed)?;
    Attached::attach(interface, index, program)
}
