//! Bindings to the C code around DPDK (datapath/engine/dpdk).

use std::ffi::{CStr, c_char, c_int};

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

/// Properties of a port: `struct dpdk_facts`.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(super) struct Facts {
    driver: [u8; 32],
    /// Maximum number of receive queues.
    pub rx_queues: u16,
    /// Maximum number of transmit queues.
    pub tx_queues: u16,
    /// Capacity of a receive queue in packets.
    pub rx_packets: u16,
    /// Capacity of a transmit queue in packets.
    pub tx_packets: u16,
    /// Preferred NUMA node of its memory; -1 for any.
    pub node: i32,
    /// Index of the kernel's interface behind it; 0 if there is none.
    pub interface: u32,
}

const _: () = assert!(size_of::<Facts>() == 48);

impl Facts {
    /// The driver's name.
    pub fn driver(&self) -> String {
        CStr::from_bytes_until_nul(&self.driver).map(CStr::to_string_lossy).unwrap_or_default().into_owned()
    }
}

/// Lost packets of a port: `struct dpdk_lost`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Lost {
    /// Packets that arrived and found no room.
    pub missed: u64,
    /// Packets that the driver took but could not send.
    pub unsent: u64,
}

/// Progress of opening a port: `enum dpdk_opening`.
pub(super) mod opening {
    /// All requested steps were done.
    pub const DONE: i32 = 0;
    /// No receive queue could be set up.
    pub const NO_RX_QUEUE: i32 = 2;

    /// The name of the step that failed.
    pub fn step(opening: i32) -> &'static str {
        match opening {
            1 => "cannot be configured",
            NO_RX_QUEUE => "no receive queue",
            3 => "no transmit queue",
            4 => "cannot be started",
            _ => "cannot receive what is not addressed to it",
        }
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

    pub(super) fn dpdk_receive(
        port: u16,
        queue: u16,
        packets: *mut *mut Mbuf,
        frames: *mut Frame,
        windows: *mut [u8; WINDOW_BYTES],
    ) -> u32;
    pub(super) fn dpdk_send(port: u16, queue: u16, packets: *mut *mut Mbuf, count: u32) -> u32;
    pub(super) fn dpdk_send_again(port: u16, queue: u16, packets: *mut *mut Mbuf, count: u32) -> u32;
    pub(super) fn dpdk_free(packets: *mut *mut Mbuf, count: u32);
    pub(super) fn dpdk_copy(packet: *mut Mbuf, pool: *mut Mempool) -> *mut Mbuf;
    pub(super) fn dpdk_make(pool: *mut Mempool, frames: *const Frame, packets: *mut *mut Mbuf, count: u32) -> u32;
}

/// The text of a DPDK error number.
pub(super) fn error_text(error: c_int) -> String {
    // SAFETY: rte_strerror returns a string of the calling thread, valid until the next call.
    unsafe { CStr::from_ptr(dpdk_error(error)) }.to_string_lossy().into_owned()
}
