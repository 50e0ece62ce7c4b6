//! The interfaces of programs, in the layout that the programs read: datapath/engine/ports.h.
//!
//! ```text
//! struct ports     0        number[4096]    u8    port, by the low 12 bits of the interface's index
//!               4096        index[64]       u32   interface index, by port
//!               4352        port[64]        128   side (0 lower, 1 upper), unfinished (0 or 1), 2 zeros, index of the interface if packets are
//!                                                 received there, 56 zeros, out[64]: port opposite by receive queue
//!              12544        divert          u32   port that diverted packets go out of; 64 if none
//!              12548        namespace       u32   inode of the network namespace
//! ```
//! Ports are numbered in the order lower, upper, divert.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::EngineError;
use crate::live::bond;
use crate::live::device::{Device, Driver, Presence};
use crate::live::lane::{Interfaces, PortReading, Role, facing_interface};

/// Maximum number of interfaces: `PORTS_MAX`.
pub(super) const PORTS_MAX: usize = 64;
/// `PORT_INDICES`
const INDICES: usize = 4096;
/// `PORT_QUEUES`
const QUEUES: usize = 64;
const INDEX_AT: usize = INDICES;
const PORT_AT: usize = INDEX_AT + PORTS_MAX * size_of::<u32>();
const PORT_BYTES: usize = 128;
const UNFINISHED_AT: usize = 1;
const RECEIVES_AT: usize = 4;
const OUT_AT: usize = 64;
const DIVERT_AT: usize = PORT_AT + PORTS_MAX * PORT_BYTES;
const NAMESPACE_AT: usize = DIVERT_AT + size_of::<u32>();
/// Size of `struct ports`.
pub(super) const PORTS_BYTES: usize = NAMESPACE_AT + size_of::<u32>();

/// Up to this MTU, every driver delivers packets in one buffer.
const PLAIN_MTU: u32 = 1500;

/// An interface.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub interface: String,
    pub index: u32,
    pub role: Role,
    /// Whether its card strips VLAN tags.
    pub takes_tags_off: bool,
    pub driver: Driver,
    /// The driver's initial count of packets without room; `None` if it does not count them.
    pub missed: Option<u64>,
}

/// All interfaces, and which are opposite each other.
#[derive(Clone, Debug)]
pub struct Ports {
    list: Vec<Port>,
    lower: usize,
    upper: usize,
    namespace: u32,
    presence: Arc<Presence>,
    jumbo: bool,
}

impl Ports {
    /// Looks up the interfaces.
    ///
    /// # Errors
    /// There is no such interface, or there are too many.
    pub fn of(interfaces: &Interfaces) -> Result<Self, EngineError> {
        let (lower, upper) = (interfaces.lower.len(), interfaces.upper.len());
        let presence = Presence::open().map_err(|source| EngineError::Io { path: "a socket".into(), source })?;
        let (list, namespace, presence) = (Vec::new(), namespace()?, Arc::new(presence));
        let mut ports = Ports { list, lower, upper, namespace, presence, jumbo: false };
        let roles = [(&interfaces.lower[..], Role::Lower), (&interfaces.upper, Role::Upper)];
        let divert = (interfaces.divert.as_slice(), Role::Divert);
        for (names, role) in roles.into_iter().chain([divert]) {
            for name in names {
                ports.add(Device::open(name)?, role)?;
            }
        }
        Ok(ports)
    }

    fn add(&mut self, device: Device, role: Role) -> Result<(), EngineError> {
        if self.list.len() == PORTS_MAX {
            return Err(device.failed(io::Error::other(format!("more than {PORTS_MAX} interfaces"))));
        }
        // Sending out of a bond works.
        if role != Role::Divert {
            bond::refuse(&device)?;
        }
        let index = device.index();
        if let Some(like) = self.list.iter().find(|port| port.index as usize % INDICES == index as usize % INDICES) {
            let problem =
                format!("its index {index} is that of {} plus or minus a multiple of {INDICES}", like.interface);
            return Err(device.failed(io::Error::other(problem)));
        }
        self.jumbo |= device.mtu()? > PLAIN_MTU;
        let takes_tags_off = device.takes_tags_off();
        let driver = device.driver();
        // On a virtual link the peer counts packets without room.
        let missed = if driver.is_virtual() { None } else { self.presence.missed(index).ok() };
        self.list.push(Port { interface: device.name().to_owned(), index, role, takes_tags_off, driver, missed });
        Ok(())
    }

    /// All ports by number.
    pub(super) fn all(&self) -> &[Port] {
        &self.list
    }

    /// The receiving ports.
    pub(super) fn receiving(&self) -> &[Port] {
        &self.list[..self.lower + self.upper]
    }

    /// Number of the divert port.
    pub(super) fn divert(&self) -> Option<usize> {
        let receiving = self.lower + self.upper;
        (receiving < self.list.len()).then_some(receiving)
    }

    /// Whether packets may be longer than their first buffer.
    pub(super) fn jumbo(&self) -> bool {
        self.jumbo
    }

    /// The output port for packets that arrived on port `number`, receive queue `queue`.
    fn opposite(&self, number: usize, queue: usize) -> usize {
        match number.checked_sub(self.lower) {
            None => self.lower + facing_interface(number, self.lower, queue, self.upper),
            Some(number) => facing_interface(number, self.upper, queue, self.lower),
        }
    }

