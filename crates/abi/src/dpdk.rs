//! What the C around DPDK (datapath/dpdk/shim.h) tells Rust.

use std::ffi::CStr;

/// Bytes of a driver's name, with the 0 at its end: `DPDK_DRIVER_BYTES`.
pub const DRIVER_BYTES: usize = 32;

/// What a port is: `struct dpdk_facts`.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Facts {
    /// The driver's name, which ends with 0.
    pub driver: [u8; DRIVER_BYTES],
    /// Receive queues that it can have.
    pub rx_queues: u16,
    /// Transmit queues that it can have.
    pub tx_queues: u16,
    /// Packets that a receive queue of ours holds.
    pub rx_packets: u16,
    /// Packets that a transmit queue of ours holds.
    pub tx_packets: u16,
    /// Where its memory should be; -1 if anywhere.
    pub node: i32,
    /// Number of the kernel's interface behind it; 0 if there is none.
    pub interface: u32,
    /// Its MTU; 0 if the driver does not know it.
    pub mtu: u16,
    /// Always 0.
    pub reserved: u16,
}

const _: () = assert!(size_of::<Facts>() == 52);

impl Facts {
    /// The driver's name as text.
    pub fn driver(&self) -> String {
        let name = CStr::from_bytes_until_nul(&self.driver);
        name.map(CStr::to_string_lossy).unwrap_or_default().into_owned()
    }
}

/// What a flow has dropped: `struct dpdk_flow_hits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FlowHits {
    /// Packets.
    pub packets: u64,
    /// Bytes of the packets.
    pub bytes: u64,
}

/// What a port lost: `struct dpdk_lost`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Lost {
    /// Packets that came and found no room.
    pub missed: u64,
    /// Packets that the driver took and could not send.
    pub unsent: u64,
}

/// How far a port got: `enum dpdk_opening`. C may return any number, so these are constants.
pub mod opening {
    /// As far as it was to get.
    pub const DONE: i32 = 0;
    /// The port cannot be configured.
    pub const NOT_CONFIGURED: i32 = 1;
    /// No receive queue could be set up.
    pub const NO_RX_QUEUE: i32 = 2;
    /// No transmit queue could be set up.
    pub const NO_TX_QUEUE: i32 = 3;
    /// The port cannot be started.
    pub const NOT_STARTED: i32 = 4;
    /// The port cannot receive what is not addressed to it.
    pub const NOT_PROMISCUOUS: i32 = 5;
}
