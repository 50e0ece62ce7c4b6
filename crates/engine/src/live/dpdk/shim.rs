//! Bindings to the C code around DPDK (datapath/dpdk).

use std::ffi::{CStr, c_char, c_int};

use weir_abi::dpdk::{Facts, FlowHits, Lost, opening};
use weir_abi::{BURST_MAX, Frame, WINDOW_BYTES};

/// A packet's buffer: `struct rte_mbuf`, an opaque type.
#[repr(C)]
pub(super) struct Mbuf {
    _opaque: [u8; 0],
}

/// Memory for the windows of a burst with packets in several pieces.
pub(super) fn windows() -> Box<[[u8; WINDOW_BYTES]]> {
    vec![[0; WINDOW_BYTES]; BURST_MAX].into_boxed_slice()
}

/// A memory pool for packets: `struct rte_mempool`.
#[repr(C)]
pub(super) struct Mempool {
    _opaque: [u8; 0],
}

/// A flow: `struct rte_flow`.
#[repr(C)]
pub(super) struct Flow {
    _opaque: [u8; 0],
}

/// What failed where a port got no further.
pub(super) fn step(opening: i32) -> &'static str {
    match opening {
        opening::NOT_CONFIGURED => "cannot be configured",
        opening::NO_RX_QUEUE => "no receive queue",
        opening::NO_TX_QUEUE => "no transmit queue",
        opening::NOT_STARTED => "cannot be started",
        _ => "cannot receive what is not addressed to it",
    }
}

unsafe extern "C" {
    pub(super) fn dpdk_start(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(super) fn dpdk_start_quietly(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub(super) fn dpdk_kept_log(to: *mut u8, size: usize) -> usize;
    pub(super) fn dpdk_enter() -> c_int;
    pub(super) fn dpdk_leave();
    fn dpdk_error(error: c_int) -> *const c_char;

    pub(super) fn dpdk_find(name: *const c_char) -> c_int;
    pub(super) fn dpdk_names(to: *mut u8, size: usize) -> usize;
    pub(super) fn dpdk_facts(port: u16, facts: *mut Facts) -> c_int;
    pub(super) fn dpdk_pool(name: *const c_char, packets: u32, room: u16, node: i32, error: *mut c_int)
    -> *mut Mempool;
    pub(super) fn dpdk_free_pool(pool: *mut Mempool);
    pub(super) fn dpdk_prepare(port: u16, queues: u16, pools: *const *mut Mempool, error: *mut c_int) -> c_int;
    pub(super) fn dpdk_open(port: u16, error: *mut c_int) -> c_int;
    pub(super) fn dpdk_close(port: u16);
    pub(super) fn dpdk_is_up(port: u16) -> c_int;
    pub(super) fn dpdk_lost(port: u16, lost: *mut Lost);

    pub(super) fn dpdk_flow_check(port: u16, address: *const u8, bytes: usize, words: *mut u8, size: usize) -> c_int;
    pub(super) fn dpdk_flow_add(
        port: u16,
        address: *const u8,
        bytes: usize,
        number: *mut c_int,
        words: *mut u8,
        size: usize,
    ) -> *mut Flow;
    pub(super) fn dpdk_flow_delete(port: u16, flow: *mut Flow, words: *mut u8, size: usize) -> c_int;
    pub(super) fn dpdk_flow_read(port: u16, flow: *mut Flow, hits: *mut FlowHits, words: *mut u8, size: usize)
    -> c_int;

    pub(super) fn dpdk_receive(
        port: u16,
        queue: u16,
        packets: *mut *mut Mbuf,
        frames: *mut Frame,
        windows: *mut [u8; WINDOW_BYTES],
    ) -> u32;
    pub(super) fn dpdk_send(port: u16, queue: u16, packets: *mut *mut Mbuf, count: u32) -> u32;
    pub(super) fn dpdk_send_again(port: u16, queue: u16, packets: *mut *mut Mbuf, count: u32) -> u32;
    pub(super) fn dpdk_discard(port: u16, queue: u16, most: u32) -> u32;
    pub(super) fn dpdk_free(packets: *mut *mut Mbuf, count: u32);
    pub(super) fn dpdk_copy(packet: *mut Mbuf, pool: *mut Mempool) -> *mut Mbuf;
    pub(super) fn dpdk_rewrite(packet: *mut Mbuf, length: u32, at: u32, from: *const u8, bytes: u32) -> bool;
    pub(super) fn dpdk_cut(packets: *mut *mut Mbuf, frames: *const Frame, count: u32);
    pub(super) fn dpdk_make(pool: *mut Mempool, frames: *const Frame, packets: *mut *mut Mbuf, count: u32) -> u32;
}

/// The text of a DPDK error number.
pub(super) fn error_text(error: c_int) -> String {
    // SAFETY: rte_strerror returns a string of the calling thread, valid until the next call.
    unsafe { CStr::from_ptr(dpdk_error(error)) }.to_string_lossy().into_owned()
}
