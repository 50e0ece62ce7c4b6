//! The speed of a link (linux/ethtool.h, `ETHTOOL_GSET`, which the kernel answers for every driver).

use crate::live::os::device::Device;

/// `ETHTOOL_GSET`
const GET_SETTINGS: u32 = 0x1;
/// `SPEED_UNKNOWN`, `DUPLEX_HALF` and `DUPLEX_FULL`
const UNKNOWN: u32 = u32::MAX;
const HALF: u8 = 0;
const FULL: u8 = 1;

/// `struct ethtool_cmd`
#[derive(Default)]
#[repr(C)]
struct Settings {
    cmd: u32,
    modes: [u32; 2],
    speed: u16,
    duplex: u8,
    rest: [u8; 5],
    packets: [u32; 2],
    speed_high: u16,
    more: [u8; 2],
    others: [u32; 3],
}

const _: () = assert!(size_of::<Settings>() == 44 && std::mem::offset_of!(Settings, speed_high) == 28);

/// The speed of a link, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkSpeed {
    /// Mbit/s.
    pub mbps: Option<u32>,
    /// Whether it sends and receives at the same time.
    pub is_full_duplex: Option<bool>,
}

impl LinkSpeed {
    /// The speed of an interface of the network namespace. Nothing is known without a link, and of most virtual ones.
    pub fn read(interface: &str) -> Self {
        let Ok(device) = Device::open(interface) else { return LinkSpeed::default() };
        let mut settings = Settings { cmd: GET_SETTINGS, ..Settings::default() };
        // SAFETY: the structure is `struct ethtool_cmd`, which the kernel answers completely.
        if unsafe { device.ask_ethtool(&mut settings) }.is_err() {
            return LinkSpeed::default();
        }
        let mbps = u32::from(settings.speed_high) << 16 | u32::from(settings.speed);
        let is_full_duplex = match settings.duplex {
            HALF => Some(false),
            FULL => Some(true),
            _ => None,
        };
        LinkSpeed { mbps: Some(mbps).filter(|&mbps| mbps != 0 && mbps != UNKNOWN), is_full_duplex }
    }
}
