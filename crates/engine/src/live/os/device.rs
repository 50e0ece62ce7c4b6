//! The kernel's view of an interface (netdevice(7), linux/ethtool.h).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send, socket_with};

use crate::EngineError;

/// The error of an interface that no longer exists.
const REMOVED: &str = "it was removed";
/// Maximum time in which the kernel finds an interface by neither its old nor its new name, and a pause meanwhile.
const RENAMING_MAX: Duration = Duration::from_millis(100);
const RENAMING_PAUSE: Duration = Duration::from_millis(1);

/// `ETHTOOL_GCHANNELS`
const GET_CHANNELS: u32 = 0x3c;

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// More than the kernel's answers: an error, the message that it refers to, and a few words.
const ANSWER_BYTES_MAX: usize = 1024;

/// `ETHTOOL_GDRVINFO`
const GET_DRIVER: u32 = 0x3;

/// Drivers of cards that a hypervisor emulates. Packets of other guests on the same machine may never have been on a
/// wire.
const EMULATED: [&str; 4] = ["virtio_net", "vif", "vmxnet3", "hv_netvsc"];

/// `ETHTOOL_GLINK`
const GET_LINK: u32 = 0xa;

/// `ETHTOOL_GFLAGS`, and the flag of cards that strip VLAN tags on reception.
const GET_FLAGS: u32 = 0x25;
const FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
}

/// `struct ethtool_drvinfo`
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rest: [u32; 16],
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

/// The driver of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Driver {
    /// Its name; empty if the kernel does not report it.
    pub name: String,
    /// Bus address of the card; empty if there is none.
    bus: String,
}

impl Driver {
    /// Whether packets may come from a sender on this machine without having been on a wire.
    pub fn is_virtual(&self) -> bool {
        self.bus.is_empty() || EMULATED.contains(&self.name.as_str())
    }
}

/// `struct ethtool_channels`
#[derive(Default)]
#[repr(C)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// An interface of the network namespace.
pub(crate) struct Device {
    name: String,
    index: u32,
    /// The socket for ioctl calls.
    socket: OwnedFd,
}

impl Device {
    /// Opens the interface of that name.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn open(name: &str) -> Result<Self, EngineError> {
        let failed = |errno: Errno| EngineError::Interface { interface: name.to_owned(), source: errno.into() };
        let socket = any_socket().map_err(failed)?;
        let index = netdevice::name_to_index(&socket, name).map_err(failed)?;
        Ok(Device { name: name.to_owned(), index, socket })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// An error that names the interface.
    pub fn failed(&self, source: impl Into<io::Error>) -> EngineError {
        let source = source.into();
        // Any call may be the first to fail.
        let source = if source.raw_os_error() == Some(libc::ENODEV) { io::Error::other(REMOVED) } else { source };
        EngineError::Interface { interface: self.name.clone(), source }
    }

    /// Checks that the interface exists.
    ///
    /// # Errors
    /// It was removed.
    pub fn check(&self) -> Result<(), EngineError> {
        self.present_flags().map(|_| ())
    }

    /// Its flags.
    ///
    /// # Errors
    /// It was removed.
    pub fn present_flags(&self) -> Result<i32, EngineError> {
        self.flags().map_err(|_| self.failed(io::Error::other(REMOVED)))
    }

