//! The direction of each packet of a capture: the same for all, or by its source address
//! (`--inside`, or `inside` of the policy).

use weir_abi::Verdict;
use weir_abi::packet::L3;
use weir_command::failure::Failure;
use weir_command::inside::Inside;
use weir_command::options::ChainOptions;
use weir_engine::{EngineError, Filter, FrameBurst};
use weir_loading::{Policy, eval};
use weir_policy::ir::Direction;
use weir_policy::ir::eval::packet::{self, Frame};

/// The chains that decide the packets of a capture.
pub struct Directions {
    /// Indices of the chains: upstream and downstream. They are equal if all packets have one direction.
    chains: [usize; 2],
    inside: Vec<Inside>,
    name: &'static str,
}

impl Directions {
    /// Finds the chains of the options, and removes all others from the policy.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn only(policy: &mut Policy, options: &ChainOptions) -> Result<Self, Failure> {
        let mut directions = Self::among_all(policy, options)?;
        if !policy.is_bundle() {
            policy.keep_chains(&directions.chains);
            // The chains of a posture are adjacent, upstream first.
            directions.chains = if directions.inside.is_empty() { [0, 0] } else { [0, 1] };
        }
        Ok(directions)
    }

    /// Finds the chains of the options.
    ///
    /// # Errors
    /// There is no such posture.
    pub fn among_all(policy: &Policy, options: &ChainOptions) -> Result<Self, Failure> {
        let inside = options.inside(&policy.program);
        let (of_each, name) = match inside.is_empty() {
            true => ([options.direction(); 2], options.direction().name()),
            false => (Direction::BOTH, "both"),
        };
        let [upstream, downstream] = of_each;
        let posture = options.posture();
        let chains = [policy.chain(posture, upstream)?, policy.chain(posture, downstream)?];
        Ok(Directions { chains, inside, name })
    }

    /// `upstream`, `downstream` or `both`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether packets have both directions.
    pub fn are_both(&self) -> bool {
        !self.inside.is_empty()
    }

    /// The chain that decides a frame. A source inside goes downstream, every other packet upstream.
    pub fn chain(&self, frame: Frame<'_>) -> usize {
        let [upstream, downstream] = self.chains;
        if self.inside.is_empty() {
            return upstream;
        }
        let packet = packet::parse(frame).0;
        let is_ip = matches!(packet.l3, L3::Ipv4 | L3::Ipv6);
        let is_inside = self.inside.iter().any(|inside| inside.contains(packet.l3 == L3::Ipv6, packet.saddr));
        if is_ip && is_inside { downstream } else { upstream }
    }

    /// Decides a burst: consecutive packets of one direction at once.
    ///
    /// # Errors
    /// The engine fails.
    pub fn decide(
        &self,
        filter: &mut dyn Filter,
        burst: &FrameBurst<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), EngineError> {
        self.decide_and_rewrite(filter, burst, verdicts, &mut |_, _, _| {})
    }

    /// As [`Directions::decide`]. Calls `rewritten` with the index and bytes of each packet that the policy changed, in
    /// order, as it leaves.
    ///
    /// # Errors
    /// The engine fails.
    pub fn decide_and_rewrite(
        &self,
        filter: &mut dyn Filter,
        burst: &FrameBurst<'_>,
        verdicts: &mut [Verdict],
        rewritten: &mut dyn FnMut(usize, &[u8], u32),
    ) -> Result<(), EngineError> {
        if self.inside.is_empty() {
            filter.decide(self.chains[0], burst, verdicts)?;
            filter.rewritten(burst, verdicts, rewritten);
            return Ok(());
        }
        let mut decided = 0;
        while decided < burst.len() {
            let chain = self.chain(eval::frame(burst, decided));
            let others = (decided..burst.len()).take_while(|&index| self.chain(eval::frame(burst, index)) == chain);
            let count = others.count();
            let (run, verdicts) = (burst.after(decided).first(count), &mut verdicts[decided..decided + count]);
            filter.decide(chain, &run, verdicts)?;
            filter.rewritten(&run, verdicts, &mut |index, bytes, wire_len| rewritten(decided + index, bytes, wire_len));
            decided += count;
        }
        Ok(())
    }
}
