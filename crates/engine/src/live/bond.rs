//! Bonds, which XDP programs cannot stand on. The kernel runs a bond's program on the bond's members and tells it the member's index (since Linux
//! 5.15): packets seem to come in at interfaces that nobody named, and AF_XDP sockets of the bond get none. Raw sockets see a bond as any
//! interface, and so does DPDK.

use std::io;

use super::device::Device;
use crate::EngineError;

/// What a bond's driver calls itself (ethtool -i).
const BOND_DRIVER: &str = "bonding";

/// Refuses an interface that is a bond.
///
/// # Errors
/// It is one.
pub(super) fn refuse(device: &Device) -> Result<(), EngineError> {
    // Who cannot be asked is no bond: those can.
    let (driver, flags) = (device.driver().name, device.flags().unwrap_or_default());
    match problem(device.name(), &driver, flags) {
        Some(problem) => Err(device.failed(io::Error::other(problem))),
        None => Ok(()),
    }
}

/// What is wrong with an interface of this driver and these flags (netdevice(7)).
fn problem(name: &str, driver: &str, flags: i32) -> Option<String> {
    let is_bond = driver == BOND_DRIVER || flags & libc::IFF_MASTER != 0;
    is_bond.then(|| {
        format!(
            "it is a bond, whose packets reach XDP programs as packets of its members; \
             name the members instead (`cat /sys/class/net/{name}/bonding/slaves`), or use the engine afpacket"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bonds_are_refused_and_nothing_else_is() {
        const UP: i32 = libc::IFF_UP | libc::IFF_RUNNING | libc::IFF_BROADCAST | libc::IFF_MULTICAST;
        let told = problem("bond0", "bonding", UP | libc::IFF_MASTER).expect("it is a bond");
        assert!(told.contains("it is a bond") && told.contains("/sys/class/net/bond0/bonding/slaves"), "{told}");
        // A driver that cannot be asked, and one that balances load under another name.
        assert!(problem("bond0", "", UP | libc::IFF_MASTER).is_some());
        assert!(problem("bond0", "bonding", 0).is_some());
        for driver in ["", "veth", "mlx5_core", "virtio_net", "tun", "bridge", "team", "macvlan", "802.1Q VLAN Support"]
        {
            // A bond's member is what is to be named instead.
            assert_eq!(problem("eth0", driver, UP | libc::IFF_SLAVE), None, "{driver}");
        }
    }

    #[test]
    fn a_loopback_is_no_bond() {
        let device = Device::open("lo").expect("every machine has one");
        refuse(&device).expect("it is none");
    }
}
