//! Refuses bonds, which do not work with XDP programs. The kernel runs a bond's program on the bond's members and
//! passes it the member's index (since Linux 5.15). Packets then appear to arrive at unknown interfaces, and AF_XDP
//! sockets of the bond get none. Raw sockets and DPDK treat a bond like any other interface.

use std::io;

use super::device::Device;
use crate::EngineError;

/// The name of the bonding driver (ethtool -i).
const BOND_DRIVER: &str = "bonding";

/// Refuses an interface that is a bond.
///
/// # Errors
/// The interface is a bond.
pub(in crate::live) fn refuse(device: &Device) -> Result<(), EngineError> {
    // A driver that does not answer is not the bonding driver, which does.
    let (driver, flags) = (device.driver().name, device.flags().unwrap_or_default());
    match problem(device.name(), &driver, flags) {
        Some(problem) => Err(device.failed(io::Error::other(problem))),
        None => Ok(()),
    }
}

/// The problem with an interface of this driver and these flags (netdevice(7)), if any.
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
        let refusal = problem("bond0", "bonding", UP | libc::IFF_MASTER).expect("it is a bond");
        assert!(
            refusal.contains("it is a bond") && refusal.contains("/sys/class/net/bond0/bonding/slaves"),
            "{refusal}"
        );
        // A driver that does not answer, and a driver of another name that balances load.
        assert!(problem("bond0", "", UP | libc::IFF_MASTER).is_some());
        assert!(problem("bond0", "bonding", 0).is_some());
        for driver in ["", "veth", "mlx5_core", "virtio_net", "tun", "bridge", "team", "macvlan", "802.1Q VLAN Support"]
        {
            // A member of a bond is what the user should name instead.
            assert_eq!(problem("eth0", driver, UP | libc::IFF_SLAVE), None, "{driver}");
        }
    }

    #[test]
    fn a_loopback_is_no_bond() {
        let device = Device::open("lo").expect("every machine has one");
        refuse(&device).expect("it is none");
    }
}
