//! Native code behind a card, as a filter: it gets frames as they arrive at a card's port. For tests and benchmarks; workers
//! cut trailers off for what leaves, too.

use std::net::IpAddr;

use weir_abi::flow::{Flow, FlowKey};
use weir_abi::slot::SlotCounter;
use weir_abi::{AdditionCounts, Counter, EntryCounts, Verdict};
use weir_state::features::Snapshot;
use weir_state::limits::LimitCount;

use crate::sealed::{SealedBurst, Seals};
use crate::{EngineError, Filter, FrameBurst, NativeFilter};

/// Decides frames with trailers. The chain that it is asked for is the one for packets without answers.
pub struct SealedFilter {
    filter: NativeFilter,
    seals: Seals,
}

impl SealedFilter {
    /// Code behind a port with these seals.
    pub const fn new(filter: NativeFilter, seals: Seals) -> Self {
        SealedFilter { filter, seals }
    }
}

impl Filter for SealedFilter {
    fn name(&self) -> &str {
        "native behind a card"
    }

    fn decide(&mut self, chain: usize, burst: &FrameBurst<'_>, verdicts: &mut [Verdict]) -> Result<(), EngineError> {
        let sealed = self.filter.read_sealed(&self.seals, *burst);
        self.filter.decide_sealed(chain, &sealed, verdicts)
    }

    fn rewritten(&self, burst: &FrameBurst<'_>, verdicts: &[Verdict], visit: &mut dyn FnMut(usize, &[u8], u32)) {
        self.filter.rewritten(&SealedBurst::read(&self.seals, *burst).cut(), verdicts, visit);
    }

    fn counters(&self) -> Vec<Counter> {
        self.filter.counters()
    }

    fn addition_counts(&self) -> AdditionCounts {
        self.filter.addition_counts()
    }

    fn entry_counts(&self, slot: usize, visit: &mut dyn FnMut(IpAddr, u8, EntryCounts)) {
        self.filter.entry_counts(slot, visit);
    }

    fn slot_counts(&self, slot: usize) -> Vec<SlotCounter> {
        self.filter.slot_counts(slot)
    }

    fn flows(&self, visit: &mut dyn FnMut(&FlowKey, &Flow)) {
        self.filter.flows(visit);
    }

    fn take_features(&mut self) -> Result<Option<Snapshot>, EngineError> {
        self.filter.take_features()
    }

    fn limit_counts(&self, limiter: usize, visit: &mut dyn FnMut(u128, LimitCount)) {
        self.filter.limit_counts(limiter, visit);
    }
}
