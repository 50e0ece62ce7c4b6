//! Whether an interface runs, and the little that Weir changes there.
//!
//! Every change is one that the interface's owner could make, and can be taken back.

use crate::EngineError;
use crate::live::device::Device;

/// An interface, by name: it may go and come back.
#[derive(Clone, Debug)]
pub struct LinkSwitch {
    interface: String,
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
    /// The interface of that name, which need not be there.
    pub fn new(interface: &str) -> Self {
        LinkSwitch { interface: interface.to_owned() }
    }

    /// Its name.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Its index.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn index(&self) -> Result<u32, EngineError> {
        Ok(Device::open(&self.interface)?.index())
    }

    /// What the kernel says of it now.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn state(&self) -> Result<LinkState, EngineError> {
        let device = Device::open(&self.interface)?;
        let flags = device.flags().map_err(|error| device.failed(error))?;
        let has = |flag: i32| flags & flag != 0;
        // The flag comes up to a second late; there are drivers that cannot be asked.
        let carrier = device.carrier().unwrap_or_else(|_| has(libc::IFF_RUNNING));
        Ok(LinkState { up: has(libc::IFF_UP), carrier, promiscuous: has(libc::IFF_PROMISC) })
    }

    /// Whether it may be changed. Nothing of it is.
    ///
    /// # Errors
    /// There is no such interface, or no right to change it (CAP_NET_ADMIN).
    pub fn check_right(&self) -> Result<(), EngineError> {
        self.set(0, 0)
    }

    /// Takes it down: its neighbour sees the wire go dead.
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn take_down(&self) -> Result<(), EngineError> {
        self.set(0, libc::IFF_UP)
    }

    /// Puts it up.
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn put_up(&self) -> Result<(), EngineError> {
        self.set(libc::IFF_UP, libc::IFF_UP)
    }

    /// Takes packets that are for others too, until [`LinkSwitch::take_own`]; no process has to stay for that.
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn take_all(&self) -> Result<(), EngineError> {
        self.set(libc::IFF_PROMISC, libc::IFF_PROMISC)
    }

    /// Ends [`LinkSwitch::take_all`].
    ///
    /// # Errors
    /// As [`LinkSwitch::check_right`].
    pub fn take_own(&self) -> Result<(), EngineError> {
        self.set(0, libc::IFF_PROMISC)
    }

    fn set(&self, flags: i32, mask: i32) -> Result<(), EngineError> {
        let device = Device::open(&self.interface)?;
        device.set_flags(flags, mask).map_err(|error| device.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_up_and_what_is_not_there_is_named() {
        let state = LinkSwitch::new("lo").state().expect("every machine has it");
        assert_eq!((state.carrier, state.promiscuous), (state.up, false));
        for missing in ["weir-none", "a-name-that-is-far-too-long", ""] {
            let link = LinkSwitch::new(missing);
            let problem = link.state().expect_err("there is no such interface").to_string();
            assert!(problem.starts_with(&format!("interface {missing}: ")), "{problem}");
            assert!(link.index().is_err() && link.check_right().is_err());
        }
        // With rights or without: nothing changes.
        let _refused = LinkSwitch::new("lo").check_right();
        assert_eq!(LinkSwitch::new("lo").state().ok(), Some(state));
    }
}
