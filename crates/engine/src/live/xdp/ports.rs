//! The interfaces of programs, in the form of datapath/kernel/ports.h. They are numbered: lower ones first, then upper,
//! then divert. On a host that Weir protects, each interface is a lower port, and the upper port opposite is the host
//! (datapath/kernel/host.h).

use std::fs;
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use weir_abi::kernel::{self, PORT_INDICES, PORT_QUEUES, PORTS_MAX, PortCounters};

use crate::EngineError;
use crate::live::lane::{Interfaces, PortReading, Role, facing_interface};
use crate::live::os::bond;
use crate::live::os::device::{Device, Driver, Presence};
use crate::live::programs::attach::Egress;
use crate::live::samples::ring::SampleRing;
use crate::live::tap::Taps;

/// Maximum MTU at which packets come in one buffer with every driver.
const PLAIN_MTU: u32 = 1500;

/// Bytes of a packet that fit a buffer of a page with every driver, behind 256 bytes for programs and before 320 for
/// the kernel.
pub(super) const ONE_BUFFER_BYTES: u32 = 4096 - 256 - 320;

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
    use_of: PortUse,
    /// The ring to which samples go, instead of the divert interface.
    samples: Option<Arc<SampleRing>>,
    /// Where copies of packets go, if taps may be opened.
    taps: Option<Arc<Taps>>,
}

