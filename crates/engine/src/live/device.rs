//! What the kernel says of an interface (netdevice(7), linux/ethtool.h).

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netdevice, recv, send, socket_with};

use crate::EngineError;

/// `ETHTOOL_GCHANNELS`
const GET_CHANNELS: u32 = 0x3c;

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// More than the kernel answers with: an error, the message that it is about, and a few words.
const ANSWER_BYTES_MAX: usize = 1024;

/// `ETHTOOL_GLINK`
const GET_LINK: u32 = 0xa;

/// `ETHTOOL_GDRVINFO`
const GET_DRIVER: u32 = 0x3;

/// `struct ethtool_drvinfo`, of which only the driver's name is looked at.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const _: () = assert!(size_of::<DriverInfo>() == 196);

/// `ETHTOOL_GFLAGS`, and the flag of cards that take VLAN tags off what they receive.
const GET_FLAGS: u32 = 0x25;
const FLAG_RXVLAN: u32 = 1 << 8;

/// `struct ethtool_value`
#[repr(C)]
struct Value {
    cmd: u32,
    data: u32,
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

/// Whether packets can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// They can.
    Up,
    /// It was taken down, or there is nobody at the other end.
    Down,
}

/// How long a driver's word that its wire is in use is believed.
const CARRIER_AGE: Duration = Duration::from_millis(100);

/// Why an interface takes no packet. Its flags tell of a wire that went dead up to a second late (the kernel's link watch), its driver tells at
/// once, but only under the kernel's lock on all interfaces: it is asked about packets that were refused, and not about each of a full queue.
#[derive(Default)]
pub(crate) struct Refusals {
    in_use: Option<Instant>,
}

impl Refusals {
    /// What the interface is that refused a packet just now.
    ///
    /// # Errors
    /// It was removed.
    pub fn state(&mut self, device: &Device) -> Result<State, EngineError> {
        let by_flags = device.state()?;
        if by_flags == State::Down || self.in_use.is_some_and(|since| since.elapsed() < CARRIER_AGE) {
            return Ok(by_flags);
        }
        if device.carrier().is_ok_and(|carrier| !carrier) {
            return Ok(State::Down);
        }
        self.in_use = Some(Instant::now());
        Ok(State::Up)
    }
}

/// An interface of the namespace.
pub(crate) struct Device {
    name: String,
    index: u32,
    /// Any socket: what interfaces are asked through.
    asked: OwnedFd,
}

impl Device {
    /// The interface of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn open(name: &str) -> Result<Self, EngineError> {
        let failed = |errno: Errno| EngineError::Interface { interface: name.to_owned(), source: errno.into() };
        let asked = any_socket().map_err(failed)?;
        let index = netdevice::name_to_index(&asked, name).map_err(failed)?;
        Ok(Device { name: name.to_owned(), index, asked })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// What went wrong with it.
    pub fn failed(&self, source: impl Into<io::Error>) -> EngineError {
        EngineError::Interface { interface: self.name.clone(), source: source.into() }
    }

    /// Whether it is up, as its flags have it. [`Refusals`] knows earlier.
    ///
    /// # Errors
    /// It was removed.
    pub fn state(&self) -> Result<State, EngineError> {
        const UP: i32 = libc::IFF_UP | libc::IFF_RUNNING;
        let flags = self.flags().map_err(|_| self.failed(io::Error::other("it was removed")))?;
        Ok(if flags & UP == UP { State::Up } else { State::Down })
    }

