//! Measures the cost of filters, in cycles per packet.

use weir_abi::{BURST_MAX, Verdict};

use crate::frame_set::FrameSet;
use crate::{EngineError, Filter, tsc};

/// Minimum, median and maximum of repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The minimum.
    pub min: f64,
    /// The median. For an even number of samples, the upper one of the two in the middle.
    pub median: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The spread of `samples`, or `None` without samples.
    pub fn of(mut samples: Vec<f64>) -> Option<Self> {
        samples.sort_by(f64::total_cmp);
        let (&min, &max) = (samples.first()?, samples.last()?);
        Some(Spread { min, median: samples[samples.len() / 2], max })
    }

    /// All three values times `factor`, which is positive.
    pub fn scaled(self, factor: f64) -> Self {
        Spread { min: self.min * factor, median: self.median * factor, max: self.max * factor }
    }
}

/// The cost of deciding a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// TSC cycles per packet.
    pub cycles_per_packet: Spread,
    /// Nanoseconds per packet.
    pub ns_per_packet: Spread,
    /// Number of packets in each repeat.
    pub packets: usize,
}

/// Runs all frames through `filter` once to warm up, then `repeats` times. Returns the spread of the cost over the
/// repeats.
///
/// # Panics
/// If `frames` is empty or `repeats` is 0.
pub fn measure(filter: &mut dyn Filter, chain: usize, frames: &FrameSet, repeats: usize) -> Result<Cost, EngineError> {
    assert!(!frames.is_empty() && repeats > 0, "nothing to measure");
    run(filter, chain, frames)?;
    let mut samples = Vec::with_capacity(repeats);
    for _ in 0..repeats {
        let start = tsc::now();
        run(filter, chain, frames)?;
        samples.push((tsc::now() - start) as f64 / frames.len() as f64);
    }
    let cycles_per_packet = Spread::of(samples).expect("there was at least one repeat");
    let ns_per_packet = cycles_per_packet.scaled(1e9 / tsc::frequency_hz());
    Ok(Cost { cycles_per_packet, ns_per_packet, packets: frames.len() })
}

fn run(filter: &mut dyn Filter, chain: usize, frames: &FrameSet) -> Result<(), EngineError> {
    let mut verdicts = [Verdict(0); BURST_MAX];
    for burst in frames.bursts() {
        filter.decide(chain, &burst, &mut verdicts)?;
    }
    std::hint::black_box(&verdicts);
    Ok(())
}