/// What the upper ports are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortUse {
    /// Interfaces, as the lower ones are.
    Between,
    /// The host that has the lower ports.
    Host,
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
        let mut ports = Ports {
            list,
            lower,
            upper,
            namespace,
            presence,
            jumbo: false,
            use_of: PortUse::Between,
            samples: None,
            taps: None,
        };
        let roles = [(&interfaces.lower[..], Role::Lower), (&interfaces.upper, Role::Upper)];
        let divert = (interfaces.divert.as_slice(), Role::Divert);
        for (names, role) in roles.into_iter().chain([divert]) {
            for name in names {
                ports.add(Device::open(name)?, role)?;
            }
        }
        Ok(ports)
    }

    /// Looks up the interfaces of the host that Weir protects.
    ///
    /// # Errors
    /// There is no such interface, or there are too many, or one is the loopback or has no Ethernet.
    pub fn of_host(interfaces: &[String]) -> Result<Self, EngineError> {
        let names = Interfaces { lower: interfaces.to_vec(), ..Interfaces::default() };
        let mut ports = Ports { upper: interfaces.len(), use_of: PortUse::Host, ..Ports::of(&names)? };
        for interface in interfaces {
            let device = Device::open(interface)?;
            if !device.is_ethernet()? {
                let problem = "--host needs an interface with Ethernet, not the loopback or a tunnel of IP packets";
                return Err(device.failed(io::Error::other(problem)));
            }
        }
        if 2 * ports.lower > PORTS_MAX {
            let problem = format!("more than {} interfaces of a host", PORTS_MAX / 2);
            return Err(EngineError::Interface { interface: interfaces.join(","), source: io::Error::other(problem) });
        }
        // Nothing is compiled for a kernel that cannot run it.
        ports.list.iter().take(1).try_for_each(|port| Egress::check(&port.interface, port.index))?;
        let host = ports.list.iter().map(|port| Port { role: Role::Upper, missed: None, ..port.clone() });
        let host: Vec<Port> = host.collect();
        ports.list.extend(host);
        Ok(ports)
    }

    /// These ports, with samples that go to a ring.
    #[must_use]
    pub fn with_samples(self, samples: Option<Arc<SampleRing>>) -> Self {
        Ports { samples, ..self }
    }

    /// These ports, with taps of programs in the kernel.
    #[must_use]
    pub fn with_taps(self, taps: Arc<Taps>) -> Self {
        Ports { taps: Some(taps), ..self }
    }

    /// These ports, whose drivers had counted so many packets without room when the program before this one in its
    /// process was read last.
    #[must_use]
    pub fn counting_from(mut self, missed: &[Option<u64>]) -> Self {
        for (port, &missed) in self.list.iter_mut().zip(missed).filter(|(port, _)| port.missed.is_some()) {
            port.missed = missed.or(port.missed);
        }
        self
    }

    /// What the drivers have counted of packets without room, in the order of the ports.
    pub(super) fn missed(&self) -> Vec<Option<u64>> {
        let now = |port: &Port| port.missed.and_then(|_| self.presence.missed(port.index).ok());
        self.list.iter().map(now).collect()
    }

    /// The taps, if any may be opened.
    pub(super) fn taps(&self) -> Option<&Taps> {
        self.taps.as_deref()
    }

    /// The ring to which samples go, instead of the divert interface.
    pub(super) fn samples(&self) -> Option<&SampleRing> {
        self.samples.as_deref()
    }

    /// Whether the upper ports are the host itself.
    pub fn is_host(&self) -> bool {
        self.use_of == PortUse::Host
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
        if let Some(like) =
            self.list.iter().find(|port| port.index as usize % PORT_INDICES == index as usize % PORT_INDICES)
        {
            let problem =
                format!("its index {index} is that of {} plus or minus a multiple of {PORT_INDICES}", like.interface);
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

    /// [`kernel::Ports`] as bytes. Its arrays are too large for the stack.
    pub(super) fn bytes(&self) -> Vec<u8> {
        use kernel::{Port, Ports};
        let mut bytes = vec![0; size_of::<Ports>()];
        let word = |bytes: &mut [u8], at: usize, word: u32| bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        for (number, port) in self.list.iter().enumerate() {
            // The host has the index of its interface.
            if !(self.is_host() && port.role == Role::Upper) {
                bytes[offset_of!(Ports, number) + port.index as usize % PORT_INDICES] = number as u8;
            }
            word(&mut bytes, offset_of!(Ports, index) + number * size_of::<u32>(), port.index);
            let at = port_at(number);
            bytes[at + offset_of!(Port, side)] = port.role as u8;
            bytes[at + offset_of!(Port, unfinished)] = port.driver.is_virtual().into();
            if number < self.receiving().len() {
                word(&mut bytes, at + offset_of!(Port, receives), port.index);
                for queue in 0..PORT_QUEUES {
                    bytes[at + offset_of!(Port, out) + queue] = self.opposite(number, queue) as u8;
                }
            }
        }
        word(&mut bytes, offset_of!(Ports, divert), self.divert().unwrap_or(PORTS_MAX) as u32);
        word(&mut bytes, offset_of!(Ports, namespace), self.namespace);
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

/// Offset of a port in [`kernel::Ports`].
fn port_at(number: usize) -> usize {
    offset_of!(kernel::Ports, port) + number * size_of::<kernel::Port>()
}

/// Combines the counters of programs that send with the counters of programs that trace losses (`lost`). The lengths of
/// lost packets are unknown and are estimated by the mean.
pub(super) fn reading(sent: PortCounters, lost: PortCounters) -> PortReading {
    let PortCounters { tx_full, tx_unsupported, .. } = lost;
    let not_sent = tx_full + lost.tx_link_down + lost.tx_too_long + tx_unsupported;
    let tx_packets = sent.tx_packets.saturating_sub(not_sent);
    let tx_bytes = u128::from(sent.tx_bytes) * u128::from(tx_packets) / u128::from(sent.tx_packets.max(1));
    PortReading {
        rx_packets: sent.rx_packets,
        rx_bytes: sent.rx_bytes,
        tx_packets,
        tx_bytes: tx_bytes as u64,
        rx_missed: 0,
        rx_too_long: 0,
        tx_full,
        tx_link_down: sent.tx_link_down + lost.tx_link_down,
        tx_too_long: sent.tx_too_long + lost.tx_too_long,
        tx_unsupported,
        tx_error: 0,
        no_divert: sent.no_divert,
        sampled: sent.sampled,
    }
}

/// Combines two sets of counters word by word.
pub(super) fn joined(one: PortCounters, other: PortCounters, both: impl Fn(u64, u64) -> u64) -> PortCounters {
    let (one, other) = (one.words(), other.words());
    PortCounters::from_words(std::array::from_fn(|word| both(one[word], other[word])))
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
        let use_of = PortUse::Between;
        Ports {
            list: list.collect(),
            lower,
            upper,
            namespace: 7,
            presence,
            jumbo: false,
            use_of,
            samples: None,
            taps: None,
        }
    }

    #[test]
    fn an_interface_of_a_host_is_the_wire_and_the_host_is_opposite() {
        use kernel::Port;
        let mut host = ports(2, 2);
        host.use_of = PortUse::Host;
        (host.list[2].index, host.list[3].index) = (10, 11);
        let bytes = host.bytes();
        assert_eq!((bytes[10], bytes[11]), (0, 1));
        let out = offset_of!(Port, out);
        assert_eq!([0, 1, 2, 3].map(|port| bytes[port_at(port) + out]), [2, 3, 0, 1]);
        assert_eq!([0, 1, 2, 3].map(|port| bytes[port_at(port) + out + 9]), [2, 3, 0, 1]);
    }

    #[test]
    fn what_was_lost_was_not_sent() {
        let sent = PortCounters { tx_packets: 10, tx_bytes: 1000, tx_link_down: 1, ..PortCounters::default() };
        let lost =
            PortCounters { tx_full: 2, tx_link_down: 2, tx_too_long: 1, tx_unsupported: 1, ..PortCounters::default() };
        let reading = reading(sent, lost);
        assert_eq!((reading.tx_packets, reading.tx_bytes, reading.tx_unsupported), (4, 400, 1));
        assert_eq!((reading.tx_full, reading.tx_link_down, reading.tx_too_long), (2, 3, 1));
    }

    #[test]
    fn programs_read_what_was_written() {
        use kernel::{Port, Ports};
        let bytes = ports(2, 1).bytes();
        assert_eq!(bytes.len(), 12_552);
        assert_eq!((bytes[10], bytes[11], bytes[12]), (0, 1, 2));
        assert_eq!(bytes[4096 + 4..4096 + 8], 11u32.to_ne_bytes());
        assert_eq!(bytes[port_at(1) + 4..port_at(1) + 8], 11u32.to_ne_bytes());
        // Both lower ports send to the upper one. Its queues alternate between the lower ports.
        let out = offset_of!(Port, out);
        assert_eq!((bytes[port_at(0)], bytes[port_at(0) + out], bytes[port_at(1) + out + 5]), (0, 2, 2));
        let upper = port_at(2);
        assert_eq!(bytes[upper + offset_of!(Port, unfinished)], 1, "it is no card");
        assert_eq!((bytes[upper], &bytes[upper + out..upper + out + 4]), (1, &[0, 1, 0, 1][..]));
        assert_eq!(bytes[offset_of!(Ports, divert)..][..4], 64u32.to_ne_bytes());
        assert_eq!(bytes[offset_of!(Ports, namespace)..], 7u32.to_ne_bytes());
    }
}
