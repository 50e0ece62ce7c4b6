//! The engines `dpdk` and `p4`, if Weir is built with DPDK.

use crate::options::RunOptions;
use weir_command::failure::Failure;

/// Refuses the engine if it is not built in, and `--eal` for other engines.
pub fn check_options(options: &RunOptions) -> Result<(), Failure> {
    let problem = match options.engine {
        engine if !engine.is_built() => {
            "this weir was built without DPDK: install libdpdk-dev and build it with `cargo build --release --features dpdk`"
        }
        engine if engine.uses_dpdk() => return Ok(()),
        _ if options.eal.is_some() => "--eal is only for --engine dpdk and p4",
        _ => return Ok(()),
    };
    Err(Failure::Rejected(format!("weir: {problem}")))
}

/// Arguments of virtual ports that name a kernel interface (`net_af_packet`, `net_af_xdp`, `net_pcap`, `net_tap`).
const INTERFACE_ARGUMENTS: [&str; 5] = ["iface", "rx_iface", "rx_iface_in", "tx_iface", "remote"];

/// The kernel interfaces that the given virtual ports of DPDK use. They are claimed like the interfaces of other
/// engines.
///
/// # Errors
/// Two ports use the same interface, so its packets would be received twice.
pub fn kernel_interfaces(options: &RunOptions) -> Result<Vec<String>, Failure> {
    let ports: Vec<&String> = options.lower.iter().chain(&options.upper).chain(&options.divert).collect();
    let mut found: Vec<(&str, String)> = Vec::new();
    for (port, interface) in interfaces_behind(options.eal.as_deref().unwrap_or_default()) {
        if !ports.iter().any(|given| *given == port) {
            continue;
        }
        if let Some((other, _)) = found.iter().find(|(other, known)| *other != port && *known == interface) {
            let problem = format!("weir: {other} and {port} both use the interface {interface}");
            return Err(Failure::Rejected(problem));
        }
        found.push((port, interface));
    }
    let mut interfaces: Vec<String> = found.into_iter().map(|(_, interface)| interface).collect();
    interfaces.sort();
    interfaces.dedup();
    Ok(interfaces)
}

/// The kernel interface that a virtual port of DPDK uses.
pub fn interface_behind(options: &RunOptions, port: &str) -> Option<String> {
    let mut all = interfaces_behind(options.eal.as_deref().unwrap_or_default());
    all.find(|(name, _)| *name == port).map(|(_, interface)| interface)
}

/// The virtual ports in the arguments of DPDK's environment, with their kernel interfaces:
/// `--vdev=net_af_packet0,iface=eth0`.
fn interfaces_behind(eal: &str) -> impl Iterator<Item = (&str, String)> {
    let mut words = eal.split_whitespace();
    let devices = std::iter::from_fn(move || {
        words
            .by_ref()
            .find_map(|word| match word.strip_prefix("--vdev")? {
                "" => Some(None),
                device => Some(device.strip_prefix('=')),
            })
            .map(|device| device.or_else(|| words.next()).unwrap_or_default())
    });
    devices.flat_map(|device| {
        let (port, arguments) = device.split_once(',').unwrap_or((device, ""));
        let named = arguments.split(',').filter_map(|argument| argument.split_once('='));
        let named = named.filter(|(name, _)| INTERFACE_ARGUMENTS.contains(name));
        named.map(move |(_, interface)| (port, interface.to_owned())).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::interfaces_behind;

    #[test]
    fn interfaces_behind_virtual_ports_are_found() {
        let found = |eal: &str| interfaces_behind(eal).map(|(port, name)| format!("{port}:{name}")).collect::<Vec<_>>();
        let eal =
            "--no-huge --vdev=net_af_packet0,iface=eth0,qpairs=2 -m 64 --vdev net_af_xdp1,start_queue=1,iface=eth1";
        assert_eq!(found(eal), ["net_af_packet0:eth0", "net_af_xdp1:eth1"]);
        assert_eq!(found("--vdev=net_pcap0,rx_iface=a,tx_iface=b"), ["net_pcap0:a", "net_pcap0:b"]);
        for none in
            ["", "--vdev", "--vdev=", "--vdev=net_ring0", "--vdevs=net_x,iface=y", "--vdev=net_memif0,socket=/iface=x"]
        {
            assert_eq!(found(none), Vec::<String>::new(), "{none}");
        }
    }
}
