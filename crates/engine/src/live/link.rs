//! What the kernel says of an interface, and the little that Weir changes there (netdevice(7)).
//!
//! Every change is one that the interface's owner could make, and is named so that it can be taken back.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::EngineError;

/// An interface, by name: it may go and come back with another index.
pub struct LinkSwitch {
    interface: String,
    /// Any socket will do: it says in which network namespace the name is looked for.
    any: OwnedFd,
}

/// `ETHTOOL_GLINK`
const GET_LINK: u32 = 0xa;

/// `struct ethtool_value`
#[repr(C)]
struct Link {
    cmd: u32,
    data: u32,
}

/// What the kernel says of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// Its owner wants it to run.
    pub up: bool,
    /// It runs, and there is somebody at the other end of its wire.
    pub carrier: bool,
    /// Its owner wants packets that are for others. What sockets want is not in it.
    pub promiscuous: bool,
}

impl LinkSwitch {
    /// Looks at an interface; it need not be there.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn new(interface: &str) -> Result<Self, EngineError> {
        let any = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let any = any.map_err(|errno| failed(interface, errno.into()))?;
        Ok(LinkSwitch { interface: interface.to_owned(), any })
    }

    /// The interface's name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Its index.
    ///
    /// # Errors
    /// The kernel knows no such interface.
    pub fn index(&self) -> Result<u32, EngineError> {
        netdevice::name_to_index(&self.any, &self.interface).map_err(|errno| failed(&self.interface, errno.into()))
    }

    /// What the kernel says of it now.
    ///
    /// # Errors
    /// The kernel knows no such interface.
    pub fn state(&self) -> Result<LinkState, EngineError> {
        let flags = self.flags()?;
        let has = |flag: i32| flags & flag != 0;
        // The flag comes up to a second late; there are drivers that cannot be asked.
        let carrier = self.carrier().unwrap_or_else(|_| has(libc::IFF_RUNNING));
        Ok(LinkState { up: has(libc::IFF_UP), carrier, promiscuous: has(libc::IFF_PROMISC) })
    }

    /// Whether it may be changed. Nothing of it is.
    ///
    /// # Errors
    /// There is no such interface, or no right to change it (CAP_NET_ADMIN).
    pub fn check_right(&self) -> Result<(), EngineError> {
        self.set(self.flags()?)
    }

    /// Takes it down: its neighbour sees the wire go dead.
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn take_down(&self) -> Result<(), EngineError> {
        self.change(|flags| flags & !libc::IFF_UP)
    }

    /// Puts it up.
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn put_up(&self) -> Result<(), EngineError> {
        self.change(|flags| flags | libc::IFF_UP)
    }

    /// Takes packets that are for others too, until [`LinkSwitch::take_own`]; no process has to stay for that.
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn take_all(&self) -> Result<(), EngineError> {
        self.change(|flags| flags | libc::IFF_PROMISC)
    }

    /// Ends [`LinkSwitch::take_all`].
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn take_own(&self) -> Result<(), EngineError> {
        self.change(|flags| flags & !libc::IFF_PROMISC)
    }

    fn change(&self, change: impl Fn(i32) -> i32) -> Result<(), EngineError> {
        let flags = self.flags()?;
        if change(flags) == flags { Ok(()) } else { self.set(change(flags)) }
    }

    fn set(&self, flags: i32) -> Result<(), EngineError> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_flags = flags as i16;
        self.ask(libc::SIOCSIFFLAGS, &mut request)
    }

    fn flags(&self) -> Result<i32, EngineError> {
        let mut request = self.request()?;
        self.ask(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS has filled the flags; and zeros, as which they began, are flags as well.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// What the driver says of the wire.
    fn carrier(&self) -> Result<bool, EngineError> {
        let mut link = Link { cmd: GET_LINK, data: 0 };
        let mut request = self.request()?;
        request.ifr_ifru.ifru_data = (&raw mut link).cast();
        self.ask(libc::SIOCETHTOOL as _, &mut request)?;
        Ok(link.data != 0)
    }

    /// A request that names the interface, with a zero at its end.
    fn request(&self) -> Result<libc::ifreq, EngineError> {
        if self.interface.len() >= libc::IFNAMSIZ {
            return Err(failed(&self.interface, io::Error::from_raw_os_error(libc::ENODEV)));
        }
        // SAFETY: zeros are a valid value of this plain structure.
        let mut request: libc::ifreq = unsafe { zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.interface.bytes()) {
            *to = from as _;
        }
        Ok(request)
    }

    fn ask(&self, what: libc::Ioctl, request: &mut libc::ifreq) -> Result<(), EngineError> {
        // SAFETY: the request is an ifreq that names an interface, with a zero at the end; where `what` takes a pointer, it points to a
        // structure of the kernel's, which outlives the call.
        let error = unsafe { libc::ioctl(self.any.as_raw_fd(), what, &raw mut *request) };
        if error == 0 { Ok(()) } else { Err(failed(&self.interface, io::Error::last_os_error())) }
    }
}

fn failed(interface: &str, source: io::Error) -> EngineError {
    EngineError::Interface { interface: interface.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_up_and_what_is_not_there_is_named() {
        let state = LinkSwitch::new("lo").and_then(|link| link.state()).expect("every machine has it");
        assert_eq!((state.carrier, state.promiscuous), (state.up, false));
        for missing in ["weir-none", "a-name-that-is-far-too-long", ""] {
            let link = LinkSwitch::new(missing).expect("there are descriptors");
            let problem = link.state().expect_err("there is no such interface").to_string();
            assert!(problem.starts_with(&format!("interface {missing}: ")), "{problem}");
            assert!(link.index().is_err());
        }
    }
}
