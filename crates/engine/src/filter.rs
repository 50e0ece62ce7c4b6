//! What decides bursts.

use weir_abi::{Counter, Verdict};
use weir_state::limits::LimitCount;

use crate::{EngineError, FrameBurst};

/// Decides bursts and counts what it decided. One worker owns it.
pub trait Filter {
    /// What reports call it: `native`, `xdp`, ...
    fn name(&self) -> &str;

    /// Decides a burst on one of the program's chains and fills the first `burst.len()` of `verdicts`.
    ///
    /// # Panics
    /// If `chain` is not a chain of the program, or `verdicts` is shorter than the burst.
    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError>;

    /// Packets and bytes since it was loaded, indexed by [`weir_abi::Reason`]: the built-in ones, then one a rule.
    fn counters(&self) -> Vec<Counter>;

    /// Calls with each entry of a limiter for which something was counted since the first burst, in their order; with none if it does not log.
    ///
    /// # Panics
    /// If the program logs and has no such limiter.
    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(usize, LimitCount));
}
