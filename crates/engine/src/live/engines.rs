//! The engines on interfaces, by name. A new one is a row of [`LiveEngine::ALL`] and an arm of [`LiveEngine::lanes`].

use crate::EngineError;
use crate::live::afpacket::AfPacketLane;
use crate::live::afxdp::{AfXdpLane, Waiting};
use crate::live::{Interfaces, Lane};

/// How packets are received and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveEngine {
    /// Raw packet sockets.
    Afpacket,
    /// AF_XDP sockets.
    Afxdp,
    /// DPDK's drivers.
    Dpdk,
    /// DPDK's drivers, with the policy as a P4 program on DPDK's SWX pipeline.
    P4,
    /// Programs in the kernel.
    Xdp,
}

/// Options of engines with workers.
#[derive(Clone, Copy, Debug)]
pub struct LaneOptions<'a> {
    /// Number of workers. Each has a lane.
    pub workers: usize,
    /// Engine `afxdp`: how workers wait for packets.
    pub waiting: Waiting,
    /// Engines `dpdk` and `p4`: arguments of DPDK's environment.
    pub eal: &'a str,
}

impl LiveEngine {
    /// All engines, with their names and what they are.
    pub const ALL: [(LiveEngine, &str, &str); 5] = [
        (LiveEngine::Afpacket, "afpacket", "Raw packet sockets; works everywhere"),
        (LiveEngine::Afxdp, "afxdp", "AF_XDP sockets"),
        (LiveEngine::Dpdk, "dpdk", "DPDK drivers, for interfaces without a kernel driver"),
        (LiveEngine::P4, "p4", "DPDK drivers, with the policy as P4 on DPDK's SWX pipeline"),
        (LiveEngine::Xdp, "xdp", "Programs in the kernel; packets do not reach user space"),
    ];

    /// The engine of a name.
    pub fn named(name: &str) -> Option<Self> {
        LiveEngine::ALL.iter().find(|(_, known, _)| *known == name).map(|(engine, ..)| *engine)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        LiveEngine::ALL.iter().find(|(engine, ..)| *engine == self).expect("each has a row").1
    }

    /// Whether programs in the kernel decide the packets. All other engines have workers, each with a lane.
    pub fn runs_in_kernel(self) -> bool {
        self == LiveEngine::Xdp
    }

    /// Whether its interfaces are ports of DPDK.
    pub fn uses_dpdk(self) -> bool {
        matches!(self, LiveEngine::Dpdk | LiveEngine::P4)
    }

    /// Whether its workers run P4 programs instead of native code.
    pub fn runs_p4(self) -> bool {
        self == LiveEngine::P4
    }

    /// Whether it is part of this program.
    pub fn is_built(self) -> bool {
        !self.uses_dpdk() || cfg!(feature = "dpdk")
    }

    /// Opens the interfaces. Returns a lane for each worker, or none if the engine runs in the kernel.
    ///
    /// # Errors
    /// An interface cannot be used.
    ///
    /// # Panics
    /// The engine is not part of this program.
    pub fn lanes(self, interfaces: &Interfaces, options: &LaneOptions<'_>) -> Result<Vec<Box<dyn Lane>>, EngineError> {
        let LaneOptions { workers, waiting, .. } = *options;
        match self {
            LiveEngine::Afpacket => AfPacketLane::open(interfaces, workers).map(boxed),
            LiveEngine::Afxdp => AfXdpLane::open(interfaces, workers, waiting).map(boxed),
            LiveEngine::Dpdk | LiveEngine::P4 => dpdk(interfaces, options),
            LiveEngine::Xdp => Ok(Vec::new()),
        }
    }
}

#[cfg(feature = "dpdk")]
fn dpdk(interfaces: &Interfaces, options: &LaneOptions<'_>) -> Result<Vec<Box<dyn Lane>>, EngineError> {
    use crate::live::dpdk::{DpdkLane, Eal};

    let eal = Eal::start(options.eal)?;
    DpdkLane::open(&eal, interfaces, options.workers).map(boxed)
}

#[cfg(not(feature = "dpdk"))]
fn dpdk(_: &Interfaces, _: &LaneOptions<'_>) -> Result<Vec<Box<dyn Lane>>, EngineError> {
    unreachable!("compiler bug: the engine is not built")
}

fn boxed<L: Lane + 'static>(lanes: Vec<L>) -> Vec<Box<dyn Lane>> {
    lanes.into_iter().map(|lane| Box::new(lane) as Box<dyn Lane>).collect()
}
