//! The numbers that collectors know interfaces by.

use std::collections::BTreeMap;
use weir_control::{InterfaceStats, InterfaceStatus, LinkState};
use weir_engine::live::os::speed::LinkSpeed;
use weir_engine::live::{PortStatus, Role, Side};
use weir_export::sflow::sample::{InterfaceCounters, Output};

/// The number of the first port that is no interface of the kernel. Numbers of the kernel begin at 1.
const FIRST_PORT: u32 = 1_000_001;

/// The interfaces of a running Weir, by name. Names and numbers are those at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// By name: number and role.
    numbers: BTreeMap<String, (u32, Role)>,
    is_host: bool,
}

impl Ports {
    /// The interfaces of these ports. On a host (`is_host`), packets go to and come from the machine.
    pub fn of(ports: &[PortStatus], is_host: bool) -> Self {
        let mut numbers = BTreeMap::new();
        let mut next = FIRST_PORT;
        for port in ports.iter().filter(|port| port.worker == 0) {
            let index = match port.nature.kernel_index {
                0 => next,
                index => index,
            };
            next += u32::from(port.nature.kernel_index == 0);
            numbers.entry(port.interface.clone()).or_insert((index, port.role));
        }
        Ports { numbers, is_host }
    }

    /// All numbers.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        self.numbers.values().map(|(number, _)| *number)
    }

    /// The number of the only interface of a side; 0 if it has several.
    pub fn input(&self, from: Side) -> u32 {
        // A host's interfaces are lower ones, and stand for both sides.
        let role = if self.is_host { Role::Lower } else { Role::from(from) };
        self.only(role)
    }

    /// Where an accepted packet from this side went.
    pub fn output(&self, from: Side) -> Output {
        match (self.is_host, from) {
            (true, Side::Lower) => Output::Host,
            (true, Side::Upper) => self.interface(Role::Lower),
            (false, _) => self.interface(Role::from(from.other())),
        }
    }

    /// Where diverted packets go.
    pub fn divert(&self) -> Output {
        self.interface(Role::Divert)
    }

    fn interface(&self, role: Role) -> Output {
        match self.only(role) {
            0 => Output::Unknown,
            number => Output::Interface(number),
        }
    }

    fn only(&self, wanted: Role) -> u32 {
        let mut of_role = self.numbers.values().filter(|(_, role)| *role == wanted);
        match (of_role.next(), of_role.next()) {
            (Some((number, _)), None) => *number,
            _ => 0,
        }
    }

    /// Counters of interfaces as collectors know them. An interface that has both sides has the sum. `speed` asks for
    /// the speed of an interface.
    pub fn counters(
        &self,
        stats: &[InterfaceStats],
        states: &[InterfaceStatus],
        speed: impl Fn(&str) -> LinkSpeed,
    ) -> Vec<InterfaceCounters> {
        let mut counters: BTreeMap<u32, InterfaceCounters> = BTreeMap::new();
        for one in stats {
            let Some(&(index, _)) = self.numbers.get(&one.interface) else { continue };
            let state = states.iter().find(|state| state.interface == one.interface).map(|state| state.state);
            let sum = counters.entry(index).or_insert_with(|| {
                let LinkSpeed { mbps: speed_mbps, is_full_duplex } = speed(&one.interface);
                let name = one.interface.clone();
                InterfaceCounters { index, name, speed_mbps, is_full_duplex, ..Default::default() }
            });
            add(sum, one, state);
        }
        counters.into_values().collect()
    }
}

fn add(sum: &mut InterfaceCounters, one: &InterfaceStats, state: Option<LinkState>) {
    let dropped = &one.tx_dropped;
    sum.is_up = match state {
        Some(LinkState::Up) => (true, true),
        Some(LinkState::NoLink) => (true, false),
        Some(LinkState::Down | LinkState::Gone) | None => (false, false),
    };
    sum.in_bytes += one.rx_bytes;
    sum.in_packets += one.rx_packets;
    sum.in_discards = match (sum.in_discards, one.rx_missed) {
        (None, missed) => missed,
        (known, None) => known,
        (Some(known), Some(missed)) => Some(known + missed),
    };
    sum.in_errors += one.rx_too_long;
    sum.out_bytes += one.tx_bytes;
    sum.out_packets += one.tx_packets;
    sum.out_discards += dropped.tx_full + dropped.link_down + dropped.no_divert;
    sum.out_errors += dropped.tx_too_long + dropped.tx_unsupported + dropped.tx_error;
}