    /// Its flags, as in netdevice(7).
    pub fn flags(&self) -> io::Result<i32> {
        let mut request = self.request()?;
        self.ask(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: SIOCGIFFLAGS fills this field.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Sets the flags in `mask` and leaves all others, so that concurrent changes of other flags are kept. An empty
    /// mask only checks the right to set flags.
    pub fn set_flags(&self, flags: i32, mask: i32) -> io::Result<()> {
        let route = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        send(&route, &set_link(self.index, flags, mask), SendFlags::empty())?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let (bytes, _) = recv(&route, &mut answer, RecvFlags::empty())?;
        match answer[..bytes].get(HEADER_BYTES..HEADER_BYTES + size_of::<i32>()) {
            Some(&[a, b, c, d]) => match i32::from_ne_bytes([a, b, c, d]) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            },
            _ => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
        }
    }

    /// The driver's report of the link state. Some drivers do not answer.
    pub fn carrier(&self) -> io::Result<bool> {
        self.value(GET_LINK).map(|link| link != 0)
    }

    /// Maximum number of bytes after the link header.
    ///
    /// # Errors
    /// It was removed.
    pub fn mtu(&self) -> Result<u32, EngineError> {
        let mut request = self.request().map_err(|error| self.failed(error))?;
        self.ask(libc::SIOCGIFMTU as _, &mut request).map_err(|error| self.failed(error))?;
        // SAFETY: SIOCGIFMTU fills this field.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// Whether its packets begin with an Ethernet header, and it is not the loopback.
    ///
    /// # Errors
    /// It was removed.
    pub fn is_ethernet(&self) -> Result<bool, EngineError> {
        let mut request = self.request().map_err(|error| self.failed(error))?;
        self.ask(libc::SIOCGIFHWADDR as _, &mut request).map_err(|error| self.failed(error))?;
        // SAFETY: SIOCGIFHWADDR fills this field.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family == libc::ARPHRD_ETHER)
    }

    /// Number of receive queues. Drivers that do not support the request have one.
    pub fn queues(&self) -> u32 {
        let mut channels = Channels { cmd: GET_CHANNELS, ..Channels::default() };
        // SAFETY: the structure is the one of this request.
        let queues = if unsafe { self.ask_ethtool(&mut channels) }.is_ok() {
            channels.combined_count + channels.rx_count
        } else {
            1
        };
        queues.max(1)
    }

    /// Its driver.
    pub fn driver(&self) -> Driver {
        let (text, rest) = ([0; 32], [0; 16]);
        let mut info = DriverInfo { cmd: GET_DRIVER, driver: text, version: text, firmware: text, bus: text, rest };
        // SAFETY: the structure is the one of this request.
        match unsafe { self.ask_ethtool(&mut info) } {
            Ok(()) => Driver { name: text_of(&info.driver), bus: text_of(&info.bus) },
            Err(_) => Driver::default(),
        }
    }

    /// Whether the card strips VLAN tags from packets. XDP programs do not see them then.
    pub fn takes_tags_off(&self) -> bool {
        self.value(GET_FLAGS).is_ok_and(|flags| flags & FLAG_RXVLAN != 0)
    }

    /// The driver's answer to a request for one word.
    fn value(&self, cmd: u32) -> io::Result<u32> {
        let mut value = Value { cmd, data: 0 };
        // SAFETY: this is the structure of requests for one word.
        unsafe { self.ask_ethtool(&mut value)? };
        Ok(value.data)
    }

    /// Sends an ethtool request to the driver.
    ///
    /// # Safety
    /// `question` is a structure of linux/ethtool.h that starts with the command word and has room for the whole
    /// answer.
    pub(in crate::live) unsafe fn ask_ethtool<T>(&self, question: &mut T) -> io::Result<()> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_data = (&raw mut *question).cast();
        self.ask(libc::SIOCETHTOOL as _, &mut request)
    }

    /// An ioctl request for the interface, with its current name.
    fn request(&self) -> io::Result<libc::ifreq> {
        let name = netdevice::index_to_name_inlined(&self.socket, self.index)?;
        // SAFETY: zeros are a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = *from as _;
        }
        Ok(request)
    }

