//! How many packets P4 pipelines and their controllers have tracked (`docs/decisions/0074-p4-controller.md`).

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many packets were tracked where, with a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackedBy {
    /// In the pipeline.
    pub pipeline: u64,
    /// At the controller.
    pub controller: u64,
}

impl TrackedBy {
    /// What was tracked since `before`.
    #[must_use]
    pub fn since(self, before: TrackedBy) -> Self {
        TrackedBy { pipeline: self.pipeline - before.pipeline, controller: self.controller - before.controller }
    }
}

/// The sums of all pipelines, to which each adds what it has tracked.
#[derive(Debug, Default)]
pub struct TrackedCounts {
    pipeline: AtomicU64,
    controller: AtomicU64,
}

impl TrackedCounts {
    /// Adds counts of a pipeline.
    pub fn add(&self, TrackedBy { pipeline, controller }: TrackedBy) {
        self.pipeline.fetch_add(pipeline, Relaxed);
        self.controller.fetch_add(controller, Relaxed);
    }

    /// The sums so far.
    pub fn read(&self) -> TrackedBy {
        TrackedBy { pipeline: self.pipeline.load(Relaxed), controller: self.controller.load(Relaxed) }
    }
}
