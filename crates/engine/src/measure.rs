//! Measures the cost of filters, in cycles per packet.

use weir_abi::{BURST_MAX, Verdict};

use crate::frame_set::FrameSet;
use crate::quiet::Stretches;
use crate::{EngineError, Filter, FrameBurst, tsc};

/// Number of packets of a stretch of a ring.
const STRETCH: usize = 2048;

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

/// Measures a filter on a ring of frames that change, as in the receive ring of a network card. `write` writes each
/// frame before it is decided; this time is not measured. Returns TSC cycles per packet for `packets` packets or more,
/// after as many to warm up. Stretches of a shared core do not count ([`crate::quiet`]).
///
/// # Panics
/// If the ring is empty or `packets` is 0.
pub fn measure_ring(
    filter: &mut dyn Filter,
    chain: usize,
    ring: &mut FrameSet,
    packets: usize,
    write: impl FnMut(&mut [u8]),
) -> Result<f64, EngineError> {
    measure_ring_by(|burst, verdicts| filter.decide(chain, burst, verdicts), ring, packets, write)
}

/// Like [`measure_ring`], with any function that decides a burst.
///
/// # Panics
/// If the ring is empty or `packets` is 0.
pub fn measure_ring_by(
    mut decide: impl FnMut(&FrameBurst<'_>, &mut [Verdict]) -> Result<(), EngineError>,
    ring: &mut FrameSet,
    packets: usize,
    mut write: impl FnMut(&mut [u8]),
) -> Result<f64, EngineError> {
    assert!(!ring.is_empty() && packets > 0, "nothing to measure");
    let mut verdicts = [Verdict(0); BURST_MAX];
    let bursts = ring.len().div_ceil(BURST_MAX);
    let mut next = 0;
    // Decides as many bursts as have that many packets. Returns their cycles, and their number of packets.
    let mut stretch = |packets: usize| {
        let (mut cycles, mut decided) = (0, 0);
        while decided < packets {
            let first = next * BURST_MAX;
            (first..ring.len().min(first + BURST_MAX)).for_each(|index| write(ring.frame_mut(index)));
            // Workers give a burst one time.
            let burst = ring.burst(next);
            let burst = burst.received_at(burst.now_ns());
            let start = tsc::now();
            decide(&burst, &mut verdicts)?;
            cycles += tsc::now() - start;
            decided += burst.len();
            next = (next + 1) % bursts;
        }
        std::hint::black_box(&verdicts);
        Ok::<_, EngineError>((cycles as f64, decided))
    };
    stretch(packets)?;
    let mut stretches = Stretches::begin(packets);
    while !stretches.is_enough() {
        let (cycles, decided) = stretch(packets.min(STRETCH))?;
        stretches.end(cycles, decided);
    }
    Ok(stretches.cost_per_packet())
}

fn run(filter: &mut dyn Filter, chain: usize, frames: &FrameSet) -> Result<(), EngineError> {
    let mut verdicts = [Verdict(0); BURST_MAX];
    for burst in frames.bursts() {
        filter.decide(chain, &burst, &mut verdicts)?;
    }
    std::hint::black_box(&verdicts);
    Ok(())
}
