//! The queues of interfaces.

use std::sync::Arc;

use crate::EngineError;
use crate::live::lane::LINK_BYTES;
use crate::live::os::device::Device;

/// A queue of an interface.
#[derive(Clone)]
pub(super) struct DeviceQueue {
    pub device: Arc<Device>,
    /// Number of the interface on its side.
    pub interface: usize,
    pub queue: u32,
}

/// Size of the longest packet that an interface sends.
pub(super) fn longest_packet(device: &Device) -> Result<u32, EngineError> {
    Ok(device.mtu()?.saturating_add(LINK_BYTES))
}
