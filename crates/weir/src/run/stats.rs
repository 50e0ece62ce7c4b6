//! What a running Weir says of itself: `ctl status` and `ctl stats`.

use crate::limit_counts::CountedLimit;
use crate::run::tally::{Outcome, Tally};
use serde::{Deserialize, Serialize};
use weir_engine::live::{PortReading, PortStatus};

/// `ctl status`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Threads that move packets.
    pub workers: usize,
    /// How packets of each interface reach them, in words; nothing where there is only one way.
    pub access: Vec<String>,
    /// The generation that decides.
    pub generation: u64,
    /// Its posture; the base policy's if none.
    pub posture: Option<String>,
    /// What the link does when Weir ends: `forward`, `block`.
    pub on_exit: String,
    /// Interfaces that are down because there is no link opposite.
    pub taken_down: Vec<String>,
    /// How often who decides was changed.
    pub activations: u64,
    /// Seconds left to confirm what decides in, if it is on trial.
    pub confirm_left_s: Option<f64>,
    /// The generation that `rollback` activates, and the end of a trial.
    pub rollback_to: Option<u64>,
    /// Its posture then; the base policy's if none.
    pub rollback_posture: Option<String>,
    /// The activation that is under way.
    pub activating: Option<Activating>,
    /// Workers or interfaces that decide by another policy than the active one: while an activation is under way, or after one failed.
    pub mixed: Vec<String>,
    /// All generations that stand ready.
    pub generations: Vec<GenerationStatus>,
}

/// An activation that is under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Activating {
    /// The generation.
    pub generation: u64,
    /// Its posture; the base policy's if none.
    pub posture: Option<String>,
    /// Seconds since it began.
    pub since_s: f64,
}

/// A generation that stands ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GenerationStatus {
    /// Its number.
    pub id: u64,
    /// The policy's file.
    pub policy: String,
    /// Its postures besides the base policy.
    pub postures: Vec<String>,
    /// Rules.
    pub rules: usize,
}

/// `ctl stats`
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// Packets from the lower side.
    pub upstream: DirectionStats,
    /// Packets from the upper side.
    pub downstream: DirectionStats,
    /// What each worker had of it.
    pub workers: Vec<WorkerStats>,
    /// Interfaces, over all workers.
    pub interfaces: Vec<InterfaceStats>,
}

/// A worker's part; of an engine in the kernel a processor's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerStats {
    /// Its number, from 0.
    pub worker: usize,
    /// Packets from the lower side.
    pub upstream: OutcomeStats,
    /// Packets from the upper side.
    pub downstream: OutcomeStats,
    /// Its queues of each interface.
    pub interfaces: Vec<InterfaceStats>,
}

/// What became of a worker's packets of one direction.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct OutcomeStats {
    /// Since the last activation.
    #[serde(flatten)]
    pub current: Outcome,
    /// Since the start.
    pub total: Outcome,
}

/// `ctl limits`: what was counted for limits since their buckets are theirs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LimitsStatus {
    /// The generation that decides.
    pub generation: u64,
    /// Those that were exceeded most first.
    pub limits: Vec<CountedLimit>,
    /// All of them.
    pub total: LimitsTotal,
}

/// How many limits there are for which is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitsTotal {
    /// Limits.
    pub limits: u64,
    /// Those that were exceeded.
    pub exceeded: u64,
}

/// One direction since the last activation, and in total.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectionStats {
    /// Since the last activation.
    #[serde(flatten)]
    pub current: Tally,
    /// Since the start.
    pub total: Tally,
}

/// What became of packets at an interface.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceStats {
    /// Its name.
    pub interface: String,
    /// `lower`, `upper`, `divert`.
    pub side: String,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Packets that nobody decided about, because the receive queue was full; null where nobody counts them (engine `xdp` on virtual wires).
    pub rx_missed: Option<u64>,
    /// Packets received of which a copy was handed to the divert interface. Those that are diverted themselves are none.
    pub sampled: u64,
    /// Accepted packets that could not be sent, by reason.
    pub tx_dropped: TxDropped,
}

/// Accepted packets that could not be sent, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TxDropped {
    /// The transmit queue was full.
    pub tx_full: u64,
    /// The interface was down or gone.
    pub link_down: u64,
    /// The interface takes none so long.
    pub tx_too_long: u64,
    /// The interface takes none from XDP programs.
    pub tx_unsupported: u64,
    /// The driver took it, and could not send it.
    pub tx_error: u64,
    /// There is no interface to divert to.
    pub no_divert: u64,
}

impl TxDropped {
    /// Accepted packets that were to go out of the interface and did not.
    pub fn unsent(&self) -> u64 {
        self.tx_full + self.link_down + self.tx_too_long + self.tx_unsupported + self.tx_error
    }
}

impl InterfaceStats {
    /// Sums over all workers; an interface has ports of each of them.
    pub fn sums(ports: &[PortStatus]) -> Vec<Self> {
        let mut sums: Vec<(&PortStatus, PortReading)> = Vec::new();
        for port in ports {
            match sums.iter_mut().find(|(one, _)| one.interface == port.interface && one.role == port.role) {
                Some((_, sum)) => *sum = sum.plus(port.reading),
                None => sums.push((port, port.reading)),
            }
        }
        sums.into_iter().map(|(port, sum)| Self::of(port, sum)).collect()
    }

    fn of(port: &PortStatus, sum: PortReading) -> Self {
        InterfaceStats {
            interface: port.interface.clone(),
            side: port.role.name().to_owned(),
            rx_packets: sum.rx_packets,
            rx_bytes: sum.rx_bytes,
            tx_packets: sum.tx_packets,
            tx_bytes: sum.tx_bytes,
            rx_missed: port.knows_missed.then_some(sum.rx_missed),
            sampled: sum.sampled,
            tx_dropped: TxDropped {
                tx_full: sum.tx_full,
                link_down: sum.tx_link_down,
                tx_too_long: sum.tx_too_long,
                tx_unsupported: sum.tx_unsupported,
                tx_error: sum.tx_error,
                no_divert: sum.no_divert,
            },
        }
    }
}
