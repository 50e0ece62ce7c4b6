//! The statistics of interfaces for `ctl stats`, from the counters of their ports.

use weir_control::{InterfaceStats, TxDropped};
use weir_engine::live::{PortReading, PortStatus};

/// Sums over all workers. Each worker has a port of each interface.
pub fn sums(ports: &[PortStatus]) -> Vec<InterfaceStats> {
    let mut sums: Vec<(&PortStatus, PortReading)> = Vec::new();
    for port in ports {
        match sums.iter_mut().find(|(one, _)| one.interface == port.interface && one.role == port.role) {
            Some((_, sum)) => *sum = sum.plus(port.reading),
            None => sums.push((port, port.reading)),
        }
    }
    sums.into_iter().map(|(port, sum)| stats(port, sum)).collect()
}

/// Lists every counter by name, so that a new counter does not compile until it is listed here.
fn stats(port: &PortStatus, sum: PortReading) -> InterfaceStats {
    let PortReading {
        rx_packets,
        rx_bytes,
        tx_packets,
        tx_bytes,
        rx_missed,
        rx_too_long,
        tx_full,
        tx_link_down: link_down,
        tx_too_long,
        tx_unsupported,
        tx_error,
        no_divert,
        sampled,
    } = sum;
    InterfaceStats {
        interface: port.interface.clone(),
        side: port.role.name().to_owned(),
        rx_packets,
        rx_bytes,
        tx_packets,
        tx_bytes,
        rx_missed: port.knows_missed.then_some(rx_missed),
        rx_too_long,
        sampled,
        tx_dropped: TxDropped { tx_full, link_down, tx_too_long, tx_unsupported, tx_error, no_divert },
    }
}
