//! Counts that an upgrade carries over, so that no counter falls (docs/decisions/0072-upgrades.md).
//!
//! They are handed over by name, because the next program may number rules and reasons otherwise. Programs in the
//! kernel count until they are replaced. What they count meanwhile is in their maps, and is given meaning by the text
//! of their policy.

use crate::generations::account::{Account, Counted};
use serde::{Deserialize, Serialize};
use weir_control::{Outcome, Tally};
use weir_engine::live::xdp::HandedCounts;
use weir_engine::live::{Counts, PortReading, PortStatus};
use weir_policy::ir::{Direction, Program};

/// The counts of one policy, or the sums of several.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NamedCounts {
    /// Indexed by direction.
    pub tallies: [Tally; 2],
    /// Indexed by worker and direction.
    pub workers: Vec<[Outcome; 2]>,
}

impl NamedCounts {
    /// Adds counts of a policy.
    pub fn add(&mut self, program: &Program, counts: &Counts) {
        let own = Account::default().sums(Counted::of(program, counts));
        self.tallies.iter_mut().zip(&own.tallies).for_each(|(sum, tally)| sum.add(tally));
        self.workers.resize(self.workers.len().max(own.workers.len()), Default::default());
        for (sum, outcomes) in self.workers.iter_mut().zip(own.workers) {
            *sum = Direction::BOTH.map(|direction| sum[direction as usize].plus(outcomes[direction as usize]));
        }
    }
}

/// The counts of a port until the upgrade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct CarriedPort {
    worker: usize,
    interface: String,
    role: String,
    reading: PortReading,
}

/// The counts of all ports until the upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedPorts(Vec<CarriedPort>);

impl CarriedPorts {
    /// The counts of these ports.
    pub fn of(ports: &[PortStatus]) -> Self {
        let carried = |port: &PortStatus| CarriedPort {
            worker: port.worker,
            interface: port.interface.clone(),
            role: port.role.name().to_owned(),
            reading: port.reading,
        };
        CarriedPorts(ports.iter().map(carried).collect())
    }

    /// Adds them to the ports of now. Those of a worker that is gone belong to another port of the same interface.
    pub fn with(&self, mut ports: Vec<PortStatus>) -> Vec<PortStatus> {
        for carried in &self.0 {
            let is_same = |port: &PortStatus| port.interface == carried.interface && port.role.name() == carried.role;
            let found = ports.iter().position(|port| is_same(port) && port.worker == carried.worker);
            let found = found.or_else(|| ports.iter().position(is_same));
            found.into_iter().for_each(|at| ports[at].reading = ports[at].reading.plus(carried.reading));
        }
        ports
    }
}

/// The counts of all generations, for the next program.
#[derive(Debug, Serialize, Deserialize)]
pub struct HandedLedger {
    /// Of policies that decide no packets any more.
    pub past: NamedCounts,
    /// Of the active policy since its activation.
    pub current: NamedCounts,
    /// Of the ports.
    pub ports: CarriedPorts,
    /// What still counts: the text of each policy, the active one first, and its counters.
    pub open: Vec<(String, HandedCounts)>,
    /// What drivers had counted of packets without room.
    pub missed: Vec<Option<u64>>,
    /// Time since the start, ns.
    pub uptime_ns: u64,
    /// Activations since the start.
    pub activations: u64,
}

/// The counts with which a program begins.
#[derive(Default)]
pub struct CarriedLedger {
    /// Of policies that decide no packets any more.
    pub past: NamedCounts,
    /// Of the active policy since its activation.
    pub current: NamedCounts,
    /// Of the ports.
    pub ports: CarriedPorts,
    /// Time since the start, ns.
    pub uptime_ns: u64,
    /// Activations since the start.
    pub activations: u64,
}

impl CarriedLedger {
    /// Adds what programs have counted until they were replaced: the active policy's, then those of others.
    pub fn add(&mut self, since: &[(Program, Counts)]) {
        for (at, (program, counts)) in since.iter().enumerate() {
            let sum = if at == 0 { &mut self.current } else { &mut self.past };
            sum.add(program, counts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::live::{PortNature, Role};

    #[test]
    fn ports_go_on_counting_and_lose_nothing_with_their_workers() {
        let port = |worker, role, rx_packets| PortStatus {
            worker,
            interface: "eth0".to_owned(),
            role,
            nature: PortNature::default(),
            has_link: true,
            reading: PortReading { rx_packets, ..PortReading::default() },
            knows_missed: true,
        };
        let before = [port(0, Role::Lower, 5), port(1, Role::Lower, 7), port(0, Role::Upper, 9)];
        let carried = CarriedPorts::of(&before);
        let counts = |ports: &[PortStatus]| -> Vec<u64> { ports.iter().map(|port| port.reading.rx_packets).collect() };
        let now = carried.with(vec![port(0, Role::Lower, 1), port(1, Role::Lower, 2), port(0, Role::Upper, 3)]);
        assert_eq!(counts(&now), [6, 9, 12]);
        let fewer = carried.with(vec![port(0, Role::Lower, 1), port(0, Role::Upper, 3)]);
        assert_eq!(counts(&fewer), [13, 12]);
        // A second upgrade carries both.
        assert_eq!(counts(&CarriedPorts::of(&now).with(vec![port(0, Role::Upper, 1)])), [13]);
    }
}
