//! Policies in the kernel: packets are decided where the driver receives them, and go out on the other side from there. No worker of ours
//! touches them.
//!
//! ```text
//!   lower 0 --- weir_upstream ----- devices[2] --> upper 0        A generation has programs, tables, counters and
//!   lower 1 --- weir_upstream ----- devices[3] --> upper 1        device maps of its own. A change replaces the program
//!   upper 0 --- weir_downstream --- devices[0] --> lower 0        of each interface, one after the other; each packet
//!   upper 1 --- weir_downstream --- devices[1] --> lower 1        is decided by one program.
//! ```
//! Programs are attached by links and nothing is pinned: however the process ends, they go with it.

mod code;
mod grace;
mod ports;

use std::io;
use std::sync::Arc;

use weir_abi::Counter;

pub use code::{KernelCode, Received};
use code::{Losses, PortBlocks};
pub use ports::Ports;
use ports::{PORTS_MAX, PortCounts};

use crate::EngineError;
use crate::live::attach::{Attached, Mode};
use crate::live::datapath::{Counts, Datapath, Loaded, PortStatus};

/// A policy in office, and what its counters said when it came there.
struct Stay {
    policy: Loaded<KernelCode>,
    counts: Counts,
    ports: PortBlocks,
}

/// Programs between interfaces.
pub struct KernelPath {
    ports: Arc<Ports>,
    /// One for each port that receives, in their order.
    attached: Vec<Attached>,
    stay: Stay,
    /// What was done at the ports by those who are out of office.
    past: PortBlocks,
    /// Else why packets that cannot be sent are counted as sent.
    losses: Result<Losses, EngineError>,
}

impl KernelPath {
    /// Attaches the policy's programs to the ports.
    ///
    /// # Errors
    /// A program is attached to an interface already, or there is no right to.
    pub fn start(ports: Arc<Ports>, first: &Loaded<KernelCode>) -> Result<Self, EngineError> {
        let losses = Losses::listen(first.code.file(), &ports);
        let stay = Stay { policy: first.clone(), counts: first.code.counts(), ports: first.code.port_counts() };
        let mut attached = Vec::new();
        for port in ports.receiving() {
            let program = first.code.program(first.chains[port.role as usize])?;
            attached.push(Attached::attach(&port.interface, port.index, program)?);
        }
        let past = vec![[PortCounts::default(); PORTS_MAX]; stay.ports.len()];
        Ok(KernelPath { ports, attached, stay, past, losses })
    }

    /// Puts the policy's programs in the place of others. Returns how many interfaces have them, and what went wrong with the next.
    fn replace(&self, policy: &Loaded<KernelCode>) -> (usize, Result<(), EngineError>) {
        for (number, (port, attached)) in self.ports.receiving().iter().zip(&self.attached).enumerate() {
            let program = policy.code.program(policy.chains[port.role as usize]);
            let replaced = program.and_then(|program| attached.replace(program));
            if replaced.is_err() {
                return (number, replaced);
            }
        }
        (self.attached.len(), Ok(()))
    }

    /// What was done at the ports by the policy in office.
    fn port_counts(&self) -> PortBlocks {
        blocks(&self.stay.policy.code.port_counts(), &self.stay.ports, u64::wrapping_sub)
    }
}

impl Datapath for KernelPath {
    type Code = KernelCode;

    /// Replaces the program of each interface. A packet that a program before had begun with is decided and counted by it.
    ///
    /// If one cannot be replaced, the others get theirs back.
    fn activate(&mut self, policy: &Loaded<KernelCode>) -> Result<Counts, EngineError> {
        let (fresh, fresh_ports) = (policy.code.counts(), policy.code.port_counts());
        let (replaced, result) = self.replace(policy);
        if let Err(error) = result {
            if replaced > 0 {
                // It was there a moment ago; if it cannot be put back, the error that made us is the one to tell.
                let _failed = self.replace(&self.stay.policy);
            }
            return Err(error);
        }
        grace::wait_for_programs()?;
        let (end, end_ports) = (self.stay.policy.code.counts(), self.stay.policy.code.port_counts());
        let counted = difference(&end, &self.stay.counts);
        let ports = blocks(&end_ports, &self.stay.ports, u64::wrapping_sub);
        self.past = blocks(&self.past, &ports, u64::wrapping_add);
        // Another posture of the same generation counts on where the one before stopped being looked at.
        let same = Arc::ptr_eq(&self.stay.policy.code, &policy.code);
        let (counts, ports) = if same { (end, end_ports) } else { (fresh, fresh_ports) };
        self.stay = Stay { policy: policy.clone(), counts, ports };
        Ok(counted)
    }

    fn workers(&self) -> usize {
        self.stay.counts.len()
    }

    fn counts(&self) -> Counts {
        difference(&self.stay.policy.code.counts(), &self.stay.counts)
    }

    fn ports(&self) -> Vec<PortStatus> {
        let total = blocks(&self.past, &self.port_counts(), u64::wrapping_add);
        let lost = self.losses.as_ref().ok().map(Losses::port_counts);
        let mut statuses = Vec::new();
        for (worker, block) in total.iter().enumerate() {
            for (number, port) in self.ports.all().iter().enumerate() {
                let lost = lost.as_ref().map_or_else(PortCounts::default, |lost| lost[worker][number]);
                let reading = block[number].reading(lost);
                statuses.push(PortStatus { worker, interface: port.interface.clone(), role: port.role, reading });
            }
        }
        statuses
    }

    fn access(&self) -> Vec<String> {
        let ways = self.ports.receiving().iter().zip(&self.attached).map(|(port, attached)| {
            let mode = match attached.mode {
                Mode::Native => "XDP in the driver",
                Mode::Generic => "its driver knows no XDP and the kernel stands in for it, which is slow",
            };
            let interface = &port.interface;
            let tags = format!("; VLAN tags that it takes off are not seen (`ethtool -K {interface} rxvlan off`)");
            format!("{interface}: {mode}{}", if port.takes_tags_off { &tags } else { "" })
        });
        let deaf = |error: &EngineError| format!("packets that an interface cannot send are counted as sent: {error}");
        ways.chain(self.losses.as_ref().err().map(deaf)).collect()
    }

    fn has_failed(&self) -> bool {
        self.ports.gone().is_some()
    }

    fn stop(&mut self) -> Result<(), EngineError> {
        let gone = self.ports.gone().map(|port| port.interface.clone());
        self.attached.clear();
        match gone {
            Some(interface) => Err(EngineError::Interface { interface, source: io::Error::other("it was removed") }),
            None => Ok(()),
        }
    }
}

fn difference(now: &Counts, then: &Counts) -> Counts {
    let minus = |now: &[Counter], then: &[Counter]| -> Vec<Counter> {
        let pairs = now.iter().zip(then);
        pairs
            .map(|(now, then)| Counter { packets: now.packets - then.packets, bytes: now.bytes - then.bytes })
            .collect()
    };
    now.iter().zip(then).map(|(now, then)| [minus(&now[0], &then[0]), minus(&now[1], &then[1])]).collect()
}

fn blocks(one: &PortBlocks, other: &PortBlocks, both: impl Fn(u64, u64) -> u64) -> PortBlocks {
    let pairs = one.iter().zip(other);
    pairs.map(|(one, other)| std::array::from_fn(|port| one[port].with(other[port], &both))).collect()
}