    /// Calls ioctl with a request for the interface. If the interface was renamed after [`Device::request`], the kernel
    /// reports that it does not exist. The call is then repeated with the new name. While the kernel renames an
    /// interface, it has the new name already, but is found by neither.
    fn ask(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        let start = Instant::now();
        loop {
            // SAFETY: the name ends with a zero, because names of the kernel are one byte shorter than the field. If
            // `what` has a pointer in the request, it points to what the kernel fills.
            if unsafe { libc::ioctl(self.socket.as_fd().as_raw_fd(), what, &raw mut *request) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() != Some(libc::ENODEV) {
                return Err(error);
            }
            let name = self.request()?.ifr_name;
            if name == request.ifr_name {
                if start.elapsed() > RENAMING_MAX {
                    return Err(error);
                }
                thread::sleep(RENAMING_PAUSE);
            }
            request.ifr_name = name;
        }
    }
}

/// The text of a zero-terminated field.
fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// An rtnetlink(7) message that sets some flags of an interface. The kernel answers with an error number, 0 for
/// success.
///
/// ```text
/// struct nlmsghdr   u32 length | u16 type | u16 flags | u32 sequence | u32 port
/// struct ifinfomsg  u8 family | u8 - | u16 type | i32 index | u32 flags | u32 mask
/// ```
fn set_link(index: u32, flags: i32, mask: i32) -> [u8; HEADER_BYTES + 16] {
    const KIND_AND_FLAGS: u32 =
        u32::from_ne_bytes(pair(libc::RTM_NEWLINK, (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16));
    let mut message = [0; HEADER_BYTES + 16];
    let words = [message.len() as u32, KIND_AND_FLAGS, 1, 0, 0, index, (flags & mask) as u32, mask as u32];
    for (to, word) in message.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    message
}

/// Offset of `rx_missed_errors` in the answer to [`get_statistics`]: the 16th word of `struct rtnl_link_stats64`, after
/// the headers of message, statistics and attribute.
const MISSED_AT: usize = HEADER_BYTES + 12 + 4 + 15 * size_of::<u64>();

/// An rtnetlink(7) message that requests the statistics of an interface.
///
/// ```text
/// struct nlmsghdr      u32 length | u16 type | u16 flags | u32 sequence | u32 port
/// struct if_stats_msg  u8 family | u8 - | u16 - | u32 index | u32 which
/// ```
fn get_statistics(index: u32) -> [u8; HEADER_BYTES + 12] {
    /// `RTM_GETSTATS` and `IFLA_STATS_LINK_64` (linux/rtnetlink.h, linux/if_link.h).
    const GET_STATISTICS: u16 = 94;
    const LINK_64: u32 = 1;
    const KIND_AND_FLAGS: u32 = u32::from_ne_bytes(pair(GET_STATISTICS, libc::NLM_F_REQUEST as u16));
    let mut message = [0; HEADER_BYTES + 12];
    let words = [message.len() as u32, KIND_AND_FLAGS, 1, 0, 0, index, LINK_64];
    for (to, word) in message.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    message
}

/// Two half words in memory order.
const fn pair(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d]
}

/// A socket that child processes do not inherit.
fn any_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// Repeated queries about the interfaces of a network namespace.
#[derive(Debug)]
pub(crate) struct Presence {
    socket: OwnedFd,
}

impl Presence {
    /// Queries about the namespace of this thread.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn open() -> io::Result<Self> {
        Ok(Presence { socket: any_socket()? })
    }

    /// Whether an interface with that index exists.
    pub fn has(&self, index: u32) -> bool {
        netdevice::index_to_name_inlined(&self.socket, index).is_ok()
    }

    /// The current name of the interface with that index.
    pub fn name(&self, index: u32) -> Option<String> {
        let name = netdevice::index_to_name_inlined(&self.socket, index).ok()?;
        Some(name.as_str().to_owned())
    }

    /// The current names of interfaces, for one consistent pass over all of them.
    pub fn names(&self) -> Names<'_> {
        Names { presence: self, known: Vec::new() }
    }

    /// Number of packets that the card had no room for since it exists, by its driver (`rx_missed_errors`).
    pub fn missed(&self, index: u32) -> io::Result<u64> {
        let route = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        send(&route, &get_statistics(index), SendFlags::empty())?;
        let mut answer = [0; ANSWER_BYTES_MAX];
        let (bytes, _) = recv(&route, &mut answer, RecvFlags::empty())?;
        let word = answer[..bytes].get(MISSED_AT..MISSED_AT + size_of::<u64>());
        let word = word.and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes);
        word.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))
    }
}

/// Names of interfaces, each looked up once. An interface that is renamed meanwhile keeps one name.
pub(crate) struct Names<'a> {
    presence: &'a Presence,
    known: Vec<(u32, String)>,
}

impl Names<'_> {
    /// The name of the interface with that index; `before` if it was removed.
    pub fn of(&mut self, index: u32, before: &str) -> String {
        if let Some((_, name)) = self.known.iter().find(|(known, _)| index != 0 && *known == index) {
            return name.clone();
        }
        let name = self.presence.name(index).unwrap_or_else(|| before.to_owned());
        self.known.push((index, name.clone()));
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_a_loopback() {
        let device = Device::open("lo").expect("there is one");
        assert_eq!((device.name(), device.queues(), device.takes_tags_off()), ("lo", 1, false));
        assert!(device.index() > 0 && device.mtu().expect("it is there") >= 576);
        assert!(Device::open("none").is_err());
        let presence = Presence::open().expect("a socket");
        assert!(presence.has(device.index()) && !presence.has(i32::MAX as u32));
        let mut names = presence.names();
        assert_eq!([names.of(device.index(), "old"), names.of(0, "net_ring0")], ["lo", "net_ring0"]);
        assert_eq!(presence.name(device.index()).as_deref(), Some("lo"));
        assert_eq!((presence.missed(device.index()).ok(), presence.missed(i32::MAX as u32).is_err()), (Some(0), true));
        assert!(device.driver().is_virtual());
        let gone = Device { name: "gone".to_owned(), index: i32::MAX as u32, socket: device.socket };
        let error = gone.check().expect_err("there is none").to_string();
        assert_eq!(error, "interface gone: it was removed");
    }
}
