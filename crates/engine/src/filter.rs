//! The interface of everything that decides bursts.

use std::net::IpAddr;
use std::sync::Arc;

use weir_abi::flow::{Flow, FlowKey};
use weir_abi::slot::SlotCounter;
use weir_abi::{AdditionCounts, Counter, EntryCounts, Verdict};
use weir_state::features::{Features, Snapshot};
use weir_state::limits::LimitCount;

use crate::{EngineError, FrameBurst, TrackedBy};

/// Decides bursts and counts its decisions. One worker owns it.
pub trait Filter {
    /// The name in reports: `native`, `xdp`, ...
    fn name(&self) -> &str;

    /// Decides a burst with one of the program's chains. Writes the first `burst.len()` of `verdicts`.
    ///
    /// # Panics
    /// If `chain` is not a chain of the program, or `verdicts` is shorter than the burst.
    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError>;

    /// Calls `visit` with each packet of the last burst that the chain changed, in order, as it leaves: those whose
    /// verdict says so ([`Verdict::rewritten`]). It gets the index, the bytes as far as they were captured, and the
    /// length on the wire. `burst` and `verdicts` must come from the last [`Filter::decide`]. Makes no calls if the
    /// filter changes no packets.
    fn rewritten(&self, burst: &FrameBurst<'_>, verdicts: &[Verdict], visit: &mut dyn FnMut(usize, &[u8], u32)) {
        let _ = (burst, verdicts, visit);
    }

    /// Packets and bytes since loading, indexed by [`weir_abi::Reason`]: the built-in reasons, then one per rule.
    fn counters(&self) -> Vec<Counter>;

    /// What rules have added to tables, up to the last tick that has ended. Zeros if the additions of several filters
    /// are collected elsewhere.
    fn addition_counts(&self) -> AdditionCounts;

    /// Calls `visit` with each entry of a table with counters that was hit since loading: address, prefix length and
    /// counts. The order depends on the filter. Makes no calls for other tables.
    fn entry_counts(&self, slot: usize, visit: &mut dyn FnMut(IpAddr, u8, EntryCounts));

    /// What the rules of a slot have counted, in their order.
    ///
    /// # Panics
    /// If the program has no such slot.
    fn slot_counts(&self, slot: usize) -> Vec<SlotCounter>;

    /// Where packets were tracked. `None` for filters without a controller.
    fn tracked_by(&self) -> Option<TrackedBy> {
        None
    }

    /// Calls `visit` with the key and state of each flow in the table, in the order of its slots. An expired flow stays
    /// until another flow needs its slot.
    fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow));

    /// What was observed of packets that passed since the last call. `None` if the program does not observe.
    ///
    /// # Errors
    /// The kernel does not wait for running programs.
    fn take_features(&mut self) -> Result<Option<Snapshot>, EngineError>;

    /// Calls `visit` with the index and counts of each entry of a limiter that has counts since the first burst, in
    /// order. Entries of `limit each` are addresses, the most exceeded ones, in no order. Makes no calls if the limiter
    /// does not log.
    ///
    /// # Panics
    /// If the program logs and has no such limiter.
    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount));
}

/// Takes what was observed.
pub(crate) fn taken(features: Option<&Arc<Features>>) -> Result<Option<Snapshot>, EngineError> {
    let Some(features) = features else { return Ok(None) };
    let mut snapshot = Snapshot::default();
    let taken = features.exchange(&mut snapshot);
    taken.map_err(|error| EngineError::Image { table: "features".to_owned(), problem: error.to_string() })?;
    Ok(Some(snapshot))
}
