//! Reports of how many packets P4 pipelines and their controllers have tracked.

use crate::figures;
use weir_control::TrackedAt;
use weir_engine::TrackedBy;

/// The counts in reports.
pub fn stats(TrackedBy { pipeline, controller }: TrackedBy) -> TrackedAt {
    TrackedAt { pipeline, controller }
}

/// The counts in a line: `by the pipeline 1,200, by its controller 34`.
pub fn describe(tracked: &TrackedAt) -> String {
    let [pipeline, controller] = [tracked.pipeline, tracked.controller].map(figures::grouped);
    format!("by the pipeline {pipeline}, by its controller {controller}")
}
