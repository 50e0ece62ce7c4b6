//! How often both sides of a flow without connection have answered each other.
//!
//! An answer proves the address of its sender, never the address of the asker. So a flow is *assured* only after
//! several exchanges over seconds, as in the kernel's conntrack. An attacker with forged askers then needs more packets
//! and more time. An assured flow is still no proof: it may be evicted, only later than others.

use super::{Flow, FlowState, TICKS, age};

/// Exchanges after which a flow may be assured: packets of the opener behind an answer.
pub const ASSURED_EXCHANGES: u32 = 3;
/// Ticks from the first answer on before a flow is assured, 2 s.
pub const ASSURED_TICKS: u32 = 119;

/// The exchanges of a flow: its word 5, which for TCP has `una` of both sides.
///
/// ```text
///  side 0, 32 bits:  answered last 1 | 0, 4 | time of the first answer in ticks, 27
///  side 1, 32 bits:  number of exchanges, at most ASSURED_EXCHANGES
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchanges {
    /// Whether the last packet was an answer.
    pub answered_last: bool,
    /// Time of the first answer, ticks.
    pub since: u32,
    /// Packets of the opener behind an answer.
    pub count: u32,
}

impl Exchanges {
    /// Position of `answered_last`.
    pub const ANSWERED_LAST: u32 = 31;

    /// The exchanges of a flow.
    pub fn of(flow: &Flow) -> Self {
        let [first, second] = flow.sides.map(|side| side.una);
        Exchanges { answered_last: first >> Self::ANSWERED_LAST != 0, since: first & (TICKS - 1), count: second }
    }

    /// Writes them into a flow.
    pub fn store(self, flow: &mut Flow) {
        flow.sides[0].una = u32::from(self.answered_last) << Self::ANSWERED_LAST | self.since;
        flow.sides[1].una = self.count;
    }

    /// The state of a flow after a packet at the time `now`, which is `replied` from the first answer on.
    pub fn see(&mut self, state: FlowState, is_reply: bool, now: u32) -> FlowState {
        if is_reply {
            self.since = if state == FlowState::Unreplied { now } else { self.since };
            self.answered_last = true;
            return if state == FlowState::Unreplied { FlowState::Replied } else { state };
        }
        self.count = (self.count + u32::from(self.answered_last)).min(ASSURED_EXCHANGES);
        self.answered_last = false;
        let is_assured = self.count >= ASSURED_EXCHANGES && age(now, self.since) >= ASSURED_TICKS;
        if state == FlowState::Replied && is_assured { FlowState::Assured } else { state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{Side, timeout_ticks};

    #[test]
    fn several_exchanges_over_seconds_assure_a_flow() {
        assert_eq!(ASSURED_TICKS, timeout_ticks(2000));
        let sees = |packets: &[(bool, u32)]| {
            let (mut exchanges, mut state) = (Exchanges::default(), FlowState::Unreplied);
            for &(is_reply, now) in packets {
                state = exchanges.see(state, is_reply, now);
            }
            state
        };
        let exchange = |at: u32| [(true, at), (false, at + 1)];
        let over = |ticks: u32| {
            [[(false, 0)].to_vec(), exchange(1).to_vec(), exchange(3).to_vec(), exchange(ticks).to_vec()].concat()
        };
        assert_eq!(sees(&over(ASSURED_TICKS)), FlowState::Assured);
        assert_eq!(sees(&over(ASSURED_TICKS - 1)), FlowState::Replied, "too soon");
        let questions: Vec<_> = (2..1000).map(|at| (false, at)).collect();
        assert_eq!(sees(&[[(false, 0), (true, 1)].to_vec(), questions].concat()), FlowState::Replied, "one answer");
        let answers: Vec<_> = (2..1000).map(|at| (true, at)).collect();
        assert_eq!(sees(&[[(false, 0)].to_vec(), answers].concat()), FlowState::Replied, "one question");
        assert_eq!(sees(&[(false, 0), (false, 1000)]), FlowState::Unreplied);
    }

    #[test]
    fn exchanges_are_kept_in_a_flow() {
        let mut flow = Flow {
            time: 0,
            state: FlowState::Replied,
            opener: 0,
            liberal: false,
            replied: true,
            syn: false,
            proxied: false,
            sides: [Side::default(); 2],
        };
        let exchanges = Exchanges { answered_last: true, since: TICKS - 1, count: 3 };
        exchanges.store(&mut flow);
        assert_eq!(Exchanges::of(&flow), exchanges);
        assert_eq!(Exchanges::of(&Flow::unpack(flow.pack(true)).0), exchanges);
    }
}
