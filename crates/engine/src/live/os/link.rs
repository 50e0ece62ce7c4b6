//! The state of an interface, and the few properties of it that Weir changes.
//!
//! Every change is one that the interface's administrator could make, and can be reverted.

use crate::EngineError;
use crate::live::os::device::Device;

/// An interface by name. It may be removed and return.
#[derive(Clone, Debug)]
pub struct LinkSwitch {
    interface: String,
}

/// The kernel's view of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkState {
    /// The interface is administratively up.
    pub up: bool,
    /// The interface runs, and its link has a peer.
    pub carrier: bool,
    /// The interface is administratively promiscuous. Promiscuous mode by sockets is not included.
    pub promiscuous: bool,
}

impl LinkSwitch {
    /// The interface of that name, which need not exist.
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

    /// Its current state.
    ///
    /// # Errors
    /// There is no such interface.
    pub fn state(&self) -> Result<LinkState, EngineError> {
        let device = Device::open(&self.interface)?;
        let flags = device.flags().map_err(|error| device.failed(error))?;
        let has = |flag: i32| flags & flag != 0;
        // The flag is up to a second late, but some drivers do not answer.
        let carrier = device.carrier().unwrap_or_else(|_| has(libc::IFF_RUNNING));
        Ok(LinkState { up: has(libc::IFF_UP), carrier, promiscuous: has(libc::IFF_PROMISC) })
    }

    /// Checks that the process may change the interface, without changing it.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the right to change it (CAP_NET_ADMIN).
    pub fn check_right(&self) -> Result<(), EngineError> {
        self.set(0, 0)
    }

    /// Sets the interface down. Its peer sees the link go down.
    ///
    /// # Errors
    /// As for [`LinkSwitch::check_right`].
    pub fn take_down(&self) -> Result<(), EngineError> {
        self.set(0, libc::IFF_UP)
    }

    /// Sets the interface up.
    ///
    /// # Errors
    /// As for [`LinkSwitch::check_right`].
    pub fn put_up(&self) -> Result<(), EngineError> {
        self.set(libc::IFF_UP, libc::IFF_UP)
    }

    /// Makes the interface promiscuous until [`LinkSwitch::take_own`]. It stays so when the process ends.
    ///
    /// # Errors
    /// As for [`LinkSwitch::check_right`].
    pub fn take_all(&self) -> Result<(), EngineError> {
        self.set(libc::IFF_PROMISC, libc::IFF_PROMISC)
    }

    /// Reverts [`LinkSwitch::take_all`].
    ///
    /// # Errors
    /// As for [`LinkSwitch::check_right`].
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
        // Nothing changes, with or without rights.
        let _refused = LinkSwitch::new("lo").check_right();
        assert_eq!(LinkSwitch::new("lo").state().ok(), Some(state));
    }
}
