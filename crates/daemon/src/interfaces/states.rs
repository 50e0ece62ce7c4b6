//! The state of the interfaces, for the status and for messages. It is read when it is asked for, never where packets
//! move.
//!
//! An MTU has two limits: what the engine receives, and what the opposite interface sends.

use weir_control::{InterfaceStatus, LinkState};
use weir_engine::live::os::link_watch;
use weir_engine::live::{LINK_BYTES, PortStatus, Role};

/// The state of each interface, lower side first. On a host, the interface stands for both sides.
pub fn status(ports: &[PortStatus]) -> Vec<InterfaceStatus> {
    let mut interfaces: Vec<(Role, InterfaceStatus)> = Vec::new();
    for port in ports {
        let too_long = port.reading.rx_too_long + port.reading.tx_too_long;
        match interfaces.iter_mut().find(|(_, known)| known.interface == port.interface) {
            Some((_, known)) => known.too_long += too_long,
            None => interfaces.push((port.role, InterfaceStatus { too_long, ..state(port) })),
        }
    }
    // Workers have the ports of an engine in the same order, lower side first.
    let of = |role| interfaces.iter().filter(|(own, _)| *own == role).count();
    let opposite = if of(Role::Upper) > 0 { opposite(of(Role::Lower), of(Role::Upper)) } else { Vec::new() };
    let mtus: Vec<(String, Option<u32>)> = interfaces.iter().map(|(_, one)| (one.interface.clone(), one.mtu)).collect();
    for (at, (_, one)) in interfaces.iter_mut().enumerate() {
        let facing = opposite.get(at).into_iter().flatten().map(|&other| &mtus[other]);
        one.problem = problem(one, facing);
    }
    interfaces.into_iter().map(|(_, one)| one).collect()
}

/// The state of a port's interface. One that cannot be read is as the datapath knows it.
fn state(port: &PortStatus) -> InterfaceStatus {
    let link = match port.nature.kernel_index {
        0 => None,
        index => link_watch::read(index).ok(),
    };
    let (state, mtu) = match link {
        Some(Some(link)) if !link.up => (LinkState::Down, Some(link.mtu)),
        Some(Some(link)) if !link.has_link => (LinkState::NoLink, Some(link.mtu)),
        Some(Some(link)) => (LinkState::Up, Some(link.mtu)),
        Some(None) => (LinkState::Gone, None),
        None if port.has_link => (LinkState::Up, None),
        None => (LinkState::NoLink, None),
    };
    InterfaceStatus {
        interface: port.interface.clone(),
        side: port.role.name().to_owned(),
        state,
        mtu,
        longest_frame: port.nature.longest,
        too_long: 0,
        problem: None,
    }
}

/// What packets of the interface's MTU are too long for.
fn problem<'a>(own: &InterfaceStatus, opposite: impl Iterator<Item = &'a (String, Option<u32>)>) -> Option<String> {
    let mtu = own.mtu?;
    if let Some(longest) = own.longest_frame.filter(|longest| mtu.saturating_add(LINK_BYTES) > *longest) {
        let takes = longest.saturating_sub(LINK_BYTES);
        return Some(format!(
            "packets of more than {takes} bytes are lost, because weir was started with a shorter MTU: \
             restart weir, or set the MTU to {takes} or less"
        ));
    }
    let (name, least) = opposite.filter_map(|(name, mtu)| mtu.map(|mtu| (name, mtu))).min_by_key(|(_, mtu)| *mtu)?;
    (mtu > least).then(|| {
        format!("packets of more than {least} bytes, the MTU of {name}, are dropped (tx-too-long): set both to one MTU")
    })
}

/// The opposite links of each link, lower ones first. Packets of a link go to the link with the same number on the
/// other side, modulo the number of links there.
pub fn opposite(lower: usize, upper: usize) -> Vec<Vec<usize>> {
    let up = (0..lower).map(|link| (link, lower + link % upper));
    let down = (0..upper).map(|link| (link % lower, lower + link));
    let mut opposite = vec![Vec::new(); lower + upper];
    for (one, other) in up.chain(down) {
        if !opposite[one].contains(&other) {
            opposite[one].push(other);
            opposite[other].push(one);
        }
    }
    opposite
}

#[cfg(test)]
#[path = "states/tests.rs"]
mod tests;
