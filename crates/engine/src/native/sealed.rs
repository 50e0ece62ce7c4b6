//! Bursts from a card: packets with answers go through the chain that reads these.

use weir_abi::verdict::Sampled;
use weir_abi::{Action, Reason, Verdict};

use super::NativeFilter;
use crate::sealed::{Received, SealedBurst, Seals};
use crate::{EngineError, FrameBurst};

impl NativeFilter {
    /// Reads a burst from a card's port with the seals of this policy.
    pub fn read_sealed<'a>(&self, seals: &Seals, burst: FrameBurst<'a>) -> SealedBurst<'a> {
        match self.code.front {
            // SAFETY: it is the function of the code that this filter runs.
            Some(front) => unsafe { SealedBurst::read_by(front, seals, burst) },
            None => SealedBurst::read(seals, burst),
        }
    }

    /// Decides a burst from a card's port, which was read with the seals of this policy: packets with answers by the
    /// chain that reads them, others by the chain `plain`. Frames without a seal are dropped and counted, and so are
    /// answers to control frames, which are no packets.
    pub fn decide_sealed(
        &mut self,
        plain: usize,
        burst: &SealedBurst<'_>,
        verdicts: &mut [Verdict],
    ) -> Result<(), EngineError> {
        let mut from = 0;
        while from < burst.len() {
            let (received, run) = burst.run(from);
            let own = &mut verdicts[from..from + run.len()];
            match received {
                Received::Answered => {
                    let (chain, _) = self.code.answered.expect("the policy reads answers");
                    self.count_all(&run, Reason::COUNTER_ANSWERED);
                    self.decide_from(chain, &run, from, own)?;
                }
                Received::Alone => {
                    self.count_all(&run, Reason::COUNTER_ALONE);
                    self.decide_from(plain, &run, from, own)?;
                }
                Received::Unsealed => self.drop_all(&run, Reason::UNSEALED, own),
                Received::Control => self.drop_all(&run, Reason::CARD_CONTROL, own),
            }
            from += run.len();
        }
        Ok(())
    }

    /// Drops a burst for a reason.
    fn drop_all(&mut self, burst: &FrameBurst<'_>, reason: Reason, verdicts: &mut [Verdict]) {
        self.count_all(burst, reason);
        verdicts.fill(Verdict::new(Action::Drop, reason, Sampled::No));
    }

    /// Counts all frames of a burst.
    fn count_all(&self, burst: &FrameBurst<'_>, counter: Reason) {
        let bytes = burst.frames().iter().map(|frame| u64::from(frame.len)).sum();
        self.counters.add(counter.0.into(), burst.len() as u64, bytes);
    }
}