    /// Its flags, as netdevice(7) has them.
    pub fn flags(&self) -> io::Result<i32> {
        let mut request = self.request()?;
        self.ask(libc::SIOCGIFFLAGS as _, &mut request)?;
        // SAFETY: SIOCGIFFLAGS fills this field.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Sets those of its flags that are in `mask`, and touches no other: whoever else changes some in this moment is not undone.
    /// With no mask, only the right to is asked for.
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

    /// What the driver says of its wire; not all can be asked.
    pub fn carrier(&self) -> io::Result<bool> {
        self.value(GET_LINK).map(|link| link != 0)
    }

    /// Bytes that follow the link header, at most.
    ///
    /// # Errors
    /// It was removed.
    pub fn mtu(&self) -> Result<u32, EngineError> {
        let mut request = self.request().map_err(|error| self.failed(error))?;
        self.ask(libc::SIOCGIFMTU as _, &mut request).map_err(|error| self.failed(error))?;
        // SAFETY: SIOCGIFMTU fills this field.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    /// Its receive queues. Drivers that do not know the question have one.
    pub fn queues(&self) -> u32 {
        let mut channels = Channels { cmd: GET_CHANNELS, ..Channels::default() };
        // SAFETY: the structure of this question.
        let queues = if unsafe { self.ask_ethtool(&mut channels) }.is_ok() {
            channels.combined_count + channels.rx_count
        } else {
            1
        };
        queues.max(1)
    }

    /// What its driver calls itself; not all can be asked.
    pub fn driver(&self) -> io::Result<String> {
        let mut info = DriverInfo { cmd: GET_DRIVER, driver: [0; 32], rest: [0; 160] };
        // SAFETY: the structure of this question.
        unsafe { self.ask_ethtool(&mut info)? };
        let name = info.driver.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }

    /// Whether it takes VLAN tags off packets, and notes them where XDP programs do not look.
    pub fn takes_tags_off(&self) -> bool {
        self.value(GET_FLAGS).is_ok_and(|flags| flags & FLAG_RXVLAN != 0)
    }

    /// The driver's answer to a question that has a word for an answer.
    fn value(&self, cmd: u32) -> io::Result<u32> {
        let mut value = Value { cmd, data: 0 };
        // SAFETY: the structure of questions that have a word for an answer.
        unsafe { self.ask_ethtool(&mut value)? };
        Ok(value.data)
    }

    /// Asks the driver.
    ///
    /// # Safety
    /// The question is a structure of linux/ethtool.h that begins with the word that says which, and has room for all that the answer fills.
    pub(super) unsafe fn ask_ethtool<T>(&self, question: &mut T) -> io::Result<()> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_data = (&raw mut *question).cast();
        self.ask(libc::SIOCETHTOOL as _, &mut request)
    }

    /// A request about the interface, under the name that it has now.
    fn request(&self) -> io::Result<libc::ifreq> {
        let name = netdevice::index_to_name_inlined(&self.asked, self.index)?;
        // SAFETY: zeros are a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = *from as _;
        }
        Ok(request)
    }

    fn ask(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
        // SAFETY: the name ends with a zero, since names of the kernel have one byte less than there is room; a pointer in the request, if
        // `what` has one, leads to what it fills.
        match unsafe { libc::ioctl(self.asked.as_fd().as_raw_fd(), what, &raw mut *request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A message to the kernel (rtnetlink(7)) that sets some of an interface's flags, to be answered with an error of 0 or another.
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

/// Two half words as they lie in memory.
const fn pair(first: u16, second: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), second.to_ne_bytes());
    [a, b, c, d]
}

/// Programs that this one starts do not inherit it.
fn any_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// The interfaces of a namespace, to be asked after again and again.
#[derive(Debug)]
pub(crate) struct Presence {
    asked: OwnedFd,
}

impl Presence {
    /// Those of this thread's namespace.
    ///
    /// # Errors
    /// There are too many open files.
    pub fn open() -> io::Result<Self> {
        Ok(Presence { asked: any_socket()? })
    }

    /// Whether there is an interface of that number.
    pub fn has(&self, index: u32) -> bool {
        netdevice::index_to_name_inlined(&self.asked, index).is_ok()
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
        let gone = Device { name: "gone".to_owned(), index: i32::MAX as u32, asked: device.asked };
        let error = gone.state().expect_err("there is none").to_string();
        assert_eq!(error, "interface gone: it was removed");
    }
}