    /// Encodes `struct ports`.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; PORTS_BYTES];
        let word = |bytes: &mut [u8], at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        for (number, port) in self.list.iter().enumerate() {
            bytes[port.index as usize % INDICES] = number as u8;
            word(&mut bytes, INDEX_AT + number * size_of::<u32>(), port.index);
            let at = PORT_AT + number * PORT_BYTES;
            bytes[at] = port.role as u8;
            bytes[at + UNFINISHED_AT] = port.driver.is_virtual().into();
            if number < self.receiving().len() {
                word(&mut bytes, at + RECEIVES_AT, port.index);
                for queue in 0..QUEUES {
                    bytes[at + OUT_AT + queue] = self.opposite(number, queue) as u8;
                }
            }
        }
        word(&mut bytes, DIVERT_AT, self.divert().unwrap_or(PORTS_MAX) as u32);
        word(&mut bytes, NAMESPACE_AT, self.namespace);
        bytes
    }

    /// The current name of a port's interface.
    pub(super) fn name(&self, port: &Port) -> String {
        self.presence.name(port.index).unwrap_or_else(|| port.interface.clone())
    }

    /// For queries about the interfaces.
    pub(super) fn presence(&self) -> &Presence {
        &self.presence
    }

    /// The first interface that was removed.
    pub(super) fn gone(&self) -> Option<&Port> {
        self.list.iter().find(|port| !self.presence.has(port.index))
    }
}

/// Inode of this thread's network namespace.
fn namespace() -> Result<u32, EngineError> {
    const PATH: &str = "/proc/thread-self/ns/net";
    let found = fs::metadata(PATH).map_err(|source| EngineError::Io { path: PATH.into(), source })?;
    Ok(found.ino() as u32)
}

/// Number of words in [`PortCounts`].
pub(super) const PORT_WORDS: usize = 16;

/// Counts of one CPU at one port, in the order of `struct port_counters`. Sent packets include those that were lost
/// later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PortCounts(pub [u64; PORT_WORDS]);

impl PortCounts {
    /// Combines the counts of sending programs (`self`) with those of the programs that count losses. The lengths of
    /// lost packets are unknown and taken to be the mean.
    pub fn reading(self, lost: PortCounts) -> PortReading {
        let [rx_packets, rx_bytes, handed_over, handed_over_bytes, _, gone, not_copied, no_divert, sampled, ..] =
            self.0;
        let [_, _, _, _, tx_full, link_down, too_long, _, _, tx_unsupported, ..] = lost.0;
        let tx_packets = handed_over.saturating_sub(tx_full + link_down + too_long + tx_unsupported);
        let tx_bytes = u128::from(handed_over_bytes) * u128::from(tx_packets) / u128::from(handed_over.max(1));
        PortReading {
            rx_packets,
            rx_bytes,
            tx_packets,
            tx_bytes: tx_bytes as u64,
            rx_missed: 0,
            tx_full,
            tx_link_down: gone + link_down,
            tx_too_long: not_copied + too_long,
            tx_unsupported,
            tx_error: 0,
            no_divert,
            sampled,
        }
    }

    /// Combines two values word by word.
    pub fn with(self, other: PortCounts, both: impl Fn(u64, u64) -> u64) -> PortCounts {
        PortCounts(std::array::from_fn(|word| both(self.0[word], other.0[word])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(lower: usize, upper: usize) -> Ports {
        let port = |index: usize, role| {
            let interface = format!("p{index}");
            let (index, driver) = (index as u32 + 10, Driver::default());
            Port { interface, index, role, takes_tags_off: false, driver, missed: None }
        };
        let list =
            (0..lower).map(|at| port(at, Role::Lower)).chain((lower..lower + upper).map(|at| port(at, Role::Upper)));
        let presence = Arc::new(Presence::open().expect("a socket"));
        Ports { list: list.collect(), lower, upper, namespace: 7, presence, jumbo: false }
    }

    #[test]
    fn what_was_lost_was_not_sent() {
        let mut counts = PortCounts::default();
        counts.0[2..4].copy_from_slice(&[10, 1000]);
        counts.0[5] = 1;
        let mut lost = PortCounts::default();
        lost.0[4..7].copy_from_slice(&[2, 2, 1]);
        lost.0[9] = 1;
        let reading = counts.reading(lost);
        assert_eq!((reading.tx_packets, reading.tx_bytes, reading.tx_unsupported), (4, 400, 1));
        assert_eq!((reading.tx_full, reading.tx_link_down, reading.tx_too_long), (2, 3, 1));
    }

    #[test]
    fn programs_read_what_was_written() {
        let bytes = ports(2, 1).bytes();
        assert_eq!(bytes.len(), 12_552);
        assert_eq!((bytes[10], bytes[11], bytes[12]), (0, 1, 2));
        assert_eq!(bytes[4096 + 4..4096 + 8], 11u32.to_ne_bytes());
        assert_eq!(bytes[PORT_AT + PORT_BYTES + 4..PORT_AT + PORT_BYTES + 8], 11u32.to_ne_bytes());
        // Both lower ports send to the upper one. The upper port's queues take turns on the lower ports.
        assert_eq!((bytes[PORT_AT], bytes[PORT_AT + OUT_AT], bytes[PORT_AT + PORT_BYTES + OUT_AT + 5]), (0, 2, 2));
        let upper = PORT_AT + 2 * PORT_BYTES;
        assert_eq!(bytes[upper + UNFINISHED_AT], 1, "it is no card");
        assert_eq!((bytes[upper], &bytes[upper + OUT_AT..upper + OUT_AT + 4]), (1, &[0, 1, 0, 1][..]));
        assert_eq!(bytes[DIVERT_AT..DIVERT_AT + 4], 64u32.to_ne_bytes());
        assert_eq!(bytes[NAMESPACE_AT..], 7u32.to_ne_bytes());
    }
}
