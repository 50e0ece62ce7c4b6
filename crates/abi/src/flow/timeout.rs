//! Timeouts: when an unused flow ends.

use super::{Flow, FlowState, age, timeout_ticks};

/// What ends a flow that is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Timeout {
    SynSent,
    SynReceived,
    Established,
    FinWait,
    CloseWait,
    LastAck,
    TimeWait,
    Closed,
    Unacknowledged,
    Udp,
    UdpReplied,
    Icmp,
    Other,
}

impl Timeout {
    /// Number of timeouts.
    pub const COUNT: usize = Timeout::Other as usize + 1;

    /// The timeout of a state. For an established connection with unacknowledged data, and for one that was picked up
    /// and not answered, the smaller of this and [`Timeout::Unacknowledged`] holds.
    pub fn of(state: FlowState, protocol: u8) -> Self {
        match state {
            FlowState::SynSent | FlowState::SynSent2 => Timeout::SynSent,
            FlowState::SynReceived | FlowState::SynReceived2 => Timeout::SynReceived,
            FlowState::Established | FlowState::Restored => Timeout::Established,
            FlowState::FinWait => Timeout::FinWait,
            FlowState::CloseWait => Timeout::CloseWait,
            FlowState::LastAck => Timeout::LastAck,
            FlowState::TimeWait => Timeout::TimeWait,
            FlowState::Closed | FlowState::Resetting => Timeout::Closed,
            FlowState::Unreplied | FlowState::Replied | FlowState::Assured => match (protocol, state) {
                (17 | 136, FlowState::Unreplied) => Timeout::Udp,
                (17 | 136, _) => Timeout::UdpReplied,
                (1 | 58, _) => Timeout::Icmp,
                _ => Timeout::Other,
            },
        }
    }
}

/// The timeouts of a policy in ticks, indexed by [`Timeout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts([u32; Timeout::COUNT]);

impl Timeouts {
    /// From milliseconds.
    pub fn of_milliseconds(milliseconds: [u64; Timeout::COUNT]) -> Self {
        Timeouts(milliseconds.map(timeout_ticks))
    }

    /// The timeout of a flow of a protocol, ticks.
    pub fn of(&self, flow: &Flow, protocol: u8) -> u32 {
        let of = |timeout: Timeout| self.0[timeout as usize];
        let usual = of(Timeout::of(flow.state, protocol));
        let waits = flow.sides.iter().any(|side| side.una != side.next) || !flow.replied;
        match flow.state == FlowState::Established && waits {
            true => usual.min(of(Timeout::Unacknowledged)),
            false => usual,
        }
    }

    /// Whether a flow of a protocol counts as absent at the time `now`, ticks.
    pub fn has_passed(&self, flow: &Flow, protocol: u8, now: u32) -> bool {
        age(now, flow.time) > self.of(flow, protocol)
    }
}
